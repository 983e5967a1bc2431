"""Harvest communities, one run per source and ISO week, resumed after a kill, checked for drift; import files."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.harvest import harvests
from medlive.db.harvest.frontier import count_left_over
from medlive.db.runs import finish_import, save_problems, start_import
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.tables.intake import RunOutcome
from medlive.db.threads.takedowns import TAKEN_DOWN, keep_out
from medlive.db.threads.threads import save_identifiers, save_threads
from medlive.deidentify.detect import keyed_handle
from medlive.errors import BadInput, MedliveError, UsageError
from medlive.instance.paths import archive_path
from medlive.logs import bound
from medlive.service.database import handle_key
from medlive.service.harvest.ledger import PostgresLedger
from medlive.service.harvest.raw_files import seal_archives
from medlive.service.harvest.sources import fetch_settings, not_modified_share
from medlive.sources.drift import HISTORY, Compared, compare, measures, reads_nothing
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.files import ImportedThread, ImportProblem, read_threads
from medlive.sources.harvest import HarvestEnd, harvest
from medlive.sources.ledger import HarvestProblem
from medlive.sources.registry import build_site
from medlive.sources.source import REFUSALS
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

_BATCH = 500
"""Imported threads saved in one transaction."""


@dataclass(slots=True)
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

    @property
    def not_modified_share(self) -> float | None:
        """The share of conditional requests answered with 304; None without such requests."""
        return not_modified_share(self.counts)


async def harvest_source(
    database: Database,
    settings: Settings,
    source: str,
    overrides: Mapping[str, Any],
    *,
    week: str | None = None,
    since: datetime | None = None,
    limit: int | None = None,
    again: bool = False,
    tick: Callable[[int], None] = lambda _: None,
) -> HarvestResult:
    """Harvest one source for an ISO week; None for the current one.

    A page or thread that fails is a problem and does not end the harvest. A week that is done is harvested again
    only with `again`. Raises DatabaseUnavailable and ArchiveDamaged; the next
    call resumes the run. Raises also ConfigError, and UsageError for a source that is switched off.
    """
    done = HarvestResult(source, week or iso_week(now()))
    site = build_site(source, overrides)
    if not site.settings.enabled:
        raise UsageError(
            f"{source} is switched off",
            hint=f"[sources.{source}] enabled = true in sources.toml",
        )
    anonymise = partial(keyed_handle, key=handle_key(settings))
    fetching = fetch_settings(settings)
    connections = fetching.concurrency_per_host
    folder = archive_path(settings)
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            done.busy, done.failed = True, "another process is harvesting it"
            return done
        async with database.begin() as session:
            info = await find_source(session, source)
            if info is not None and info.quarantine_reason is not None:
                done.quarantined = info.quarantine_reason
                return done
            run = await harvests.start_harvest(
                session,
                source,
                done.iso_week,
                again=again,
            )
        if run is None:
            done.already_done = True
            return done
        with bound(source=source, run=run.run_id):
            try:
                await seal_archives(database, folder, source)
                async with Fetcher(fetching) as fetcher:
                    overlap = timedelta(days=site.settings.overlap_days)
                    ledger = PostgresLedger(
                        database=database,
                        run=run,
                        source=source,
                        iso_week=done.iso_week,
                        folder=folder,
                        operator=fetching.contact,
                        overlap=overlap,
                        fetcher=fetcher,
                        tick=tick,
                    )
                    # Several connections need more readers, to fetch while pages are being saved.
                    readers = 1 if connections == 1 else 3 * connections
                    try:
                        end = await harvest(
                            site,
                            site.settings.base_url,
                            fetcher.fetch,
                            ledger,
                            anonymise=anonymise,
                            since=since,
                            limit=limit,
                            concurrency=readers,
                        )
                    finally:
                        await ledger.aclose()
                        done.counts, done.problems = ledger.counts, ledger.problems
            except MedliveError as exc:
                async with database.begin() as session:
                    await harvests.finish_harvest(session, run, {}, problem=exc.message)
                raise
            await _finish(database, run, done, end)
    return done


async def describe_next_harvest(
    database: Database, source: str, *, again: bool = False
) -> str:
    """Describe what a harvest of this source would do now."""
    week = iso_week(now())
    async with database.begin() as session:
        info = await find_source(session, source)
        waiting = await count_left_over(session, source)
    outcome = info.last_outcome if info is not None and info.last_run == week else None
    if info is not None and info.quarantine_reason is not None:
        return f"nothing: quarantined, {info.quarantine_reason}"
    if outcome == RunOutcome.DONE and not again:
        return f"nothing: {week} is done"
    begun = {None: "begin", RunOutcome.DONE: "repeat"}.get(outcome, "go on with")
    return f"{begun} {week}" + (f"; {waiting} threads wait" if waiting else "")


async def lift_source_quarantine(
    database: Database,
    source: str,
    *,
    compare_anew: bool,
    reason: str | None = None,
    by: str | None = None,
) -> str | None:
    """Lift a source's quarantine; its reason, or None. Raises UsageError for a source that was never harvested."""
    async with database.begin() as session:
        info = await find_source(session, source)
        if info is None:
            raise UsageError(
                f"{source} was never harvested, so it has no quarantine to lift"
            )
        await harvests.lift_quarantine(
            session,
            source,
            compare_anew=compare_anew,
            reason=reason,
            by=by,
        )
        lifted: str | None = info.quarantine_reason
        return lifted


