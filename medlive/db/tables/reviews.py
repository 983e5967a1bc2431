"""Tables of what people decide about held cases, and of the looks for identifiers in what a release would hold."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, enum_column, is_digest, now_column, one_of


class ReviewAction(StrEnum):
    """What a person does with a held case."""

    APPROVE = "approve"
    REJECT = "reject"
    DROP_ELEMENT = "drop_element"


class ReviewRow(Base):
    """A person's decision about a revision of a case."""

    __tablename__ = "reviews"
    __table_args__ = (
        one_of("action", ReviewAction),
        ForeignKeyConstraint(["case_id", "revision"], ["case_revisions.case_id", "case_revisions.revision"]),
        CheckConstraint("(action = 'drop_element') = (element_id IS NOT NULL)", name="element_is_named"),
        CheckConstraint("char_length(reason) BETWEEN 1 AND 2000", name="reason_length"),
        Index(None, "case_id", "revision"),
        {"comment": "What people decided about held cases; rows are never changed"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The decision's number")
    case_id: Mapped[str] = mapped_column(comment="The case")
    revision: Mapped[int] = mapped_column(comment="The revision that was looked at")
    action: Mapped[ReviewAction] = enum_column(ReviewAction, comment="approve, reject or drop_element")
    element_id: Mapped[str | None] = mapped_column(comment="The advice element that was dropped; NULL: none")
    reason: Mapped[str] = mapped_column(comment="Why")
    decided_by: Mapped[str | None] = mapped_column(comment="Who; NULL: not said")
    decided_at: Mapped[datetime] = now_column("When")


class IdentifierScanRow(Base):
    """A look for identifiers of people in the texts of a case revision, by patterns and an engine."""

    __tablename__ = "identifier_scans"
    __table_args__ = (
        ForeignKeyConstraint(["case_id", "revision"], ["case_revisions.case_id", "case_revisions.revision"]),
        is_digest("scanner"),
        {"comment": "Which case revisions were looked through for identifiers; rows are never changed"},
    )

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id"), primary_key=True, comment="The case")
    revision: Mapped[int] = mapped_column(primary_key=True, comment="Its revision")
    scanner: Mapped[str] = mapped_column(primary_key=True, comment="The instructions and the engine that looked")
    found: Mapped[int] = mapped_column(comment="How many identifiers were found")
    scanned_at: Mapped[datetime] = now_column("When")
