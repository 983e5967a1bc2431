"""Tables of what was taken back: withdrawals of cases and criteria, and disputes about them."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, enum_column, is_digest, now_column, one_of
from medlive.snapshot.errata import WithdrawalKind


class WithdrawalRow(Base):
    """A case, or a criterion of one, that no later snapshot may hold."""

    __tablename__ = "withdrawals"
    __table_args__ = (
        one_of("kind", WithdrawalKind),
        is_digest("criterion_digest"),
        CheckConstraint("revision >= 1 AND new_revision > revision", name="revisions_in_order"),
        CheckConstraint(
            "(criterion_id IS NULL) = (criterion_digest IS NULL)"
            " AND (criterion_id IS NOT NULL OR new_revision IS NULL)",
            name="criterion_is_whole",
        ),
        CheckConstraint("char_length(reason) BETWEEN 1 AND 500", name="reason_length"),
        UniqueConstraint("case_id", "criterion_digest", "kind", postgresql_nulls_not_distinct=True),
        {"comment": "Withdrawn cases and criteria; rows are never changed"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The withdrawal's number")
    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id"), comment="The case")
    revision: Mapped[int] = mapped_column(comment="The case's revision that it was withdrawn from")
    criterion_id: Mapped[str | None] = mapped_column(
        comment="The criterion's id within that revision; NULL: the whole case"
    )
    criterion_digest: Mapped[str | None] = mapped_column(
        comment="The digest of the criterion's folded text, by which it is known in other revisions"
    )
    new_revision: Mapped[int | None] = mapped_column(
        comment="The revision without the criterion that this made; NULL: none was needed"
    )
    kind: Mapped[WithdrawalKind] = enum_column(WithdrawalKind, comment="erratum, takedown or privacy")
    reason: Mapped[str] = mapped_column(comment="Why, in words for the public")
    withdrawn_by: Mapped[str | None] = mapped_column(comment="Who withdrew it; NULL: not told")
    withdrawn_at: Mapped[datetime] = now_column("When it was withdrawn")


class DisputeRow(Base):
    """An objection to a case that a person looks into."""

    __tablename__ = "disputes"
    __table_args__ = (
        CheckConstraint("char_length(reason) BETWEEN 1 AND 2000", name="reason_length"),
        CheckConstraint("char_length(resolution) BETWEEN 1 AND 2000", name="resolution_length"),
        CheckConstraint(
            "(closed_at IS NULL) = (resolution IS NULL) AND (closed_at IS NOT NULL OR closed_by IS NULL)",
            name="closed_is_whole",
        ),
        Index(None, "case_id", postgresql_where="closed_at IS NULL"),
        {"comment": "Disputes; a case with an open one stays out of the next snapshot"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The dispute's number")
    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id"), comment="The case")
    criterion_id: Mapped[str | None] = mapped_column(
        comment="The criterion's id within its case; NULL: the whole case"
    )
    reason: Mapped[str] = mapped_column(comment="What is objected to; not published")
    opened_by: Mapped[str | None] = mapped_column(comment="Who opened it; NULL: not told")
    opened_at: Mapped[datetime] = now_column("When it was opened")
    closed_at: Mapped[datetime | None] = mapped_column(comment="When it was closed; NULL: it is open")
    closed_by: Mapped[str | None] = mapped_column(comment="Who closed it; NULL: not told, or it is open")
    resolution: Mapped[str | None] = mapped_column(comment="What came of it; NULL: it is open")
