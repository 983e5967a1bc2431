"""Fetch a corpus, or what is new of it, into a folder of its own: `make_plan`, then `run_plan`.

In the folder: `files/` (complete and checked), `parts/` (half files, for the next attempt), `fetched.json` (the
ledger). A kill at any moment loses nothing but seconds: a file appears in `files/` in one step.

Of PubMed the chosen articles are kept, and what corrects articles of other files: notices of retraction and
concern, and deletions. In an update file, an article that is not chosen becomes a deletion of its number: an earlier
version of it may have been chosen.
"""

import csv
import gzip
import hashlib
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader, FileIO
from pathlib import Path
from typing import cast

from medlive.clock import now
from medlive.errors import BadInput
from medlive.evidence.client import Client, FetchFailed
from medlive.evidence.corpora.parsing.files import DAMAGE, check_zip
from medlive.evidence.corpora.parsing.frames import Frame, frames
from medlive.evidence.corpora.parsing.xml import UnsafeXml
from medlive.evidence.corpora.pubmed import NOTICES, PMID
from medlive.integrity.digest import digest_file
from medlive.integrity.log import exclusive, writing
from medlive.integrity.paths import (
    PRIVATE_FOLDER,
    create_below,
    open_below,
    path_below,
)

from .layouts import CHECKSUMS, LISTS
from .sources import (
    ARTICLE_TYPES,
    FetchedFile,
    Ledger,
    RemoteFile,
    Selection,
    Source,
    read_ledger,
)

PARTS = "parts"
FILES = "files"
_LOCK = ".fetch.lock"
_SAVE_EVERY_S = 5.0
_LARGEST_UNPACKED = 256 << 30
_BLOCK = 1 << 20
_TYPE = re.compile(rb"<PublicationType(?:\s[^>]*)?>\s*([^<]*?)\s*</PublicationType>")
_HEAD = b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n'
_TAIL = b"</PubmedArticleSet>\n"


@dataclass(kw_only=True)
class Fetch:
    """A fetch of a corpus: what it would do, and after `run_plan` what it did."""

    source: Source
    folder: Path
    ledger: Ledger
    listed: int  # Files that the publisher lists
    wanted: tuple[RemoteFile, ...]  # Those that are new or changed
    gone: tuple[str, ...]  # Files here that the publisher lists no more
    fetched: int = 0  # Files
    fetched_bytes: int = 0
    absent: tuple[str, ...] = ()  # Files that are listed, but not there
    removed: tuple[str, ...] = ()  # Of `gone`: deleted here
    failures: tuple[str, ...] = ()  # A sentence for each file that could not be fetched

    @property
    def download_bytes(self) -> int:
        """About how many bytes are fetched."""
        return len(self.wanted) * self.source.typical_file

    def save(self, *, complete: bool) -> None:
        """Write the ledger."""
        self.ledger.files = dict(sorted(self.ledger.files.items()))
        self.ledger.complete = complete
        self.ledger.checked_at = now()
        self.ledger.write(self.folder)


async def make_plan(
    source: Source,
    folder: Path,
    selection: Selection,
    client: Client,
) -> Fetch:
    """Read the publisher's list and compare it with what is in the folder.

    Raises:
        FetchFailed: if the list cannot be read.
        BadInput: if the folder's ledger is damaged, or of another corpus.
    """
    ledger = _ledger_of(source, folder, selection)
    try:
        listed = await LISTS[source.publisher](client, source)
    except (ValueError, OverflowError, csv.Error) as exc:
        raise FetchFailed(
            f"{source.address} has no list of files that can be read: {exc}"
        ) from exc
    wanted = []
    for file in listed:
        known = ledger.files.get(file.name)
        if known is None or (known.mark, known.url) != (file.mark, file.url):
            wanted.append(file)
    gone = ledger.files.keys() - {file.name for file in listed}
    return Fetch(
        source=source,
        folder=folder,
        ledger=ledger,
        listed=len(listed),
        wanted=tuple(wanted),
        gone=tuple(sorted(gone)),
    )


async def run_plan(
    fetch: Fetch,
    client: Client,
    tick: Callable[[int, int], None],
) -> None:
    """Fetch what is wanted. A file that fails is passed over, named in `failures`, and fetched next time.

    Args:
        fetch: Planned just before.
        client: Asks the source's hosts.
        tick: Gets the bytes fetched so far and about how many there will be.

    Raises:
        BadInput: if the folder cannot be made.
        DiskFull: if the disk is full; what is complete stays.
        Locked: if another process fetches into the folder.
    """
    source, folder = fetch.source, fetch.folder
    with writing(folder):
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with exclusive(folder / _LOCK):
        fetch.ledger = _ledger_of(source, folder, fetch.ledger.selection)
        saved_at = 0.0
        complete = False
        try:
            for file in fetch.wanted:
                try:
                    await _fetch(file, client, fetch, tick)
                except FetchFailed as exc:
                    if exc.absent and source.may_be_absent:
                        fetch.absent += (file.name,)
                    else:
                        fetch.failures += (exc.whole,)
                if time.monotonic() - saved_at > _SAVE_EVERY_S:
                    fetch.save(complete=False)
                    saved_at = time.monotonic()
            complete = not fetch.failures
            if complete:
                for name in fetch.gone:
                    with suppress(FileNotFoundError):
                        path_below(folder, f"{FILES}/{name}").unlink()
                    fetch.ledger.files.pop(name, None)
                fetch.removed = fetch.gone
        finally:
            fetch.save(complete=complete)
        if complete:
            shutil.rmtree(folder / PARTS, ignore_errors=True)


