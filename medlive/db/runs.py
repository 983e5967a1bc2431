"""The program's own runs: imports, commands, recorded evaluations, and what decides which step is due."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive import __version__
from medlive.clock import CLOCK_BOUND, iso_week
from medlive.db.mapping import (
    add_row,
    find_rows,
    insert_rows,
    put_row,
    read,
    read_column,
    read_map,
    read_value,
    row_of,
    run_sql,
)
from medlive.db.session import Database
from medlive.db.tables.intake import (
    HarvestRunRow,
    ImportProblemRow,
    ImportRunRow,
    RunOutcome,
)
from medlive.db.tables.release import (
    EvaluationRunRow,
    PipelineRunRow,
)
from medlive.logs import bound, kept_lines

if TYPE_CHECKING:
    from medlive.sources.files import ImportProblem

SCHEDULER = "scheduler"
"""The first word of a step's command in `pipeline_runs`."""
CURATE, FILTER, PRUNE = "curate", "filter", "source prune"
"""The commands in `pipeline_runs` that do by hand, or by cron, what a step does."""
_FOREVER = datetime.max.replace(tzinfo=UTC)
SCHEDULER_LOCK = 0x6D65644C
""" "medL": the advisory lock that the one scheduler of a database holds."""


async def start_import(
    session: AsyncSession, file: str, *, assumed_posted_at: datetime | None = None
) -> int:
    """Return the number of a new import of a file."""
    run = ImportRunRow(
        file=file, assumed_posted_at=assumed_posted_at, outcome=RunOutcome.RUNNING
    )
    return (await add_row(session, run)).id


async def save_problems(
    session: AsyncSession, run_id: int, file: str, problems: Sequence["ImportProblem"]
) -> None:
    """Keep the lines that became no thread, each once."""
    rows = [row_of(ImportProblemRow, p, run_id=run_id, file=file) for p in problems]
    await insert_rows(session, ImportProblemRow, rows, skip_known=True)


