"""Tables of what people do: the audit log, and the studies in which they rate cases."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped

from medlive.db.tables.base import Base, EnumText, column, is_digest, one_of


class Act(StrEnum):
    """What somebody did."""

    CONFIRM = "confirm"
    APPROVE = "approve"
    REJECT = "reject"
    DROP_ELEMENT = "drop_element"
    EDIT = "edit"
    REDACT = "redact"
    OVERRULE = "overrule"
    CURATE_AGAIN = "curate_again"
    DISPUTE = "dispute"
    RESOLVE = "resolve"
    WITHDRAW = "withdraw"
    TAKE_DOWN = "take_down"
    LIFT_QUARANTINE = "lift_quarantine"
    INVITE = "invite"
    SET_ROLE = "set_role"
    DISABLE = "disable"
    RESET = "reset"
    SET_PASSWORD = "set_password"
    START_STUDY = "start_study"
    CLOSE_STUDY = "close_study"


class AuditLogRow(Base):
    """What people did, a chain of digests; a row is never changed, but for a reason that a takedown erases."""

    __tablename__ = "audit_log"
    __table_args__ = (
        one_of("action", Act),
        is_digest("reason_digest"),
        is_digest("previous"),
        is_digest("digest"),
        CheckConstraint("number >= 1", name="number_positive"),
        Index(None, "subject"),
    )
    number: Mapped[int] = column(
        "Its place in the log, from 1 without a gap", primary_key=True, autoincrement=False
    )
    at: Mapped[datetime] = column("When")
    by: Mapped[str | None] = column("Who; NULL: the command line, which was not told")
    action: Mapped[Act] = column("What was done", EnumText(Act))
    subject: Mapped[str] = column("To what: case:ID, thread:SOURCE/ID, source:NAME, account:NAME, study:NAME")
    reason: Mapped[str | None] = column("Why; NULL where nobody is asked, or a takedown erased it")
    reason_digest: Mapped[str | None] = column("Of the reason, which stays; NULL where nobody is asked")
    details: Mapped[dict[str, Any]] = column("What belongs to the act, e.g. a revision")
    previous: Mapped[str | None] = column("The digest of the row before; NULL in the first")
    digest: Mapped[str] = column("Of the canonical JSON of all other columns but the reason", unique=True)
