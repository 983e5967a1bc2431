"""Harvests: one run a source and week, how far its lists were read, the rules it went by and its figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.audit_log import record
from medlive.db.harvest.frontier import unsettle
from medlive.db.mapping import Record, dump_json, insert_rows, read, row_of
from medlive.db.tables.intake import (
    FrontierRow,
    HarvestMeasureRow,
    HarvestRobotsRow,
    HarvestRunRow,
    ListCursorRow,
    RunOutcome,
    SourceKind,
    SourceRow,
)
from medlive.db.tables.people import Act
from medlive.db.threads.threads import ensure_sources
from medlive.errors import MedliveError, UsageError
from medlive.sources.drift import Compared, Measure
from medlive.sources.fetching.policy import Robots
from medlive.sources.ledger import Listed, ListState
from medlive.sources.source import PageRequest

_ADD_COUNTS = text(
    "UPDATE harvest_runs SET counts = coalesce((SELECT jsonb_object_agg(name, total) FROM"
    " (SELECT name, sum(n::bigint) AS total FROM (SELECT * FROM jsonb_each_text(counts)"
    " UNION ALL SELECT * FROM jsonb_each_text(CAST(:added AS jsonb))) AS each (name, n) GROUP BY name) AS sums),"
    " '{}') WHERE id = :run_id AND starts = :start RETURNING id"
)
# A median: one endless thread must not make a week's threads long.
_FIELDS = text(
    "SELECT f.key, count(*), coalesce(avg(CASE f.value WHEN 'true' THEN 1 WHEN 'false' THEN 0 END),"
    " percentile_cont(0.5) WITHIN GROUP"
    " (ORDER BY CASE WHEN f.value NOT IN ('true', 'false') THEN f.value::float END))"
    " FROM frontier, jsonb_each_text(fields) AS f WHERE run_id = :run_id AND state = 'read' GROUP BY f.key"
)


class HarvestTakenOver(MedliveError):
    """Another process has taken this harvest over."""


StartedRun = Record
"""A run of this week that is now this process's: run_id, start (how often it was begun or taken up again, from 1),
started_at."""


async def start_harvest(
    session: AsyncSession,
    source: str,
    iso_week: str,
    *,
    again: bool = False,
) -> StartedRun | None:
    """Begin or resume the source's run of that week; None when it is done already.

    With `again` a run that is done is repeated from its lists' beginning.
    """
    await ensure_sources(session, [source], SourceKind.SITE)
    row = HarvestRunRow
    existing = select(row.outcome == RunOutcome.DONE).where(
        row.source == source, row.iso_week == iso_week
    )
    was_done = await session.scalar(existing.with_for_update())
    if was_done and not again:
        return None
    statement = upsert(row).values(
        source=source, iso_week=iso_week, outcome=RunOutcome.RUNNING
    )
    statement = statement.on_conflict_do_update(
        index_elements=["source", "iso_week"],
        set_={
            "outcome": RunOutcome.RUNNING,
            "finished_at": None,
            "problem": None,
            "starts": row.starts + 1,
        },
    )
    columns = (row.id.label("run_id"), row.starts.label("start"), row.started_at)
    started = (await session.execute(statement.returning(*columns))).one()
    if was_done:
        # What its lists show is counted anew, as they are read anew.
        own = update(row).where(row.id == started.run_id)
        await session.execute(own.values(counts=text("counts - 'listed'")))
        cursors = delete(ListCursorRow).where(ListCursorRow.run_id == started.run_id)
        await session.execute(cursors)
        await unsettle(session, started.run_id)
    return started


async def add_counts(
    session: AsyncSession, run: StartedRun, counts: Mapping[str, int]
) -> None:
    """Add to a run's counts, and keep any other process from taking it up until the transaction ends.

    Raises HarvestTakenOver where one has: what this process would write belongs to that one now.
    """
    named = {"run_id": run.run_id, "start": run.start, "added": dump_json(dict(counts))}
    if await session.scalar(_ADD_COUNTS, named) is None:
        raise HarvestTakenOver(
            "another process has taken this harvest over, as the connection that held its lock was lost",
            hint="nothing is lost; the other process goes on with it",
        )


async def finish_harvest(
    session: AsyncSession,
    run: StartedRun,
    counts: Mapping[str, int],
    *,
    problem: str | None = None,
    partial: bool = False,
) -> None:
    """End a run: done, failed with its problem, or `partial` when it stopped at a limit that was set.

    `counts` are added to what it has. Raises HarvestTakenOver.
    """
    await add_counts(session, run, counts)
    ended = RunOutcome.PARTIAL if partial else RunOutcome.DONE
    outcome = ended if problem is None else RunOutcome.FAILED
    statement = update(HarvestRunRow).where(HarvestRunRow.id == run.run_id)
    await session.execute(
        statement.values(outcome=outcome, finished_at=func.now(), problem=problem)
    )


async def save_cursor(session: AsyncSession, run_id: int, listed: Listed) -> None:
    """How far a list was read: `next_page` is where a run that is taken up goes on.

    A page that is asked for with a form is none to go on with, as forms hold what is valid for a visit.
    """
    row, following = ListCursorRow, listed.next_page
    values = {
        "next_url": following.url
        if following is not None and following.form is None
        else None,
        "finished_at": func.now() if listed.finished else None,
    }
    key = {"run_id": run_id, "list_key": listed.list_key}
    statement = upsert(row).values(**key, **values, pages=1, newest_at=listed.newest_at)
    newest = func.greatest(row.newest_at, statement.excluded.newest_at)
    seen = {"pages": row.pages + 1, "newest_at": newest}
    await session.execute(
        statement.on_conflict_do_update(index_elements=list(key), set_=values | seen)
    )


async def list_state(
    session: AsyncSession, run_id: int, source: str, key: str, overlap: timedelta
) -> ListState:
    """How far this run has read a list, and the moment before which earlier runs saw all activity.

    That moment is the latest activity that a run saw which read the list to its end, less `overlap`: late
    replies and edits are met again.
    """
    row = ListCursorRow
    own = await session.get(row, (run_id, key), populate_existing=True)
    earlier = (
        select(func.max(row.newest_at), func.max(row.run_id))
        .join(HarvestRunRow, HarvestRunRow.id == row.run_id)
        .where(HarvestRunRow.source == source, row.list_key == key)
        .where(row.run_id != run_id, row.finished_at.is_not(None))
    )
    seen, read_by = (await session.execute(earlier)).one()
    return ListState(
        finished=own is not None and own.finished_at is not None,
        next_page=PageRequest(own.next_url)
        if own is not None and own.next_url is not None
        else None,
        cutoff=None if seen is None else seen - overlap,
        read_by=read_by,
    )


async def save_robots(
    session: AsyncSession, run_id: int, robots: Sequence[Robots]
) -> None:
    """The rules that a run went by."""
    rows = []
    for fetched in robots:
        body = fetched.body.decode("utf-8", "replace")
        rows.append(
            row_of(
                HarvestRobotsRow,
                fetched,
                run_id=run_id,
                body=body,
                detail=fetched.detail or None,
            )
        )
    await insert_rows(session, HarvestRobotsRow, rows, skip_known=True)


async def run_figures(
    session: AsyncSession, run_id: int
) -> tuple[dict[str, tuple[float, int]], Counter[str]]:
    """Of the threads that a run read, field → (share with it, or median; over how many); and state or reason → how
    many threads ended so, with "listed": how many its lists showed that were to be read."""
    fields = await session.execute(_FIELDS, {"run_id": run_id})
    shares = {key: (float(value), int(n)) for key, n, value in fields}
    row = FrontierRow
    states = await session.execute(
        select(row.state, row.reason, func.count())
        .where(row.run_id == run_id)
        .group_by(row.state, row.reason)
    )
    ends: Counter[str] = Counter()
    for state, reason, count in states:
        ends[reason or state.value] += count
    counts = await session.scalar(
        select(HarvestRunRow.counts).where(HarvestRunRow.id == run_id)
    )
    ends["listed"] = (counts or {}).get("listed", 0)
    return shares, ends


async def save_measures(
    session: AsyncSession, run_id: int, measures: Sequence[Compared]
) -> None:
    """A run's figures beside the medians they were compared with."""
    await session.execute(
        delete(HarvestMeasureRow).where(HarvestMeasureRow.run_id == run_id)
    )
    rows = [row_of(HarvestMeasureRow, m, run_id=run_id) for m in measures]
    await insert_rows(session, HarvestMeasureRow, rows)


