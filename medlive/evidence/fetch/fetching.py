"""Fetch a corpus, or what is new of it, into a folder of its own.

In the folder: `files/` (complete and checked), `parts/` (half files, for the next attempt), `fetched.json` (the
ledger). A kill at any moment loses nothing but seconds: a file appears in `files/` in one step.
"""

import csv
import gzip
import hashlib
import shutil
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from medlive.clock import now
from medlive.errors import BadInput, UsageError
from medlive.evidence.client import Client, FetchFailed, NotPublished
from medlive.evidence.corpora.parsing.files import DAMAGE, check_zip
from medlive.evidence.fetch.layouts import LAYOUTS
from medlive.evidence.fetch.ledger import FetchedFile, Ledger, read_ledger, write_ledger
from medlive.evidence.fetch.model import RemoteFile, Selection, Source
from medlive.evidence.fetch.pubmed_selection import select
from medlive.evidence.files import room_for
from medlive.integrity.digest import digest_file
from medlive.integrity.log import exclusive
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


@dataclass(slots=True)
class Outcome:
    """What a fetch did."""

    plan: Plan
    ledger: Ledger
    fetched: int = 0  # Files
    fetched_bytes: int = 0
    unchanged: int = 0  # Listed as changed, and the checksum is the same
    absent: tuple[str, ...] = ()  # Listed, and not there
    removed: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # A sentence for each file that could not be fetched


async def make_plan(
    source: Source,
    folder: Path,
    selection: Selection,
    client: Client,
) -> Plan:
    """Read the publisher's list and compare it with what is in the folder.

    Raises:
        FetchFailed: if the list cannot be read.
        BadInput: if the folder's ledger is damaged, or of another corpus.
    """
    ledger = _ledger_of(source, folder, selection)
    list_files, _ = LAYOUTS[source.publisher]
    try:
        listed = await list_files(client, source)
    except (ValueError, OverflowError, csv.Error) as exc:
        raise FetchFailed(
            f"{source.address} has no list of files that can be read: {exc}"
        ) from exc
    names = set()
    wanted = []
    for file in listed:
        names.add(file.name)
        known = ledger.files.get(file.name)
        if known is None or (known.mark, known.url) != (file.mark, file.url):
            wanted.append(file)
    return Plan(
        source=source,
        folder=folder,
        selection=selection,
        listed=len(listed),
        wanted=tuple(wanted),
        gone=tuple(sorted(ledger.files.keys() - names)),
    )


async def run_plan(
    plan: Plan,
    client: Client,
    tick: Callable[[int, int], None],
) -> Outcome:
    """Fetch what the plan names. A file that fails is passed over, named in the outcome, and fetched next time.

    Args:
        plan: Made just before.
        client: Asks the source's hosts.
        tick: Gets the bytes fetched so far and about how many there will be.

    Raises:
        UsageError: if the folder cannot be made.
        DiskFull: if the disk is full; what is complete stays.
        Locked: if another process fetches into the folder.
    """
    try:
        plan.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as exc:
        raise UsageError(
            f"{plan.folder} cannot be written: {exc.strerror}",
            hint="name a folder that you may write: --to FOLDER",
        ) from exc
    with exclusive(plan.folder / _LOCK):
        done = Outcome(plan, _ledger_of(plan.source, plan.folder, plan.selection))
        saved_at = 0.0
        complete = False
        try:
            for file in plan.wanted:
                try:
                    await _fetch(file, client, done, tick)
                except FetchFailed as exc:
                    if isinstance(exc, NotPublished) and plan.source.may_be_absent:
                        done.absent += (file.name,)
                    else:
                        hint = f" ({exc.hint})" if exc.hint else ""
                        done.failures += (f"{exc.message}{hint}",)
                if time.monotonic() - saved_at > _SAVE_EVERY_S:
                    _save(done, complete=False)
                    saved_at = time.monotonic()
            complete = not done.failures
            if complete:
                for name in plan.gone:
                    with suppress(FileNotFoundError):
                        path_below(plan.folder, f"{FILES}/{name}").unlink()
                    done.ledger.files.pop(name, None)
                done.removed = plan.gone
        finally:
            _save(done, complete=complete)
        if complete:
            shutil.rmtree(plan.folder / PARTS, ignore_errors=True)
        return done


def _save(done: Outcome, *, complete: bool) -> None:
    changes = {
        "files": dict(sorted(done.ledger.files.items())),
        "complete": complete,
        "checked_at": now(),
    }
    done.ledger = done.ledger.model_copy(update=changes)
    write_ledger(done.plan.folder, done.ledger)


def corpus_path(source: Source, folder: Path, ledger: Ledger) -> Path:
    """Where the reader of the corpus begins: its folder of files, or its one file."""
    if source.single:
        return path_below(folder / FILES, next(iter(ledger.files)))
    return folder / FILES


async def _fetch(
    file: RemoteFile,
    client: Client,
    done: Outcome,
    tick: Callable[[int, int], None],
) -> None:
    """Fetch and check a file, and put it, or what the selection leaves of it, into `files/`."""
    plan = done.plan
    _, read_checksum = LAYOUTS[plan.source.publisher]
    md5 = file.md5
    if file.checksum_url is not None and read_checksum is not None:
        md5 = read_checksum(await client.page(file.checksum_url), file)
    files = done.ledger.files
    known = files.get(file.name)
    if known and md5 and known.checksum == f"md5:{md5}":
        done.unchanged += 1
        listed = {"mark": file.mark, "url": file.url}
        files[file.name] = known.model_copy(update=listed)
        return
    name = f"{PARTS}/{file.name}"
    part = path_below(plan.folder, name)
    before = done.fetched_bytes

    def count(size: int) -> None:
        tick(before + size, max(plan.download_bytes, before + size))

    largest = plan.source.largest
    while True:
        resumed = await client.download(file.url, plan.folder, name, largest, count)
        try:
            _verify(file, plan.folder, name, md5)
            break
        except FetchFailed:
            part.unlink()
            # A file that was made in several attempts is fetched again.
            if not resumed:
                raise
    kept = part
    if plan.selection.types:
        chosen = f"{name}.chosen"
        kept = path_below(plan.folder, chosen)
        is_update = file.name.startswith("updatefiles/")
        with (
            open_below(plan.folder, name) as source,
            room_for(plan.folder),
            create_below(plan.folder, chosen) as target,
        ):
            try:
                select(source, target, plan.selection, update=is_update)
            except FetchFailed as exc:
                raise FetchFailed(f"{file.url}: {exc.message}") from exc
    files[file.name] = FetchedFile(
        name=file.name,
        url=file.url,
        mark=file.mark,
        size=part.stat().st_size,
        digest=digest_file(part),
        checksum=md5 and f"md5:{md5}",
        kept_size=kept.stat().st_size,
        kept_digest=digest_file(kept),
        fetched_at=now(),
    )
    done.fetched += 1
    done.fetched_bytes += part.stat().st_size
    place = path_below(plan.folder, f"{FILES}/{file.name}")
    place.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    kept.replace(place)
    part.unlink(missing_ok=True)


def _ledger_of(source: Source, folder: Path, selection: Selection) -> Ledger:
    """The folder's ledger; an empty one where nothing of this selection was fetched."""
    ledger = read_ledger(folder) if folder.is_dir() else None
    if ledger is not None and ledger.source != source.name:
        raise BadInput(
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


def _verify(file: RemoteFile, root: Path, name: str, md5: str | None) -> None:
    """Check a complete file by its checksum, or else by those within it. Raises FetchFailed."""
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
