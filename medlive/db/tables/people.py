"""Tables of what people do: the audit log, and the studies in which they rate cases."""

from datetime import UTC
from enum import StrEnum
from typing import Literal

from sqlalchemy import (
    BigInteger,
    FetchedValue,
    ForeignKey,
    Index,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped

from medlive.db.mapping import as_dict
from medlive.integrity.digest import digest_json, digest_text

from .base import (
    Base,
    Digest,
    checks,
    column,
    integer_column,
    integer_key,
    moment_column,
    now_column,
    number_column,
    object_column,
    optional_flag,
    optional_integer,
    optional_moment,
    optional_text,
    refers_to,
    text_column,
    text_key,
)


class Act(StrEnum):
    """What a person did, as the audit log names it."""

    CONFIRM = "confirm"  # No longer made, nor is CURATE_AGAIN; older logs have both
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
    REINSTATE = "reinstate"
    TAKE_DOWN = "take_down"
    LIFT_TAKEDOWN = "lift_takedown"
    LIFT_QUARANTINE = "lift_quarantine"
    INVITE = "invite"
    SET_ROLE = "set_role"
    DISABLE = "disable"
    RESET = "reset"
    SET_PASSWORD = "set_password"
    START_STUDY = "start_study"
    CLOSE_STUDY = "close_study"
    FREEZE_PARTIAL = "freeze_partial"
    RUN_STEP = "run_step"
    CLEAR_STEP = "clear_step"
    ACKNOWLEDGE = "acknowledge"


class AuditLogRow(Base):
    """What people did, a chain of digests; a row is never changed, but for a reason that a takedown erases."""

    __tablename__ = "audit_log"
    __table_args__ = checks(
        Index(None, "subject"),
        number_positive="number >= 1",
        salt_is_hex="salt ~ '^[0-9a-f]{32}$'",
    )
    number = integer_key(
        "Its place in the log, from 1 without a gap; the database assigns it",
        autoincrement=False,
        server_default=FetchedValue(),  # A trigger's
    )
    at = moment_column("When")
    by = optional_text("Who; NULL: the command line, without --by")
    action: Mapped[Act] = column("What was done")
    subject = text_column(
        "To what: case:ID, thread:SOURCE/ID, source:NAME, account:NAME, study:NAME, step:NAME"
    )
    reason = optional_text("Why; NULL where nobody is asked, or a takedown erased it")
    reason_digest: Mapped[Digest | None] = column(
        "Of the reason, which stays; NULL where nobody is asked"
    )
    details = object_column("What belongs to the act, e.g. a revision")
    previous: Mapped[Digest | None] = column(
        "The digest of the row before; NULL in the first"
    )
    digest: Mapped[Digest] = column(
        "Of the canonical JSON of all other columns but the reason, without a salt that is NULL",
        unique=True,
    )
    salt = optional_text(
        "A random number, so that nobody guesses a row by its digest; NULL: from before digests were published"
    )

    def expected_digest(self) -> str:
        """The digest of everything else in the row; a reason counts by its own digest, which a takedown keeps."""
        values = as_dict(self) | {
            "at": self.at.astimezone(UTC).isoformat(),
            "action": self.action.value,
        }
        del values["digest"], values["reason"]
        if self.salt is None:
            del values["salt"]
        return digest_json(values)

    @property
    def erased(self) -> set[int]:
        """The numbers of the entries whose reasons this entry, a takedown's, says were erased."""
        numbers = self.details.get("erased")
        return (
            {n for n in numbers if isinstance(n, int)}
            if isinstance(numbers, list)
            else set()
        )

    def is_intact(self) -> bool:
        """Whether the row is as it was written, or as a takedown left it."""
        reason = self.reason_digest if self.reason is None else digest_text(self.reason)
        return self.digest == self.expected_digest() and reason == self.reason_digest


class StudyKind(StrEnum):
    """What a study asks about its cases, or about answers to them."""

    CASE_QUALITY = "case_quality"  # Narrative with query, and advice: 0 to 2 each
    CRITERION_VALIDITY = "criterion_validity"  # Each criterion: 0 or 1
    GRADER_CHECK = "grader_check"  # Whether a model's answer meets each criterion, which a grader decided: 0 or 1


class Stratum(StrEnum):
    """The property of cases by whose values a study's sample is drawn in equal numbers."""

    NONE = "none"
    LANGUAGE = "language"
    SPECIALTY = "specialty"
    THEME = "theme"


Blinding = Literal["blind", "after_report", "open", "unrecorded"]
"""Whether raters of a grader check could read the grader's verdicts in a report that this site shows.

`blind`: no report was shown before, and none is while the study is open. `after_report`: one was shown before, and is
withheld now. `open`: one was shown before and stays, as an admin chose. `unrecorded`: the study is from before this was
recorded.
"""


class StudyRow(Base):
    """Studies in which people rate a sample of cases."""

    __tablename__ = "studies"
    __table_args__ = checks(
        name_spelling="name ~ '^[a-z0-9][a-z0-9-]{0,63}$'",
        adjudicator_is_another="NOT adjudicator = ANY (raters)",
    )
    name = text_key("The study's name")
    kind: Mapped[StudyKind] = column("case_quality, criterion_validity or grader_check")
    version = optional_text(
        "The snapshot whose cases were drawn; NULL: the ready cases"
    )
    run = optional_text(
        "The folder of the run whose answers are rated; NULL: cases are rated"
    )
    grader = optional_text("Who graded the run; NULL: cases are rated")
    against = optional_text(
        "The judge who decided all items otherwise; NULL: not chosen by that"
    )
    stratum: Mapped[Stratum] = column("By what the sample was drawn in equal numbers")
    seed = integer_column("Of the sample, and of each rater's order")
    raters: Mapped[list[str]] = column("The accounts that rate")
    adjudicator = optional_text("The account that settles disagreements; NULL: nobody")
    created_by = text_column("The account that began it")
    created_at = now_column("When it was begun")
    blinding: Mapped[Blinding] = column(
        "blind, after_report, open or unrecorded", default="blind"
    )
    closed_at = optional_moment("Since when nobody rates any more; NULL: it is open")


class StudyItemRow(Base):
    """What is rated in studies: one aspect of one revision of a case."""

    __tablename__ = "study_items"
    __table_args__ = (
        UniqueConstraint("study", "position"),
        Index(None, "case_id"),
    )
    study = text_key("The study", ForeignKey("studies.name"))
    item = text_key("The digest of what is rated, as on sheets")
    position = integer_column("Its place in the study, from 1")
    case_id = text_column("The case")
    revision = integer_column("Its revision")
    aspect = text_column("narrative_and_query, advice, criterion or verdict")
    criterion_id = optional_text(
        "The criterion's id within its case; NULL: another aspect"
    )
    answer = optional_text("The model's answer; NULL: the case is rated")
    verdict = optional_flag(
        "Whether the grader found the criterion met; NULL: the case is rated"
    )


class StudyRatingRow(Base):
    """Ratings; while the study is open another one by the same rater replaces it."""

    __tablename__ = "study_ratings"
    __table_args__ = checks(
        refers_to("study_items", "study", "item"),
        Index(None, "study", "item", "rater", "id"),
        rating_range="rating BETWEEN 0 AND 2",
        comment_length="char_length(comment) <= 2000",
    )
    id = number_column(
        "The row's number: of a rater's ratings of an item the highest counts",
        kind=BigInteger,
    )
    study = text_column("The study")
    item = text_column("What is rated")
    rater = text_column("The account, a rater's or the adjudicator's")
    rating = optional_integer("On the aspect's scale; NULL: could not decide")
    comment = text_column("What the rater says about it")
    rated_at = now_column("When it was given")