async def past_measures(
    session: AsyncSession, source: str, *, before_run: int, runs: int
) -> list[dict[str, Measure]]:
    """The figures of a source's latest other runs that are done, newest first; none from before its figures
    began anew."""
    row, run = HarvestMeasureRow, HarvestRunRow
    latest = (
        select(run.id)
        .join(SourceRow, SourceRow.name == run.source)
        .where(
            run.source == source,
            run.id != before_run,
            run.outcome == RunOutcome.DONE,
            run.started_at >= func.coalesce(SourceRow.compared_since, run.started_at),
        )
        .order_by(run.iso_week.desc())
        .limit(runs)
    )
    measures: dict[int, dict[str, Measure]] = {
        pk: {} for pk in await session.scalars(latest)
    }
    query = select(row.run_id, row.name, row.value, row.n).where(
        row.run_id.in_(measures)
    )
    for run_id, name, value, n in await session.execute(query):
        measures[run_id][name] = value, n
    return list(measures.values())


async def latest_measures(
    session: AsyncSession, source: str
) -> tuple[str, list[Compared]] | None:
    """The ISO week and the figures of the source's latest run that has any."""
    row, run = HarvestMeasureRow, HarvestRunRow
    measured = select(row.run_id).where(row.run_id == run.id).exists()
    query = (
        select(run)
        .where(run.source == source, measured)
        .order_by(run.iso_week.desc())
        .limit(1)
    )
    if (latest := await session.scalar(query)) is None:
        return None
    figures = await session.scalars(
        select(row).where(row.run_id == latest.id).order_by(row.name)
    )
    return latest.iso_week, [read(Compared, m) for m in figures]


