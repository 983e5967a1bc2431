"""Harvest runs, one for each source and ISO week: begun, resumed and finished, how far lists were read, the robots.txt
that applied, and the run's figures; and the quarantine of sources."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from psycopg.types.json import Json

from medlive.db.audit_log import record
from medlive.db.mapping import Record, read, row_of
from medlive.db.session import Session
from medlive.db.tables.intake import (
    HarvestMeasureRow,
    HarvestRobotsRow,
    RunOutcome,
)
from medlive.db.tables.people import Act
from medlive.db.threads.threads import ensure_sources
from medlive.errors import MedliveError, UsageError
from medlive.sources.drift import Compared, Measure
from medlive.sources.fetching.policy import Robots
from medlive.sources.ledger import Listed, ListState
from medlive.sources.source import PageRequest

from .frontier import unsettle

_ADD_COUNTS = """
    UPDATE harvest_runs SET counts = coalesce((SELECT jsonb_object_agg(name, total) FROM
    (SELECT name, sum(n::bigint) AS total FROM (SELECT * FROM jsonb_each_text(counts)
    UNION ALL SELECT * FROM jsonb_each_text(CAST(:added AS jsonb))) AS each (name, n) GROUP BY name) AS sums),
    '{}') WHERE id = :run_id AND starts = :start RETURNING id
"""
# The share of true; of numbers the median, as one endless thread must not make a week's threads long.
_FIELDS = """
    SELECT f.key, count(*) AS n, coalesce(
        avg(CASE f.value WHEN 'true' THEN 1 WHEN 'false' THEN 0 END), percentile_cont(0.5) WITHIN GROUP
            (ORDER BY CASE WHEN f.value NOT IN ('true', 'false') THEN f.value::float END)
    ) AS share
    FROM frontier, jsonb_each_text(fields) AS f WHERE run_id = :run_id AND state = 'read' GROUP BY f.key
"""
_ENDS = """
    SELECT coalesce(reason, state) AS name, count(*) AS n FROM frontier WHERE run_id = :run_id GROUP BY 1
    UNION ALL SELECT 'listed', coalesce((counts ->> 'listed')::int, 0) FROM harvest_runs WHERE id = :run_id
"""
_PAST = """
    SELECT run.id AS run_id, measure, value, n FROM (
        SELECT harvest_runs.id, iso_week FROM harvest_runs JOIN sources ON name = source
        WHERE source = :source AND harvest_runs.id <> :except_run AND outcome = 'done'
            AND started_at >= coalesce(compared_since, started_at)
        ORDER BY iso_week DESC LIMIT :runs
    ) AS run LEFT JOIN harvest_measures ON run_id = run.id ORDER BY iso_week DESC
"""
_MEASURED = """
    SELECT id, iso_week AS week FROM harvest_runs
    WHERE source = :source AND EXISTS (SELECT FROM harvest_measures WHERE run_id = harvest_runs.id)
    ORDER BY iso_week DESC LIMIT 1
"""
_SOURCES = """
    SELECT name, kind, quarantined_at, quarantine_reason, latest.iso_week AS last_run, latest.outcome AS last_outcome
    FROM sources LEFT JOIN LATERAL (
        SELECT iso_week, outcome FROM harvest_runs WHERE source = name ORDER BY iso_week DESC LIMIT 1
    ) AS latest ON true ORDER BY name
