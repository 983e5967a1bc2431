"""The table of takedowns: threads that were erased, and must not come back."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, now_column


class TakedownRow(Base):
    """A thread that was erased."""

    __tablename__ = "takedowns"
    __table_args__ = (
        CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name="thread_id_length"),
        CheckConstraint("char_length(reason) BETWEEN 1 AND 2000", name="reason_length"),
        {"comment": "Erased threads; a transaction that writes one may erase its thread's rows"},
    )

    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), primary_key=True, comment="The community")
    thread_id: Mapped[str] = mapped_column(
        primary_key=True, comment="The source's own id: what keeps the thread from coming back"
    )
    reason: Mapped[str] = mapped_column(comment="Why, in the words of who asked first")
    taken_down_at: Mapped[datetime] = now_column("When it was first erased")
    erased_in: Mapped[int] = mapped_column(
        BigInteger, comment="The transaction that wrote this row last, set by a trigger: it alone may erase"
    )
    counts: Mapped[dict[str, Any]] = mapped_column(server_default="{}", comment="What was erased: table to rows")
