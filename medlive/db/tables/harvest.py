"""Tables of the harvest: the threads it knows of, how far its lists were read, its archives and its measures."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, enum_column, now_column, one_of
from medlive.sources.fetching.robots import RobotsState


class FrontierState(StrEnum):
    """What became of a listed thread in the run that listed it last."""

    WAITING = "waiting"
    READ = "read"
    NOT_MODIFIED = "not_modified"
    SKIPPED = "skipped"
    FAILED = "failed"
    GONE = "gone"
    KNOWN = "known"
    """The run is repeated, and no list has shown it since."""


class FrontierRow(Base):
    """A thread that a list showed."""

    __tablename__ = "frontier"
    __table_args__ = (
        one_of("state", FrontierState),
        CheckConstraint("(state IN ('skipped', 'failed')) = (reason IS NOT NULL)", name="reason_when_not_read"),
        CheckConstraint("attempts >= 0", name="attempts_not_negative"),
        CheckConstraint("page_count >= 1", name="page_count_positive"),
        CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name="thread_id_length"),
        CheckConstraint("state <> 'read' OR fields IS NOT NULL", name="read_has_fields"),
        Index("ix_frontier_run_id_state", "run_id", "state"),
        Index("ix_frontier_source_waiting", "source", "state"),
        {"comment": "Every thread that a list showed, and what became of it in the run that listed it last"},
    )

    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), primary_key=True, comment="The community")
    thread_id: Mapped[str] = mapped_column(primary_key=True, comment="The source's own id")
    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), comment="The run that listed it last")
    list_key: Mapped[str | None] = mapped_column(comment="The list that showed it last; NULL: none yet")
    url: Mapped[str] = mapped_column(comment="Its address, as the list has it")
    posted_at: Mapped[datetime | None] = mapped_column(comment="When it was opened; NULL: no list says so")
    active_at: Mapped[datetime | None] = mapped_column(comment="Its latest activity, as the list has it")
    state: Mapped[FrontierState] = enum_column(FrontierState, comment="What became of it in that run")
    reason: Mapped[str | None] = mapped_column(comment="Why it was skipped or failed")
    attempts: Mapped[int] = mapped_column(server_default="0", comment="Times in a row that it failed")
    after_fetch: Mapped[int] = mapped_column(
        BigInteger, comment="The newest fetch when it was listed: pages of this reading have higher numbers"
    )
    etag: Mapped[str | None] = mapped_column(comment="The ETag that its first page was last read with")
    last_modified: Mapped[str | None] = mapped_column(comment="The Last-Modified that it was last read with")
    page_count: Mapped[int | None] = mapped_column(comment="How many pages it last had; NULL: never read")
    fields: Mapped[dict[str, Any] | None] = mapped_column(
        comment="Which fields its last reading had (true or false), and how many messages"
    )
    first_run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), comment="The run that met it first")
    changed_at: Mapped[datetime] = now_column("When this row last changed")


class ListCursorRow(Base):
    """How far a list was read in a run."""

    __tablename__ = "list_cursors"
    __table_args__ = (
        CheckConstraint("pages >= 0", name="pages_not_negative"),
        CheckConstraint("finished_at IS NULL OR next_url IS NULL", name="finished_has_no_next"),
        {"comment": "How far each list was read in each run; the newest finished one is where the next run stops"},
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), primary_key=True, comment="The run")
    list_key: Mapped[str] = mapped_column(primary_key=True, comment="The list: what its first page is asked with")
    next_url: Mapped[str | None] = mapped_column(comment="The page to go on with; NULL: from the first")
    pages: Mapped[int] = mapped_column(server_default="0", comment="Pages read")
    newest_at: Mapped[datetime | None] = mapped_column(comment="The latest activity that it showed; NULL: no date")
    finished_at: Mapped[datetime | None] = mapped_column(comment="When it was read to its end; NULL: it was not")


class ArchiveRow(Base):
    """A WARC file with pages as they came."""

    __tablename__ = "archives"
    __table_args__ = (
        UniqueConstraint("path"),
        CheckConstraint("bytes >= 0", name="bytes_not_negative"),
        {"comment": "WARC files under the archive's folder; what they hold beyond `bytes` was never committed"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The file's number")
    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), comment="The run whose pages it holds")
    path: Mapped[str] = mapped_column(comment="Its path below the archive's folder")
    bytes: Mapped[int] = mapped_column(BigInteger, comment="How much of it is committed")
    created_at: Mapped[datetime] = now_column("When it was begun")
    sealed_at: Mapped[datetime | None] = mapped_column(comment="Since when it does not grow; NULL: being written")
    removed_at: Mapped[datetime | None] = mapped_column(comment="When retention or a takedown removed the file")
    unswept_at: Mapped[datetime | None] = mapped_column(
        comment="Since when it holds pages of a takedown that no fetch names any more; NULL: none"
    )


class HarvestRobotsRow(Base):
    """A host's robots.txt as a run found it."""

    __tablename__ = "harvest_robots"
    __table_args__ = (
        one_of("state", RobotsState),
        CheckConstraint("(state = 'unreadable') = (detail IS NOT NULL)", name="unreadable_says_why"),
        {"comment": "The robots.txt of every host that a run asked"},
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), primary_key=True, comment="The run")
    host: Mapped[str] = mapped_column(primary_key=True, comment="The host, with a port that is not its scheme's")
    fetched_at: Mapped[datetime] = mapped_column(primary_key=True, comment="When it was asked for")
    state: Mapped[RobotsState] = enum_column(RobotsState, comment="rules, absent (all may be read) or unreadable")
    status: Mapped[int | None] = mapped_column(comment="The HTTP status; NULL when no answer came")
    body: Mapped[str] = mapped_column(comment="The file as read")
    detail: Mapped[str | None] = mapped_column(comment="Why it is unreadable")


class HarvestMeasureRow(Base):
    """One figure of a run, by which drift is noticed."""

    __tablename__ = "harvest_measures"
    __table_args__ = (
        CheckConstraint("n >= 0", name="n_not_negative"),
        {"comment": "What a run's threads had, compared with the runs before"},
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), primary_key=True, comment="The run")
    measure: Mapped[str] = mapped_column(primary_key=True, comment="The figure's name, e.g. field:posted_at")
    value: Mapped[float] = mapped_column(comment="A share from 0 to 1, or a mean")
    n: Mapped[int] = mapped_column(comment="Over how many threads")
    median: Mapped[float | None] = mapped_column(comment="The median of the runs before; NULL: too few")
    collapsed: Mapped[bool] = mapped_column(comment="Whether it left that median too far behind to be chance")


class IdentifierRow(Base):
    """Where a thread's raw text names a person or a place."""

    __tablename__ = "identifiers"
    __table_args__ = (
        CheckConstraint("message >= 0", name="message_not_negative"),
        CheckConstraint("0 <= start_at AND start_at < end_at", name="span_in_order"),
        {"comment": "Identifiers of people and places in raw text, found when it came in; never the words"},
    )

    revision_id: Mapped[int] = mapped_column(
        ForeignKey("thread_revisions.id"), primary_key=True, comment="The thread's revision"
    )
    message: Mapped[int] = mapped_column(primary_key=True, comment="0: the title; n: the n-th message")
    start_at: Mapped[int] = mapped_column(primary_key=True, comment="The span's first character, from 0")
    end_at: Mapped[int] = mapped_column(comment="The character after its last")
    kind: Mapped[str] = mapped_column(comment="What it is, as de-identification names it")
