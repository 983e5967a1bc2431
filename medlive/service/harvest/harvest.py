"""Harvest a source (a run for each ISO week, resumed after a kill, checked for drift), import files, store threads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import compress
from pathlib import Path

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.harvest import harvests
from medlive.db.runs import finish_import, start_import
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.threads.takedowns import TAKEN_DOWN, keep_out
from medlive.db.threads.threads import save_identifiers, save_threads
from medlive.deidentify.detect import keyed_handle
from medlive.errors import MedliveError, UsageError
from medlive.instance.paths import archive_path
from medlive.logs import bound
from medlive.service.database import handle_key
from medlive.service.release.withdraw import check_given_reason, check_person_name
from medlive.sources.drift import HISTORY, Compared, compare, measures, reads_nothing
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.files import ImportedThread, ImportProblem, read_threads
from medlive.sources.harvest import HarvestEnd, harvest
from medlive.sources.ledger import HarvestProblem
from medlive.sources.source import REFUSALS, Site
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

from .ledger import PostgresLedger, Tick
from .raw_files import seal_archives
from .sources import fetch_settings

_BATCH = 500
"""Imported threads saved in one transaction."""


@dataclass
class HarvestResult:
    """The result of harvesting one source."""

    source: str
    iso_week: str
    counts: Counter[str] = field(default_factory=Counter)  # As `PostgresLedger.counts`
    problems: list[HarvestProblem] = field(default_factory=list)
    # Why the source was not read to its end; None if it was, or stopped at the limit
    failed: str | None = None
    quarantined: str | None = None  # Why the source is or was quarantined
    busy: bool = False  # Whether another process harvests it or applies retention; `failed` says so
    # Whether this week was harvested before; nothing was fetched
    already_done: bool = False
    limited: bool = False  # Whether it stopped at the limit; the week is not done then
    # The run's figures beside those of earlier runs
    drift: list[Compared] = field(default_factory=list)


async def harvest_source(
    database: Database,
    settings: Settings,
    site: Site,
    *,
    week: str | None = None,
    since: datetime | None = None,
    limit: int | None = None,
    again: bool = False,
    tick: Tick = lambda _: None,
) -> HarvestResult:
    """Harvest one source for an ISO week; None for the current one.

    A page or thread that fails is a problem and does not end the harvest. A week that is done is harvested again
    only with `again`. Raises DatabaseUnavailable and ArchiveDamaged; the next
    call resumes the run. Raises also ConfigError, and UsageError for a source that is switched off.
    """
    source = site.name
    done = HarvestResult(source, week or iso_week(now()))
    if not site.settings.enabled:
        raise UsageError(
            f"{source} is switched off",
            hint=f"[sources.{source}] enabled = true in sources.toml",
        )
    key, fetching = handle_key(settings), fetch_settings(settings)
    connections = fetching.concurrency_per_host
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            done.busy, done.failed = True, "another process is harvesting it"
            return done
        async with database.begin() as session:
            info = await find_source(session, source)
            if info and info.quarantine_reason:
                done.quarantined = info.quarantine_reason
                return done
            run = await harvests.start_harvest(
                session, source, done.iso_week, again=again
            )
        if run is None:
            done.already_done = True
            return done
        with bound(source=source, run=run.run_id):
            try:
                folder = archive_path(settings)
                await seal_archives(database, folder, source)
                async with Fetcher(fetching) as fetcher:
                    ledger = PostgresLedger(
                        database=database,
                        run=run,
                        source=source,
                        iso_week=done.iso_week,
                        folder=folder,
                        operator=fetching.contact,
                        overlap=timedelta(days=site.settings.overlap_days),
                        fetcher=fetcher,
                        tick=tick,
                    )
                    try:
                        end = await harvest(
                            site,
                            fetcher.fetch,
                            ledger,
                            anonymise=partial(keyed_handle, key=key),
                            since=since,
                            limit=limit,
                            # Several connections need more readers, to fetch while pages are being saved.
                            concurrency=1 if connections == 1 else 3 * connections,
                        )
                    finally:
                        await ledger.aclose()
                        done.counts, done.problems = ledger.counts, ledger.problems
            except MedliveError as exc:
                await database.ask(harvests.finish_harvest, run, problem=exc.message)
                raise
            await _finish(database, run, done, end)
    return done


async def lift_source_quarantine(
    database: Database,
    source: str,
    *,
    compare_anew: bool,
    reason: str | None,
    by: str | None,
) -> str | None:
    """Lift a source's quarantine; its reason, or None. Raises UsageError for a source that was never harvested.

    With `compare_anew` later harvests are not compared with those so far.
    """
    reason, by = check_given_reason(reason), check_person_name(by)
    async with database.begin() as session:
        info = await find_source(session, source)
        await harvests.lift_quarantine(
            session, source, compare_anew=compare_anew, reason=reason, by=by
        )
    return info.quarantine_reason if info else None


async def find_source(session: Session, source: str) -> harvests.SourceInfo | None:
    """A source's latest harvest and quarantine; None if it is not known."""
    for info in await harvests.list_sources(session):
        if info.name == source:
            return info
    return None


