"""Tables of what the scheduler watches: open problems, messages on their way, what was noted last."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Index
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import (
    Base,
    checks,
    column,
    key_column,
    now_column,
    number_column,
    one_of,
)


class Severity(StrEnum):
    """How soon a person must look."""

    PAGE = "page"  # The week stops or is spoiled
    TICKET = "ticket"


class OpenProblemRow(Base):
    """Problems that were seen and have not ended; a row is removed when its problem has ended."""

    __tablename__ = "open_problems"
    __table_args__ = checks(
        sent_not_negative="sent >= 0",
        acknowledgement_is_whole="acknowledged_at IS NOT NULL"
        " OR num_nonnulls(acknowledged_by, acknowledged_until, acknowledged_why) = 0",
    )
    code: Mapped[str] = key_column("The check's code, such as no_scheduler")
    subject: Mapped[str] = key_column(
        "What it is about, such as a queue; empty: the whole"
    )
    severity: Mapped[Severity] = column("page or ticket")
    text: Mapped[str] = column("What is wrong, in a sentence")
    next_step: Mapped[str] = column("What a person can do about it")
    began_at: Mapped[datetime] = now_column("When it was first seen")
    seen_at: Mapped[datetime] = now_column("When it was last seen")
    sent: Mapped[int] = column(
        "How many messages about it were written", server_default="0"
    )
    send_at: Mapped[datetime] = now_column("When the next message is due")
    acknowledged_at: Mapped[datetime | None] = column(
        "When somebody took it on; NULL: nobody did"
    )
    acknowledged_by: Mapped[str | None] = column(
        "Who took it on; NULL: the command line, without --by"
    )
    acknowledged_until: Mapped[datetime | None] = column(
        "Until when no message is sent; NULL: until it ends"
    )
    acknowledged_why: Mapped[str | None] = column("What they said about it")

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other problems."""
        return self.code, self.subject

    def is_acknowledged(self, moment: datetime) -> bool:
        """Whether somebody has taken it on, for as long as they said."""
        until = self.acknowledged_until
        return self.acknowledged_at is not None and (until is None or moment < until)


class OutboxRow(Base):
    """Messages for operators that were not delivered yet."""

    __tablename__ = "outbox"
    __table_args__ = checks(
        one_of("place", ("webhook", "email")),
        Index(None, "send_at"),
        attempts_not_negative="attempts >= 0",
    )
    id: Mapped[int] = number_column("The message's number", BigInteger)
    place: Mapped[str] = column("Where it goes: webhook or email")
    message: Mapped[dict[str, Any]] = column(
        "Event, week, text and, of a problem, its code"
    )
    created_at: Mapped[datetime] = now_column("When it was written")
    attempts: Mapped[int] = column("How often it was tried", server_default="0")
    send_at: Mapped[datetime] = now_column("When it is tried next")
    last_error: Mapped[str | None] = column(
        "Why the last attempt failed; NULL before the first"
    )


class ObservationRow(Base):
    """What a process noted last, by name, such as when the scheduler was heard."""

    __tablename__ = "observations"
    name: Mapped[str] = key_column("What was observed")
    at: Mapped[datetime] = now_column("When, by the database's clock")
    value: Mapped[dict[str, Any]] = column("What was seen", server_default="{}")
