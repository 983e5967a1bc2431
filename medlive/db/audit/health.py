"""What checks ask the database: who serves what, what fails alike, when something was decided, which rights."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.jobs import STALLED_AFTER_S, Queue, count_servers
from medlive.db.mapping import dump_json, read, read_all
from medlive.db.schema.rights import expected_rights

_QUEUES: Final = text("""
    WITH ready AS (
        SELECT job.id, queue_name, scheduled_at FROM procrastinate_jobs AS job
        WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now())
        UNION ALL
        SELECT job.id, queue_name, scheduled_at FROM procrastinate_jobs AS job
        LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
        WHERE status = 'doing' AND (worker.id IS NULL OR last_heartbeat < now() - make_interval(secs => :stalled))
    ), oldest AS (SELECT queue_name, min(id) AS id, count(*) AS ready FROM ready GROUP BY 1)
    SELECT oldest.queue_name AS queue, oldest.ready,
        greatest(max(event.at), (SELECT scheduled_at FROM procrastinate_jobs WHERE id = oldest.id)) AS since,
        EXISTS (
            SELECT FROM procrastinate_jobs AS job JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
            WHERE job.queue_name = oldest.queue_name AND status = 'doing'
            AND last_heartbeat >= now() - make_interval(secs => :stalled)
        ) AS worked
    FROM oldest LEFT JOIN procrastinate_events AS event ON event.job_id = oldest.id
    GROUP BY 1, 2, oldest.id ORDER BY 1
""")
_FAILED_JOBS: Final = text("""
    SELECT queue_name AS queue, count(*) AS jobs, min(job.id) AS example
    FROM procrastinate_jobs AS job
    WHERE status = 'failed' AND NOT EXISTS (
        SELECT FROM procrastinate_jobs AS later WHERE later.id > job.id
        AND coalesce(later.lock, later.queueing_lock) = coalesce(job.lock, job.queueing_lock)
    )
    GROUP BY 1 ORDER BY 1
""")
_FAILURES: Final = text("""
    SELECT curations.revision_id AS revision_pk, threads.source, threads.thread_id, curations.stage,
        curations.reason, curations.detail, curations.attempt, curations.finished_at
    FROM (
        SELECT curation_id, thread_id FROM thread_standings
        WHERE outcome = 'failed' AND curation_id IS NOT NULL ORDER BY curation_id DESC LIMIT :most
    ) AS standing
    JOIN curations ON curations.id = standing.curation_id
    JOIN threads ON threads.id = standing.thread_id
    ORDER BY curations.id DESC
""")
_DECIDED: Final = text(
    "SELECT count(*) FROM thread_standings WHERE changed_at >= :since AND stage <> 'filters'"
)
_DECISIONS: Final = text(
    "SELECT finished_at FROM curations ORDER BY id DESC LIMIT :most"
)
_IN_USE: Final = text(
    "SELECT EXISTS (SELECT FROM threads) OR EXISTS (SELECT FROM harvest_runs)"
)
_TABLES: Final = text(
    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
)
_ROLES: Final = text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:roles)")
_WITHOUT: Final = text("""
    SELECT wanted.role, wanted.tab AS table, wanted.privilege
    FROM json_to_recordset(CAST(:wanted AS json)) AS wanted(role text, tab text, privilege text, col text)
    WHERE to_regclass(quote_ident(wanted.tab)) IS NOT NULL AND NOT CASE WHEN col IS NULL
        THEN has_table_privilege(wanted.role, quote_ident(wanted.tab), wanted.privilege)
        ELSE has_column_privilege(wanted.role, quote_ident(wanted.tab), col, wanted.privilege) END
    ORDER BY 1, 2, 3
