"""Jobs and workers as everybody sees them: what waits and for what, why jobs failed, who serves which queue.

Procrastinate owns the jobs' tables and writes them. A process that serves a queue holds a shared advisory lock in its
name, so that it is seen at once and forgotten as soon as its connection ends, however that happens. A worker writes
its row with every heartbeat, by the database's clock. One that was killed leaves its row, and `heard_at` gets old.

`medlive_waiting_threads` decides in the database what each thread waits for. Every thread that waits has a job or a
reason why not. One that has neither is lost: nothing would ever take it up.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum

from psycopg.types.json import Json
from sqlalchemy import text

from .mapping import Record
from .session import Connection, Session
from .tables.work import WorkerRow, WorkerState


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
    await session.run(
        """
        UPDATE procrastinate_jobs SET scheduled_at = NULL
        WHERE queue_name = :queue AND status = 'todo' AND scheduled_at > now()
        """,
        queue=queue,
    )


async def count_jobs(session: Session) -> Sequence[Record]:
    """The jobs of every queue by state; of one that is served and empty, no jobs that wait.

    Each has queue, status (todo, doing, succeeded, failed, cancelled or aborted), jobs, delayed (those that wait for
    their time after a failure) and servers (processes that serve the queue now).
    """
    return await session.records(_JOBS, queues=[queue.value for queue in Queue])


async def list_jobs(session: Session, limit: int) -> Sequence[Record]:
    """The jobs that failed, then those that wait or are being done, by number.

    Each has id, queue, task, args, status, attempts, scheduled_at, heartbeat (the last sign of life of the worker that
    does it) and reason (why it failed; None: it did not, or that was not kept).
    """
    return await session.records(
        """
        SELECT job.id, queue_name AS queue, task_name AS task, args, CAST(status AS text) AS status, attempts,
        scheduled_at, last_heartbeat AS heartbeat, CASE WHEN status = 'failed' THEN reason END AS reason
        FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
        LEFT JOIN job_failures AS failure ON failure.job_id = job.id
        WHERE status IN ('todo', 'doing', 'failed') ORDER BY status <> 'failed', job.id LIMIT :limit
        """,
        limit=limit,
    )


SAVE_FAILURE = """
    INSERT INTO job_failures (job_id, queue, reason) VALUES (%(job_id)s, %(queue)s, %(reason)s)
    ON CONFLICT (job_id) DO UPDATE SET reason = excluded.reason, failed_at = now()
"""
FORGET_REPLACED = """
    DELETE FROM procrastinate_jobs WHERE id IN (SELECT job_id FROM job_failures WHERE job_id < %(job_id)s)
    AND status = 'failed' AND coalesce(lock, queueing_lock) = %(name)s
"""
"""Removes failed jobs that were queued under the same name before this one, which has done their work."""


async def find_lost(session: Session) -> list[int]:
    """The revisions of threads that wait and that nothing will take up, oldest first."""
    return await session.column(
        "SELECT revision_id FROM medlive_waiting_threads() WHERE waits_for IS NULL ORDER BY 1"
    )


async def count_waiting(session: Session, queue: str) -> Record:
    """How many jobs of a queue are being done or wait (open), and of those that wait, how many could be done now
    (ready) or wait for the time of their next attempt (delayed), the earliest until next_at (None: none is delayed)."""
    [waiting] = await session.records(
        """
        SELECT count(*) AS open, count(*) FILTER (WHERE status = 'todo' AND scheduled_at > now()) AS delayed,
        count(*) FILTER (WHERE status = 'todo' AND coalesce(scheduled_at <= now(), true)) AS ready,
        min(scheduled_at) FILTER (WHERE status = 'todo' AND scheduled_at > now()) AS next_at
        FROM procrastinate_jobs WHERE queue_name = :queue AND status IN ('todo', 'doing')
        """,
        queue=queue,
    )
    return waiting


async def find_failed_jobs(session: Session, reason: str = "") -> list[int]:
    """The numbers of failed jobs whose reason contains `reason`, whatever its case, oldest first."""
    return await session.column(
        """
        SELECT id FROM procrastinate_jobs LEFT JOIN job_failures ON job_id = id
        WHERE status = 'failed' AND (:reason = '' OR strpos(lower(reason), lower(:reason)) > 0) ORDER BY id
        """,
        reason=reason,
    )


async def forget_failures(session: Session) -> None:
    """Remove the reasons of jobs that were tried again or are gone; one of a job that is just about to fail stays."""
    await session.run("""
        DELETE FROM job_failures WHERE failed_at < now() - interval '1 minute'
        AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE id = job_id AND status = 'failed')
        """)


FORGOTTEN_AFTER = timedelta(days=1)
"""The row of a worker that was killed is removed by the next one that starts after this time."""


async def add_worker(
    session: Session, host: str, pid: int, queues: Sequence[str]
) -> int:
    """Enter a worker that starts, forget those that were killed long ago, and return its number."""
    await session.run(
        "DELETE FROM workers WHERE heard_at < now() - CAST(:age AS interval)",
        age=FORGOTTEN_AFTER,
    )
    row = WorkerRow(
        host=host,
        pid=pid,
        queues=[*queues],
        paused=[],
        state="working",
    )
    return (await session.insert(row)).id


async def report_worker(
    session: Session,
    number: int,
    state: WorkerState,
    reason: str | None,
    paused: Sequence[str],
) -> None:
    """Write a worker's sign of life and its state; `reason` is given if it waits, and only then.

    Args:
        session: The transaction.
        number: The worker's number.
        state: What it does.
        reason: Why it waits; None: it does not.
        paused: The queues of which it takes no jobs.
    """
    await session.run(
        """
        UPDATE workers SET heard_at = now(), paused = CAST(:paused AS jsonb), state = :state, reason = :reason,
        since = CASE WHEN (state, reason) IS DISTINCT FROM (:state, :reason) THEN now() ELSE since END
        WHERE id = :number
        """,
        number=number,
        state=state,
        reason=reason,
        paused=Json(paused),
    )


async def remove_worker(session: Session, number: int) -> None:
    """Remove a worker that ends in order."""
    await session.run("DELETE FROM workers WHERE id = :id", id=number)


async def waiting_workers(session: Session) -> list[WorkerRow]:
    """The workers that were heard of lately and wait, the oldest first."""
    return await session.rows(
        WorkerRow,
        "WHERE heard_at > now() - make_interval(secs => :most) AND reason IS NOT NULL ORDER BY id",
        most=STALLED_AFTER_S,
    )
