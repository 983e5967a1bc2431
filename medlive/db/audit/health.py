"""The instance's health as the database knows it, for the watch's checks, `medlive status`, metrics and the overview:
queues and their workers, failed jobs and threads, progress, missing rights, counts of threads."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Json

from medlive.clock import iso_week, now, week_bounds
from medlive.db.jobs import SERVERS, STALLED_AFTER_S, Queue, count_servers
from medlive.db.mapping import Record
from medlive.db.runs import SCHEDULER_LOCK
from medlive.db.schema.rights import expected_rights
from medlive.db.session import Session

_QUEUES = f"""
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
        ) AS worked, ({SERVERS.format("oldest.queue_name")}) AS workers
    FROM oldest LEFT JOIN procrastinate_events AS event ON event.job_id = oldest.id
    GROUP BY 1, 2, oldest.id ORDER BY 1
"""
_FAILURES = """
    SELECT curations.revision_id AS revision_pk, threads.source, threads.thread_id, curations.stage,
        curations.reason, curations.detail, curations.attempt, curations.finished_at
    FROM (
        SELECT curation_id, thread_id FROM thread_standings
        WHERE outcome = 'failed' AND curation_id IS NOT NULL ORDER BY curation_id DESC LIMIT :most
    ) AS standing
    JOIN curations ON curations.id = standing.curation_id
    JOIN threads ON threads.id = standing.thread_id
    ORDER BY curations.id DESC
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_ROLES = "SELECT rolname FROM pg_roles WHERE rolname = ANY(:roles)"
_RIGHT = re.compile(r"(\w+)(?: \(([^)]*)\))?")
"""A privilege in a GRANT, with its columns where it is for some columns only."""
WEEKS_COUNTED = 13
"""`count_by_week` counts the threads of this many weeks."""
MOST_FAILURES = 2000
"""How many of the latest failures are read."""


async def workers_by_queue(session: Session) -> Mapping[str, int]:
    """Queue → how many processes serve it now."""
    return {queue.value: await count_servers(session, queue) for queue in Queue}


async def queue_health(session: Session) -> Sequence[Record]:
    """The queues with jobs that could be done now, those of dead workers too.

    Each has queue, ready (how many such jobs), since (since when the oldest is ready; None: unknown), worked (whether a
    live worker is doing a job of the queue) and workers (how many processes serve it).
    """
    return await session.records(_QUEUES, stalled=2 * STALLED_AFTER_S)


async def failed_jobs(session: Session) -> Sequence[Record]:
    """The failed jobs of each queue that no later job for the same thing has replaced: queue, jobs (how many),
    example (the number of the first)."""
    return await session.records("""
        SELECT queue_name AS queue, count(*) AS jobs, min(job.id) AS example
        FROM procrastinate_jobs AS job
        WHERE status = 'failed' AND NOT EXISTS (
            SELECT FROM procrastinate_jobs AS later WHERE later.id > job.id
            AND coalesce(later.lock, later.queueing_lock) = coalesce(job.lock, job.queueing_lock)
        )
        GROUP BY 1 ORDER BY 1
        """)


async def failed_threads(
    session: Session, most: int = MOST_FAILURES
) -> Sequence[Record]:
    """The threads whose latest attempt failed, newest first, at most `most`.

    Each has revision_pk, source, thread_id, and the attempt's stage, reason, detail, attempt (number), finished_at.
    """
    return await session.records(_FAILURES, most=most)


async def read_progress(session: Session, since: datetime) -> Record:
    """Whether the instance is in use and makes progress.

    It has in_use (whether anything was ever harvested or imported), scheduler_active, decided (how many threads were
    decided or failed past the filters since `since`) and decided_at (when the latest attempt ended; None: never).
    """
    [progress] = await session.records(
        """
        SELECT EXISTS (SELECT FROM threads) OR EXISTS (SELECT FROM harvest_runs) AS in_use,
            (SELECT finished_at FROM curations ORDER BY id DESC LIMIT 1) AS decided_at,
            (SELECT count(*) FROM thread_standings WHERE changed_at >= :since AND stage <> 'filters') AS decided,
            EXISTS (
                SELECT FROM pg_locks AS lock JOIN pg_database ON pg_database.oid = lock.database
                WHERE datname = current_database() AND locktype = 'advisory' AND granted
                    AND classid = 0 AND objid = :scheduler AND objsubid = 1
            ) AS scheduler_active
        """,
        since=since,
        scheduler=SCHEDULER_LOCK,
    )
    return progress


async def data_directory(session: Session) -> str | None:
    """Where the server keeps its data, on its own machine; None where this user may not know."""
    place: str | None = await session.value("""
        SELECT CASE WHEN pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')
            THEN current_setting('data_directory') END
        """)
    return place


