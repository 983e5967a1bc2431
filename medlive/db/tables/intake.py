"""Tables of what comes in: sources, harvests, archives, imports, threads, duplicates and takedowns."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, composite

from medlive.sources.fetching.policy import RobotsState
from medlive.sources.ledger import Place

from .base import (
    WEEK_FORM,
    Base,
    Digest,
    checks,
    column,
    flag_column,
    float_column,
    integer_column,
    integer_key,
    key_column,
    list_column,
    moment_column,
    now_column,
    number_column,
    object_column,
    optional_float,
    optional_integer,
    optional_moment,
    optional_object,
    optional_text,
    text_column,
    text_key,
)

SourceKind = Literal["site", "file"]
"""How a source's threads reach us: harvested from its site, or imported from files only."""


class RunOutcome(StrEnum):
    """Whether a run is running, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"  # It stopped at a limit that was set, before its end
    FAILED = "failed"


# CHECKs of tables of runs
RUN_ENDS = "(outcome = 'running') = (finished_at IS NULL)"
PROBLEM_IS_TOLD = "outcome <> 'failed' OR problem IS NOT NULL"


class SourceRow(Base):
    """The communities that threads come from."""

    __tablename__ = "sources"
    __table_args__ = checks(
        name_length="char_length(name) BETWEEN 1 AND 200",
        quarantine_has_reason="(quarantined_at IS NULL) = (quarantine_reason IS NULL)",
    )
    name = text_key("The source's name in threads and commands")
    kind: Mapped[SourceKind] = column(
        "site: harvested by an adapter; file: imported only"
    )
    created_at = now_column("When it was first seen")
    quarantined_at = optional_moment(
        "Since when it is left out, because its pages stopped making sense; NULL: it is not"
    )
    quarantine_reason = optional_text("Why it is left out")
    compared_since = optional_moment(
        "Runs begun before are not what its figures are compared with; NULL: all are"
    )


class HarvestRunRow(Base):
    """Harvests: one a source and ISO week, taken up again when it was interrupted."""

    __tablename__ = "harvest_runs"
    __table_args__ = checks(
        UniqueConstraint("source", "iso_week"),
        iso_week_form=f"iso_week ~ '{WEEK_FORM}'",
        ends_when_not_running=RUN_ENDS,
        failure_has_problem=PROBLEM_IS_TOLD,
        starts_positive="starts >= 1",
    )
    id = number_column("The run's number")
    source = text_column("The source harvested", ForeignKey("sources.name"))
    iso_week = text_column("The ISO week, YYYY.WNN")
    starts = integer_column(
        "How often it was begun or taken up again", server_default="1"
    )
    started_at = now_column("When it was first begun")
    finished_at = optional_moment("When it last ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = column("running, done, partial or failed")
    counts = object_column(
        "What happened: event's name to its number", server_default="{}"
    )
    problem = optional_text("Why it failed, or what it met")


PageKind = Literal["listing", "thread"]
"""The purpose of a fetched page."""


class FetchRow(Base):
    """Every page that was asked for, and where its bytes lie."""

    __tablename__ = "fetches"
    __table_args__ = checks(
        Index(None, "run_id"),
        Index("ix_fetches_thread_id_latest", "source", "thread_id", "id"),
        Index(None, "archive_id"),
        answer_or_error="status IS NOT NULL OR error IS NOT NULL",
        status_is_http="status BETWEEN 100 AND 599",
        elapsed_not_negative="elapsed_ms >= 0",
        place_is_whole="num_nonnulls(archive_id, archive_offset, archive_length) IN (0, 3)",
        archived_has_digest="archive_id IS NULL OR body_digest IS NOT NULL",
        page_number_positive="page_number >= 1",
        thread_page_has_thread="(kind = 'listing') = (thread_id IS NULL)",
    )
    id = number_column("The fetch's number")
    run_id = integer_column("The run that asked for it", ForeignKey("harvest_runs.id"))
    source = text_column("The run's source", ForeignKey("sources.name"))
    kind: Mapped[PageKind] = column("What the page was asked for: listing or thread")
    thread_id = optional_text("The source's id of the page's thread; NULL for lists")
    page_number = integer_column(
        "The page's place in its thread, from 1", server_default="1"
    )
    url = text_column("The address that answered, or that was asked")
    status = optional_integer("The HTTP status; NULL when there was no answer")
    fetched_at = moment_column("When it was fetched")
    elapsed_ms = optional_integer("How long it took, in milliseconds")
    body_digest: Mapped[Digest | None] = column(
        "The digest of the body as received, uncompressed"
    )
    content_type = optional_text("The Content-Type header as sent")
    etag = optional_text("The ETag header as sent")
    last_modified = optional_text("The Last-Modified header as sent")
    form: Mapped[list[Any] | None] = column(
        "The form that was posted, as pairs; NULL: none was"
    )
    archive_id = optional_integer(
        "The WARC file with its bytes; NULL when there are none, or no longer",
        ForeignKey("archives.id"),
    )
    archive_offset = optional_integer(
        "Where its record begins in the file", type_=BigInteger
    )
    archive_length = optional_integer("The record's length in bytes, compressed")
    place = composite(Place, "archive_offset", "archive_length")
    error = optional_text("Why it failed")


class ImportRunRow(Base):
    """Imports of thread files."""

    __tablename__ = "import_runs"
    __table_args__ = checks(
        ends_when_not_running=RUN_ENDS, failure_has_problem=PROBLEM_IS_TOLD
    )
    id = number_column("The run's number")
    file = text_column("The file's name as it was given")
    assumed_posted_at = optional_moment(
        "The date taken for threads without one; NULL: none was"
    )
    started_at = now_column("When it began")
    finished_at = optional_moment("When it ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = column("running, done, partial or failed")
    counts = object_column(
        "What happened: new, revised, unchanged, problems", server_default="{}"
    )
    problem = optional_text("Why it failed")


class ThreadRow(Base):
    """Discussions of the sources."""

    __tablename__ = "threads"
    __table_args__ = checks(
        UniqueConstraint("source", "thread_id"),
        thread_id_length="char_length(thread_id) BETWEEN 1 AND 500",
        seen_in_order="last_seen_at >= first_seen_at",
    )
    id = number_column("The thread's number here")
    source = text_column("The community it is from", ForeignKey("sources.name"))
    thread_id = text_column("The source's own id, unique within it")
    url = text_column("Its address, as last seen")
    first_seen_at = now_column("When it first came in")
    last_seen_at = now_column("When it last came in, changed or not")
    gone_at = optional_moment(
        "When the source answered that it is no longer there; NULL: not known to be gone"
    )


class ThreadRevisionRow(Base):
    """The content of threads, one row for each state seen; rows are never changed."""

    __tablename__ = "thread_revisions"
    __table_args__ = checks(
        UniqueConstraint("thread_id", "revision"),
        revision_positive="revision >= 1",
        assumed_is_known="NOT posted_at_assumed OR posted_at IS NOT NULL",
        one_origin="num_nonnulls(fetch_id, import_run_id) <= 1",
    )
    id = number_column("The revision's number here")
    thread_id = integer_column("The thread", ForeignKey("threads.id"))
    revision = integer_column("Its place among the thread's revisions, from 1")
    digest: Mapped[Digest] = column("The digest of its content")
    title = text_column("The title")
    language = optional_text("en, zh or what the source says; NULL: it does not say")
    tags: Mapped[list[str]] = column("The source's tags and board")
    posted_at = optional_moment("When it was opened; NULL: unknown")
    posted_at_assumed = flag_column("Whether posted_at was given for want of a date")
    messages = list_column(
        "The messages in order: id, author (a keyed hash), role, verified, text, posted_at, media"
    )
    fetch_id = optional_integer(
        "The fetch of its first page; NULL for imports", ForeignKey("fetches.id")
    )
    import_run_id = optional_integer(
        "The import it came with; NULL for harvests", ForeignKey("import_runs.id")
    )
    created_at = now_column("When this content was first seen")


class FrontierState(StrEnum):
    """What became of a listed thread in the run that listed it last."""

    WAITING = "waiting"
    READ = "read"
    NOT_MODIFIED = "not_modified"
    SKIPPED = "skipped"
    FAILED = "failed"
    GONE = "gone"
    KNOWN = "known"  # The run is repeated, and no list has shown it since


class FrontierRow(Base):
    """Every thread that a list showed, and what became of it in the run that listed it last."""

    __tablename__ = "frontier"
    __table_args__ = checks(
        Index("ix_frontier_run_id_state", "run_id", "state"),
        Index("ix_frontier_source_waiting", "source", "state"),
        reason_when_not_read="(state IN ('skipped', 'failed')) = (reason IS NOT NULL)",
        attempts_not_negative="attempts >= 0",
        page_count_positive="page_count >= 1",
        thread_id_length="char_length(thread_id) BETWEEN 1 AND 500",
        read_has_fields="state <> 'read' OR fields IS NOT NULL",
    )
    source = text_key("The community", ForeignKey("sources.name"))
    thread_id = text_key("The source's own id")
    run_id = integer_column(
        "The run that listed it last", ForeignKey("harvest_runs.id")
    )
    list_key = optional_text("The list that showed it last; NULL: none yet")
    url = text_column("Its address, as the list has it")
    posted_at = optional_moment("When it was opened; NULL: no list says so")
    active_at = optional_moment("Its latest activity, as the list has it")
    state: Mapped[FrontierState] = column("What became of it in that run")
    reason = optional_text("Why it was skipped or failed")
    attempts = integer_column("Times in a row that it failed", server_default="0")
    after_fetch = integer_column(
        "The newest fetch when it was listed: pages of this reading have higher numbers",
        type_=BigInteger,
    )
    etag = optional_text("The ETag that its first page was last read with")
    last_modified = optional_text("The Last-Modified that it was last read with")
    page_count = optional_integer("How many pages it last had; NULL: never read")
    fields = optional_object(
        "Which fields its last reading had (true or false), and how many messages"
    )
    first_run_id = integer_column(
        "The run that met it first", ForeignKey("harvest_runs.id")
    )
    changed_at = now_column("When this row last changed")


def run_key() -> Mapped[int]:
    """The column `run_id` of the primary key of what a run saw; mostly others follow."""
    return key_column("The run", ForeignKey("harvest_runs.id"))


class ListCursorRow(Base):
    """How far each list was read in each run; the newest finished one is where the next run stops."""

    __tablename__ = "list_cursors"
    __table_args__ = checks(
        pages_not_negative="pages >= 0",
        finished_has_no_next="finished_at IS NULL OR next_url IS NULL",
    )
    run_id = run_key()
    list_key = text_key("The list: what its first page is asked with")
    next_url = optional_text("The page to go on with; NULL: from the first")
    pages = integer_column("Pages read", server_default="0")
    newest_at = optional_moment("The latest activity that it showed; NULL: no date")
    finished_at = optional_moment("When it was read to its end; NULL: it was not")


class ArchiveRow(Base):
    """WARC files under the archive's folder; what they hold beyond `bytes` was never committed."""

    __tablename__ = "archives"
    __table_args__ = checks(
        UniqueConstraint("path"),
        bytes_not_negative="bytes >= 0",
    )
    id = number_column("The file's number")
    run_id = integer_column(
        "The run whose pages it holds", ForeignKey("harvest_runs.id")
    )
    path = text_column("Its path below the archive's folder")
    bytes = integer_column("How much of it is committed", type_=BigInteger)
    created_at = now_column("When it was begun")
    sealed_at = optional_moment("Since when it does not grow; NULL: being written")
    removed_at = optional_moment("When retention or a takedown removed the file")
    unswept_at = optional_moment(
        "Since when it holds pages of a takedown that no fetch names any more; NULL: none"
    )


