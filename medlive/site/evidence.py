"""The passages that criteria of origin `evidence` rest on, as the site may show them."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from medlive.errors import IndexMissing
from medlive.evidence.index import read_index
from medlive.evidence.passage import Passage
from medlive.evidence.store import LINES
from medlive.rubric.model import Origin
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import SnapshotCase

_OPEN: Final = re.compile(r"(public domain|cc0|cc[- ]by([- ]sa)?[- ]\d|mit$)", re.I)
"""Licences under which anybody may print a passage beside its title and licence."""


def read_passages(
    index: Path,
    cases: Iterable[SnapshotCase],
    snapshots: Iterable[Snapshot],
) -> dict[str, Passage]:
    """Return the passages that criteria name, by id, of those that an evidence index holds.

    A text is kept where its licence allows that, and its corpus has the digest that a snapshot's manifest states:
    the words are then those that the criterion was made from. Elsewhere it is empty. No passage has its address.

    Args:
        index: The index's folder; nothing is read where there is none.
        cases: The cases that are shown.
        snapshots: The snapshots that hold them.

    Raises:
        EvidenceUnavailable: If the index is damaged or of another version.
    """
    wanted = set()
    for case in cases:
        for criterion in case.criteria:
            if criterion.origin == Origin.EVIDENCE:
                wanted.add(criterion.source)
    try:
        opened = read_index(index)
    except IndexMissing:
        return {}
    opened.check()
    opened.check(digests=True, only=LINES)
    same = set()
    for snapshot in snapshots:
        for used in snapshot.manifest.provenance.evidence:
            same |= used.corpora.items() & opened.manifest.corpus_digests.items()
    corpora = dict(same)
    passages = {}
    for passage in opened.open_store().find(wanted):
        shown = passage.corpus in corpora and _OPEN.match(passage.licence)
        text = passage.text if shown else ""
        passages[passage.id] = replace(
            passage,
            text=text,
            url="",
        )
    return passages
