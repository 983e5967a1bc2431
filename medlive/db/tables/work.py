"""Tables of the work in progress: workers, failed jobs, open problems and messages, weeks, each thread's stage and
outcome (written by triggers), and the literature services."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped

from .base import (
    WEEK_FORM,
    Base,
    Digest,
    checks,
    column,
    integer_column,
    integer_key,
    key_column,
    list_column,
    moment_column,
    now_column,
    number_column,
    object_column,
    one_of,
    optional_integer,
    optional_moment,
    optional_text,
    text_column,
    text_key,
)

WorkerState = Literal["working", "waiting", "stopping"]
"""What a worker does now.

`working`: it takes jobs of all its queues. `waiting`: it takes no jobs of some of its queues until a reason has passed.
`stopping`: it takes no more jobs and ends the jobs that it has.
"""


class WorkerRow(Base):
    """Worker processes; one that ends in order removes its row, a killed one is no longer heard of."""

    __tablename__ = "workers"
    __table_args__ = checks(
        waiting_has_a_reason="(state = 'waiting') = (reason IS NOT NULL)"
    )
    id = number_column("The worker's number")
    host = text_column("The name of its machine")
    pid = integer_column("Its process there")
    queues = list_column("The queues that it serves")
    paused = list_column("Those of them whose jobs it does not take now")
    began_at = now_column("When it started")
    heard_at = now_column("Its last sign of life, by the database's clock")
    state: Mapped[WorkerState] = column("working, waiting or stopping")
    reason = optional_text("Why it waits; NULL: it does not")
    since = now_column("Since when it is in this state for this reason")


class JobFailureRow(Base):
    """Why jobs failed, which the job queue itself does not keep."""

    __tablename__ = "job_failures"
    job_id = integer_key("The job", type_=BigInteger, autoincrement=False)
    queue = text_column("Its queue")
    reason = text_column("What went wrong, in one line without secrets")
    failed_at = now_column("When")


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
    code = text_key("The check's code, such as no_scheduler")
    subject = text_key("What it is about, such as a queue; empty: the whole")
    severity: Mapped[Severity] = column("page or ticket")
    text = text_column("What is wrong, in a sentence")
    next_step = text_column("What a person can do about it")
    began_at = now_column("When it was first seen")
    seen_at = now_column("When it was last seen")
    sent = integer_column("How many messages about it were written", server_default="0")
    send_at = now_column("When the next message is due")
    acknowledged_at = optional_moment("When somebody took it on; NULL: nobody did")
    acknowledged_by = optional_text(
        "Who took it on; NULL: the command line, without --by"
    )
    acknowledged_until = optional_moment(
        "Until when no message is sent; NULL: until it ends"
    )
    acknowledged_why = optional_text("What they said about it")

    @property
    def key(self) -> tuple[str, str]:
        """(code, subject), by which a problem is known."""
        return self.code, self.subject

    def is_acknowledged(self, moment: datetime) -> bool:
        """Whether somebody has taken it on, for a time that has not passed at `moment`."""
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
    id = number_column("The message's number", kind=BigInteger)
    place = text_column("Where it goes: webhook or email")
    message = object_column("Event, week, text and, of a problem, its code")
    created_at = now_column("When it was written")
    attempts = integer_column("How often it was tried", server_default="0")
    send_at = now_column("When it is tried next")
    last_error = optional_text("Why the last attempt failed; NULL before the first")


class ObservationRow(Base):
    """What a process noted last, by name, such as when the scheduler was heard."""

    __tablename__ = "observations"
    name = text_key("What was observed")
    at = now_column("When, by the database's clock")
    value = object_column("What was seen", server_default="{}")


_OPEN = text("frozen_in IS NULL")


class WeekThreadRow(Base):
    """Thread revisions that were queued for a freeze: a week is whole when they are decided."""

    __tablename__ = "week_threads"
    __table_args__ = checks(
        Index("ix_week_threads_open", "revision_id", postgresql_where=_OPEN),
        Index(None, "frozen_in"),
        week_form=f"week ~ '{WEEK_FORM}'",
    )
    revision_id = integer_key("The revision", ForeignKey("thread_revisions.id"))
    week = optional_text(
        "The ISO week it was queued for; NULL: the next that is frozen"
    )
    queued_at = now_column("When it was queued")
    frozen_in = optional_text(
        "The snapshot that was frozen after it was settled; NULL: the next freeze counts it",
        ForeignKey("snapshots.version"),
    )


class StepWaitRow(Base):
    """Steps that wait for others, so that a restart does not begin their time anew."""

    __tablename__ = "step_waits"
    __table_args__ = checks(week_form=f"week ~ '{WEEK_FORM}'")
    step = text_key("The step")
    week = text_key("The ISO week it is to be run for")
    since = moment_column("Since when it waits")
    ended_at = optional_moment("When its time limit had passed; NULL: it has not")


class LiteratureAnswerRow(Base):
    """What literature services answered, by request and by article, so that nothing is asked twice."""

    __tablename__ = "literature_answers"
    __table_args__ = (Index(None, "fetched_at"),)
    key: Mapped[Digest] = key_column("The digest of service, address and form")
    service = text_column("The service: pubmed or europepmc")
    body: Mapped[bytes] = column(
        "What was read from the answer, without the words that were searched"
    )
    fetched_at = now_column("When it was asked")


class LiteratureTurnRow(Base):
    """When each literature service may be asked next, over all workers."""

    __tablename__ = "literature_turns"
    service = text_key("The service")
    next_at = moment_column("When the next request may be made")


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
    thread_id = integer_key("The thread", ForeignKey("threads.id", ondelete="CASCADE"))
    revision_id = integer_column("Its latest revision")
    curation_id = optional_integer("The latest decision about that; NULL: none")
    case_id = optional_text("Its case; NULL: none")
    case_revision = optional_integer("The case's latest revision; NULL without a case")
    source = text_column("The community")
    language = text_column("en, zh or what the source says; empty: it does not say")
    stage = text_column("filters, screener, validator, controller, rubric or case")
    outcome = text_column("pending, rejected, parked, failed, held, kept or withdrawn")
    reason = text_column(
        "Why, for filters the failing rule's reason; empty: there is none"
    )
    engine = text_column("The screener's model; empty: no engine was asked")
    specialty = text_column("The case's specialty; empty without a case")
    status = text_column("The case's status; empty without a case")
    week = text_column("The ISO week of changed_at, YYYY.WNN")
    changed_at = moment_column("When it came to stand there")
    posted_at = moment_column("When it was opened, or came in where that is unknown")
    words: Mapped[Any] = column(
        "What is searched: title, messages and the case's texts", TSVECTOR
    )
