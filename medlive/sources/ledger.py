"""The events of a harvest, and the `Ledger` that stores them, so that a killed harvest goes on where it was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from medlive.threads.model import Thread

from .source import Fetched, ListEntry, PageRequest, ProblemKind


@dataclass(frozen=True)
class Place:
    """The place of a page's response record in its archive file."""

    offset: int
    """Bytes before the record's gzip member."""
    length: int
    """Bytes of the member."""


@dataclass(frozen=True)
class KnownThread:
    """The ledger's record of a listed thread."""

    etag: str | None = None
    last_modified: str | None = None
    page_count: int | None = None
    """How many pages it had when it was last read; None: it was never read."""
    handled: bool = False
    """Whether this run has dealt with it."""
    taken_down: bool = False
    """Whether it was taken down and must not be read again."""
    met_by: int | None = None
    """The number of the run whose list first showed it; later runs have higher numbers. None: it is not known."""


@dataclass(frozen=True)
class ListState:
    """How far this run has read a list, and where it may stop."""

    finished: bool = False
    next_page: PageRequest | None = None
    """The page to go on with; None: its first."""
    cutoff: datetime | None = None
    """Activity before this moment was seen by earlier runs; None: the list was never read to its end, or shows
    no dates."""
    read_by: int | None = None
    """The latest earlier run that read the list to its end; None if none did."""


SkipReason = Literal[
    "older_than_since", "not_modified", "taken_down", "other_host", "bad_id"
]
"""Why a listed thread was not harvested although nothing went wrong. `other_host`: it is on a host that is not, or no
longer, the source's; `bad_id`: in an address its id would lead to another thread's page."""


@dataclass(frozen=True)
class FetchedPage:
    """A page arrived; its bytes are kept even if it cannot be read."""

    page: Fetched
    thread_id: str | None
    """The thread that the page belongs to; None for a list."""
    number: int = 1
    """Its place in its thread or list, from 1."""


@dataclass(frozen=True)
class Listed:
    """A list page was read; stored before any of its threads is requested."""

    list_key: str
    waiting: tuple[ListEntry, ...]
    """The threads to ask for."""
    skipped: tuple["HarvestSkipped", ...]
    next_page: PageRequest | None
    """None: the list is read to where it may stop."""
    newest_at: datetime | None
    """The latest activity on the page that is not in the future; None without dates."""


@dataclass(frozen=True)
class HarvestedThread:
    """A whole thread was read."""

    thread: Thread
    entry: ListEntry
    page_count: int
    headers: Mapping[str, str]
    """Of the first page; etag and last-modified make the next harvest's request conditional."""


@dataclass(frozen=True)
class HarvestSkipped:
    """A listed thread was skipped for a reason that is not a fault."""

    url: str
    thread_id: str
    reason: SkipReason


@dataclass(frozen=True)
class HarvestProblem:
    """A page or thread was not read; the harvest goes on unless `ends_source`."""

    url: str
    kind: ProblemKind
    message: str
    thread_id: str | None = None
    ends_source: bool = False


HarvestEvent = FetchedPage | Listed | HarvestedThread | HarvestSkipped | HarvestProblem


class Ledger(Protocol):
    """What a harvest remembers beyond its process."""

    async def keep(self, *events: HarvestEvent) -> None:
        """Store the events durably, all or none."""

    async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
        """Id → what is known of the thread; unknown threads are left out."""

    async def list_state(self, list_key: str) -> ListState:
        """How far a list was read in this run."""

    async def left_over(self) -> Sequence[ListEntry]:
        """Threads that were listed and not read, because a process was killed or reading them failed."""

    async def not_listed(self) -> Sequence[ListEntry]:
        """Recent threads that no list of this run has shown: they may be gone."""

    async def kept_pages(self, thread_id: str) -> Sequence[Fetched]:
        """The pages of a waiting thread that this run has kept already, in order."""