async def missing_rights(session: Session) -> Sequence[Record]:
    """The rights that `medlive db roles` gives and that a role here lacks, as somebody took them away: role, table,
    privilege."""
    rights = expected_rights(set(await session.column(_TABLES)))
    existing = set(await session.column(_ROLES, roles=list(rights)))
    wanted = []
    for role in sorted(existing):
        for table, privileges in rights[role].items():
            right = {"role": role, "tab": table}
            for privilege, columns in _RIGHT.findall(privileges):
                right = right | {"privilege": privilege}
                for name in columns.split(","):
                    wanted.append(right | {"col": name.strip(' "') or None})
    missing = await session.records(
        """
        SELECT wanted.role, wanted.tab AS table, wanted.privilege
        FROM json_to_recordset(CAST(:wanted AS json)) AS wanted(role text, tab text, privilege text, col text)
        WHERE to_regclass(quote_ident(wanted.tab)) IS NOT NULL AND NOT CASE WHEN col IS NULL
            THEN has_table_privilege(wanted.role, quote_ident(wanted.tab), wanted.privilege)
            ELSE has_column_privilege(wanted.role, quote_ident(wanted.tab), col, wanted.privilege) END
        ORDER BY 1, 2, 3
        """,
        wanted=Json(wanted),
    )
    asked = Counter(right["role"] for right in wanted)
    lacking = Counter(right.role for right in missing)
    # Roles belong to the server: a role that has no right here is another instance's.
    return [right for right in missing if lacking[right.role] < asked[right.role]]


async def count_by_source(session: Session) -> dict[str, dict[str, int]]:
    """Source → outcome → number of threads."""
    return await session.lookup("""
        SELECT source, json_object_agg(outcome, n) FROM (
            SELECT source, outcome, count(*) AS n FROM thread_standings GROUP BY 1, 2
        ) AS counted GROUP BY 1 ORDER BY 1
        """)


async def count_by_week(session: Session) -> dict[str, dict[str, int]]:
    """ISO week → outcome → number of threads that last moved in it, for the last `WEEKS_COUNTED`, newest first."""
    first = now() - timedelta(weeks=WEEKS_COUNTED)
    return await session.lookup(
        """
        SELECT week, json_object_agg(outcome, n) FROM (
            SELECT week, outcome, count(*) AS n FROM thread_standings WHERE changed_at > :first AND week > :week
            GROUP BY 1, 2
        ) AS counted GROUP BY 1 ORDER BY 1 DESC
        """,
        first=first,
        week=iso_week(first),
    )


_GAUGES = {
    "threads": "SELECT stage, outcome, reason, count(*) FROM thread_standings GROUP BY 1, 2, 3",
    "recent_threads": """
        SELECT outcome, count(*) FROM thread_standings WHERE changed_at >= :recent AND stage <> 'filters' GROUP BY 1
    """,
    "jobs": "SELECT queue_name, status::text, count(*) FROM procrastinate_jobs GROUP BY 1, 2",
    "oldest_job_seconds": """
        SELECT queue_name, extract(epoch FROM now() - max(event.at))::float
        FROM (SELECT queue_name, min(id) AS id FROM procrastinate_jobs WHERE status = 'todo' GROUP BY 1) AS oldest
        JOIN procrastinate_events AS event ON event.job_id = oldest.id
        WHERE event.type IN ('deferred', 'deferred_for_retry')
        GROUP BY 1
    """,
    "spent": """
        SELECT task, count(*), count(*) - count(cost_usd), count(*) FILTER (WHERE estimated), sum(cost_usd)::float
        FROM replies WHERE created_at >= :week GROUP BY 1
    """,
}


async def read_gauges(
    session: Session,
    moment: datetime,
) -> dict[str, Sequence[Any]]:
    """The figures that `service.watch.metrics` publishes: gauge → rows of label values with the figures last.

    `threads`: stage, outcome, reason, how many. `recent_threads`: outcome, threads decided past the filters in the day
    before `moment`. `jobs`: queue, status, how many. `oldest_job_seconds`: queue, seconds since its oldest waiting job
    was deferred. `spent`: task, replies since Monday, replies without a price, replies whose tokens are an upper bound,
    US dollars of those with a price.
    """
    recent = moment - timedelta(days=1)
    monday, _ = week_bounds(iso_week(moment))
    gauges: dict[str, Sequence[Any]] = {}
    for name, query in _GAUGES.items():
        rows = await session.run(query, recent=recent, week=monday)
        gauges[name] = rows.all()
    return gauges
