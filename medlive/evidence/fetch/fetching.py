"""Fetch a corpus, or what is new of it, into a folder of its own.

In the folder: `files/` (complete and checked), `parts/` (half files, for the next attempt), `fetched.json` (the
ledger). A kill at any moment loses nothing but seconds: a file appears in `files/` in one step.
"""

import gzip
import hashlib
import shutil
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path

from medlive.clock import now
from medlive.evidence.corpora.parsing.files import DAMAGE, check_zip
from medlive.evidence.fetch.client import Client, Part
from medlive.evidence.fetch.layouts import LAYOUTS
from medlive.evidence.fetch.ledger import FetchedFile, Ledger, read_ledger, write_ledger
from medlive.evidence.fetch.model import (
    FetchFailed,
    NotPublished,
    RemoteFile,
    Selection,
    Source,
)
from medlive.evidence.fetch.pubmed_selection import select
from medlive.evidence.files import room_for
from medlive.integrity.digest import digest_file
from medlive.integrity.lock import exclusive
from medlive.integrity.paths import (
    PRIVATE_FOLDER,
    create_below,
    open_below,
    path_below,
)

PARTS = "parts"
FILES = "files"
_LOCK = ".fetch.lock"
_SAVE_EVERY_S = 5.0
_ALWAYS_SAVED = 1 << 20
_LARGEST_UNPACKED = 256 << 30
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a fetch would do."""

    source: Source
    folder: Path
    selection: Selection
    listed: int  # Files that the publisher lists
    wanted: tuple[RemoteFile, ...]  # Those that are new or changed
    gone: tuple[str, ...]  # Files here that the publisher lists no more

    @property
    def download_bytes(self) -> int:
        """About how many bytes are fetched."""
        typical = self.source.typical_file
        return sum(file.size or typical for file in self.wanted)

    @property
    def index_bytes(self) -> int:
        """An estimate of what the index of what is fetched takes."""
        return int(self.download_bytes * self.source.index_share)

    def seconds(self, bytes_a_second: float) -> float:
        """About how long the download takes at a rate, with the pauses between requests."""
        checksums = sum(file.checksum_url is not None for file in self.wanted)
        pauses = (len(self.wanted) + checksums) * self.source.pause_s
        return self.download_bytes / bytes_a_second + pauses


@dataclass(slots=True)
class Outcome:
    """What a fetch did."""

    ledger: Ledger
    fetched: int = 0  # Files
    fetched_bytes: int = 0
    unchanged: int = 0  # Listed as changed, and the checksum is the same
    absent: tuple[str, ...] = ()  # Listed, and not there
    removed: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # A sentence for each file that could not be fetched


def make_plan(
    source: Source, folder: Path, selection: Selection, client: Client
) -> Plan:
    """Read the publisher's list and compare it with what is in the folder.

    Raises:
        FetchFailed: if the list cannot be read.
        BadInput: if the folder's ledger is damaged, or of another corpus.
    """
    ledger = _ledger_of(source, folder, selection)
    listed = LAYOUTS[source.publisher].list_files(client, source)
    here = {(known.name, known.mark, known.url) for known in ledger.files.values()}
    wanted = [f for f in listed if (f.name, f.mark, f.url) not in here]
    names = {file.name for file in listed}
    return Plan(
        source=source,
        folder=folder,
        selection=selection,
        listed=len(listed),
        wanted=tuple(wanted),
        gone=tuple(sorted(ledger.files.keys() - names)),
    )


def run_plan(plan: Plan, client: Client, tick: Callable[[int, int], None]) -> Outcome:
    """Fetch what the plan names. A file that fails is passed over, named in the outcome, and fetched next time.

    Args:
        plan: Made just before.
        client: Asks the source's hosts.
        tick: Gets the bytes fetched so far and about how many there will be.

    Raises:
        DiskFull: if the disk is full; what is complete stays.
        Locked: if another process fetches into the folder.
    """
    plan.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with exclusive(plan.folder / _LOCK):
        return _Fetch(plan, client, tick).run()


def corpus_path(source: Source, folder: Path, ledger: Ledger) -> Path:
    """Where the reader of the corpus begins: its folder of files, or its one file."""
    if source.single:
        return path_below(folder / FILES, next(iter(ledger.files)))
    return folder / FILES


class _Fetch:
    def __init__(
        self, plan: Plan, client: Client, tick: Callable[[int, int], None]
    ) -> None:
        self._plan = plan
        self._client = client
        self._tick = tick
        ledger = _ledger_of(plan.source, plan.folder, plan.selection)
        self._files = dict(ledger.files)
        self._done = Outcome(ledger)
        self._saved_at = 0.0

    def run(self) -> Outcome:
        changes: dict[str, object] = {}
        try:
            for file in self._plan.wanted:
                self._fetch_or_note(file)
            if not self._done.failures:
                self._remove_gone()
            changes = {"complete": not self._done.failures, "checked_at": now()}
        finally:
            self._save(**changes)
        if self._done.ledger.complete:
            shutil.rmtree(self._plan.folder / PARTS, ignore_errors=True)
        return self._done

    def _fetch_or_note(self, file: RemoteFile) -> None:
        try:
            self._fetch(file)
        except NotPublished as exc:
            if self._plan.source.may_be_absent:
                self._done.absent += (file.name,)
            else:
                self._done.failures += (exc.message,)
        except FetchFailed as exc:
            hint = f" ({exc.hint})" if exc.hint else ""
            self._done.failures += (f"{exc.message}{hint}",)

    def _fetch(self, file: RemoteFile) -> None:
        md5 = self._published_md5(file)
        known = self._files.get(file.name)
        if known and md5 and known.checksum == f"md5:{md5}":
            self._done.unchanged += 1
            listed = {"mark": file.mark, "url": file.url}
            self._files[file.name] = known.model_copy(update=listed)
            return
        part = Part(self._plan.folder, f"{PARTS}/{file.name}")
        self._download(file, part, md5)
        fetched = self._keep(file, part, md5)
        self._files[file.name] = fetched
        self._done.fetched += 1
        self._done.fetched_bytes += fetched.size
        is_due = time.monotonic() - self._saved_at > _SAVE_EVERY_S
        if is_due or fetched.size >= _ALWAYS_SAVED:
            self._save()

    def _published_md5(self, file: RemoteFile) -> str | None:
        read = LAYOUTS[self._plan.source.publisher].read_checksum
        if file.checksum_url is None or read is None:
            return file.md5
        return read(self._client.page(file.checksum_url), file)

    def _download(self, file: RemoteFile, part: Part, md5: str | None) -> None:
        """Complete and check a half file; one that was made in several attempts is fetched again where it is wrong."""
        done = self._done.fetched_bytes

        def tick(size: int) -> None:
            self._tick(done + size, max(self._plan.download_bytes, done + size))

        resumed = True
        while resumed:
            resumed = self._client.download(file, part, self._plan.source.largest, tick)
            problem = _problem(file, part, md5)
            if problem is None:
                return
            part.path.unlink()
        raise FetchFailed(problem, hint="it is fetched again by the next run")

    def _keep(self, file: RemoteFile, part: Part, md5: str | None) -> FetchedFile:
        """Put the checked file, or what the selection leaves of it, into `files/`."""
        kept = part
        if not self._plan.selection.everything:
            kept = self._select(file, part)
        fetched = FetchedFile(
            name=file.name,
            url=file.url,
            mark=file.mark,
            size=part.size,
            digest=digest_file(part.path),
            checksum=md5 and f"md5:{md5}",
            kept_size=kept.size,
            kept_digest=digest_file(kept.path),
            fetched_at=now(),
        )
        place = path_below(self._plan.folder, f"{FILES}/{file.name}")
        place.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        kept.path.replace(place)
        part.path.unlink(missing_ok=True)
        return fetched

    def _select(self, file: RemoteFile, part: Part) -> Part:
        """Write the chosen articles of a half file beside it."""
        folder = self._plan.folder
        chosen = Part(folder, f"{part.name}.chosen")
        update = file.name.startswith("updatefiles/")
        with (
            open_below(folder, part.name) as source,
            room_for(folder),
            create_below(folder, chosen.name) as target,
        ):
            try:
                select(source, target, self._plan.selection, update=update)
            except FetchFailed as exc:
                raise FetchFailed(f"{file.url}: {exc.message}") from exc
        return chosen

    def _remove_gone(self) -> None:
        for name in self._plan.gone:
            with suppress(FileNotFoundError):
                path_below(self._plan.folder, f"{FILES}/{name}").unlink()
            self._files.pop(name, None)
        self._done.removed = self._plan.gone

    def _save(self, **changes: object) -> None:
        if self._plan.wanted:
            changes.setdefault("complete", False)
        changes["files"] = dict(sorted(self._files.items()))
        self._done.ledger = self._done.ledger.model_copy(update=changes)
        write_ledger(self._plan.folder, self._done.ledger)
        self._saved_at = time.monotonic()


def _ledger_of(source: Source, folder: Path, selection: Selection) -> Ledger:
    """The folder's ledger; an empty one where nothing of this selection was fetched."""
    ledger = read_ledger(folder) if folder.is_dir() else None
    if ledger is not None and ledger.source != source.name:
        raise FetchFailed(
            f"{folder} holds {ledger.source}, not {source.name}",
            hint="name another folder",
        )
    if ledger is not None and ledger.selection == selection:
        return ledger
    files = {}
    for name, file in ledger.files.items() if ledger else ():
        # Fetched again, for they are of another selection.
        files[name] = file.model_copy(update={"mark": "", "checksum": None})
    return Ledger(
        source=source.name,
        address=source.address,
        licence=source.licence,
        selection=selection,
        files=files,
    )


