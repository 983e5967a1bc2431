"""The files of raw pages: what a takedown leaves is swept out of them, what is done with is removed.

A file is never changed in place. What stays is copied into a file of the next name, the rows change in one
transaction, then the old file goes. A kill in between leaves a file that no row names, whose name says whose
copy it is; the next sweep removes it.
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
_OURS = re.compile(r"(?P<stem>[^/]+/[^/]+-\d{4}\.W\d\d-\d+\.\d+(?:-\d+)?)(?:\.r(?P<copy>\d+))?\.warc\.gz")
STRAY_AFTER_S = 86_400.0
"""Seconds after which a file that is named like ours, and that no row names, is removed."""


def next_name(path: str) -> str:
    """The name of a file's next copy: a.warc.gz, a.r1.warc.gz, a.r2.warc.gz …"""
    found = _OURS.fullmatch(path)
    if found is None:
        return f"{path.removesuffix(_SUFFIX)}.r1{_SUFFIX}"
    return f"{found['stem']}.r{int(found['copy'] or 0) + 1}{_SUFFIX}"


async def sweep(database: Database, folder: Path, source: str) -> tuple[int, list[ArchiveDamaged]]:
    """Rewrite a source's files without the pages that a takedown let go of; how many, and those it could not.

    Call it with the source's harvest lock held and its files sealed. A file that is not there any more holds
    nothing.
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
        raise ArchiveDamaged(old, "its folder is not there")
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
    """Remove files whose removal was noted, and copies that no row names; how many. Call it with the lock held."""
    async with database.begin() as session:
        gone = {archive.path for archive in await removed_archives(session, source)}
        here = {archive.path for archive in await list_archives(session, source=source)}
    stems = {found["stem"] for path in gone | here if (found := _OURS.fullmatch(path))}
    cleared = 0
    for path in await asyncio.to_thread(lambda: list(_files(folder, source))):
        if path in here:
            continue
        found = _OURS.fullmatch(path)
        if path in gone or (found is not None and found["stem"] in stems):
            await asyncio.to_thread((folder / path).unlink, missing_ok=True)
            cleared += 1
    return cleared


async def strays(database: Database, folder: Path) -> tuple[list[str], list[str]]:
    """Files in the archive's folder that no row names: those that are ours by name and age, and the others.

    A harvest writes a file's beginning before its row, so a young one may be about to be named.
    """
    there = await asyncio.to_thread(lambda: list(_files(folder)))
    async with database.begin() as session:
        known = await archive_paths(session)
    ours, foreign = [], []
    for path in sorted(set(there) - known):
        if _OURS.fullmatch(path) and await asyncio.to_thread(_age, folder / path) > STRAY_AFTER_S:
            ours.append(path)
        else:
            foreign.append(path)
    return ours, foreign


def _files(folder: Path, source: str = "") -> Iterator[str]:
    for path in (folder / source).rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