async def _finish(
    database: Database, run: harvests.StartedRun, done: HarvestResult, end: HarvestEnd
) -> None:
    """End the run: set its outcome, its figures and a quarantine."""
    done.limited = end == "limited"
    of_source = [p for p in done.problems if p.ends_source or p.thread_id is None]
    last = of_source[-1] if of_source else None
    if end in ("given_up", "lists_missing"):
        done.failed = last.message if last else "a list could not be read"
    async with database.begin() as session:
        shares, ends = await harvests.run_figures(session, run.run_id)
        if not done.limited:
            past = await harvests.past_measures(
                session, done.source, except_run=run.run_id, runs=HISTORY
            )
            done.drift = compare(measures(shares, ends), past)
            await harvests.save_measures(session, run.run_id, done.drift)
        done.quarantined = _quarantine_reason(done, end, last, reads_nothing(ends))
        if done.quarantined:
            await harvests.quarantine(session, done.source, done.quarantined)
        await harvests.finish_harvest(
            session,
            run,
            problem=done.failed or done.quarantined,
            partial=done.limited,
        )


def _quarantine_reason(
    done: HarvestResult, end: HarvestEnd, last: HarvestProblem | None, is_empty: bool
) -> str | None:
    """Why this run quarantines the source; None: it does not. `last` is its last problem with the whole source."""
    fallen = "; ".join(figure.message for figure in done.drift if figure.collapsed)
    if end == "given_up" and last and last.kind not in REFUSALS:
        return f"in {done.iso_week} its pages stopped fitting: {last.message}"
    if fallen and not done.failed:
        return f"in {done.iso_week} its threads changed: {fallen}"
    if end == "complete" and is_empty:
        return f"in {done.iso_week} no thread fitted a layout"
    return None


async def import_file(
    database: Database,
    path: Path,
    *,
    assume_posted_at: datetime | None,
    handle_key: bytes,
    tick: Tick = lambda _: None,
) -> tuple[Counter[str], list[ImportProblem]]:
    """Import a JSON Lines file; the counts (new, revised, unchanged, taken_down, problems), and the problems.

    Raises BadInput when the file cannot be read.
    """
    counts, problems = Counter[str](), list[ImportProblem]()
    batch: list[ImportedThread] = []
    run = await database.ask(
        start_import, str(path), assumed_posted_at=assume_posted_at
    )

    async def save_batch() -> None:
        """Save and count the threads of the batch, and empty it."""
        counts.update(
            await database.ask(
                store_threads,
                [item.thread for item in batch],
                assumed_posted_at=[item.date_assumed for item in batch],
                import_run_id=run,
            )
        )
        batch.clear()
        tick(counts.total())

    try:
        for item in read_threads(
            path, assume_posted_at=assume_posted_at, handle_key=handle_key
        ):
            if isinstance(item, ImportProblem):
                problems.append(item)
                counts["problems"] += 1
                continue
            batch.append(item)
            if len(batch) >= _BATCH:
                await save_batch()
        await save_batch()
    except MedliveError as exc:
        await database.ask(finish_import, run, counts, problem=exc.message)
        raise
    await database.ask(finish_import, run, counts)
    return counts, problems


async def store_threads(
    session: Session,
    threads: Sequence[Thread],
    *,
    fetch_ids: Sequence[int | None] = (),
    assumed_posted_at: Sequence[bool] = (),
    import_run_id: int | None = None,
    is_seen: bool = True,
) -> Counter[str]:
    """Save threads with their identifiers, without those that were taken down; the counts by status.

    `is_seen` is as for `save_threads`.
    """
    if not threads:
        return Counter()
    erased = await keep_out(session, threads)
    stays = [(thread.source, thread.thread_id) not in erased for thread in threads]
    kept = list(compress(threads, stays))
    saved = await save_threads(
        session,
        kept,
        fetch_ids=list(compress(fetch_ids, stays)) or None,
        assumed_posted_at=list(compress(assumed_posted_at, stays)) or None,
        import_run_id=import_run_id,
        is_seen=is_seen,
    )
    identifiers = []
    for done, thread in zip(saved, kept, strict=True):
        is_same = done.status == "unchanged"
        identifiers.append([] if is_same else thread_identifiers(thread))
    await save_identifiers(session, saved, identifiers)
    counts = Counter[str](done.status for done in saved)
    counts[TAKEN_DOWN] = len(threads) - len(kept)
    return +counts