"""


StartedRun = Record
"""A run that this process works on: run_id, start (how often the run was begun or resumed, from 1) and started_at."""


# For a run that is repeated: lists are read from their beginning, and what they show is counted again.
_READ_ANEW = (
    "UPDATE harvest_runs SET counts = counts - 'listed' WHERE id = :run",
    "DELETE FROM list_cursors WHERE run_id = :run",
)


async def start_harvest(
    session: Session,
    source: str,
    iso_week: str,
    *,
    again: bool = False,
) -> StartedRun | None:
    """Begin or resume the source's run of a week; None if it is done already.

    With `again` a run that is done is repeated from its lists' beginning.
    """
    await ensure_sources(session, [source], "site")
    named = {"source": source, "week": iso_week}
    was_done = await session.value(
        "SELECT outcome = 'done' FROM harvest_runs WHERE source = :source AND iso_week = :week FOR UPDATE",
        **named,
    )
    if was_done and not again:
        return None
    [started] = await session.records(
        """
        INSERT INTO harvest_runs AS run (source, iso_week, outcome) VALUES (:source, :week, 'running')
        ON CONFLICT (source, iso_week) DO UPDATE
        SET outcome = 'running', finished_at = NULL, problem = NULL, starts = run.starts + 1
        RETURNING id AS run_id, starts AS start, started_at
        """,
        **named,
    )
    if was_done:
        for statement in _READ_ANEW:
            await session.run(statement, run=started.run_id)
        await unsettle(session, started.run_id)
    return started


async def add_counts(
    session: Session, run: StartedRun, counts: Mapping[str, int]
) -> None:
    """Add to a run's counts, and keep other processes from resuming the run until the transaction ends.

    Raises MedliveError if one has: this process must not write for the run any more.
    """
    named = {"run_id": run.run_id, "start": run.start, "added": Json(dict(counts))}
    if await session.value(_ADD_COUNTS, **named) is None:
        raise MedliveError(
            "another process has taken this harvest over, as the connection that held its lock was lost",
            hint="nothing is lost; the other process goes on with it",
        )


async def finish_harvest(
    session: Session,
    run: StartedRun,
    *,
    problem: str | None = None,
    partial: bool = False,
) -> None:
    """End a run: done, failed with its problem, or `partial` when it stopped at a limit that was set.

    Raises MedliveError where another process has taken it over.
    """
    await add_counts(session, run, {})
    outcome = RunOutcome.PARTIAL if partial else RunOutcome.DONE
    if problem is not None:
        outcome = RunOutcome.FAILED
    await session.run(
        "UPDATE harvest_runs SET outcome = :outcome, finished_at = now(), problem = :problem WHERE id = :id",
        id=run.run_id,
        outcome=outcome,
        problem=problem,
    )


async def save_cursor(session: Session, run_id: int, listed: Listed) -> None:
    """Save how far a list was read: a run that is resumed goes on with `next_page`.

    A next page that needs a form is not saved, as forms are valid for one visit: the list is read from its beginning.
    """
    next_url = None
    if (following := listed.next_page) is not None and following.form is None:
        next_url = following.url
    await session.run(
        """
        INSERT INTO list_cursors AS known (run_id, list_key, next_url, pages, newest_at, finished_at)
        VALUES (:run, :key, :next, 1, :newest, CASE WHEN :finished THEN now() END)
        ON CONFLICT (run_id, list_key) DO UPDATE SET next_url = excluded.next_url, pages = known.pages + 1,
            newest_at = greatest(known.newest_at, excluded.newest_at), finished_at = excluded.finished_at
        """,
        run=run_id,
        key=listed.list_key,
        next=next_url,
        newest=listed.newest_at,
        finished=listed.next_page is None,
    )


async def list_state(
    session: Session, run_id: int, source: str, key: str, overlap: timedelta
) -> ListState:
    """How far this run has read the list `key`, and the moment before which other runs saw all activity.

    That moment is the latest activity seen by a run that read the list to its end, less `overlap`, so that late
    replies and edits are met.
    """
    [state] = await session.records(
        """
        SELECT max(newest_at) FILTER (WHERE run_id <> :run) - CAST(:overlap AS interval) AS cutoff,
            max(run_id) FILTER (WHERE run_id <> :run) AS read_by, coalesce(bool_or(run_id = :run), false) AS finished,
            (SELECT next_url FROM list_cursors WHERE run_id = :run AND list_key = :key) AS next_url
        FROM list_cursors AS c JOIN harvest_runs ON harvest_runs.id = run_id
        WHERE source = :source AND list_key = :key AND c.finished_at IS NOT NULL
        """,
        run=run_id,
        source=source,
        key=key,
        overlap=overlap,
    )
    url = state.next_url
    return read(ListState, state, next_page=None if url is None else PageRequest(url))


async def save_robots(session: Session, run_id: int, robots: Sequence[Robots]) -> None:
    """Save the robots.txt files that a run went by."""
    rows = []
    for fetched in robots:
        body, detail = fetched.body.decode("utf-8", "replace"), fetched.detail or None
        texts = {"body": body, "detail": detail}
        rows.append(row_of(HarvestRobotsRow, fetched, run_id=run_id, **texts))
    await session.insert_rows(HarvestRobotsRow, rows, skip_known=True)


async def run_figures(
    session: Session, run_id: int
) -> tuple[dict[str, tuple[float, int]], Counter[str]]:
    """Two figures of a run: field of the threads read → (share that has it, or median; over how many threads); and
    reason, or else state → how many threads ended with it, "listed" being the threads to read that its lists showed."""
    shares = {}
    for key, n, share in await session.run(_FIELDS, run_id=run_id):
        shares[key] = float(share), n
    return shares, Counter(await session.lookup(_ENDS, run_id=run_id))


async def save_measures(
    session: Session, run_id: int, measures: Sequence[Compared]
) -> None:
    """Replace a run's figures, each with the median that it was compared with."""
    await session.run("DELETE FROM harvest_measures WHERE run_id = :run", run=run_id)
    rows = [row_of(HarvestMeasureRow, m, run_id=run_id) for m in measures]
    await session.insert_rows(HarvestMeasureRow, rows)


