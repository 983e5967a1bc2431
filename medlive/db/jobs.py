"""The job queue's tables as the service reads them: what waits, who serves which queue, what is shown to people.

Procrastinate owns the tables and writes them. A process that serves a queue holds a shared advisory lock in its
name, so that it is seen at once and forgotten as soon as its connection ends, however that happens.
"""

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import text

from medlive.db.mapping import Record
from medlive.db.session import Connection, Session


class Queue(StrEnum):
    """What a worker may serve."""

    HARVEST = "harvest"
    """A week's harvest of one source."""
    FILTER = "filter"
    """The filters over all that is new."""
    CURATE = "curate"
    """One thread each."""
    RELEASE = "release"
    """Freeze, verify, publish, announce."""
    UPKEEP = "upkeep"
    """Retention."""
    BACKUP = "backup"
    """The weekly backup, which reads every table: for a worker with the owner's URL."""


STALLED_AFTER_S = 15.0
"""A worker without a heartbeat for so long is dead: others take its jobs over."""
UNCOUNT_ATTEMPT = (
    "UPDATE procrastinate_jobs SET attempts = attempts - 1 WHERE id = %(job_id)s"
)
_SERVING = 0x6D65646A
""" "medj": the first key of the advisory locks of those who serve a queue; the second is made of its name."""

SERVERS = f"""
    SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 2 AND granted
    AND classid = {_SERVING} AND CAST(objid AS bigint) = CAST(hashtext({{}}) AS bigint) & 4294967295
"""
"""How many processes serve a queue: the expression that names it goes into the braces."""
_JOBS = f"""
    SELECT queue, coalesce(status, 'todo') AS status, coalesce(jobs, 0) AS jobs, coalesce(delayed, 0) AS delayed,
        coalesce(servers, 0) AS servers
    FROM (
        SELECT queue_name AS queue, CAST(status AS text) AS status, count(*) AS jobs,
            count(*) FILTER (WHERE status = 'todo' AND scheduled_at > now()) AS delayed
        FROM procrastinate_jobs GROUP BY 1, 2
    ) AS counted
    FULL JOIN (
        SELECT queue, ({SERVERS.format("queue")}) AS servers FROM unnest(CAST(:queues AS text[])) AS queue
    ) AS served USING (queue)
    WHERE jobs > 0 OR servers > 0 ORDER BY queue, status
"""


async def announce_serving(connection: Connection, queues: Sequence[str]) -> None:
    """Make it known, for as long as the connection lasts, that its process serves these queues."""
    for queue in queues:
        await connection.execute(
            text(f"SELECT pg_advisory_lock_shared({_SERVING}, hashtext(:queue))"),
            {"queue": queue},
        )


async def count_servers(session: Session | Connection, queue: str) -> int:
    """How many processes serve a queue now."""
    return await session.scalar(text(SERVERS.format(":queue")), {"queue": queue}) or 0


async def count_open(session: Session, queue: str) -> int:
    """How many jobs of a queue are being done or wait, also for their time after a failure."""
    query = "SELECT count(*) FROM procrastinate_jobs WHERE queue_name = :queue AND status IN ('todo', 'doing')"
    return await session.value(query, queue=queue) or 0


async def queued_locks(session: Session, locks: Sequence[str]) -> set[str]:
    """Those of the queueing locks whose job waits or is being done."""
    # Procrastinate's queueing lock holds while a job waits, and no longer; each half reads a partial index.
    query = """
        SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock = ANY (:locks)
        UNION ALL
        SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'doing' AND queueing_lock = ANY (:locks)
    """
    return set(await session.column(query, locks=list(locks)))


async def defer_alone(session: Session, lock: str) -> None:
    """Wait for whoever defers the job of this queueing lock, and let nobody else until the transaction ends."""
    await session.run(
        "SELECT pg_advisory_xact_lock(hashtext('defer'), hashtext(:lock))", lock=lock
    )


async def hurry(session: Session, queue: str) -> None:
    """Make jobs that wait after a failure ready now."""
    ready = """
        UPDATE procrastinate_jobs SET scheduled_at = NULL
        WHERE queue_name = :queue AND status = 'todo' AND scheduled_at > now()
    """
    await session.run(ready, queue=queue)


async def count_jobs(session: Session) -> Sequence[Record]:
    """The jobs of every queue by state; of one that is served and empty, no jobs that wait.

    Each has queue, status (todo, doing, succeeded, failed, cancelled or aborted), jobs, delayed (those that wait for
    their time after a failure) and servers (processes that serve the queue now).
    """
    return await session.records(_JOBS, queues=[queue.value for queue in Queue])


async def list_jobs(
    session: Session,
    *,
    queue: str | None,
    status: str | None,
    after: int,
    limit: int,
) -> Sequence[Record]:
    """The jobs of a queue (None: of all) in a state (None: not ended), by number, of those after `after`.

    Each has id, queue, task, args, status, attempts, scheduled_at, heartbeat (the last sign of life of the worker that
    does it) and reason (why it failed; None: it did not, or that was not kept).
    """
    query = """
        SELECT job.id, queue_name AS queue, task_name AS task, args, CAST(status AS text) AS status, attempts,
        scheduled_at, last_heartbeat AS heartbeat, CASE WHEN status = 'failed' THEN reason END AS reason
        FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
        LEFT JOIN job_failures AS failure ON failure.job_id = job.id
        WHERE job.id > :after AND (CAST(:queue AS text) IS NULL OR queue_name = :queue)
        AND CASE WHEN CAST(:status AS text) IS NULL THEN status IN ('todo', 'doing', 'failed')
        ELSE CAST(status AS text) = :status END
        ORDER BY job.id LIMIT :limit
    """
    return await session.records(
        query, queue=queue, status=status, after=after, limit=limit
    )