def corpus_path(source: Source, folder: Path, ledger: Ledger) -> Path:
    """The path that the corpus's reader is given: the folder of files, or the one file."""
    if source.single:
        return path_below(folder / FILES, next(iter(ledger.files)))
    return folder / FILES


async def _fetch(
    file: RemoteFile,
    client: Client,
    fetch: Fetch,
    tick: Callable[[int, int], None],
) -> None:
    """Fetch and check a file, and put it, or what the selection leaves of it, into `files/`."""
    folder, source = fetch.folder, fetch.source
    md5 = file.md5
    if file.checksum_url is not None:
        md5 = CHECKSUMS[source.publisher](await client.page(file.checksum_url), file)
    name = f"{PARTS}/{file.name}"
    part = path_below(folder, name)
    before = fetch.fetched_bytes

    def count(size: int) -> None:
        tick(before + size, max(fetch.download_bytes, before + size))

    while True:
        resumed = await client.download(file.url, folder, name, source.largest, count)
        try:
            _verify(file, folder, name, md5)
            break
        except FetchFailed:
            part.unlink()
            # A file that was made in several attempts is fetched again.
            if not resumed:
                raise
    kept = part
    selection = fetch.ledger.selection
    if selection.types:
        chosen = f"{name}.chosen"
        kept = path_below(folder, chosen)
        is_update = file.name.startswith("updatefiles/")
        with (
            open_below(folder, name) as published,
            writing(folder),
            create_below(folder, chosen) as target,
        ):
            try:
                select_articles(published, target, selection, update=is_update)
            except UnsafeXml as exc:
                raise FetchFailed(f"{file.url}: {exc}") from exc
    size = part.stat().st_size
    fetch.ledger.files[file.name] = FetchedFile(
        name=file.name,
        url=file.url,
        mark=file.mark,
        size=size,
        digest=digest_file(part),
        checksum=md5 and f"md5:{md5}",
        kept_digest=digest_file(kept),
        fetched_at=now(),
    )
    fetch.fetched += 1
    fetch.fetched_bytes += size
    place = path_below(folder, f"{FILES}/{file.name}")
    place.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    kept.replace(place)
    part.unlink(missing_ok=True)


def _ledger_of(source: Source, folder: Path, selection: Selection) -> Ledger:
    """The folder's ledger, or a new one; files of another selection lose their mark. Raises BadInput."""
    ledger = read_ledger(folder) if folder.is_dir() else None
    if ledger is None:
        return Ledger(
            source=source.name,
            address=source.address,
            licence=source.licence,
            selection=selection,
        )
    if ledger.source != source.name:
        raise BadInput(
            f"{folder} holds {ledger.source}, not {source.name}",
            hint="name another folder",
        )
    if ledger.selection != selection:
        # Without a mark they are fetched again.
        for name, file in ledger.files.items():
            ledger.files[name] = file.model_copy(update={"mark": ""})
        ledger.address, ledger.licence = source.address, source.licence
        ledger.selection = selection
    return ledger


def _verify(
    file: RemoteFile,
    root: Path,
    name: str,
    md5: str | None,
) -> None:
    """Check a complete file by `md5`, or if that is None by the checksums within it. Raises FetchFailed."""
    hint = "it is fetched again by the next run"
    try:
        with open_below(root, name) as handle:
            if md5 is not None:
                own = hashlib.file_digest(handle, "md5").hexdigest()
                if own != md5:
                    raise FetchFailed(
                        f"{file.url} has md5:{own}; the publisher's checksum is md5:{md5}",
                        hint=hint,
                    )
            elif name.endswith(".zip"):
                with (
                    BufferedReader(handle) as buffered,
                    zipfile.ZipFile(buffered) as archive,
                ):
                    check_zip(archive, _LARGEST_UNPACKED)
                    if (bad := archive.testzip()) is not None:
                        raise ValueError(f"{bad[:200]!r} does not have its checksum")
            else:
                with gzip.open(handle) as unpacked:
                    while unpacked.read(_BLOCK):
                        if unpacked.tell() > _LARGEST_UNPACKED:
                            limit = f"more than {_LARGEST_UNPACKED} bytes"
                            raise ValueError(f"it unpacks to {limit}")
    except DAMAGE as exc:
        cause = exc or type(exc).__name__
        raise FetchFailed(f"{file.url} is damaged: {cause}", hint=hint) from exc


def select_articles(
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
        UnsafeXml: if the file is not a readable PubMed file.
    """
    names = {name for kind in selection.types for name in ARTICLE_TYPES[kind]}
    dropped: dict[bytes, bytes] = {}  # Number of an article → its PMID element
    with (
        gzip.open(source) as unpacked,
        gzip.GzipFile("", "wb", 6, target, mtime=0) as packed,
    ):
        packed.write(_HEAD)
        for frame in frames(cast("BufferedIOBase", unpacked)):
            if not frame.kind:
                continue
            identity = PMID.search(frame.data)
            if _is_kept(frame, names):
                packed.write(frame.data + b"\n")
                if identity is not None:
                    dropped.pop(identity[1], None)
            elif identity is not None and update:
                dropped[identity[1]] = identity[0]
        for element in dropped.values():
            packed.write(b"<DeleteCitation>" + element + b"</DeleteCitation>\n")
        packed.write(_TAIL)


def _is_kept(frame: Frame, names: set[str]) -> bool:
    """Whether a record is a deletion, a notice, or an article of a type in `names` (veterinary ones excepted)."""
    if frame.kind == "DeleteCitation" or any(map(frame.data.__contains__, NOTICES)):
        return True
    for kind in _TYPE.findall(frame.data):
        name, _, rest = kind.decode("utf-8", "replace").partition(",")
        if name in names and rest.strip() != "Veterinary":
            return True
    return False