async def finish_import(
    session: AsyncSession,
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
    """Record the block as a run of a command; logs get the run's id.

    The block may set the run's `counts`, and `failed`, or `partial` where something is to be done again.
    `settings` are the effective ones, secrets masked. The run of a block that raises or is killed stays "running".
    """
    run = PipelineRunRow(
        command=command,
        settings=dict(settings),
        week=iso_week,
        code_version=__version__,
        outcome=RunOutcome.RUNNING,
    )
    async with database.begin() as session:
        await add_row(session, run)
    with bound(run=run.id), kept_lines() as lines:
        yield run
    run.outcome = RunOutcome.PARTIAL if run.partial else RunOutcome.DONE
    if run.failed:
        run.outcome = RunOutcome.FAILED
    run.log, run.finished_at = list(lines), func.now()
    async with database.begin() as session:
        session.add(run)


async def record_evaluation(
    session: AsyncSession,
    *,
    run_digest: str,
    snapshot_version: str,
    model: str,
    grader: str,
    path: str,
    scores: Mapping[str, Any],
) -> int:
    """Record an evaluation's run folder, or bring its record up to date; return its number."""
    run = await put_row(
        session,
        EvaluationRunRow,
        {"run_digest": run_digest},
        snapshot_version=snapshot_version,
        model=model,
        grader=grader,
        path=path,
        scores=dict(scores),
    )
    return run.id


async def list_evaluations(session: AsyncSession) -> list[EvaluationRunRow]:
    """Every recorded evaluation, the newest snapshot's first, then by model."""
    newest = "ORDER BY snapshot_version DESC, model, id"
    return await find_rows(session, EvaluationRunRow, newest)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a step."""

    # The ISO week that it worked for; None: it was asked for by hand, for no week
    week: str | None
    outcome: RunOutcome
    started_at: datetime
    finished_at: datetime | None
    counts: Mapping[str, Any]
    log: Sequence[str] = ()  # The last lines that it logged, without secrets
    starts: int = 1  # How often it was begun; of a harvest that was repeated only the first is in `started_at`


async def runs_of_week(
    session: AsyncSession, week: str
) -> tuple[dict[str, Run], dict[str, Run]]:
    """The latest harvest of each source for an ISO week, and the latest run of each of the scheduler's steps."""
    harvests = await _read_harvests(session, "WHERE iso_week = :week", week=week)
    steps = f"WHERE iso_week = :week AND {_IS_STEP} ORDER BY id"
    return harvests, await _read_runs(session, steps, week=week)


_IS_STEP = f"command LIKE '{SCHEDULER} %'"


async def _read_runs(
    session: AsyncSession, which: str, **values: Any
) -> dict[str, Run]:
    """Command → the last of its runs."""
    rows = await find_rows(session, PipelineRunRow, which, **values)
    return {row.command: read(Run, row, starts=1) for row in rows}


async def _read_harvests(
    session: AsyncSession, which: str, **values: Any
) -> dict[str, Run]:
    """Source → its harvest."""
    harvests = {}
    for row in await find_rows(session, HarvestRunRow, which, **values):
        counts = row.counts
        if row.problem is not None:
            counts = {**counts, "problem": row.problem}
        more = {"week": row.iso_week, "counts": counts, "log": ()}
        harvests[row.source] = read(Run, row, **more)
    return harvests


_AHEAD = "WHERE iso_week > :week AND started_at <= :until AND outcome = 'done'"
_FORGET_AHEAD = (
    text(
        f"UPDATE harvest_runs SET outcome = 'partial' {_AHEAD} RETURNING 'harvest ' || source, iso_week"
    ),
    text(f"""
        UPDATE pipeline_runs SET outcome = 'partial', counts = counts || CAST(:note AS jsonb)
        {_AHEAD} AND command LIKE 'scheduler %' RETURNING substr(command, 11), iso_week
    """).bindparams(note='{"again": "recorded before its week"}'),
)


class HarvestHistory(NamedTuple):
    """What is known of one source's harvests."""

    first_at: datetime  # When its first one began
    latest: Run
    done_week: str | None  # The latest week whose harvest was read to its end
    done_at: datetime | None  # When that one ended


@dataclass(frozen=True, slots=True)
class History:
    """Everything that decides what is due."""

    harvests: Mapping[str, HarvestHistory]
    # Command, as in `pipeline_runs` → its latest run, by the scheduler or by hand
    latest: Mapping[str, Run]
    done: Mapping[str, Run]  # The same for the latest run that was done
    frozen_week: str | None  # The latest week that is frozen
    frozen_at: datetime | None
    weeks: frozenset[str]  # The weeks in which the scheduler or a harvest did anything
    quarantined: Mapping[str, str]  # Source → why it is quarantined
    failures: Mapping[str, int] = field(default_factory=dict)
    """Command → how often it failed for the week of its latest run."""
    frozen_ahead: str | None = (
        None  # The latest frozen week of those that have not come
    )


_LATEST_RUNS = f"""
    WHERE id IN (
        SELECT max(id) FROM pipeline_runs WHERE ({_IS_STEP} OR command IN ('{CURATE}', '{PRUNE}'))
            AND (iso_week <= :week OR iso_week IS NULL AND started_at <= :until) AND (outcome = 'done' OR NOT :done)
        GROUP BY command
    )
"""
_LATEST_HARVESTS = """
    WHERE (source, iso_week) IN (
        SELECT source, max(iso_week) FROM harvest_runs WHERE iso_week <= :week AND (outcome = 'done' OR NOT :done)
        GROUP BY source
    )
"""
_FIRST_HARVESTS = "SELECT source, min(started_at) FROM harvest_runs GROUP BY source"
_FAILURES = "SELECT command, iso_week, count(*) FROM pipeline_runs WHERE outcome = 'failed' GROUP BY 1, 2"
_FROZEN = (
    "SELECT version, frozen_at FROM snapshots WHERE state = 'frozen' ORDER BY version"
)
_WEEKS = """
    SELECT iso_week FROM harvest_runs WHERE iso_week <= :week
    UNION SELECT iso_week FROM pipeline_runs WHERE iso_week <= :week
"""
_QUARANTINED = (
    "SELECT name, quarantine_reason FROM sources WHERE quarantine_reason IS NOT NULL"
)


async def load_history(
    session: AsyncSession, moment: datetime | None = None
) -> History:
    """What the steps have left by a moment; None: whatever is recorded.

    A clock that was ahead once leaves records of weeks that have not come. They count for nothing.
    """
    until = _FOREVER if moment is None else moment + CLOCK_BOUND
    week = iso_week(until)
    named = {"week": week, "until": until, "done": False}
    of_done = named | {"done": True}
    latest = await _read_runs(session, _LATEST_RUNS, **named)
    failures = {}
    for command, failed_week, times in await run_sql(session, _FAILURES):
        if command in latest and latest[command].week == failed_week:
            failures[command] = times
    done = await _read_harvests(session, _LATEST_HARVESTS, **of_done)
    first_at = await read_map(session, _FIRST_HARVESTS)
    last_of = await _read_harvests(session, _LATEST_HARVESTS, **named)
    harvests = {}
    for source, last in last_of.items():
        ended = done.get(source)
        harvests[source] = HarvestHistory(
            first_at=first_at[source],
            latest=last,
            done_week=ended.week if ended else None,
            done_at=ended.finished_at if ended else None,
        )
    frozen_week = frozen_at = frozen_ahead = None
    for version, frozen in await run_sql(session, _FROZEN):
        if version <= week:
            frozen_week, frozen_at = version, frozen
        else:
            frozen_ahead = version
    return History(
        harvests=harvests,
        latest=latest,
        done=await _read_runs(session, _LATEST_RUNS, **of_done),
        weeks=frozenset(await read_column(session, _WEEKS, week=week)),
        frozen_week=frozen_week,
        frozen_at=frozen_at,
        quarantined=await read_map(session, _QUARANTINED),
        failures=failures,
        frozen_ahead=frozen_ahead,
    )


async def forget_ahead(session: AsyncSession, moment: datetime) -> list[str]:
    """Undo what was recorded as done for weeks that had not come, by a clock that was ahead; what that was.

    Only what was recorded before `moment`: a record from after it says that the clock is behind now.
    """
    until = moment + CLOCK_BOUND
    values = {"week": iso_week(until), "until": until}
    names = []
    for query in _FORGET_AHEAD:
        for name, week in await session.execute(query, values):
            names.append(f"{name} {week}")
    return sorted(names)


async def clear_runs(
    session: AsyncSession, command: str, week: str, *, by_hand: str, since: datetime
) -> int:
    """Make the runs of a step for an ISO week count as not done; how many they are.

    `by_hand` is the command that does the same, whose runs from `since` on count as well.
    """
    cleared = """
        UPDATE pipeline_runs SET outcome = 'partial', finished_at = coalesce(finished_at, now()),
        counts = counts || '{"again": "cleared"}' WHERE outcome <> 'partial' AND (
            command = :command AND iso_week = :week
            OR command = :by_hand AND iso_week IS NULL AND started_at >= :since
        ) RETURNING id
    """
    values = {"command": command, "week": week, "by_hand": by_hand, "since": since}
    return len(await read_column(session, cleared, **values))


async def clear_harvest(session: AsyncSession, source: str, week: str) -> int:
    """Make a source's harvest of an ISO week count as not read to its end; 1 where there is one."""
    cleared = """
        UPDATE harvest_runs SET outcome = 'partial', finished_at = coalesce(finished_at, now())
        WHERE source = :source AND iso_week = :week AND outcome <> 'partial' RETURNING id
    """
    return len(await read_column(session, cleared, source=source, week=week))


async def is_scheduler_active(session: AsyncSession) -> bool:
    """Whether a scheduler works on this database."""
    query = """
        SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE datname = current_database() AND locktype = 'advisory' AND granted
        AND classid = 0 AND objid = :key AND objsubid = 1
    """
    return bool(await read_value(session, query, key=SCHEDULER_LOCK))
