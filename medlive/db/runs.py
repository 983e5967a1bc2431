"""Records of the program's own runs: imports (`start_import`), commands and weekly steps (`recorded_run`), evaluations.

`load_history` reads what the weekly steps and harvests have recorded, by which the scheduler decides what is due. A
run's outcome is `done`, `failed`, `partial` (to be done again), or `running` until it ends.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func

from medlive import __version__
from medlive.clock import CLOCK_BOUND, iso_week
from medlive.logs import bound, kept_lines

from .mapping import Record, read
from .session import Database, Session
from .tables.intake import ImportRunRow, RunOutcome
from .tables.release import EvaluationRunRow, PipelineRunRow

SCHEDULER = "scheduler"
"""The first word of a weekly step's command in `pipeline_runs`."""
CURATE, FILTER = "curate", "filter"
"""Commands in `pipeline_runs` that do by hand, or by cron, what a weekly step does."""
SCHEDULER_LOCK = 0x6D65644C
""" "medL": the advisory lock that the one scheduler of a database holds."""


async def start_import(
    session: Session, file: str, *, assumed_posted_at: datetime | None = None
) -> int:
    """Return the number of a new import of a file."""
    run = ImportRunRow(
        file=file, assumed_posted_at=assumed_posted_at, outcome=RunOutcome.RUNNING
    )
    return (await session.insert(run)).id


async def finish_import(
    session: Session,
    run_id: int,
    counts: Mapping[str, int],
    *,
    problem: str | None = None,
) -> None:
    """End an import: done, or failed with its problem."""
    run = await session.get_one(ImportRunRow, run_id)
    run.outcome = RunOutcome.DONE if problem is None else RunOutcome.FAILED
    run.counts, run.problem = dict(counts), problem
    run.finished_at = func.now()


@asynccontextmanager
async def recorded_run(
    database: Database,
    command: str,
    settings: Mapping[str, Any],
    *,
    iso_week: str | None = None,
) -> AsyncIterator[PipelineRunRow]:
    """Record the block as a run of a command, for an ISO week or for none; log lines get the run's id.

    The block may set the run's `counts`, and set `failed`, or `partial` if something must be done again. `settings` are
    the effective ones, secrets masked. If the block raises or is killed, the run stays "running".
    """
    run = PipelineRunRow(
        command=command,
        settings=dict(settings),
        week=iso_week,
        code_version=__version__,
        outcome=RunOutcome.RUNNING,
    )
    async with database.begin() as session:
        await session.insert(run)
    with bound(run=run.id), kept_lines() as lines:
        yield run
    run.outcome = RunOutcome.PARTIAL if run.partial else RunOutcome.DONE
    if run.failed:
        run.outcome = RunOutcome.FAILED
    run.log, run.finished_at = list(lines), func.now()
    async with database.begin() as session:
        session.add(run)


async def record_evaluation(
    session: Session,
    *,
    run_digest: str,
    snapshot_version: str,
    model: str,
    grader: str,
    path: str,
    scores: Mapping[str, Any],
) -> int:
    """Insert or update the record of an evaluation, known by its run's digest; return the record's number."""
    run = await session.put(
        EvaluationRunRow,
        {"run_digest": run_digest},
        snapshot_version=snapshot_version,
        model=model,
        grader=grader,
        path=path,
        scores=dict(scores),
    )
    return run.id


async def list_evaluations(session: Session) -> list[EvaluationRunRow]:
    """Every recorded evaluation, the newest snapshot's first, then by model."""
    return await session.rows(
        EvaluationRunRow, "ORDER BY snapshot_version DESC, model, id"
    )


_FOREVER = datetime.max.replace(tzinfo=UTC)
_IS_STEP = f"command LIKE '{SCHEDULER} %'"


@dataclass(frozen=True)
class Run:
    """A run of a weekly step, a harvest of one source among them."""

    # The ISO week that it worked for; None: it was started by hand, for no week
    week: str | None
    outcome: RunOutcome
    started_at: datetime
    finished_at: datetime | None
    counts: dict[str, Any]
    log: Sequence[str] = ()  # The last lines that it logged, without secrets
    starts: int = 1  # How often it was begun; `started_at` of a harvest that was repeated is the first time