async def past_measures(
    session: Session, source: str, *, except_run: int, runs: int
) -> list[dict[str, Measure]]:
    """The figures, by name, of a source's latest done runs except one, newest first, at most `runs`; none of runs
    begun before the source's `compared_since`."""
    measures: dict[int, dict[str, Measure]] = {}
    for run_id, name, value, n in await session.run(
        _PAST, source=source, except_run=except_run, runs=runs
    ):
        own = measures.setdefault(run_id, {})
        if name is not None:
            own[name] = value, n
    return list(measures.values())


async def latest_measures(
    session: Session, source: str
) -> tuple[str, list[Compared]] | None:
    """The ISO week and the figures of the source's latest run that has figures; None if no run has."""
    for run_id, week in await session.run(_MEASURED, source=source):
        figures = await session.rows(
            HarvestMeasureRow, "WHERE run_id = :run ORDER BY measure", run=run_id
        )
        return week, [read(Compared, figure) for figure in figures]
    return None


async def quarantine(session: Session, source: str, reason: str) -> None:
    """Leave a source out of harvests from now on. Raises UsageError when there is no such source."""
    await _set_source(
        session,
        source,
        "quarantined_at = now(), quarantine_reason = :reason",
        reason=reason,
    )


async def lift_quarantine(
    session: Session,
    source: str,
    *,
    compare_anew: bool = False,
    reason: str | None = None,
    by: str | None = None,
) -> None:
    """Take a source into harvests again; with `compare_anew` later runs are not compared with its runs so far.

    Raises UsageError when there is no such source.
    """
    lifted = """
        quarantined_at = NULL, quarantine_reason = NULL,
        compared_since = CASE WHEN :anew THEN now() ELSE compared_since END
    """
    await _set_source(session, source, lifted, anew=compare_anew)
    await record(
        session,
        Act.LIFT_QUARANTINE,
        f"source:{source}",
        reason,
        by=by,
        compare_anew=compare_anew,
    )


async def _set_source(
    session: Session,
    source: str,
    values: str,
    **named: Any,
) -> None:
    changed = f"UPDATE sources SET {values} WHERE name = :source RETURNING name"
    if await session.value(changed, source=source, **named) is None:
        raise UsageError(f"{source} was never harvested")


SourceInfo = Record
"""A source: name, kind, quarantined_at, quarantine_reason, last_run (the latest harvest's ISO week) and last_outcome
(None: there was no harvest)."""


async def list_sources(session: Session) -> list[SourceInfo]:
    """Every source, by name."""
    return await session.records(_SOURCES)
