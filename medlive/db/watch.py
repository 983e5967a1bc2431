"""Open problems, acknowledgements, the outbox and observations, as the scheduler keeps them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from medlive.db.audit_log import record
from medlive.db.mapping import read
from medlive.db.session import Session
from medlive.db.tables.people import Act
from medlive.db.tables.watch import ObservationRow, OpenProblemRow, OutboxRow, Severity
from medlive.errors import UsageError

DROPPED_AFTER: Final = timedelta(days=14)
"""A message that could not be delivered for so long is removed."""


@dataclass(frozen=True, slots=True)
class SeenProblem:
    """A thing that a person must look at."""

    code: str
    subject: str  # "" where it is about the whole
    severity: Severity
    text: str
    next_step: str

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other problems."""
        return self.code, self.subject


@dataclass(frozen=True, slots=True)
class OpenProblem(SeenProblem):
    """A problem that was seen and has not ended."""

    began_at: datetime
    seen_at: datetime
    sent: int
    send_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    acknowledged_until: datetime | None
    acknowledged_why: str | None

    def is_acknowledged(self, moment: datetime) -> bool:
        """Whether somebody has taken it on, for as long as they said."""
        until = self.acknowledged_until
        return self.acknowledged_at is not None and (until is None or moment < until)


@dataclass(frozen=True, slots=True)
class Message:
    """A message in the outbox."""

    id: int
    place: str
    message: dict[str, Any]
    created_at: datetime
    attempts: int
    send_at: datetime
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What was noted last under a name."""

    name: str
    at: datetime
    value: dict[str, Any]


async def list_open(session: Session) -> list[OpenProblem]:
    """The stored problems, the oldest first."""
    row = OpenProblemRow
    return [
        read(OpenProblem, found)
        for found in await session.scalars(select(row).order_by(row.began_at, row.code))
    ]


async def save_seen(session: Session, problems: Sequence[SeenProblem]) -> None:
    """Add problems that are new, and bring the others' text and `seen_at` up to date."""
    for problem in sorted(problems, key=attrgetter("key")):
        changed = {
            "severity": problem.severity,
            "text": problem.text,
            "next_step": problem.next_step,
        }
        key = {"code": problem.code, "subject": problem.subject}
        statement = upsert(OpenProblemRow).values(key | changed)
        statement = statement.on_conflict_do_update(
            index_elements=["code", "subject"], set_=changed | {"seen_at": func.now()}
        )
        await session.execute(statement)


async def end_unseen(
    session: Session, seen: Collection[tuple[str, str]], patience: timedelta
) -> list[OpenProblem]:
    """Remove the problems that are not among `seen` and were not seen for `patience`; return them."""
    ended = []
    now = (await session.execute(select(func.now()))).scalar_one()
    for problem in await list_open(session):
        if problem.key not in seen and now - problem.seen_at >= patience:
            ended.append(problem)
            await session.execute(delete(OpenProblemRow).where(*_is(problem)))
    return ended


async def note_sent(session: Session, problem: OpenProblem, wait: timedelta) -> None:
    """Note that a message about a problem was written, and that the next one is due after `wait`."""
    values = {"sent": problem.sent + 1, "send_at": func.now() + wait}
    await session.execute(update(OpenProblemRow).where(*_is(problem)).values(values))


async def acknowledge(
    session: Session,
    code: str,
    *,
    lasts: timedelta | None = None,
    why: str | None = None,
    by: str | None = None,
) -> list[OpenProblem]:
    """Take on every open problem of a code: no message is sent about it until it ends, or `lasts` is over.

    Returns them. Raises UsageError when no problem of this code is open.
    """
    row = OpenProblemRow
    values = {
        "acknowledged_at": func.now(),
        "acknowledged_by": by,
        "acknowledged_until": None if lasts is None else func.now() + lasts,
        "acknowledged_why": why,
    }
    changed = await session.scalars(
        update(row).where(row.code == code).values(values).returning(row)
    )
    taken_on = [read(OpenProblem, found) for found in changed]
    if not taken_on:
        codes = sorted({problem.code for problem in await list_open(session)})
        raise UsageError(
            f"no problem {code} is open",
            hint=f"open problems: {', '.join(codes) or 'none'}",
        )
    until = taken_on[0].acknowledged_until
    details = {
        "subjects": sorted(p.subject for p in taken_on),
        "until": until and until.isoformat(),
    }
    await record(session, Act.ACKNOWLEDGE, f"problem:{code}", why, by=by, **details)
    return taken_on


async def post(
    session: Session, places: Sequence[str], message: dict[str, Any]
) -> None:
    """Put a message for each of the places into the outbox."""
    for place in places:
        session.add(OutboxRow(place=place, message=message))


async def due_messages(session: Session, limit: int) -> list[Message]:
    """The messages that are to be tried now, the oldest first; those of other transactions are left out.

    What could not be delivered for DROPPED_AFTER is removed.
    """
    row = OutboxRow
    await session.execute(
        delete(row).where(row.created_at < func.now() - DROPPED_AFTER)
    )
    query = select(row).where(row.send_at <= func.now()).order_by(row.id).limit(limit)
    return [
        read(Message, found)
        for found in await session.scalars(query.with_for_update(skip_locked=True))
    ]


async def remove_message(session: Session, message: Message) -> None:
    """Remove a message that was delivered, or whose place is no longer configured."""
    await session.execute(delete(OutboxRow).where(OutboxRow.id == message.id))


async def note_failure(
    session: Session, message: Message, error: str, wait: timedelta
) -> None:
    """Note why a message was not delivered; it is tried again after `wait`."""
    values = {
        "attempts": message.attempts + 1,
        "last_error": error,
        "send_at": func.now() + wait,
    }
    await session.execute(
        update(OutboxRow).where(OutboxRow.id == message.id).values(values)
    )


async def undelivered(session: Session) -> list[Message]:
    """The messages that failed at least once, the oldest first."""
    query = select(OutboxRow).where(OutboxRow.attempts > 0).order_by(OutboxRow.id)
    return [read(Message, found) for found in await session.scalars(query)]


async def observe(
    session: Session, name: str, value: dict[str, Any] | None = None
) -> None:
    """Note what is seen under a name now, by the database's clock."""
    seen = {"at": func.now(), "value": value or {}}
    statement = upsert(ObservationRow).values(name=name, **seen)
    await session.execute(
        statement.on_conflict_do_update(index_elements=["name"], set_=seen)
    )


async def observations(session: Session) -> dict[str, Observation]:
    """What was noted last, by name."""
    return {
        row.name: read(Observation, row)
        for row in await session.scalars(select(ObservationRow))
    }


def _is(problem: OpenProblem) -> tuple[Any, ...]:
    return (
        OpenProblemRow.code == problem.code,
        OpenProblemRow.subject == problem.subject,
    )