async def find_source(session: Session, source: str) -> harvests.SourceInfo | None:
    """A source's latest harvest and quarantine; None if it is not known."""
    sources = {info.name: info for info in await harvests.list_sources(session)}
    return sources.get(source)


async def compare_run(
    session: Session, source: str, run_id: int
) -> tuple[list[Compared], Mapping[str, int]]:
    """A run's figures beside those of earlier runs, and its threads by their end."""
    shares, ends = await harvests.run_figures(session, run_id)
    past = await harvests.past_measures(
        session, source, before_run=run_id, runs=HISTORY
    )
    return compare(measures(shares, ends), past), ends


async def _finish(
    database: Database, run: harvests.StartedRun, done: HarvestResult, end: HarvestEnd
) -> None:
    """End the run: set its outcome, its figures and a quarantine."""
    done.limited = end is HarvestEnd.LIMITED
    of_source = [p for p in done.problems if p.ends_source or p.thread_id is None]
    last = of_source[-1] if of_source else None
    if end in (HarvestEnd.GIVEN_UP, HarvestEnd.LISTS_MISSING):
        done.failed = last.message if last is not None else "a list could not be read"
    async with database.begin() as session:
        drift, ends = await compare_run(session, done.source, run.run_id)
        if not done.limited:
            done.drift = drift
            await harvests.save_measures(session, run.run_id, drift)
        why = _quarantine_reason(done, end, last, is_empty=reads_nothing(ends))
        done.quarantined = why
        if why is not None:
            await harvests.quarantine(session, done.source, why)
        problem = done.failed or done.quarantined
        await harvests.finish_harvest(
            session, run, {}, problem=problem, partial=done.limited
        )


def _quarantine_reason(
    done: HarvestResult, end: HarvestEnd, last: HarvestProblem | None, *, is_empty: bool
) -> str | None:
    fallen = "; ".join(figure.message for figure in done.drift if figure.collapsed)
    if end is HarvestEnd.GIVEN_UP and last is not None and last.kind not in REFUSALS:
        return f"in {done.iso_week} its pages stopped fitting: {last.message}"
    if fallen and not done.failed:
        return f"in {done.iso_week} its threads changed: {fallen}"
    if end is HarvestEnd.COMPLETE and is_empty:
        return f"in {done.iso_week} no thread fitted a layout"
    return None


@dataclass(slots=True)
class ImportResult:
    """The result of importing one file."""

    file: Path
    counts: Counter[str] = field(default_factory=Counter)
    """"new", "revised", "unchanged", "taken_down", "problems"."""
    problems: list[ImportProblem] = field(default_factory=list)


async def import_file(
    database: Database,
    path: Path,
    *,
    assume_posted_at: datetime | None,
    handle_key: bytes,
    tick: Callable[[int], None] = lambda _: None,
) -> ImportResult:
    """Import a JSON Lines file. Raises BadInput when the file cannot be read."""
    if not await asyncio.to_thread(path.is_file):
        raise BadInput(
            f"{path} is not a file",
            hint="give a file of threads, one JSON object a line",
        )
    done = ImportResult(path)
    async with database.begin() as session:
        run = await start_import(session, str(path), assumed_posted_at=assume_posted_at)
    try:
        batch: list[ImportedThread] = []
        for item in read_threads(
            path, assume_posted_at=assume_posted_at, handle_key=handle_key
        ):
            if isinstance(item, ImportProblem):
                done.problems.append(item)
                done.counts["problems"] += 1
                continue
            batch.append(item)
            if len(batch) >= _BATCH:
                await _save_batch(database, run, batch, done)
                tick(sum(done.counts[k] for k in ("new", "revised", "unchanged")))
                batch = []
        await _save_batch(database, run, batch, done)
    except MedliveError as exc:
        async with database.begin() as session:
            await finish_import(session, run, done.counts, problem=exc.message)
        raise
    async with database.begin() as session:
        await save_problems(session, run, str(path), done.problems)
        await finish_import(session, run, done.counts)
    return done


async def _save_batch(
    database: Database, run: int, batch: Sequence[ImportedThread], done: ImportResult
) -> None:
    threads = [item.thread for item in batch]
    assumed = [item.date_assumed for item in batch]
    async with database.begin() as session:
        done.counts += await store_threads(
            session, threads, assumed_posted_at=assumed, import_run_id=run
        )


async def store_threads(
    session: Session,
    threads: Sequence[Thread],
    *,
    fetch_ids: Sequence[int | None] = (),
    assumed_posted_at: Sequence[bool] = (),
    import_run_id: int | None = None,
) -> Counter[str]:
    """Save threads with their identifiers, without those that were taken down; the counts by status."""
    if not threads:
        return Counter()
    erased = await keep_out(session, threads)
    chosen, fetched, assumed = list[Thread](), list[int | None](), list[bool]()
    for place, thread in enumerate(threads):
        if (thread.source, thread.thread_id) not in erased:
            chosen.append(thread)
            fetched.append(fetch_ids[place] if fetch_ids else None)
            assumed.append(bool(assumed_posted_at) and assumed_posted_at[place])
    saved = await save_threads(
        session,
        chosen,
        fetch_ids=fetched if fetch_ids else None,
        assumed_posted_at=assumed,
        import_run_id=import_run_id,
    )
    identifiers = []
    for done, thread in zip(saved, chosen, strict=True):
        is_same = done.status == "unchanged"
        identifiers.append(() if is_same else thread_identifiers(thread))
    await save_identifiers(session, saved, identifiers)
    counts = Counter[str](done.status for done in saved)
    counts[TAKEN_DOWN] = len(threads) - len(chosen)
    return +counts
