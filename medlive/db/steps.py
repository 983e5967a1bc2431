"""What the schedule's steps have left in the database: from it follows what is done, and what is due."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import create_engine, func, or_, select, text
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.pool import NullPool

from medlive.db.migrate import JOBS_TABLE
from medlive.db.session import Database, connect_arguments
from medlive.db.tables.intake import HarvestRunRow, RunOutcome, SourceRow
from medlive.db.tables.release import PipelineRunRow, SnapshotRow, SnapshotState

SCHEDULER = "scheduler"
"""The first word of a step's command in `pipeline_runs`."""
CURATE, PRUNE = "curate", "source prune"
"""The commands in `pipeline_runs` that do by hand, or by cron, what a step does."""
CURATION_QUEUE = "curation"
"""The queue of Procrastinate that holds a job for each thread to be curated."""
STALLED_AFTER_S = 10.0
"""A worker whose last heartbeat is older is dead: others take its jobs over."""
SCHEDULER_LOCK = 0x6D65644C
""" "medL": the advisory lock that the one scheduler of a database holds."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a step."""

    week: str | None
    """The ISO week that it worked for; None: it was asked for by hand, for no week."""
    outcome: RunOutcome
    started_at: datetime
    finished_at: datetime | None
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HarvestHistory:
    """What is known of one source's harvests."""

    first_at: datetime
    """When its first one began."""
    latest: Run
    done_week: str | None
    """The latest week whose harvest was read to its end."""
    done_at: datetime | None
    """When that one ended."""


@dataclass(frozen=True, slots=True)
class History:
    """Everything that decides what is due."""

    harvests: Mapping[str, HarvestHistory]
    latest: Mapping[str, Run]
    """Command, as in `pipeline_runs` → its latest run; those of the scheduler, and their likes by hand."""
    done: Mapping[str, Run]
    """The same for the latest run that was done."""
    frozen_week: str | None
    """The latest week that is frozen."""
    frozen_at: datetime | None
    weeks: frozenset[str]
    """The weeks in which the scheduler or a harvest did anything."""
    quarantined: Mapping[str, str]
    """Source → why it is quarantined."""


async def load_history(session: AsyncSession) -> History:
    """What the steps have left."""
    harvest, run, snapshot = HarvestRunRow, PipelineRunRow, SnapshotRow
    first = select(harvest.source, func.min(harvest.started_at)).group_by(harvest.source)
    first_at = {source: moment for source, moment in await session.execute(first)}  # noqa: C416
    of_source = select(harvest).ext(distinct_on(harvest.source)).order_by(harvest.source, harvest.iso_week.desc())
    ended = {row.source: row for row in await session.scalars(of_source.where(harvest.outcome == RunOutcome.DONE))}
    harvests = {
        row.source: HarvestHistory(
            first_at[row.source],
            Run(
                row.iso_week,
                row.outcome,
                row.started_at,
                row.finished_at,
                row.counts if row.problem is None else {**row.counts, "problem": row.problem},
            ),
            ended[row.source].iso_week if row.source in ended else None,
            ended[row.source].finished_at if row.source in ended else None,
        )
        for row in await session.scalars(of_source)
    }
    own = or_(run.command.startswith(f"{SCHEDULER} "), run.command.in_([CURATE, PRUNE]))
    of_command = select(run).ext(distinct_on(run.command)).where(own).order_by(run.command, run.id.desc())
    latest = {row.command: _as_run(row) for row in await session.scalars(of_command)}
    done = {
        row.command: _as_run(row)
        for row in await session.scalars(of_command.where(run.outcome == RunOutcome.DONE))
    }
    frozen = (
        await session.execute(
            select(snapshot.version, snapshot.frozen_at)
            .where(snapshot.state == SnapshotState.FROZEN)
            .order_by(snapshot.version.desc())
            .limit(1)
        )
    ).first()
    weeks = set(await session.scalars(select(harvest.iso_week).distinct()))
    weeks |= set(await session.scalars(select(run.iso_week).where(run.iso_week.is_not(None)).distinct()))
    quarantined = {
        source: reason
        for source, reason in await session.execute(select(SourceRow.name, SourceRow.quarantine_reason))
        if reason is not None
    }
    return History(
        harvests,
        latest,
        done,
        frozen[0] if frozen else None,
        frozen[1] if frozen else None,
        frozenset(weeks),
        quarantined,
    )


async def queue_state(session: AsyncSession, queue: str, *, alive_within: timedelta) -> tuple[int, int]:
    """How many jobs of a queue wait or are under way, and how many workers gave a sign of life lately."""
    jobs = await session.scalar(
        text("SELECT count(*) FROM procrastinate_jobs WHERE queue_name = :queue AND status IN ('todo', 'doing')"),
        {"queue": queue},
    )
    workers = await session.scalar(
        text(
            "SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - CAST(:within AS interval)"
        ),
        {"within": alive_within},
    )
    return int(jobs or 0), int(workers or 0)


async def is_scheduler_active(session: AsyncSession) -> bool:
    """Whether a scheduler works on this database."""
    query = text(
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
        "WHERE datname = current_database() AND locktype = 'advisory' AND granted "
        "AND classid = 0 AND objid = :key AND objsubid = 1"
    )
    return bool(await session.scalar(query, {"key": SCHEDULER_LOCK}))


def open_job_store(database: Database) -> Any:
    """APScheduler's store of jobs in this database, over connections of its own, which are not asyncio's.

    It asks seldom: each question opens a connection, so that none is found dead a week later.
    """
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

    engine = create_engine(database.engine.url, poolclass=NullPool, connect_args=connect_arguments())
    return SQLAlchemyJobStore(engine=engine, tablename=JOBS_TABLE)


def _as_run(row: PipelineRunRow) -> Run:
    return Run(row.iso_week, row.outcome, row.started_at, row.finished_at, row.counts)
