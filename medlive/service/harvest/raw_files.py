"""The files of raw pages: read a page, remove erased pages from them, remove files that are too old or stray.

A file is never changed in place: the remaining pages are copied into a file of the next name, the rows change in
one transaction, then the old file is deleted. A kill in between leaves a file that no row names; the next sweep
removes it.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from medlive.clock import now
from medlive.config import Settings
from medlive.db.harvest import archives
from medlive.db.session import Database, advisory_lock
from medlive.service.paths import archive_path
from medlive.sources.archive import ArchiveDamaged, Place, erase, pages, seal

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


async def seal_archives(database: Database, folder: Path, source: str) -> None:
    """Truncate what killed runs wrote without committing, and close their files. Raises ArchiveDamaged."""
    async with database.begin() as session:
        for archive in await archives.list_archives(session, source, unsealed=True):
            await asyncio.to_thread(seal, folder / archive.path, archive.bytes)
            await archives.mark_sealed(session, archive.archive_id)


async def sweep(database: Database, folder: Path, source: str) -> tuple[int, list[ArchiveDamaged]]:
    """Rewrite a source's files without erased pages; how many, and the damaged ones.

    Call it with the source's harvest lock held and its files sealed.
    """
    async with database.begin() as session:
        unswept = await archives.list_archives(session, source, unswept=True)
    damaged = []
    for archive in unswept:
        try:
            await _rewrite(database, folder, archive)
        except ArchiveDamaged as error:
            damaged.append(error)
    return len(unswept) - len(damaged), damaged


async def _rewrite(database: Database, folder: Path, archive: archives.Archive) -> None:
    old, name = folder / archive.path, next_name(archive.path)
    async with database.begin() as session:
        named = {fetch.place for fetch in await archives.fetches_in(session, archive.archive_id)}
    if not await asyncio.to_thread(old.parent.is_dir):
        raise ArchiveDamaged(old, "its folder is missing")
    if not named or not await asyncio.to_thread(old.exists):
        async with database.begin() as session:
            await archives.mark_removed(session, [archive.archive_id])
        await asyncio.to_thread(old.unlink, missing_ok=True)
        return
    moved, size = await asyncio.to_thread(_copy_named, old, folder / name, named, archive.bytes)
    async with database.begin() as session:
        await archives.replace_archive(session, archive.archive_id, name, size, moved)
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
        removed = {archive.path for archive in await archives.list_archives(session, source, removed=True)}
        current = {archive.path for archive in await archives.list_archives(session, source)}
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
        known = {archive.path for archive in await archives.list_archives(session)}
    unknown = sorted(set(existing) - known)
    stray = [path for path in unknown if _ARCHIVE_NAME.fullmatch(path) and _age(folder / path) > STRAY_AFTER_S]
    return stray, [path for path in unknown if path not in stray]


def _files(folder: Path, source: str = "") -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in (folder / source).rglob("*") if path.is_file())


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


async def apply_retention(database: Database, settings: Settings, *, dry_run: bool = False) -> Mapping[str, int]:
    """Remove files of raw pages begun more than `archive.keep_days` ago, and finish interrupted removals.

    A row changes before its file is deleted, so that a kill leaves an extra file and never a row without one.

    Returns:
        Counts: files, bytes and pages removed; swept (files rewritten for a takedown); leftovers and strays
        (deleted files without a row); foreign (other files, left alone); busy (sources being harvested, skipped);
        damaged (files that could not be rewritten). `dry_run` counts without changing anything.
    """
    folder = archive_path(settings)
    keep = settings.archive.keep_days
    counts: Counter[str] = Counter()
    async with database.begin() as session:
        sources = await archives.archived_sources(session)
    for source in sources:
        async with advisory_lock(database, f"harvest {source}") as acquired:
            if not acquired:
                counts["busy"] += 1
                continue
            async with database.begin() as session:
                old = (
                    await archives.list_archives(session, source, before=now() - timedelta(days=keep))
                    if keep
                    else []
                )
            counts["files"] += len(old)
            counts["bytes"] += sum(archive.bytes for archive in old)
            if dry_run:
                continue
            # Rows first: the next run removes what a kill leaves of these files.
            async with database.begin() as session:
                counts["pages"] += await archives.mark_removed(session, [archive.archive_id for archive in old])
            for archive in old:
                await asyncio.to_thread((folder / archive.path).unlink, missing_ok=True)
            try:
                await seal_archives(database, folder, source)
            except ArchiveDamaged:
                counts["damaged"] += 1
            swept, damaged = await sweep(database, folder, source)
            counts["swept"] += swept
            counts["damaged"] += len(damaged)
            counts["leftovers"] += await clear_removed(database, folder, source)
    stray, foreign = await find_stray_files(database, folder)
    counts["strays"], counts["foreign"] = len(stray), len(foreign)
    if not dry_run:
        for path in stray:
            await asyncio.to_thread((folder / path).unlink, missing_ok=True)
    names = ("files", "bytes", "pages", "swept", "leftovers", "strays", "foreign", "busy", "damaged")
    return {name: counts[name] for name in names}
