"""The WARC files of raw pages: close them (`seal_archives`), remove erased pages (`sweep`), delete old or stray files.

A file is never changed in place: the remaining pages are copied into a file of the next name, the rows change in
one transaction, then the old file is deleted. A kill in between leaves a file that no row names; the next sweep
removes it.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from medlive.clock import now
from medlive.config import Settings
from medlive.db.harvest import fetches
from medlive.db.session import Database, advisory_lock
from medlive.db.tables.intake import ArchiveRow
from medlive.instance.paths import archive_path
from medlive.sources.archive import ArchiveDamaged, erase, pages, seal
from medlive.sources.ledger import Place

# SOURCE/SOURCE-WEEK-RUN.START, then a number and a copy, as harvests and sweeps name files
_ARCHIVE_NAME = re.compile(
    r"[^/]+/[^/]+-\d{4}\.W\d\d-\d+\.\d+(?:-\d+)?(?:\.r\d+)?\.warc\.gz"
)


def next_name(path: str) -> str:
    """The name of a file's next copy: a.warc.gz, a.r1.warc.gz, a.r2.warc.gz …"""
    stem, _, copy = path.removesuffix(".warc.gz").rpartition(".r")
    if not (stem and copy.isdecimal()):
        stem, copy = path.removesuffix(".warc.gz"), "0"
    return f"{stem}.r{int(copy) + 1}.warc.gz"


async def seal_archives(database: Database, folder: Path, source: str) -> None:
    """Truncate what killed runs wrote without committing, and close their files. Raises ArchiveDamaged."""
    async with database.begin() as session:
        for archive in await fetches.list_archives(session, source, unsealed=True):
            await asyncio.to_thread(seal, folder / archive.path, archive.bytes)
            await fetches.mark_sealed(session, archive.id)


async def sweep(
    database: Database, folder: Path, source: str
) -> tuple[int, list[ArchiveDamaged]]:
    """Rewrite a source's sealed files without erased pages, with its lock held; how many, and the damaged ones."""
    unswept = await database.ask(fetches.list_archives, source, unswept=True)
    damaged = []
    for archive in unswept:
        old, name = folder / archive.path, next_name(archive.path)
        kept = await database.ask(fetches.fetches_in, archive.id)
        named = {fetch.place for fetch in kept}
        try:
            if not await asyncio.to_thread(old.parent.is_dir):
                raise ArchiveDamaged(old, "its folder is missing")
            if not named or not await asyncio.to_thread(old.exists):
                await database.ask(fetches.mark_removed, [archive.id])
            else:
                moved, size = await asyncio.to_thread(
                    _copy_named, old, folder / name, named, archive.bytes
                )
                await database.ask(
                    fetches.replace_archive, archive.id, name, size, moved
                )
            await asyncio.to_thread(old.unlink, missing_ok=True)
        except ArchiveDamaged as error:
            damaged.append(error)
    return len(unswept) - len(damaged), damaged


def _copy_named(
    old: Path, new: Path, named: set[Place], size: int
) -> tuple[dict[Place, Place], int]:
    """Copy the pages at the `named` places; old → new place, and the new file's size. Raises ArchiveDamaged."""
    new.unlink(missing_ok=True)  # of a sweep that was killed before its rows changed
    unnamed = [place for place, _ in pages(old, size) if place not in named]
    moved = erase(old, new, unnamed)
    if missing := named - moved.keys():
        new.unlink()
        first = min(place.offset for place in missing)
        raise ArchiveDamaged(old, f"no page at offset {first}")
    return moved, new.stat().st_size


async def clear_unnamed(database: Database, folder: Path, source: str) -> int:
    """Delete a source's files that no row names, what was removed and what a kill left; how many.

    Call it with the source's harvest lock held: a harvest writes a file's beginning before its row.
    """
    rows = await database.ask(fetches.list_archives, source)
    files = await asyncio.to_thread(_files, folder, source)
    unnamed = files - {row.path for row in rows}
    await asyncio.to_thread(_remove, folder, unnamed)
    return len(unnamed)


def _files(folder: Path, source: str) -> set[str]:
    """A source's files with names that harvests give."""
    files = set()
    for path in (folder / source).glob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and _ARCHIVE_NAME.fullmatch(name):
            files.add(name)
    return files


async def apply_retention(database: Database, settings: Settings) -> Mapping[str, int]:
    """Remove files of raw pages begun more than `archive.keep_days` ago, and finish interrupted removals.

    A row changes before its file is deleted, so that a kill leaves an extra file and never a row without one.

    Returns:
        Counts: files, bytes and pages removed; swept (files rewritten for a takedown); strays (deleted files
        without a row); busy (sources being harvested, skipped); damaged (files that could not be rewritten).
    """
    counts = dict.fromkeys(
        ("files", "bytes", "pages", "swept", "strays", "busy", "damaged"), 0
    )
    for source in await database.ask(fetches.archived_sources):
        async with advisory_lock(database, f"harvest {source}") as acquired:
            if acquired:
                await _retain(database, settings, source, counts)
            else:
                counts["busy"] += 1
    return counts


async def _retain(
    database: Database, settings: Settings, source: str, counts: dict[str, int]
) -> None:
    """Apply retention to one source; call it with the source's harvest lock held."""
    folder = archive_path(settings)
    old: Sequence[ArchiveRow] = []
    if keep := settings.archive.keep_days:
        old = await database.ask(
            fetches.list_archives, source, before=now() - timedelta(days=keep)
        )
    counts["files"] += len(old)
    counts["bytes"] += sum(archive.bytes for archive in old)
    numbers = [archive.id for archive in old]
    # Rows first: the next run removes what a kill leaves of these files.
    counts["pages"] += await database.ask(fetches.mark_removed, numbers)
    await asyncio.to_thread(_remove, folder, [archive.path for archive in old])
    try:
        await seal_archives(database, folder, source)
    except ArchiveDamaged:
        counts["damaged"] += 1
    swept, damaged = await sweep(database, folder, source)
    counts["swept"] += swept
    counts["damaged"] += len(damaged)
    counts["strays"] += await clear_unnamed(database, folder, source)


def _remove(folder: Path, paths: Iterable[str]) -> None:
    """Delete files of a folder; some may be gone."""
    for path in paths:
        (folder / path).unlink(missing_ok=True)