async def latest_run(session: AsyncSession, source: str) -> tuple[int, bool] | None:
    """The source's latest harvest that has ended, and whether it has figures; None without any."""
    row = HarvestRunRow
    measured = (
        select(HarvestMeasureRow.run_id)
        .where(HarvestMeasureRow.run_id == row.id)
        .exists()
    )
    ended = select(row.id, measured).where(
        row.source == source, row.outcome != RunOutcome.RUNNING
    )
    run = (
        await session.execute(ended.order_by(row.iso_week.desc()).limit(1))
    ).one_or_none()
    return None if run is None else (run[0], run[1])


async def quarantine(session: AsyncSession, source: str, reason: str) -> None:
    """Leave a source out of harvests from now on. Raises UsageError when there is no such source."""
    await _set_source(
        session, source, quarantined_at=func.now(), quarantine_reason=reason
    )


async def lift_quarantine(
    session: AsyncSession,
    source: str,
    *,
    compare_anew: bool = False,
    reason: str | None = None,
    by: str | None = None,
) -> None:
    """Take a source into harvests again; with `compare_anew` its earlier figures are no measure any more.

    Raises UsageError when there is no such source.
    """
    anew = {"compared_since": func.now()} if compare_anew else {}
    await _set_source(
        session, source, quarantined_at=None, quarantine_reason=None, **anew
    )
    await record(
        session,
        Act.LIFT_QUARANTINE,
        f"source:{source}",
        reason,
        by=by,
        compare_anew=compare_anew,
    )


async def _set_source(session: AsyncSession, source: str, **values: Any) -> None:
    statement = update(SourceRow).where(SourceRow.name == source).values(**values)
    if await session.scalar(statement.returning(SourceRow.name)) is None:
        raise UsageError(f"there is no source {source}")


async def list_sources(session: AsyncSession) -> Sequence[Record]:
    """Every source, by name: name, kind, quarantined_at, quarantine_reason, and of its latest harvest the ISO week
    (last_run) and last_outcome; None when it was never harvested."""
    row, run = SourceRow, HarvestRunRow
    newest = select(run.source, run.iso_week, run.outcome).ext(distinct_on(run.source))
    latest = newest.order_by(run.source, run.iso_week.desc()).subquery().c
    query = select(
        row.name,
        row.kind,
        row.quarantined_at,
        row.quarantine_reason,
        latest.iso_week.label("last_run"),
        latest.outcome.label("last_outcome"),
    )
    query = query.outerjoin(latest.source.table, latest.source == row.name)
    return (await session.execute(query.order_by(row.name))).all()