async def runs_of_week(
    session: Session, week: str
) -> tuple[dict[str, Run], dict[str, Run]]:
    """For an ISO week: source → its harvest, and step's command → its latest run by the scheduler."""
    harvests = await _read_runs(
        session, f"{_HARVESTS} WHERE iso_week = :week", week=week
    )
    steps = f"{_STEPS} WHERE iso_week = :week AND {_IS_STEP} ORDER BY id"
    return harvests, await _read_runs(session, steps, week=week)


# A harvest's problem is shown with its counts.
_HARVESTS = """
    SELECT source AS name, iso_week AS week, outcome, started_at, finished_at, starts, CAST('[]' AS jsonb) AS log,
        CASE WHEN problem IS NULL THEN counts ELSE counts || jsonb_build_object('problem', problem) END AS counts
    FROM harvest_runs
"""
_STEPS = """
    SELECT command AS name, iso_week AS week, outcome, started_at, finished_at, 1 AS starts, log, counts
    FROM pipeline_runs
"""


async def _read_runs(
    session: Session,
    query: str,
    **values: Any,
) -> dict[str, Run]:
    """The query's `name` (a source or command) → the last run that the query gives for it."""
    return {row.name: read(Run, row) for row in await session.run(query, **values)}


# Runs recorded as done for a week that had not come yet, by a clock that was ahead
_AHEAD = "WHERE iso_week > :week AND started_at <= :until AND outcome = 'done'"
_FORGET_AHEAD = (
    f"UPDATE harvest_runs SET outcome = 'partial' {_AHEAD} RETURNING concat('harvest ', source, ' ', iso_week)",
    f"""
        UPDATE pipeline_runs SET outcome = 'partial',
            counts = counts || jsonb_build_object('again', 'recorded before its week')
        {_AHEAD} AND {_IS_STEP} RETURNING concat(substr(command, {len(SCHEDULER) + 2}), ' ', iso_week)
    """,
)


HarvestHistory = Record
"""One source's harvests: first_at (when its first harvest began), latest (the latest week's, a Run), done_week (the
latest week whose harvest was read to its end; None: none was) and done_at (when that harvest ended)."""


@dataclass(frozen=True)
class History:
    """Everything recorded that decides which weekly steps are due."""

    harvests: Mapping[str, HarvestHistory]  # By source
    # Command, as in `pipeline_runs` → its latest run, by the scheduler or by hand
    latest: Mapping[str, Run]
    done: Mapping[str, Run]  # Command → its latest run whose outcome is done
    frozen_week: str | None  # The latest week that is frozen
    frozen_at: datetime | None
    weeks: frozenset[str]  # The weeks in which the scheduler or a harvest did anything
    quarantined: Mapping[str, str]  # Source → why it is quarantined
    failures: Mapping[str, int] = field(default_factory=dict)
    """Command → how often it failed for the week of its latest run."""
    frozen_ahead: str | None = None
    """The latest frozen week if it is still to come; None: no such week is frozen."""


_LATEST_RUNS = f"""
    {_STEPS} WHERE id IN (
        SELECT max(id) FROM pipeline_runs WHERE ({_IS_STEP} OR command = '{CURATE}')
            AND (iso_week <= :week OR iso_week IS NULL AND started_at <= :until) AND (outcome = 'done' OR NOT :done)
        GROUP BY command
    )
"""
_LATEST_HARVESTS = f"""
    {_HARVESTS} WHERE (source, iso_week) IN (
        SELECT source, max(iso_week) FROM harvest_runs WHERE iso_week <= :week GROUP BY source
    )
"""
_HARVESTED = """
    SELECT source, min(started_at) AS first_at,
        max(iso_week) FILTER (WHERE outcome = 'done' AND iso_week <= :week) AS done_week,
        (array_agg(finished_at ORDER BY iso_week DESC) FILTER (WHERE outcome = 'done' AND iso_week <= :week))[1]
            AS done_at
    FROM harvest_runs GROUP BY source
"""
_FAILURES = "SELECT command, iso_week, count(*) FROM pipeline_runs WHERE outcome = 'failed' GROUP BY 1, 2"
_WEEKS = """
    SELECT iso_week FROM harvest_runs WHERE iso_week <= :week
    UNION SELECT iso_week FROM pipeline_runs WHERE iso_week <= :week
"""
_QUARANTINED = (
    "SELECT name, quarantine_reason FROM sources WHERE quarantine_reason IS NOT NULL"
)


