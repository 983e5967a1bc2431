"""Queries on jobs and workers: what waits and for what, why jobs failed, which processes serve which queue.

Procrastinate owns the jobs' tables and writes them; a job's queueing lock is a name under which at most one job waits.
A process that serves a queue holds a shared advisory lock in the queue's name, so that it is seen at once and forgotten
as soon as its connection ends, however that happens. A worker writes its row with every heartbeat, by the database's
clock. A killed worker leaves its row, and `heard_at` gets old.

The database's function `medlive_waiting_threads` says what each thread waits for. Every thread that waits has a job or
a reason why not. A thread with neither is lost: nothing would ever take it up.
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
    """The queues of jobs; a worker serves some of them."""

    HARVEST = "harvest"
    """A week's harvest of one source."""
    FILTER = "filter"
    """The filters over all new threads, which are then queued."""
    CURATE = "curate"
    """A job curates one thread, or proves one case's rubric again."""
    RELEASE = "release"
    """Freeze, verify, publish, announce."""
    UPKEEP = "upkeep"
    """Removal of what retention no longer keeps."""
    BACKUP = "backup"
    """The weekly backup, which reads every table: for a worker with the owner's URL."""


STALLED_AFTER_S = 15.0
"""A worker without a heartbeat for this long is dead: others take its jobs over."""
# For a job that is given back untried
UNCOUNT_ATTEMPT = (
    "UPDATE procrastinate_jobs SET attempts = attempts - 1 WHERE id = %(job_id)s"
)
_SERVING = 0x6D65646A
""" "medj": the first key of the advisory locks of processes that serve a queue; the second is the hash of its name."""

SERVERS = f"""
    SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 2 AND granted
    AND classid = {_SERVING} AND CAST(objid AS bigint) = CAST(hashtext({{}}) AS bigint) & 4294967295
"""
"""SQL for how many processes serve a queue: SQL for the queue's name goes into the braces."""
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
    """Take the locks that show, for as long as the connection lasts, that this process serves these queues."""
    for queue in queues:
        await connection.execute(
            text(f"SELECT pg_advisory_lock_shared({_SERVING}, hashtext(:queue))"),
            {"queue": queue},
        )


async def count_servers(session: Session | Connection, queue: str) -> int:
    """How many processes serve a queue now."""
    return await session.scalar(text(SERVERS.format(":queue")), {"queue": queue}) or 0


async def queued_locks(session: Session, locks: Sequence[str]) -> set[str]:
    """Which of these queueing locks have a job that waits or is being done."""
    # Procrastinate's queueing lock holds while a job waits, and no longer; each half reads a partial index.
    query = """
        SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock = ANY (:locks)
        UNION ALL
        SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'doing' AND queueing_lock = ANY (:locks)
    """
    return set(await session.column(query, locks=list(locks)))


async def defer_alone(session: Session, lock: str) -> None:
    """Let only this transaction defer a job of this queueing lock until it ends; wait for another that does."""
    await session.run(
        "SELECT pg_advisory_xact_lock(hashtext('defer'), hashtext(:lock))", lock=lock
    )


async def hurry(session: Session, queue: str) -> None:
    """Make a queue's jobs that wait for their next attempt ready now."""
    await session.run(
        """
        UPDATE procrastinate_jobs SET scheduled_at = NULL
        WHERE queue_name = :queue AND status = 'todo' AND scheduled_at > now()
        """,
        queue=queue,
    )


async def count_jobs(session: Session) -> Sequence[Record]:
    """How many jobs each queue has in each state; a queue that is served and empty has a row with 0 jobs to do.

    Each has queue, status (todo, doing, succeeded, failed, cancelled or aborted), jobs, delayed (jobs that wait for the
    time of their next attempt) and servers (processes that serve the queue now).
    """
    return await session.records(_JOBS, queues=[queue.value for queue in Queue])


async def list_jobs(session: Session, limit: int) -> Sequence[Record]:
    """The failed jobs, then the jobs that wait or are being done, by number, at most `limit`.

    Each has id, queue, task, args, status, attempts, scheduled_at, heartbeat (the last sign of life of the worker that
    does it) and reason (why it failed; None: it did not, or no reason was stored).
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
"""Removes failed jobs queued under the name of job `job_id` before it, as it has done their work."""


async def find_lost(session: Session) -> list[int]:
    """The lost threads' revisions (they wait, and nothing will take them up), oldest first."""
    return await session.column(
        "SELECT revision_id FROM medlive_waiting_threads() WHERE waits_for IS NULL ORDER BY 1"
    )


async def count_waiting(session: Session, queue: str) -> Record:
    """How many jobs of a queue wait or are being done.

    It has open (all of them), ready (jobs that could be done now), delayed (jobs that wait for the time of their next
    attempt) and next_at (the earliest such time; None: no job is delayed).
    """
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
    """Remove the stored reasons of jobs that are no longer failed; reasons under a minute old stay, as the job may be
    just about to fail."""
    await session.run("""
        DELETE FROM job_failures WHERE failed_at < now() - interval '1 minute'
        AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE id = job_id AND status = 'failed')
        """)


FORGOTTEN_AFTER = timedelta(days=1)
"""A killed worker's row is removed by the next worker that starts after this time."""


async def add_worker(
    session: Session, host: str, pid: int, queues: Sequence[str]
) -> int:
    """Insert the row of a worker that starts, remove rows of workers killed long ago, and return its number."""
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
        paused: The queues of which it takes no jobs now.
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
    """The live workers that wait for something, by number."""
    return await session.rows(
        WorkerRow,
        "WHERE heard_at > now() - make_interval(secs => :most) AND reason IS NOT NULL ORDER BY id",
        most=STALLED_AFTER_S,
    )