""")
MOST_FAILURES: Final = 2000
MOST_DECISIONS: Final = 500
"""How many of the latest failures and decisions are read."""


class QueueHealth(NamedTuple):
    """A queue that has jobs which could be done now."""

    queue: str
    ready: int  # Jobs that could begin, and those that a dead worker had begun
    since: datetime | None  # Since when the oldest of them could; None: unknown
    worked: bool  # Whether a live worker does a job of the queue
    workers: int  # Processes that serve the queue


@dataclass(frozen=True, slots=True)
class UndoneJobs:
    """The failed jobs of a queue that no later job has done."""

    queue: str
    jobs: int
    example: int  # The number of one of them


@dataclass(frozen=True, slots=True)
class FailedThread:
    """A thread whose latest attempt failed."""

    revision_pk: int
    source: str
    thread_id: str
    stage: str
    reason: str
    detail: str
    attempt: int
    finished_at: datetime


class MissingRight(NamedTuple):
    """A right that a role needs and does not have."""

    role: str
    table: str
    privilege: str


async def workers_by_queue(session: AsyncSession) -> Mapping[str, int]:
    """Queue → how many processes serve it now."""
    return {queue.value: await count_servers(session, queue) for queue in Queue}


async def queue_health(session: AsyncSession) -> list[QueueHealth]:
    """The queues that have jobs which could be done now."""
    workers = await workers_by_queue(session)
    rows = await session.execute(_QUEUES, {"stalled": 2 * STALLED_AFTER_S})
    return [read(QueueHealth, row, workers=workers.get(row.queue, 0)) for row in rows]


async def failed_jobs(session: AsyncSession) -> list[UndoneJobs]:
    """The failed jobs of each queue, without those that a later job of the same name has replaced."""
    return await read_all(session, UndoneJobs, _FAILED_JOBS)


async def failed_threads(
    session: AsyncSession, most: int = MOST_FAILURES
) -> list[FailedThread]:
    """The latest threads whose latest attempt failed, newest first, so many at most."""
    return await read_all(session, FailedThread, _FAILURES, {"most": most})


async def count_decided(session: AsyncSession, since: datetime) -> int:
    """How many threads engines decided, or failed, since a moment."""
    return await session.scalar(_DECIDED, {"since": since}) or 0


async def latest_decisions(session: AsyncSession) -> list[datetime]:
    """When the latest attempts ended, newest first, MOST_DECISIONS at most."""
    return list(await session.scalars(_DECISIONS, {"most": MOST_DECISIONS}))


async def is_in_use(session: AsyncSession) -> bool:
    """Whether anything was ever harvested or imported."""
    return bool(await session.scalar(_IN_USE))


async def data_directory(session: AsyncSession) -> str | None:
    """Where the server keeps its data, on its own machine; None where this user may not know."""
    may = "SELECT pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')"
    if not await session.scalar(text(may)):
        return None
    place: str = (await session.execute(text("SHOW data_directory"))).scalar_one()
    return place


async def missing_rights(session: AsyncSession) -> list[MissingRight]:
    """The rights that `medlive db roles` gives and that somebody has taken away, from the roles that exist."""
    rights = expected_rights(set(await session.scalars(_TABLES)))
    existing = set(await session.scalars(_ROLES, {"roles": list(rights)}))
    wanted = []
    for role in sorted(existing):
        for table, privileges in rights[role].items():
            for privilege, column in _split_rights(privileges):
                wanted.append(
                    {"role": role, "tab": table, "privilege": privilege, "col": column}
                )
    rows = {"wanted": dump_json(wanted)}
    missing = await read_all(session, MissingRight, _WITHOUT, rows)
    asked = Counter(right["role"] for right in wanted)
    lacking = Counter(right.role for right in missing)
    # Roles belong to the server: one that has nothing here is of another instance.
    return [right for right in missing if lacking[right.role] < asked[right.role]]


def _split_rights(privileges: str) -> Iterator[tuple[str, str | None]]:
    """The privileges of a GRANT, each with a column where it is for columns only."""
    for privilege, columns in re.findall(r"(\w+)(?: \(([^)]*)\))?", privileges):
        if not columns:
            yield privilege, None
            continue
        for name in columns.split(","):
            yield privilege, name.strip(' "')
