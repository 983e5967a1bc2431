"""Workers as everybody sees them: who there is, what each serves, and why one takes no jobs.

A worker writes its row with every heartbeat, by the database's clock. A worker that was killed leaves its row, and
`heard_at` gets old.
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.jobs import STALLED_AFTER_S
from medlive.db.mapping import add_row
from medlive.db.tables.work import WorkerRow, WorkerState

FORGOTTEN_AFTER = timedelta(days=1)
"""The row of a worker that was killed is removed by the next one that starts after this time."""


async def add_worker(
    session: AsyncSession, host: str, pid: int, queues: Sequence[str]
) -> int:
    """Enter a worker that starts, forget those that were killed long ago, and return its number."""
    forgotten = WorkerRow.heard_at < func.now() - FORGOTTEN_AFTER
    await session.execute(delete(WorkerRow).where(forgotten))
    row = WorkerRow(
        host=host, pid=pid, queues=[*queues], paused=[], state=WorkerState.WORKING
    )
    return (await add_row(session, row)).id


async def report_worker(
    session: AsyncSession,
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
    is_new = (WorkerRow.state != state) | WorkerRow.reason.is_distinct_from(reason)
    values = {
        "heard_at": func.now(),
        "paused": list(paused),
        "since": case((is_new, func.now()), else_=WorkerRow.since),
        "state": state,
        "reason": reason,
    }
    await session.execute(
        update(WorkerRow).where(WorkerRow.id == number).values(values)
    )


async def remove_worker(session: AsyncSession, number: int) -> None:
    """Remove a worker that ends in order."""
    await session.execute(delete(WorkerRow).where(WorkerRow.id == number))


async def waiting_workers(session: AsyncSession) -> list[WorkerRow]:
    """The workers that were heard of lately and wait, the oldest first."""
    is_alive = WorkerRow.heard_at > func.now() - timedelta(seconds=STALLED_AFTER_S)
    query = (
        select(WorkerRow)
        .where(is_alive, WorkerRow.reason.is_not(None))
        .order_by(WorkerRow.id)
    )
    return list(await session.scalars(query))