class HarvestRobotsRow(Base):
    """The robots.txt of every host that a run asked."""

    __tablename__ = "harvest_robots"
    __table_args__ = checks(
        unreadable_says_why="(state = 'unreadable') = (detail IS NOT NULL)"
    )
    run_id = run_key()
    host = text_key("The host, with a port that is not its scheme's")
    fetched_at: Mapped[datetime] = key_column("When it was asked for")
    state: Mapped[RobotsState] = column("rules, absent (all may be read) or unreadable")
    status = optional_integer("The HTTP status; NULL when no answer came")
    body = text_column("The file as read")
    detail = optional_text("Why it is unreadable")


class HarvestMeasureRow(Base):
    """What a run's threads had, compared with the runs before."""

    __tablename__ = "harvest_measures"
    __table_args__ = checks(n_not_negative="n >= 0")
    run_id = run_key()
    name = text_key("The figure's name, e.g. field:posted_at", "measure")
    value = float_column("A share from 0 to 1, or a mean")
    n = integer_column("Over how many threads")
    median = optional_float("The median of the runs before; NULL: too few")
    collapsed = flag_column("Whether it left that median too far behind to be chance")


class IdentifierRow(Base):
    """Identifiers of people and places in raw text, found when it came in; never the words."""

    __tablename__ = "identifiers"
    __table_args__ = checks(
        message_not_negative="message >= 0",
        span_in_order="0 <= start_at AND start_at < end_at",
    )
    revision_id = integer_key(
        "The thread's revision", ForeignKey("thread_revisions.id")
    )
    message = integer_key("0: the title; n: the n-th message")
    start_at = integer_key("The span's first character, from 0")
    end_at = integer_column("The character after its last")
    kind = text_column("What it is, as de-identification names it")


