"""The files of raw pages: remove erased pages from them, and remove files that are no longer needed.

A file is never changed in place: the remaining pages are copied into a file of the next name, the rows change in
one transaction, then the old file is deleted. A kill in between leaves a file that no row names; the next sweep
removes it.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

from medlive.db.harvest.archives import list_archives
from medlive.db.harvest.raw_files import (
    OldArchive,
    archive_paths,
    fetches_in,
    mark_removed,
    removed_archives,
    replace_archive,
    unswept_archives,
)
from medlive.db.session import Database
from medlive.sources.archive.warc import ArchiveDamaged, Place, erase, pages

_SUFFIX = ".warc.gz"
_ARCHIVE_NAME = re.compile(r"(?P<stem>[^/]+/[^/]+-\d{4}\.W\d\d-\d+\.\d+(?:-\d+)?)(?:\.r(?P<copy>\d+))?\.warc\.gz")
STRAY_AFTER_S = 86_400.0
"""Age in seconds after which a file with an archive's name and no row is removed."""


def next_name(path: str) -> str:
    """The name of a file's next copy: a.warc.gz, a.r1.warc.gz, a.r2.warc.gz …"""
    found = _ARCHIVE_NAME.fullmatch(path)
    if found is None:
        return f"{path.removesuffix(_SUFFIX)}.r1{_SUFFIX}"
    return f"{found['stem']}.r{int(found['copy'] or 0) + 1}{_SUFFIX}"


async def sweep(database: Database, folder: Path, source: str) -> tuple[int, list[ArchiveDamaged]]:
    """Rewrite a source's files without erased pages; how many, and the damaged ones.

    Call it with the source's harvest lock held and its files sealed.
    """
    async with database.begin() as session:
        unswept = await unswept_archives(session, source)
    damaged = []
    for archive in unswept:
        try:
            await _rewrite(database, folder, archive)
        except ArchiveDamaged as error:
            damaged.append(error)
    return len(unswept) - len(damaged), damaged


async def _rewrite(database: Database, folder: Path, archive: OldArchive) -> None:
    old, name = folder / archive.path, next_name(archive.path)
    async with database.begin() as session:
        named = {fetch.place for fetch in await fetches_in(session, archive.archive_id)}
    if not await asyncio.to_thread(old.parent.is_dir):
        raise ArchiveDamaged(old, "its folder is missing")
    if not named or not await asyncio.to_thread(old.exists):
        async with database.begin() as session:
            await mark_removed(session, [archive.archive_id])
        await asyncio.to_thread(old.unlink, missing_ok=True)
        return
    moved, size = await asyncio.to_thread(_copy_named, old, folder / name, named, archive.bytes)
    async with database.begin() as session:
        await replace_archive(session, archive.archive_id, name, size, moved)
    await asyncio.to_thread(old.unlink, missing_ok=True)


def _copy_named(old: Path, new: Path, named: set[Place], size: int) -> tuple[dict[Place, Place], int]:
    new.unlink(missing_ok=True)  # of a sweep that was killed before its rows changed
    unnamed = [place for place, _ in pages(old, size) if place not in named]
    moved = erase(old, new, unnamed)
    if missing := named - set(moved):
        new.unlink()
        raise ArchiveDamaged(old, f"no page at offset {min(place.offset for place in missing)}")
    return moved, new.stat().st_size


async def clear_removed(database: Database, folder: Path, source: str) -> int:
    """Delete files marked as removed, and copies without a row; how many. Call it with the lock held."""
    async with database.begin() as session:
        removed = {archive.path for archive in await removed_archives(session, source)}
        current = {archive.path for archive in await list_archives(session, source=source)}
    stems = {found["stem"] for path in removed | current if (found := _ARCHIVE_NAME.fullmatch(path))}
    cleared = 0
    for path in await asyncio.to_thread(lambda: list(_files(folder, source))):
        if path in current:
            continue
        found = _ARCHIVE_NAME.fullmatch(path)
        if path in removed or (found is not None and found["stem"] in stems):
            await asyncio.to_thread((folder / path).unlink, missing_ok=True)
            cleared += 1
    return cleared


async def find_stray_files(database: Database, folder: Path) -> tuple[list[str], list[str]]:
    """Files in the archive's folder without a row: those with an archive's name and enough age, and the others.

    A harvest writes a file's beginning before its row, so a young file may get one.
    """
    existing = await asyncio.to_thread(lambda: list(_files(folder)))
    async with database.begin() as session:
        known = await archive_paths(session)
    stray, foreign = [], []
    for path in sorted(set(existing) - known):
        if _ARCHIVE_NAME.fullmatch(path) and await asyncio.to_thread(_age, folder / path) > STRAY_AFTER_S:
            stray.append(path)
        else:
            foreign.append(path)
    return stray, foreign


def _files(folder: Path, source: str = "") -> Iterator[str]:
    for path in (folder / source).rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
