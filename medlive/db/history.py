"""What the weekly steps have left, which decides what is due; and how a run is made to count as not done.

A run's outcome is `done`, `failed`, `partial` (to be done again), or `running` until it ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import text

from medlive.clock import CLOCK_BOUND, iso_week
from medlive.db.mapping import read
from medlive.db.runs import CURATE, PRUNE, SCHEDULER
from medlive.db.session import Session
from medlive.db.tables.intake import HarvestRunRow, RunOutcome
from medlive.db.tables.release import PipelineRunRow

_FOREVER = datetime.max.replace(tzinfo=UTC)
_IS_STEP = f"command LIKE '{SCHEDULER} %'"


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
    session: Session, week: str
) -> tuple[dict[str, Run], dict[str, Run]]:
    """The latest harvest of each source for an ISO week, and the latest run of each of the scheduler's steps."""
    harvests = await _read_harvests(session, "WHERE iso_week = :week", week=week)
    return harvests, await _read_runs(
        session, f"WHERE iso_week = :week AND {_IS_STEP} ORDER BY id", week=week
    )


async def _read_runs(session: Session, which: str, **values: Any) -> dict[str, Run]:
    """Command → the last of its runs."""
    rows = await session.rows(PipelineRunRow, which, **values)
    return {row.command: read(Run, row, starts=1) for row in rows}


async def _read_harvests(session: Session, which: str, **values: Any) -> dict[str, Run]:
    """Source → its harvest."""
    harvests = {}
    for row in await session.rows(HarvestRunRow, which, **values):
        counts = row.counts
        if row.problem is not None:
            counts = {**counts, "problem": row.problem}
        harvests[row.source] = read(Run, row, week=row.iso_week, counts=counts, log=())
    return harvests


# Done for a week that had not come: by a clock that was ahead.
_AHEAD = "WHERE iso_week > :week AND started_at <= :until AND outcome = 'done'"
_FORGET_AHEAD = (
    text(
        f"UPDATE harvest_runs SET outcome = 'partial' {_AHEAD} RETURNING 'harvest ' || source, iso_week"
    ),
    text(f"""
        UPDATE pipeline_runs SET outcome = 'partial', counts = counts || CAST(:note AS jsonb)
        {_AHEAD} AND {_IS_STEP} RETURNING substr(command, {len(SCHEDULER) + 2}), iso_week
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
    frozen_ahead: str | None = None
    """The latest frozen week of those that have not come."""


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


async def load_history(session: Session, moment: datetime | None = None) -> History:
    """What the steps have left by a moment; None: whatever is recorded.

    A clock that was ahead once leaves records of weeks that have not come. They count for nothing.
    """
    until = _FOREVER if moment is None else moment + CLOCK_BOUND
    week = iso_week(until)
    named = {"week": week, "until": until, "done": False}
    of_done = named | {"done": True}
    latest = await _read_runs(session, _LATEST_RUNS, **named)
    failures = {}
    for command, failed_week, times in await session.run(_FAILURES):
        if command in latest and latest[command].week == failed_week:
            failures[command] = times
    done = await _read_harvests(session, _LATEST_HARVESTS, **of_done)
    first_at = await session.lookup(_FIRST_HARVESTS)
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
    for version, frozen in await session.run(_FROZEN):
        if version <= week:
            frozen_week, frozen_at = version, frozen
        else:
            frozen_ahead = version
    return History(
        harvests=harvests,
        latest=latest,
        done=await _read_runs(session, _LATEST_RUNS, **of_done),
        weeks=frozenset(await session.column(_WEEKS, week=week)),
        frozen_week=frozen_week,
        frozen_at=frozen_at,
        quarantined=await session.lookup(_QUARANTINED),
        failures=failures,
        frozen_ahead=frozen_ahead,
    )


async def forget_ahead(session: Session, moment: datetime) -> list[str]:
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
    session: Session, command: str, week: str, *, by_hand: str, since: datetime
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
    return len(
        await session.column(
            cleared, command=command, week=week, by_hand=by_hand, since=since
        )
    )


async def clear_harvest(session: Session, source: str, week: str) -> int:
    """Make a source's harvest of an ISO week count as not read to its end; 1 where there is one."""
    cleared = """
        UPDATE harvest_runs SET outcome = 'partial', finished_at = coalesce(finished_at, now())
        WHERE source = :source AND iso_week = :week AND outcome <> 'partial' RETURNING id
    """
    return len(await session.column(cleared, source=source, week=week))
