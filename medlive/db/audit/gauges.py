"""Counts for a monitor: threads, jobs and replies, each by one query that a large database answers fast."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.audit.standing import count_stages

_RECENT = text(
    "SELECT outcome, count(*) FROM thread_standings WHERE changed_at >= :since AND stage <> 'filters' GROUP BY 1"
)
_JOBS = text(
    "SELECT queue_name, status::text, count(*) FROM procrastinate_jobs GROUP BY 1, 2"
)
_OLDEST = text("""
    SELECT queue_name, extract(epoch FROM now() - max(event.at))::float
    FROM (SELECT queue_name, min(id) AS id FROM procrastinate_jobs WHERE status = 'todo' GROUP BY 1) AS oldest
    JOIN procrastinate_events AS event ON event.job_id = oldest.id
    WHERE event.type IN ('deferred', 'deferred_for_retry')
    GROUP BY 1
""")
_SPENT = text("""
    SELECT task, count(*), count(*) - count(cost_usd), count(*) FILTER (WHERE estimated), sum(cost_usd)::float
    FROM replies WHERE created_at >= :since GROUP BY 1
""")


class Gauges(NamedTuple):
    """Rows of label values, each with its figures last."""

    # stage, outcome, reason, threads that stand there
    threads: Sequence[tuple[Any, ...]]
    recent: Sequence[tuple[Any, ...]]  # outcome, threads that an engine decided since
    jobs: Sequence[tuple[Any, ...]]  # queue, status, jobs
    # queue, seconds since its oldest waiting job was deferred
    oldest: Sequence[tuple[Any, ...]]
    # task, replies since, without a price, by a bound, US dollars of the priced
    spent: Sequence[tuple[Any, ...]]


async def read_gauges(
    session: AsyncSession, *, recent: datetime, week: datetime
) -> Gauges:
    """Read every gauge; `recent` and `week` are the moments from which decisions and replies are counted."""

    async def rows(query: Any, **values: datetime) -> Sequence[tuple[Any, ...]]:
        return [tuple(row) for row in await session.execute(query, values)]

    return Gauges(
        await count_stages(session),
        await rows(_RECENT, since=recent),
        await rows(_JOBS),
        await rows(_OLDEST),
        await rows(_SPENT, since=week),
    )
