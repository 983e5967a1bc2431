"""Tables of a week as a whole: which threads were queued for it, and which of its steps wait."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import (
    WEEK_FORM,
    Base,
    checks,
    column,
    key_column,
    now_column,
)

_OPEN = text("frozen_in IS NULL")


class WeekThreadRow(Base):
    """Thread revisions that were queued for a freeze: a week is whole when they are decided."""

    __tablename__ = "week_threads"
    __table_args__ = checks(
        Index("ix_week_threads_open", "revision_id", postgresql_where=_OPEN),
        Index(None, "frozen_in"),
        week_form=f"week ~ '{WEEK_FORM}'",
    )
    revision_id: Mapped[int] = key_column(
        "The revision", ForeignKey("thread_revisions.id")
    )
    week: Mapped[str | None] = column(
        "The ISO week it was queued for; NULL: the next that is frozen"
    )
    queued_at: Mapped[datetime] = now_column("When it was queued")
    frozen_in: Mapped[str | None] = column(
        "The snapshot that was frozen after it was settled; NULL: the next freeze counts it",
        ForeignKey("snapshots.version"),
    )


class StepWaitRow(Base):
    """Steps that wait for others, so that a restart does not begin their time anew."""

    __tablename__ = "step_waits"
    __table_args__ = checks(week_form=f"week ~ '{WEEK_FORM}'")
    step: Mapped[str] = key_column("The step")
    week: Mapped[str] = key_column("The ISO week it is to be run for")
    since: Mapped[datetime] = column("Since when it waits")
    ended_at: Mapped[datetime | None] = column(
        "When its time limit had passed; NULL: it has not"
    )