class BandSchemeRow(Base):
    """The way in which the bands here were made; another one has them made anew."""

    __tablename__ = "band_schemes"
    __table_args__ = checks(
        scheme_length="char_length(scheme) BETWEEN 1 AND 200",
    )
    scheme = text_key("What bands are made of, and a check of what the library gives")
    started_at = now_column("When its bands were begun")
    finished_at = optional_moment(
        "Since when every accepted thread has its bands; NULL while they are filled in"
    )


class BandRow(Base):
    """MinHash bands: threads that share one may be near-duplicates."""

    __tablename__ = "bands"
    key = integer_key("A hash of the band's place and its minima", type_=BigInteger)
    thread_id = integer_key(
        "A thread of which some accepted revision has this band",
        ForeignKey("threads.id"),
    )


class TakedownRow(Base):
    """Erased threads; a transaction that writes one may erase its thread's rows."""

    __tablename__ = "takedowns"
    __table_args__ = checks(
        thread_id_length="char_length(thread_id) BETWEEN 1 AND 500",
        reason_length="char_length(reason) BETWEEN 1 AND 2000",
    )
    source = text_key("The community", ForeignKey("sources.name"))
    thread_id = text_key("The source's own id: what keeps the thread from coming back")
    reason = text_column("Why, in the words of who asked first")
    taken_down_at = now_column("When it was first erased")
    erased_in = integer_column(
        "The transaction that wrote this row last, set by a trigger: it alone may erase",
        type_=BigInteger,
    )
    counts = object_column("What was erased: table to rows", server_default="{}")
    lifted_at = optional_moment(
        "Since when a harvest may bring the thread back; NULL: none may"
    )