def _problem(file: RemoteFile, part: Part, md5: str | None) -> str | None:
    """What is wrong with a complete file, by its checksum or else by those within it; None for nothing."""
    try:
        with open_below(part.root, part.name) as handle:
            if md5 is None:
                _read_to_end(file.name, handle)
                return None
            found = hashlib.file_digest(handle, "md5").hexdigest()
    except DAMAGE as exc:
        return f"{file.url} is damaged: {exc or type(exc).__name__}"
    if found == md5:
        return None
    return f"{file.url} has md5:{found}; the publisher's checksum is md5:{md5}"


def _read_to_end(name: str, handle: FileIO) -> None:
    """Read a whole archive, which compares the checksums within it. Raises one of `DAMAGE`."""
    if name.endswith(".zip"):
        with BufferedReader(handle) as buffered, zipfile.ZipFile(buffered) as archive:
            check_zip(archive, _LARGEST_UNPACKED)
            if (bad := archive.testzip()) is not None:
                raise ValueError(
                    f"{bad[:200]!r} in it does not have the checksum that it names"
                )
        return
    with gzip.open(handle) as unpacked:
        while unpacked.read(_BLOCK):
            if unpacked.tell() > _LARGEST_UNPACKED:
                raise ValueError(f"it unpacks to more than {_LARGEST_UNPACKED} bytes")
