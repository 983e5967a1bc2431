"""What the watch stores: open problems and who took them on, the outbox of messages to operators, and when a scheduler
was last heard."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import func

from medlive.errors import UsageError

from .audit_log import record
from .session import Session, read_clock
from .tables.people import Act
from .tables.work import ObservationRow, OpenProblemRow, OutboxRow

DROPPED_AFTER = timedelta(days=14)
"""A message that could not be delivered for this long is removed."""

_SCHEDULER = "scheduler"


async def list_open(session: Session) -> list[OpenProblemRow]:
    """The stored problems, the oldest first."""
    return await session.rows(OpenProblemRow, "ORDER BY began_at, code")


async def save_seen(session: Session, problems: Sequence[OpenProblemRow]) -> None:
    """Insert problems that are new; bring the text and `seen_at` of the others up to date."""
    for problem in sorted(problems, key=attrgetter("key")):
        key = {"code": problem.code, "subject": problem.subject}
        await session.put(
            OpenProblemRow,
            key,
            severity=problem.severity,
            text=problem.text,
            next_step=problem.next_step,
            seen_at=func.now(),
        )


async def end_unseen(
    session: Session, seen: Collection[tuple[str, str]], patience: timedelta
) -> list[OpenProblemRow]:
    """Remove the problems that are not among `seen` and were not seen for `patience`; return them."""
    ended = []
    moment = await read_clock(session)
    for problem in await list_open(session):
        if problem.key not in seen and moment - problem.seen_at >= patience:
            ended.append(problem)
            await session.delete(problem)
    return ended


async def note_sent(session: Session, problem: OpenProblemRow, wait: timedelta) -> None:
    """Note that a message about a problem was written, and that the next one is due after `wait`."""
    problem.sent += 1
    problem.send_at = func.now() + wait
    await session.flush()


async def acknowledge(
    session: Session,
    code: str,
    *,
    patience: timedelta,
    lasts: timedelta | None = None,
    why: str | None = None,
    by: str | None = None,
) -> list[OpenProblemRow]:
    """Take on every open problem of a code: no message is sent about it until it ends, or for `lasts`.

    Problems not seen for `patience` have ended and are skipped. Returns the problems taken on. Raises UsageError if no
    problem of this code is open.
    """
    moment = await read_clock(session)
    until = None if lasts is None else moment + lasts
    taken_on = []
    # Locked in the order in which the scheduler writes them, and only those of this code: others need not wait.
    own = 'WHERE code = :code ORDER BY subject COLLATE "C" FOR UPDATE'
    for problem in await session.rows(OpenProblemRow, own, code=code):
        if moment - problem.seen_at < patience:
            problem.acknowledged_at, problem.acknowledged_until = moment, until
            problem.acknowledged_by, problem.acknowledged_why = by, why
            taken_on.append(problem)
    if not taken_on:
        raise UsageError(
            f"no problem {code} is open", hint="medlive status --check lists them"
        )
    await session.flush()
    await record(
        session,
        Act.ACKNOWLEDGE,
        f"problem:{code}",
        why,
        by=by,
        subjects=[problem.subject for problem in taken_on],
        until=until and until.isoformat(),
    )
    return taken_on


async def post(
    session: Session, places: Sequence[str], message: dict[str, Any]
) -> None:
    """Put a message into the outbox, once for each place: webhook or email."""
    for place in places:
        session.add(OutboxRow(place=place, message=message))


async def due_messages(session: Session, limit: int) -> list[OutboxRow]:
    """The messages to be tried now, oldest first, at most `limit` for each place; locked, without those that another
    transaction has locked.

    Messages older than DROPPED_AFTER are removed.
    """
    await session.run(
        "DELETE FROM outbox WHERE created_at < now() - CAST(:age AS interval)",
        age=DROPPED_AFTER,
    )
    return await session.rows(
        OutboxRow,
        """
        WHERE id IN (
            SELECT id FROM (
                SELECT id, row_number() OVER (PARTITION BY place ORDER BY id) AS rank
                FROM outbox WHERE send_at <= now()
            ) AS waiting WHERE rank <= :limit
        ) ORDER BY id FOR UPDATE SKIP LOCKED
        """,
        limit=limit,
    )


async def remove_message(session: Session, message: OutboxRow) -> None:
    """Remove a message that was delivered, or whose place is no longer configured."""
    await session.run("DELETE FROM outbox WHERE id = :id", id=message.id)


async def note_failure(
    session: Session, message: OutboxRow, error: str, wait: timedelta
) -> None:
    """Note why delivering a message failed; it is tried again after `wait`."""
    await session.run(
        """
        UPDATE outbox SET attempts = attempts + 1, last_error = :error, send_at = now() + CAST(:wait AS interval)
        WHERE id = :id
        """,
        id=message.id,
        error=error,
        wait=wait,
    )


async def undelivered(session: Session) -> list[OutboxRow]:
    """The messages whose delivery failed at least once, the oldest first."""
    return await session.rows(OutboxRow, "WHERE attempts > 0 ORDER BY id")


async def hear_scheduler(session: Session) -> None:
    """Note that a scheduler works now, by the database's clock."""
    await session.put(ObservationRow, {"name": _SCHEDULER}, at=func.now())


async def scheduler_heard(session: Session) -> datetime | None:
    """When a scheduler was last heard; None: never."""
    noted = await session.get(ObservationRow, _SCHEDULER)
    return noted.at if noted else None
