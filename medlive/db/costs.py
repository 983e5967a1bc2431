"""What engines cost: calls, tokens, money and time, by task."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables import ReplyRow


@dataclass(frozen=True, slots=True)
class TaskCost:
    """What one task's stored replies cost."""

    task: str
    replies: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None when a reply's price is unknown."""
    latency_ms: float
    """Mean."""


async def costs(session: AsyncSession) -> list[TaskCost]:
    """Each task's replies since the beginning, by task; a reply that was replayed counts once."""
    row = ReplyRow
    query = (
        select(
            row.task,
            func.count(),
            func.sum(row.input_tokens),
            func.sum(row.cached_tokens),
            func.sum(row.output_tokens),
            func.sum(row.cost_usd),
            func.count(row.cost_usd),
            func.avg(row.latency_ms),
        )
        .group_by(row.task)
        .order_by(row.task)
    )
    return [
        TaskCost(
            task, n, int(read), int(cached), int(written), float(cost) if priced == n else None, float(latency)
        )
        for task, n, read, cached, written, cost, priced, latency in await session.execute(query)
    ]
