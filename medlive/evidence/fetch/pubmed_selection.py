"""Keep the chosen articles of a PubMed file, and whatever later files need to stay right.

Kept besides the chosen ones: notices of retraction and concern, and deletions. In an update file, an article that
is not chosen becomes a deletion of its number: an earlier version of it may have been chosen.
"""

import gzip
import re
from collections.abc import Mapping
from io import BufferedIOBase, FileIO
from typing import cast

from medlive.evidence.client import FetchFailed
from medlive.evidence.corpora.parsing.frames import Frame, frames
from medlive.evidence.corpora.parsing.xml import UnsafeXml
from medlive.evidence.corpora.pubmed import NOTICES, PMID
from medlive.evidence.fetch.model import ArticleType, Selection

_TYPE = re.compile(rb"<PublicationType(?:\s[^>]*)?>\s*([^<]*?)\s*</PublicationType>")
_NAMES: Mapping[ArticleType, tuple[str, ...]] = {
    "guideline": (
        "Guideline",
        "Practice Guideline",
        "Consensus Development Conference",
    ),
    "systematic-review": ("Systematic Review",),
    "meta-analysis": ("Meta-Analysis", "Network Meta-Analysis"),
    "review": ("Review", "Scoping Review"),
    "trial": (
        "Clinical Trial",
        "Randomized Controlled Trial",
        "Controlled Clinical Trial",
    ),
}
"""PubMed's own publication types; followed by a comma ("Clinical Trial, Phase III") as well, but for animals'."""

_HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n'
_TAIL = b"</PubmedArticleSet>\n"


def select(
    source: FileIO,
    target: FileIO,
    selection: Selection,
    *,
    update: bool,
) -> None:
    """Write the chosen records of a PubMed file; the same input gives the same bytes.

    Args:
        source: The file as it is published, compressed.
        target: Gets the chosen records, compressed.
        selection: What is chosen.
        update: Whether it is an update file, whose records replace earlier ones.

    Raises:
        FetchFailed: if the file is not a readable PubMed file.
    """
    names = {name for kind in selection.types for name in _NAMES[kind]}
    dropped: dict[bytes, bytes] = {}  # Number of an article → its PMID element
    with (
        gzip.open(source) as unpacked,
        gzip.GzipFile("", "wb", 6, target, mtime=0) as packed,
    ):
        packed.write(_HEAD)
        try:
            for frame in frames(cast("BufferedIOBase", unpacked)):
                if not frame.kind:
                    continue
                identity = PMID.search(frame.data)
                if _is_kept(frame, names):
                    packed.write(frame.data + b"\n")
                    if identity is not None:
                        dropped.pop(identity[2], None)
                elif identity is not None and (update or int(identity[1] or 1) > 1):
                    dropped[identity[2]] = identity[0]
        except UnsafeXml as exc:
            raise FetchFailed(str(exc)) from exc
        for element in dropped.values():
            packed.write(b"<DeleteCitation>" + element + b"</DeleteCitation>\n")
        packed.write(_TAIL)


def _is_kept(frame: Frame, names: set[str]) -> bool:
    if frame.kind == "DeleteCitation" or any(map(frame.data.__contains__, NOTICES)):
        return True
    for kind in _TYPE.findall(frame.data):
        name, _, rest = kind.decode("utf-8", "replace").partition(",")
        if name in names and rest.strip() != "Veterinary":
            return True
    return False
