"""Exports raw pages: WARC files as they lie, checked page by page, with their checksums and an index."""

import asyncio
import hashlib
import heapq
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from medlive.config import Settings
from medlive.db.harvest.archives import Archive, list_archives
from medlive.db.harvest.raw_files import digests_in
from medlive.db.session import Database
from medlive.digest import digest_bytes
from medlive.errors import CheckFailed, UsageError
from medlive.service.paths import archive_path
from medlive.sources.archive.cdxj import cdxj_line
from medlive.sources.archive.warc import ArchiveDamaged, pages

INDEX = "index.cdxj"
SUMS = "SHA256SUMS"
_BLOCK = 1024 * 1024
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


@dataclass(slots=True)
class Exported:
    """What an export did."""

    written: list[str] = field(default_factory=list)
    """Files that were written, or that have grown."""
    already: list[str] = field(default_factory=list)
    """Files that were there, with these bytes."""
    pages: int = 0
    """Pages in all of them."""
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What could not be exported, a line each."""
    stale: list[str] = field(default_factory=list)
    """Files of an earlier export that are not kept here any more: retention or a takedown removed them."""


async def export_warc(
    database: Database,
    settings: Settings,
    sources: Sequence[str],
    folder: Path,
    *,
    week: str | None = None,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Copy the WARC files of some sources (none named: all) into `folder`, with SHA256SUMS and a CDXJ index.

    Of a file that is still being written the part that is committed is copied. Every page is checked against its
    own digest and the database's on the way. A file that is there is left where it holds these bytes, replaced
    where it holds their beginning, and a problem where it holds others; files of earlier exports stay in the
    sums and the index. Raises UsageError for a folder that cannot be written.
    """
    done = Exported()
    home = archive_path(settings)
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    async with database.begin() as session:
        here = await list_archives(session)
    chosen = [a for a in here if (not sources or a.source in sources) and week in (None, a.iso_week)]
    known = {Path(archive.path).name for archive in here}
    sums = await asyncio.to_thread(_known_sums, folder)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
        runs: dict[str, Path] = {}
        for number, archive in enumerate(chosen, 1):
            tick(number, len(chosen))
            name = Path(archive.path).name
            async with database.begin() as session:
                digests = await digests_in(session, archive.archive_id)
            run = Path(scratch) / f"{name}.cdxj"
            draft = Path(scratch) / name
            try:
                count, total = await asyncio.to_thread(_copy, home / archive.path, draft, run, archive, digests)
                async with database.begin() as session:
                    now = {a.archive_id: a.path for a in await list_archives(session, source=archive.source)}
                if now.get(archive.archive_id) != archive.path:
                    raise CheckFailed(f"{name}: it was rewritten or removed meanwhile; export again")
                place = done.already if await asyncio.to_thread(_is_there, draft, folder / name) else done.written
                await asyncio.to_thread(os.replace, draft, folder / name)
            except (ArchiveDamaged, CheckFailed) as error:
                done.problems.append(error.message)
                continue
            place.append(name)
            sums[name] = total
            runs[name] = run
            done.pages += count
            done.bytes += archive.bytes
        done.stale = sorted(name for name in sums if name not in known)
        await asyncio.to_thread(_write_index, folder, runs, sums)
        lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
        lines += f"{await asyncio.to_thread(_sha256, folder / INDEX)}  {INDEX}\n"
        await asyncio.to_thread(_write, folder / SUMS, lines)
    return done


def _copy(source: Path, draft: Path, run: Path, archive: Archive, digests: Mapping[int, str]) -> tuple[int, str]:
    """Copy the committed part and check it; how many pages it holds, and its SHA-256."""
    digest = hashlib.sha256()
    left = archive.bytes
    try:
        with source.open("rb") as old, draft.open("xb") as new:
            while left and (block := old.read(min(_BLOCK, left))):
                digest.update(block)
                new.write(block)
                left -= len(block)
            new.flush()
            os.fsync(new.fileno())
    except OSError as error:
        raise ArchiveDamaged(source, f"cannot be copied: {error}") from error
    if left:
        raise ArchiveDamaged(source, f"holds {archive.bytes - left} bytes, {archive.bytes} were written")
    lines = []
    missing = set(digests)
    for place, page in pages(draft, archive.bytes):
        lines.append(cdxj_line(draft.name, place, page))
        expected = digests.get(place.offset)
        missing.discard(place.offset)
        if expected is not None and expected != digest_bytes(page.body):
            raise ArchiveDamaged(source, f"the page at offset {place.offset} is not the one that was fetched")
    if missing:
        raise ArchiveDamaged(source, f"no page at offset {min(missing)}")
    lines.sort(key=str.encode)
    _write(run, "".join(line + "\n" for line in lines))
    return len(lines), digest.hexdigest()


def _is_there(draft: Path, target: Path) -> bool:
    """Whether the target holds the draft's bytes; False also where it holds their beginning. Raises CheckFailed
    where it holds others."""
    if not target.exists():
        return False
    with draft.open("rb") as ours, target.open("rb") as theirs:
        while block := theirs.read(_BLOCK):
            if ours.read(len(block)) != block:
                raise CheckFailed(f"{target.name}: there is a file of that name with other bytes; it was left")
        return not ours.read(1)


def _known_sums(folder: Path) -> dict[str, str]:
    """File → SHA-256, as an earlier export told, of those that are still there."""
    path = folder / SUMS
    if not path.exists():
        return {}
    lines = path.read_text("utf-8", "replace").splitlines()
    told = {m[2]: m[1] for line in lines if (m := _SUM_LINE.fullmatch(line)) and m[2] != INDEX}
    return {name: digest for name, digest in told.items() if (folder / name).is_file()}


def _write_index(folder: Path, runs: Mapping[str, Path], sums: Mapping[str, str]) -> None:
    """Merge the files' lines with those that an earlier index has of other files."""
    target = folder / INDEX
    draft = folder / f".{INDEX}.draft"
    with ExitStack() as stack:
        parts: list[Iterator[str]] = [
            stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in runs.values()
        ]
        if target.exists():
            old = stack.enter_context(target.open(encoding="utf-8", errors="replace", newline="\n"))
            parts.append(line for line in old if _of(line) in sums.keys() - runs.keys())
        with draft.open("w", encoding="utf-8", newline="\n") as new:
            new.writelines(heapq.merge(*parts, key=str.encode))
    os.replace(draft, target)


def _of(line: str) -> str | None:
    try:
        name = json.loads(line.split(" ", 2)[2])["filename"]
    except (IndexError, ValueError, KeyError, TypeError):
        return None
    return str(name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8", newline="\n")
    os.replace(draft, path)
