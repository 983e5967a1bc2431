"""Export raw pages: WARC files checked page by page, with checksums and a CDXJ index."""

import asyncio
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medlive.config import Settings
from medlive.db.harvest.archives import Archive, fetches_in, list_archives
from medlive.db.session import Database
from medlive.digest import digest_bytes, digest_file
from medlive.errors import CheckFailed, UsageError
from medlive.service.paths import archive_path
from medlive.sources.archive.cdxj import cdxj_line
from medlive.sources.archive.warc import ArchiveDamaged, pages

INDEX = "index.cdxj"
SUMS = "SHA256SUMS"
_BLOCK = 1024 * 1024
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


@dataclass(slots=True)
class ExportResult:
    """The result of an export."""

    written: list[str] = field(default_factory=list)
    """Files that were written or have grown."""
    unchanged: list[str] = field(default_factory=list)
    """Files that existed with these bytes."""
    pages: int = 0
    """Pages in all files."""
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What could not be exported, one line each."""
    stale: list[str] = field(default_factory=list)
    """Files of an earlier export that retention or a takedown has removed since."""


async def export_warc(
    database: Database,
    settings: Settings,
    sources: Sequence[str],
    folder: Path,
    *,
    week: str | None = None,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Copy the WARC files of the sources (default: all) into `folder`, with SHA256SUMS and a CDXJ index.

    Only the committed part of a file is copied, and every page is checked against its own digest and the
    database's. An existing file stays if it has the same bytes, is replaced if it has their beginning, and is a
    problem otherwise. Files of earlier exports stay in the sums and the index. Raises UsageError if the folder
    cannot be created.
    """
    done = ExportResult()
    home = archive_path(settings)
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}") from error
    async with database.begin() as session:
        here = await list_archives(session)
    chosen = [a for a in here if (not sources or a.source in sources) and week in (None, a.iso_week)]
    known = {Path(archive.path).name for archive in here}
    sums = await asyncio.to_thread(_known_sums, folder)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
        lines: dict[str, list[str]] = {}
        for number, archive in enumerate(chosen, 1):
            tick(number, len(chosen))
            name = Path(archive.path).name
            async with database.begin() as session:
                digests = {f.place.offset: f.digest or "" for f in await fetches_in(session, archive.archive_id)}
            draft = Path(scratch) / name
            try:
                index, digest = await asyncio.to_thread(_copy, home / archive.path, draft, archive, digests)
                async with database.begin() as session:
                    now = {a.archive_id: a.path for a in await list_archives(session, archive.source)}
                if now.get(archive.archive_id) != archive.path:
                    raise CheckFailed(f"{name}: the file changed during the export; export again")
                same = await asyncio.to_thread(_matches_existing, draft, folder / name)
                await asyncio.to_thread(os.replace, draft, folder / name)
            except (ArchiveDamaged, CheckFailed) as error:
                done.problems.append(error.message)
                continue
            (done.unchanged if same else done.written).append(name)
            sums[name], lines[name] = digest, index
            done.pages += len(index)
            done.bytes += archive.bytes
        done.stale = sorted(name for name in sums if name not in known)
        await asyncio.to_thread(_write_index, folder, lines, sums)
        sums[INDEX] = digest_file(folder / INDEX).removeprefix("sha256:")
        names = [*sorted(sums.keys() - {INDEX}), INDEX]
        await asyncio.to_thread(_write, folder / SUMS, "".join(f"{sums[name]}  {name}\n" for name in names))
    return done


def _copy(source: Path, draft: Path, archive: Archive, digests: Mapping[int, str]) -> tuple[list[str], str]:
    """Copy the committed part and check it; the CDXJ lines, and the SHA-256."""
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
        raise ArchiveDamaged(source, f"cannot copy: {error}") from error
    if left:
        raise ArchiveDamaged(source, f"holds {archive.bytes - left} bytes, {archive.bytes} were written")
    lines = []
    missing = set(digests)
    for group, page in pages(draft, archive.bytes):
        lines.append(cdxj_line(draft.name, group, page))
        expected = digests.get(group.offset)
        missing.discard(group.offset)
        if expected is not None and expected != digest_bytes(page.body):
            raise ArchiveDamaged(source, f"the page at offset {group.offset} is not the one that was fetched")
    if missing:
        raise ArchiveDamaged(source, f"no page at offset {min(missing)}")
    return lines, digest.hexdigest()


def _matches_existing(draft: Path, target: Path) -> bool:
    """Whether the target has the draft's bytes; False if missing or a prefix. Raises CheckFailed otherwise."""
    if not target.exists():
        return False
    with draft.open("rb") as ours, target.open("rb") as theirs:
        while block := theirs.read(_BLOCK):
            if ours.read(len(block)) != block:
                raise CheckFailed(
                    f"{target.name}: a file of that name with different bytes exists; it was not replaced"
                )
        return not ours.read(1)


def _known_sums(folder: Path) -> dict[str, str]:
    """File → SHA-256 from an earlier export, for files that still exist."""
    path = folder / SUMS
    if not path.exists():
        return {}
    lines = path.read_text("utf-8", "replace").splitlines()
    recorded = {m[2]: m[1] for line in lines if (m := _SUM_LINE.fullmatch(line)) and m[2] != INDEX}
    return {name: digest for name, digest in recorded.items() if (folder / name).is_file()}


def _write_index(folder: Path, lines: Mapping[str, Sequence[str]], sums: Mapping[str, str]) -> None:
    """Write the lines of these files, sorted with those that an earlier index has of other files."""
    target, others = folder / INDEX, sums.keys() - lines.keys()
    text = target.read_text("utf-8", "replace") if target.exists() else ""
    merged = [line for line in text.split("\n") if _filename(line) in others]
    merged += [line for part in lines.values() for line in part]
    _write(target, "".join(line + "\n" for line in sorted(merged, key=str.encode)))


def _filename(line: str) -> str | None:
    try:
        name = json.loads(line.split(" ", 2)[2])["filename"]
    except (IndexError, ValueError, KeyError, TypeError):
        return None
    return str(name)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8", newline="\n")
    os.replace(draft, path)
