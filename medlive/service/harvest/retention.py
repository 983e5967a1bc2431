"""Retention: files of raw pages that are older than they may be are removed; threads stay."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from medlive.clock import now
from medlive.config import Settings
from medlive.db.harvest.raw_files import archived_sources, expired_archives, mark_removed
from medlive.db.session import Database, advisory_lock
from medlive.service.harvest.ledger import seal_archives
from medlive.service.harvest.raw_files import clear_removed, strays, sweep
from medlive.service.paths import archive_path
from medlive.sources.archive.warc import ArchiveDamaged


async def apply_retention(database: Database, settings: Settings, *, dry_run: bool = False) -> Mapping[str, int]:
    """Remove whole files of raw pages that were begun more than `archive.keep_days` ago, and finish what a kill
    left of earlier removals and takedowns.

    Counts: files, bytes and pages removed; swept (files rewritten for a takedown); leftovers and strays (files
    removed that no row names); foreign (files there that are not ours, left alone); busy (sources that are being
    harvested, left for the next time); damaged (files that a takedown cannot be swept from). A row changes before
    its file goes, so that a kill leaves a file too many and never a row that names nothing. `dry_run` counts and
    changes nothing. Raises DatabaseUnavailable.
    """
    folder = archive_path(settings)
    keep = settings.archive.keep_days
    counts: Counter[str] = Counter()
    async with database.begin() as session:
        sources = await archived_sources(session)
    for source in sources:
        async with advisory_lock(database, f"harvest {source}") as alone:
            if not alone:
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
    ours, foreign = await strays(database, folder)
    counts["strays"], counts["foreign"] = len(ours), len(foreign)
    if not dry_run:
        for path in ours:
            await asyncio.to_thread((folder / path).unlink, missing_ok=True)
    return {name: counts[name] for name in COUNTS}


COUNTS = ("files", "bytes", "pages", "swept", "leftovers", "strays", "foreign", "busy", "damaged")