async def load_history(session: Session, moment: datetime | None = None) -> History:
    """What steps, harvests and freezes have recorded up to a moment; None: all of it.

    Records of later weeks, which a clock that was ahead once has left, do not count.
    """
    until = _FOREVER if moment is None else moment + CLOCK_BOUND
    week = iso_week(until)
    steps = {"week": week, "until": until}
    latest = await _read_runs(session, _LATEST_RUNS, **steps, done=False)
    failures = {}
    for command, failed_week, times in await session.run(_FAILURES):
        if command in latest and latest[command].week == failed_week:
            failures[command] = times
    latest_harvests = await _read_runs(session, _LATEST_HARVESTS, week=week)
    harvests = {}
    for row in await session.records(_HARVESTED, week=week):
        if (last := latest_harvests.get(row.source)) is not None:
            row.latest = last
            harvests[row.source] = row
    [frozen] = await session.records(
        """
        SELECT max(version) FILTER (WHERE version <= :week) AS frozen_week,
            (array_agg(frozen_at ORDER BY version DESC) FILTER (WHERE version <= :week))[1] AS frozen_at,
            max(version) FILTER (WHERE version > :week) AS frozen_ahead
        FROM snapshots WHERE state = 'frozen'
        """,
        week=week,
    )
    return History(
        harvests=harvests,
        latest=latest,
        done=await _read_runs(session, _LATEST_RUNS, **steps, done=True),
        weeks=frozenset(await session.column(_WEEKS, week=week)),
        quarantined=await session.lookup(_QUARANTINED),
        failures=failures,
        **vars(frozen),
    )


async def forget_ahead(session: Session, moment: datetime) -> list[str]:
    """Mark runs as `partial` that were recorded as done for weeks still to come, by a clock that was ahead.

    Returns their names with the week. Only runs begun before `moment`: one begun after it shows that the clock is
    behind now.
    """
    until, names = moment + CLOCK_BOUND, []
    for query in _FORGET_AHEAD:
        names += await session.column(query, week=iso_week(until), until=until)
    return sorted(names)


async def clear_runs(
    session: Session, command: str, week: str, *, by_hand: str, since: datetime
) -> int:
    """Mark a step's runs for an ISO week as `partial`, so that it is due again; return how many runs.

    `by_hand` is the command that does the same: its runs without a week from `since` on are marked as well.
    """
    cleared = """
        UPDATE pipeline_runs SET outcome = 'partial', finished_at = coalesce(finished_at, now()),
        counts = counts || '{"again": "cleared"}' WHERE outcome <> 'partial' AND (
            command = :command AND iso_week = :week
            OR command = :by_hand AND iso_week IS NULL AND started_at >= :since
        ) RETURNING id
    """
    return len(
        await session.column(
            cleared, command=command, week=week, by_hand=by_hand, since=since
        )
    )


async def clear_harvest(session: Session, source: str, week: str) -> int:
    """Mark a source's harvest of an ISO week as `partial`, not read to its end; return 1, or 0 if nothing changed."""
    cleared = """
        UPDATE harvest_runs SET outcome = 'partial', finished_at = coalesce(finished_at, now())
        WHERE source = :source AND iso_week = :week AND outcome <> 'partial' RETURNING id
    """
    return len(await session.column(cleared, source=source, week=week))
