"""Retention: remove files of raw pages that are too old; threads stay."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from medlive.clock import now
from medlive.config import Settings
from medlive.db.harvest.raw_files import archived_sources, expired_archives, mark_removed
from medlive.db.session import Database, advisory_lock
from medlive.service.harvest.ledger import seal_archives
from medlive.service.harvest.raw_files import clear_removed, find_stray_files, sweep
from medlive.service.paths import archive_path
from medlive.sources.archive.warc import ArchiveDamaged


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
        sources = await archived_sources(session)
    for source in sources:
        async with advisory_lock(database, f"harvest {source}") as acquired:
            if not acquired:
                counts["busy"] += 1
                continue
            async with database.begin() as session:
                old = await expired_archives(session, source, now() - timedelta(days=keep)) if keep else []
            counts["files"] += len(old)
            counts["bytes"] += sum(archive.bytes for archive in old)
            if dry_run:
                continue
            # Rows first: the next run removes what a kill leaves of these files.
            async with database.begin() as session:
                counts["pages"] += await mark_removed(session, [archive.archive_id for archive in old])
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
    return {name: counts[name] for name in COUNTS}


COUNTS = ("files", "bytes", "pages", "swept", "leftovers", "strays", "foreign", "busy", "damaged")
