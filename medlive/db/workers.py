"""Workers as everybody sees them: who there is, what each serves, and why one takes no jobs.

A worker writes its row with every heartbeat, by the database's clock. A worker that was killed leaves its row, and
`heard_s` grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.jobs import STALLED_AFTER_S
from medlive.db.mapping import add_row, from_stored, read, to_stored
from medlive.db.tables.work import WorkerRow, WorkerState

FORGOTTEN_AFTER = "1 day"
"""The row of a worker that was killed is removed by the next one that starts after this time."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process."""

    id: int
    host: str
    pid: int
    queues: tuple[str, ...]  # What it serves
    paused: tuple[str, ...]  # Those queues of which it takes no jobs now
    began_at: datetime
    heard_at: datetime  # Its last sign of life
    heard_s: float  # Seconds since, by the database's clock
    state: WorkerState
    reason: str | None  # Why it waits; None: it does not
    since: datetime  # Since when it is in this state for this reason

    @property
    def alive(self) -> bool:
        """Whether it was heard of lately."""
        return self.heard_s < STALLED_AFTER_S

    def takes(self, queue: str) -> bool:
        """Whether it is alive and takes jobs of a queue now."""
        running = self.alive and self.state is not WorkerState.STOPPING
        return running and queue in self.queues and queue not in self.paused


async def add_worker(
    session: AsyncSession, host: str, pid: int, queues: Sequence[str]
) -> int:
    """Enter a worker that starts, forget those that were killed long ago, and return its number."""
    await session.execute(
        text(
            f"DELETE FROM workers WHERE heard_at < now() - interval '{FORGOTTEN_AFTER}'"
        )
    )
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
    statement = text(
        "UPDATE workers SET heard_at = now(), paused = to_jsonb(CAST(:paused AS text[])),"
        " since = CASE WHEN (state, reason) IS DISTINCT FROM (CAST(:state AS text), CAST(:reason AS text))"
        " THEN now() ELSE since END, state = :state, reason = :reason WHERE id = :number"
    )
    why = None if reason is None else to_stored(reason)
    values = {
        "number": number,
        "state": state.value,
        "reason": why,
        "paused": list(paused),
    }
    await session.execute(statement, values)


async def remove_worker(session: AsyncSession, number: int) -> None:
    """Remove a worker that ends in order."""
    await session.execute(
        text("DELETE FROM workers WHERE id = :number"), {"number": number}
    )


async def list_workers(session: AsyncSession) -> list[WorkerInfo]:
    """Every worker that was not forgotten, the oldest first."""
    query = text(
        f"SELECT id, host, pid, queues, paused, began_at, heard_at, state, reason, since,"
        f" extract(epoch FROM now() - heard_at)::float AS heard_s FROM {WorkerRow.__tablename__} ORDER BY id"
    )
    workers = []
    for row in await session.execute(query):
        reason = None if row.reason is None else from_stored(row.reason)
        workers.append(
            read(WorkerInfo, row, state=WorkerState(row.state), reason=reason)
        )
    return workers
