"""Tables of the audit room: where each thread stands, kept by triggers."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import (
    Base,
    column,
    key_column,
)

_HAS_CASE = "status <> ''"


class ThreadStandingRow(Base):
    """Where each thread stands, by its latest revision and that one's latest decision."""

    __tablename__ = "thread_standings"
    __table_args__ = (
        # All that is counted by: PostgreSQL reads it alone, 12 MB for a million threads
        Index(
            "ix_thread_standings_facets",
            *("source", "language", "stage", "outcome", "reason", "engine"),
            *("specialty", "status", "week"),
        ),
        Index(None, "changed_at", "thread_id"),
        Index(None, "posted_at", "thread_id"),
        Index(
            "ix_cases_changed_at", "changed_at", "thread_id", postgresql_where=_HAS_CASE
        ),
        Index(
            "ix_cases_posted_at", "posted_at", "thread_id", postgresql_where=_HAS_CASE
        ),
        Index(None, "curation_id"),
        Index(
            "ix_thread_standings_pending",
            "thread_id",
            postgresql_where="outcome = 'pending'",
        ),
        Index(
            "ix_thread_standings_parked",
            "thread_id",
            postgresql_where="outcome IN ('parked', 'failed')",
        ),
        Index(None, "words", postgresql_using="gin"),
    )
    thread_id: Mapped[int] = key_column(
        "The thread", ForeignKey("threads.id", ondelete="CASCADE")
    )
    revision_id: Mapped[int] = column("Its latest revision")
    curation_id: Mapped[int | None] = column(
        "The latest decision about that; NULL: none"
    )
    case_id: Mapped[str | None] = column("Its case; NULL: none")
    case_revision: Mapped[int | None] = column(
        "The case's latest revision; NULL without a case"
    )
    source: Mapped[str] = column("The community")
    language: Mapped[str] = column(
        "en, zh or what the source says; empty: it does not say"
    )
    stage: Mapped[str] = column(
        "filters, screener, validator, controller, rubric or case"
    )
    outcome: Mapped[str] = column(
        "pending, rejected, parked, failed, held, kept or withdrawn"
    )
    reason: Mapped[str] = column(
        "Why, for filters the failing rule's reason; empty: there is none"
    )
    engine: Mapped[str] = column("The screener's model; empty: no engine was asked")
    specialty: Mapped[str] = column("The case's specialty; empty without a case")
    status: Mapped[str] = column("The case's status; empty without a case")
    week: Mapped[str] = column("The ISO week of changed_at, YYYY.WNN")
    changed_at: Mapped[datetime] = column("When it came to stand there")
    posted_at: Mapped[datetime] = column(
        "When it was opened, or came in where that is unknown"
    )
    words: Mapped[Any] = column(
        "What is searched: title, messages and the case's texts", TSVECTOR
    )
