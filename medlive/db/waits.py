"""What each thread waits for, and why jobs failed: `medlive_waiting_threads` decides it, in the database.

Every thread that waits has a job or a reason why not. One that has neither is lost: nothing would ever take it up.
"""

from collections.abc import Sequence

from medlive.db.mapping import Record
from medlive.db.session import Session

SAVE_FAILURE = """
    INSERT INTO job_failures (job_id, queue, reason) VALUES (%(job_id)s, %(queue)s, %(reason)s)
    ON CONFLICT (job_id) DO UPDATE SET reason = excluded.reason, failed_at = now()
"""
FORGET_REPLACED = """
    DELETE FROM procrastinate_jobs WHERE id IN (SELECT job_id FROM job_failures WHERE job_id < %(job_id)s)
    AND status = 'failed' AND coalesce(lock, queueing_lock) = %(name)s
"""
"""Removes failed jobs that were queued under the same name before this one, which has done their work."""
_FORGET_FAILURES = """
    DELETE FROM job_failures WHERE failed_at < now() - interval '1 minute'
    AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE id = job_id AND status = 'failed')
"""


async def find_lost(session: Session) -> list[int]:
    """The revisions of threads that wait and that nothing will take up, oldest first."""
    return await session.column(
        "SELECT revision_id FROM medlive_waiting_threads() WHERE waits_for IS NULL ORDER BY 1"
    )


async def count_waits(session: Session) -> Sequence[Record]:
    """How many threads wait for what, most first: waits_for (None: for nothing, they are lost), threads."""
    query = "SELECT waits_for, count(*) AS threads FROM medlive_waiting_threads() GROUP BY 1 ORDER BY 2 DESC, 1"
    return await session.records(query)


async def count_waiting(session: Session, queue: str) -> Record:
    """How many jobs of a queue could be done now (ready), and how many wait for the time of their next attempt
    (delayed), the earliest until next_at (None: no job is delayed)."""
    query = """
        SELECT count(*) FILTER (WHERE coalesce(scheduled_at <= now(), true)) AS ready,
        count(*) FILTER (WHERE scheduled_at > now()) AS delayed,
        min(scheduled_at) FILTER (WHERE scheduled_at > now()) AS next_at
        FROM procrastinate_jobs WHERE queue_name = :queue AND status = 'todo'
    """
    [waiting] = await session.records(query, queue=queue)
    return waiting


async def list_failed_jobs(session: Session) -> Sequence[Record]:
    """The failed jobs of all queues by reason, most first: queue, reason, jobs, last_at (when the last one failed;
    None: not recorded)."""
    query = """
        SELECT queue_name AS queue, coalesce(reason, 'not recorded') AS reason, count(*) AS jobs,
        max(failed_at) AS last_at FROM procrastinate_jobs LEFT JOIN job_failures ON job_id = id
        WHERE status = 'failed' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
    """
    return await session.records(query)


async def find_failed_jobs(session: Session, reason: str = "") -> list[int]:
    """The numbers of failed jobs whose reason contains `reason`, whatever its case, oldest first."""
    query = """
        SELECT id FROM procrastinate_jobs LEFT JOIN job_failures ON job_id = id
        WHERE status = 'failed' AND (:reason = '' OR strpos(lower(reason), lower(:reason)) > 0) ORDER BY id
    """
    return await session.column(query, reason=reason)


async def forget_failures(session: Session) -> None:
    """Remove the reasons of jobs that were tried again or are gone; one of a job that is just about to fail stays."""
    await session.run(_FORGET_FAILURES)


async def take_turn(session: Session, key: int) -> bool:
    """Whether this transaction alone has the lock of this number, until it ends; it does not wait."""
    return bool(await session.value("SELECT pg_try_advisory_xact_lock(:key)", key=key))
