"""Tables of what comes in: sources, harvests and fetches, imports, threads and their revisions."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import AnyText, Base, enum_column, is_digest, now_column, one_of
from medlive.sources.ledger import PageKind


class SourceKind(StrEnum):
    """How threads of a source reach us."""

    SITE = "site"
    FILE = "file"


class RunOutcome(StrEnum):
    """How a run stands or ended."""

    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"
    """It stopped where it was told to, before its end."""
    FAILED = "failed"


RUN_ENDS = "(outcome = 'running') = (finished_at IS NULL)"
PROBLEM_IS_TOLD = "outcome <> 'failed' OR problem IS NOT NULL"


class SourceRow(Base):
    """A community that threads come from."""

    __tablename__ = "sources"
    __table_args__ = (
        one_of("kind", SourceKind),
        CheckConstraint("char_length(name) BETWEEN 1 AND 200", name="name_length"),
        CheckConstraint("(quarantined_at IS NULL) = (quarantine_reason IS NULL)", name="quarantine_has_reason"),
        {"comment": "The communities that threads come from"},
    )

    name: Mapped[str] = mapped_column(primary_key=True, comment="The source's name in threads and commands")
    kind: Mapped[SourceKind] = enum_column(
        SourceKind, comment="site: harvested by an adapter; file: imported only"
    )
    created_at: Mapped[datetime] = now_column("When it was first seen")
    quarantined_at: Mapped[datetime | None] = mapped_column(
        comment="Since when it is left out, because its pages stopped making sense; NULL: it is not"
    )
    quarantine_reason: Mapped[str | None] = mapped_column(comment="Why it is left out")
    compared_since: Mapped[datetime | None] = mapped_column(
        comment="Runs begun before are not what its figures are compared with; NULL: all are"
    )


class HarvestRunRow(Base):
    """One source's harvest of one ISO week."""

    __tablename__ = "harvest_runs"
    __table_args__ = (
        UniqueConstraint("source", "iso_week"),
        one_of("outcome", RunOutcome),
        CheckConstraint(r"iso_week ~ '^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$'", name="iso_week_form"),
        CheckConstraint(RUN_ENDS, name="ends_when_not_running"),
        CheckConstraint(PROBLEM_IS_TOLD, name="failure_has_problem"),
        CheckConstraint("starts >= 1", name="starts_positive"),
        {"comment": "Harvests: one a source and ISO week, taken up again when it was interrupted"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The run's number")
    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), comment="The source harvested")
    iso_week: Mapped[str] = mapped_column(comment="The ISO week, YYYY.WNN")
    starts: Mapped[int] = mapped_column(server_default="1", comment="How often it was begun or taken up again")
    started_at: Mapped[datetime] = now_column("When it was first begun")
    finished_at: Mapped[datetime | None] = mapped_column(comment="When it last ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = enum_column(RunOutcome, comment="running, done or failed")
    counts: Mapped[dict[str, Any]] = mapped_column(
        server_default="{}", comment="What happened: event's name to its number"
    )
    problem: Mapped[str | None] = mapped_column(comment="Why it failed, or what it met")


class FetchRow(Base):
    """One page as it was fetched, or the attempt that failed."""

    __tablename__ = "fetches"
    __table_args__ = (
        one_of("kind", PageKind),
        is_digest("body_digest"),
        CheckConstraint("status IS NOT NULL OR error IS NOT NULL", name="answer_or_error"),
        CheckConstraint("status BETWEEN 100 AND 599", name="status_is_http"),
        CheckConstraint("elapsed_ms >= 0", name="elapsed_not_negative"),
        CheckConstraint(
            "num_nonnulls(archive_id, archive_offset, archive_length) IN (0, 3)", name="place_is_whole"
        ),
        CheckConstraint("archive_id IS NULL OR body_digest IS NOT NULL", name="archived_has_digest"),
        CheckConstraint("page_number >= 1", name="page_number_positive"),
        CheckConstraint("(kind = 'listing') = (thread_id IS NULL)", name="thread_page_has_thread"),
        Index(None, "run_id"),
        Index("ix_fetches_thread_id_latest", "source", "thread_id", "id"),
        Index(None, "archive_id"),
        {"comment": "Every page that was asked for, and where its bytes lie"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The fetch's number")
    run_id: Mapped[int] = mapped_column(ForeignKey("harvest_runs.id"), comment="The run that asked for it")
    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), comment="The run's source")
    kind: Mapped[PageKind] = enum_column(PageKind, comment="What the page was asked for: listing or thread")
    thread_id: Mapped[str | None] = mapped_column(comment="The source's id of the page's thread; NULL for lists")
    page_number: Mapped[int] = mapped_column(server_default="1", comment="The page's place in its thread, from 1")
    url: Mapped[str] = mapped_column(comment="The address that answered, or that was asked")
    status: Mapped[int | None] = mapped_column(comment="The HTTP status; NULL when there was no answer")
    fetched_at: Mapped[datetime] = mapped_column(comment="When it was fetched")
    elapsed_ms: Mapped[int | None] = mapped_column(comment="How long it took, in milliseconds")
    body_digest: Mapped[str | None] = mapped_column(comment="The digest of the body as received, uncompressed")
    content_type: Mapped[str | None] = mapped_column(comment="The Content-Type header as sent")
    etag: Mapped[str | None] = mapped_column(comment="The ETag header as sent")
    last_modified: Mapped[str | None] = mapped_column(comment="The Last-Modified header as sent")
    form: Mapped[list[Any] | None] = mapped_column(comment="The form that was posted, as pairs; NULL: none was")
    archive_id: Mapped[int | None] = mapped_column(
        ForeignKey("archives.id"), comment="The WARC file with its bytes; NULL when there are none, or no longer"
    )
    archive_offset: Mapped[int | None] = mapped_column(BigInteger, comment="Where its record begins in the file")
    archive_length: Mapped[int | None] = mapped_column(comment="The record's length in bytes, compressed")
    error: Mapped[str | None] = mapped_column(comment="Why it failed")


class ImportRunRow(Base):
    """One file that was imported."""

    __tablename__ = "import_runs"
    __table_args__ = (
        one_of("outcome", RunOutcome),
        CheckConstraint(RUN_ENDS, name="ends_when_not_running"),
        CheckConstraint(PROBLEM_IS_TOLD, name="failure_has_problem"),
        {"comment": "Imports of thread files"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The run's number")
    file: Mapped[str] = mapped_column(comment="The file's name as it was given")
    assumed_posted_at: Mapped[datetime | None] = mapped_column(
        comment="The date taken for threads without one; NULL: none was"
    )
    started_at: Mapped[datetime] = now_column("When it began")
    finished_at: Mapped[datetime | None] = mapped_column(comment="When it ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = enum_column(RunOutcome, comment="running, done or failed")
    counts: Mapped[dict[str, Any]] = mapped_column(
        server_default="{}", comment="What happened: new, revised, unchanged, problems"
    )
    problem: Mapped[str | None] = mapped_column(comment="Why it failed")


class ImportProblemRow(Base):
    """A line of an import that is no thread."""

    __tablename__ = "import_problems"
    __table_args__ = (
        CheckConstraint("line >= 1", name="line_positive"),
        {"comment": "Lines of imports that became no thread"},
    )

    run_id: Mapped[int] = mapped_column(
        ForeignKey("import_runs.id"), primary_key=True, comment="The import it was met in"
    )
    line: Mapped[int] = mapped_column(primary_key=True, comment="The line's number, from 1")
    file: Mapped[str] = mapped_column(comment="The file's name as it was given")
    reason: Mapped[str] = mapped_column(comment="The kind of fault")
    detail: Mapped[str] = mapped_column(comment="The fault in words")
    excerpt: Mapped[str] = mapped_column(comment="The beginning of the line")


class ThreadRow(Base):
    """A discussion, whatever its content is at present."""

    __tablename__ = "threads"
    __table_args__ = (
        UniqueConstraint("source", "thread_id"),
        CheckConstraint("char_length(thread_id) BETWEEN 1 AND 500", name="thread_id_length"),
        CheckConstraint("last_seen_at >= first_seen_at", name="seen_in_order"),
        {"comment": "Discussions of the sources"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The thread's number here")
    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), comment="The community it is from")
    thread_id: Mapped[str] = mapped_column(comment="The source's own id, unique within it")
    url: Mapped[str] = mapped_column(comment="Its address, as last seen")
    first_seen_at: Mapped[datetime] = now_column("When it first came in")
    last_seen_at: Mapped[datetime] = now_column("When it last came in, changed or not")
    gone_at: Mapped[datetime | None] = mapped_column(
        comment="When the source answered that it is no longer there; NULL: it is there, as far as known"
    )


class ThreadRevisionRow(Base):
    """A thread's content as it once was; never changed."""

    __tablename__ = "thread_revisions"
    __table_args__ = (
        UniqueConstraint("thread_id", "revision"),
        is_digest("digest"),
        CheckConstraint("revision >= 1", name="revision_positive"),
        CheckConstraint("NOT posted_at_assumed OR posted_at IS NOT NULL", name="assumed_is_known"),
        CheckConstraint("num_nonnulls(fetch_id, import_run_id) <= 1", name="one_origin"),
        {"comment": "The content of threads, one row for each state seen; rows are never changed"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The revision's number here")
    thread_id: Mapped[int] = mapped_column(ForeignKey("threads.id"), comment="The thread")
    revision: Mapped[int] = mapped_column(comment="Its place among the thread's revisions, from 1")
    digest: Mapped[str] = mapped_column(comment="The digest of its content")
    title: Mapped[str] = mapped_column(comment="The title")
    language: Mapped[str | None] = mapped_column(comment="en, zh or what the source says; NULL: it does not say")
    tags: Mapped[list[str]] = mapped_column(ARRAY(AnyText), comment="The source's tags and board")
    posted_at: Mapped[datetime | None] = mapped_column(comment="When it was opened; NULL: unknown")
    posted_at_assumed: Mapped[bool] = mapped_column(comment="Whether posted_at was given for want of a date")
    messages: Mapped[list[Any]] = mapped_column(
        comment="The messages in order: id, author (a keyed hash), role, verified, text, posted_at, media"
    )
    fetch_id: Mapped[int | None] = mapped_column(
        ForeignKey("fetches.id"), comment="The fetch of its first page; NULL for imports"
    )
    import_run_id: Mapped[int | None] = mapped_column(
        ForeignKey("import_runs.id"), comment="The import it came with; NULL for harvests"
    )
    created_at: Mapped[datetime] = now_column("When this content was first seen")
