"""A ledger in memory: the harvest's rules without a database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from medlive.sources.ledger import (
    FetchedPage,
    HarvestedThread,
    HarvestEvent,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
    Listed,
    ListState,
)
from medlive.sources.source import REFUSALS, Fetched, ListEntry, PageRequest


class Killed(Exception):
    """The harvest's process ended here."""


@dataclass
class MemoryLedger:
    """Keeps every event, and answers from what it kept; `known`, `lists` and `unlisted` can be set beforehand."""

    known: dict[str, KnownThread] = field(default_factory=dict)
    lists: dict[str, ListState] = field(default_factory=dict)
    unlisted: list[ListEntry] = field(default_factory=list)
    events: list[HarvestEvent] = field(default_factory=list)
    waiting: dict[str, ListEntry] = field(default_factory=dict)
    pages: dict[str, list[Fetched]] = field(default_factory=dict)
    die_after: int | None = None
    """Events after which keeping fails, as a kill would end it."""

    async def keep(self, *events: HarvestEvent) -> None:
        if (
            self.die_after is not None
            and len(self.events) + len(events) > self.die_after
        ):
            raise Killed
        for event in events:
            self.events.append(event)
            if isinstance(event, FetchedPage) and event.thread_id is not None:
                self.pages.setdefault(event.thread_id, []).append(event.page)
            if isinstance(event, Listed):
                self.waiting |= {entry.thread_id: entry for entry in event.waiting}
                following = (
                    event.next_page
                    if event.next_page and event.next_page.form is None
                    else None
                )
                self.lists[event.list_key] = ListState(
                    finished=event.next_page is None,
                    next_page=PageRequest(following.url) if following else None,
                    cutoff=self.lists.get(event.list_key, ListState()).cutoff,
                )
            settled = self._settled(event)
            if settled is not None:
                self.waiting.pop(settled, None)
                self.pages.pop(settled, None)
                before = self.known.get(settled, KnownThread())
                count = (
                    event.page_count
                    if isinstance(event, HarvestedThread)
                    else before.page_count
                )
                self.known[settled] = KnownThread(
                    before.etag,
                    before.last_modified,
                    count,
                    handled=True,
                    taken_down=before.taken_down,
                )

    def _settled(self, event: HarvestEvent) -> str | None:
        if isinstance(event, HarvestedThread):
            return event.entry.thread_id
        if isinstance(event, HarvestSkipped):
            return event.thread_id
        if isinstance(event, HarvestProblem) and event.kind not in REFUSALS:
            return event.thread_id
        return None

    async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
        return {i: self.known[i] for i in thread_ids if i in self.known}

    async def list_state(self, list_key: str) -> ListState:
        return self.lists.get(list_key, ListState())

    async def left_over(self) -> Sequence[ListEntry]:
        return list(self.waiting.values())

    async def not_listed(self) -> Sequence[ListEntry]:
        return self.unlisted

    async def kept_pages(self, thread_id: str) -> Sequence[Fetched]:
        return self.pages.get(thread_id, [])
