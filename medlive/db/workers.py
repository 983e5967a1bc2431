"""Workers as everybody sees them: who there is, what each serves, and why one takes no jobs.

A worker writes its row with every heartbeat, by the database's clock. A worker that was killed leaves its row, and
`heard_at` gets old.
"""

from collections.abc import Sequence
from datetime import timedelta

from psycopg.types.json import Json

from medlive.db.jobs import STALLED_AFTER_S
from medlive.db.session import Session
from medlive.db.tables.work import WorkerRow, WorkerState

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
        host=host, pid=pid, queues=[*queues], paused=[], state=WorkerState.WORKING
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
    report = """
        UPDATE workers SET heard_at = now(), paused = CAST(:paused AS jsonb), state = :state, reason = :reason,
        since = CASE WHEN (state, reason) IS DISTINCT FROM (:state, :reason) THEN now() ELSE since END
        WHERE id = :number
    """
    await session.run(
        report, number=number, state=state.value, reason=reason, paused=Json(paused)
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
