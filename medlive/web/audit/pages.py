"""The contexts of the audit room's templates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from medlive.db.audit.listing import Counts
from medlive.db.audit.spending import Spent
from medlive.db.curation.funnel import FunnelRow
from medlive.db.curation.parking import Parked
from medlive.db.mapping import Record
from medlive.db.tables.decisions import ReplyRow
from medlive.db.tables.people import AuditLogRow
from medlive.text.html import Page
from medlive.web.acts.actions import Actions
from medlive.web.audit.marking import Change, Marked
from medlive.web.audit.state import State
from medlive.web.audit.tables import Table
from medlive.web.audit.window import Stretch

if TYPE_CHECKING:
    from medlive.service.curation.parking import Gap

Link = tuple[str, str]  # Text and address


@dataclass(frozen=True)
class OverviewPage(Page):
    """How the threads fared, what runs next, what it costs, and what needs a person."""

    template = "audit/overview.html"
    tables: Sequence[Link]
    health: Mapping[str, object]  # Of `read_health`
    outcomes: Sequence[str]
    by_source: Mapping[str, Mapping[str, int]]  # Source → outcome → threads
    by_week: Mapping[str, Mapping[str, int]]
    reasons: Sequence[FunnelRow]
    # Week → what was spent in it, in all and by source
    spent: Mapping[str, Sequence[Spent]]
    may_act: bool


@dataclass(frozen=True)
class GapsPage(Page):
    """Subjects on which parked threads met no passage, most threads first."""

    template = "audit/gaps.html"
    tables: Sequence[Link]
    gaps: Sequence["Gap"]
    all_gaps: int
    parked: Sequence[Parked]  # Those that wait longest first
    all_parked: int
    thread_links: Mapping[str, str]  # SOURCE/ID → the thread's page


@dataclass(frozen=True)
class TablePage(Page):
    """The rows of a table that a filter finds, and how many each facet's values would."""

    template = "audit/table.html"
    table: Table
    tables: Sequence[Link]
    state: State
    rows: Sequence[tuple[object, Link | None]]  # Each with its own page
    counts: Counts
    before: str | None  # Address of the page before
    after: str | None
    sorts: Mapping[str, str]  # Sort → address


Part = Mapping[str, object]
Advice = tuple[Part, Part | None, Sequence[Part]]
"""An advice with what was found about it and the criteria asked for because of it."""


@dataclass(frozen=True)
class RevisionStep:
    """What a revision of a case changed in the one before."""

    revision: int
    created_at: datetime
    fields: Mapping[str, Sequence[Change]]
    # Criterion → change; only those that changed
    criteria: Mapping[str, Sequence[Change]]


@dataclass(frozen=True)
class ThreadPage(Page):
    """A thread, every decision about it, and its case where there is one."""

    template = "audit/thread.html"
    record: Mapping[str, object]  # Of `inspect_thread`
    language: str
    title: Marked
    messages: Sequence[Marked]
    shown: Stretch  # Which of the thread's messages these are
    # Message → which of its characters are shown, where not all are
    parts: Mapping[str, Stretch]
    # Message that an element quotes, and that is not shown → its page
    elsewhere: Mapping[str, str]
    elements: Mapping[str, Sequence[Mapping[str, object]]]  # Side → elements
    # Element or text → checks that it failed
    flags: Mapping[str, Sequence[Mapping[str, object]]]
    advice: Sequence[Advice]
    loose: Sequence[Mapping[str, object]]  # Criteria of no advice above
    calls: Sequence[Mapping[str, object]]  # Of agents
    replies: Mapping[str, ReplyRow]  # Request's digest → reply
    decision_links: Mapping[int, str]  # Number of a decision → its address
    revisions: Sequence[RevisionStep]  # The newest first
    memberships: Sequence[Record]
    withheld: bool  # Whether its account rates in a study, or people check verdicts on the case blind
    entries: Sequence[AuditLogRow]  # What people did to it
    actions: Actions | None  # None: the account may not act
    before: Link | None  # Of the list that led here
    after: Link | None
    back: Link


@dataclass(frozen=True)
class RequestPage(Page):
    """A stored request as it was rendered, with its reply; or a prompt."""

    template = "audit/request.html"
    prompt: Mapping[str, object]  # Of `show_prompt`
