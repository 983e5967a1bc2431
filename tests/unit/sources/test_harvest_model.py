"""A board that changes as it likes, harvested weekly and killed at any point: the store shows it as it is."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.sources.fetching.policy import FetchError
from medlive.sources.harvest import harvest
from medlive.sources.ledger import (
    HarvestedThread,
    HarvestProblem,
    KnownThread,
    ListState,
)
from medlive.sources.source import (
    Anonymiser,
    Fetched,
    ListEntry,
    Listing,
    Page,
    PageRequest,
    Site,
    SourceSettings,
)
from medlive.threads.model import Message, Thread
from tests.support.ledger import Killed, MemoryLedger

BASE = "https://board.example"
START = datetime(2026, 1, 5, tzinfo=UTC)
OVERLAP = timedelta(days=14)
ROWS, POSTS = 1, 2
"""Threads a list page, and posts a thread page."""


class Board(Site):
    """A site whose pages are JSON; its lists may show no dates."""

    name = "board"
    defaults = SourceSettings(base_url=BASE, min_interval_s=0)
    allowed_hosts = frozenset({"board.example"})

    def listing_requests(self) -> Sequence[PageRequest]:
        return [PageRequest(f"{self.settings.base_url}/list/1")]

    def parse_listing(self, page: Page) -> Listing:
        told = json.loads(page.body)
        entries = [
            ListEntry(
                f"{BASE}/t/{i}/1",
                i,
                None,
                datetime.fromisoformat(at) if at else None,
            )
            for i, at in told["rows"]
        ]
        return Listing(
            tuple(entries), PageRequest(BASE + told["next"]) if told["next"] else None
        )

    def next_page(self, page: Page) -> str | None:
        following = json.loads(page.body)["next"]
        return BASE + following if following else None

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        told = [json.loads(page.body) for page in pages]
        posts = [post for page in told for post in page["posts"]]
        messages = tuple(
            Message(str(n), "a", "patient", False, p, None, ())
            for n, p in enumerate(posts)
        )
        return Thread(
            "board", told[0]["id"], pages[0].url, "T", "en", (), None, messages
        )


@dataclass
class Host:
    """The board's present state; it counts what it is asked for."""

    dated: bool
    threads: dict[str, tuple[datetime, list[str]]] = field(default_factory=dict)
    """Thread → its latest activity and its posts."""
    asked: Counter[str] = field(default_factory=Counter)

    def ranked(self) -> list[str]:
        """By activity where the list shows it, else by number: the newest first."""
        return sorted(
            self.threads,
            key=lambda i: (self.threads[i][0] if self.dated else START, int(i)),
            reverse=True,
        )

    async def fetch(
        self,
        url: str,
        site: Site,
        *,
        form: object = None,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> Fetched:
        await asyncio.sleep(0)
        self.asked[url] += 1
        kind, *rest = url.removeprefix(BASE + "/").split("/")
        number = int(rest[-1])
        if kind == "list":
            ranked = self.ranked()
            rows = ranked[(number - 1) * ROWS : number * ROWS]
            dates = [
                self.threads[i][0].isoformat() if self.dated else None for i in rows
            ]
            more = f"/list/{number + 1}" if len(ranked) > number * ROWS else None
            body = {"rows": list(zip(rows, dates, strict=True)), "next": more}
        else:
            if rest[0] not in self.threads:
                raise FetchError(url, reason="not_found", message="gone", status=404)
            posts = self.threads[rest[0]][1]
            more = f"/t/{rest[0]}/{number + 1}" if len(posts) > number * POSTS else None
            body = {
                "id": rest[0],
                "posts": posts[(number - 1) * POSTS : number * POSTS],
                "next": more,
            }
        raw = json.dumps(body).encode()
        tag = f'"{hash(raw)}"'
        if etag == tag:
            return Fetched(
                url, b"", status=304, headers={}, fetched_at=START, not_modified=True
            )
        return Fetched(url, raw, headers={"etag": tag}, fetched_at=START)


@dataclass
class Remembered:
    """What outlives a week: as the database's rules have it, in memory."""

    dated: bool
    week: int = 0
    known: dict[str, KnownThread] = field(default_factory=dict)
    entries: dict[str, ListEntry] = field(default_factory=dict)
    stored: dict[str, list[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    newest: datetime | None = None
    read_by: int | None = None
    waiting: dict[str, ListEntry] = field(default_factory=dict)


class WeekLedger(MemoryLedger):
    """One week's ledger."""

    def __init__(self, store: Remembered) -> None:
        cutoff = store.newest - OVERLAP if store.newest else None
        super().__init__(
            lists={f"{BASE}/list/1": ListState(cutoff=cutoff, read_by=store.read_by)}
        )
        self.waiting = dict(store.waiting)
        self.store = store
        self.cutoff = cutoff
        self.shown: set[str] = set()

    async def look_up(self, thread_ids: Sequence[str]) -> Mapping[str, KnownThread]:
        return {
            i: self._now(i)
            for i in thread_ids
            if i in self.store.known or i in self.known
        }

    def _now(self, thread_id: str) -> KnownThread:
        handled = thread_id in self.known and thread_id not in self.waiting
        before = self.store.known.get(thread_id, KnownThread(met_by=self.store.week))
        return KnownThread(
            before.etag, None, before.page_count, handled=handled, met_by=before.met_by
        )

    async def keep(self, *events: object) -> None:
        await super().keep(*events)  # type: ignore[arg-type]
        for event in events:
            if isinstance(event, HarvestedThread):
                i = event.entry.thread_id
                met = self.store.known.get(
                    i, KnownThread(met_by=self.store.week)
                ).met_by
                self.store.known[i] = KnownThread(
                    event.headers.get("etag"), None, event.page_count, met_by=met
                )
                self.store.stored[i] = [m.text for m in event.thread.messages]
                self.store.gone.discard(i)
            elif isinstance(event, HarvestProblem) and event.thread_id is not None:
                self.store.gone.add(event.thread_id)
            elif hasattr(event, "waiting"):
                self.shown |= {e.thread_id for e in event.waiting}
                self.store.entries |= {e.thread_id: e for e in event.waiting}
                for entry in event.waiting:
                    self.store.known.setdefault(
                        entry.thread_id, KnownThread(met_by=self.store.week)
                    )

    async def not_listed(self) -> Sequence[ListEntry]:
        def young(entry: ListEntry) -> bool:
            return (
                entry.last_post_at is None
                or self.cutoff is None
                or entry.last_post_at >= self.cutoff
            )

        missing = [
            e
            for i, e in self.store.entries.items()
            if i not in self.shown | self.known.keys() | self.waiting.keys()
            and i in self.store.stored
            and i not in self.store.gone
            and young(e)
        ]
        # Now this run's: a start that is killed leaves them to the next.
        self.waiting |= {e.thread_id: e for e in missing}
        return missing


def one_week(
    store: Remembered, host: Host, kills: Sequence[int], *, abandoned: bool
) -> None:
    """A run of one week, killed after so many events each time, then left to end unless it is abandoned."""
    store.week += 1
    ledger = WeekLedger(store)
    for kill in kills if abandoned else [*kills, None]:
        ledger.die_after = None if kill is None else len(ledger.events) + kill
        try:
            end = asyncio.run(harvest(Board(), host.fetch, ledger, anonymise=str))
        except Killed:
            continue
        assert end == "complete"
        break
    store.waiting = dict(ledger.waiting)
    if not ledger.lists[f"{BASE}/list/1"].finished:
        return
    store.read_by = store.week
    if host.dated and host.threads:
        store.newest = max(at for at, _ in host.threads.values())


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["new", "new", "new", "reply", "edit", "delete"]),
        st.integers(0, 30),
        st.integers(1, 5),
    ),
    max_size=12,
)


@pytest.mark.thorough
@settings(max_examples=120)
@given(
    dated=st.booleans(),
    weeks=st.lists(
        st.tuples(CHANGES, st.lists(st.integers(0, 16), max_size=2), st.booleans()),
        min_size=1,
        max_size=4,
    ),
)
def test_after_every_week_the_store_shows_what_the_board_shows(
    dated: bool, weeks: list[tuple[list[tuple[str, int, int]], list[int], bool]]
) -> None:
    host, store, number = Host(dated), Remembered(dated), 0
    moment = START
    for changes, kills, abandoned in [*weeks, ([], [], False)]:
        for kind, which, posts in changes:
            moment += timedelta(hours=11)
            ids = sorted(host.threads, key=int)
            if kind == "new" or not ids:
                number += 1
                host.threads[str(number)] = (
                    moment,
                    [f"post {n} of {number}" for n in range(posts)],
                )
                continue
            chosen = ids[which % len(ids)]
            at, texts = host.threads[chosen]
            if kind == "delete":
                del host.threads[chosen]
            elif kind == "edit":
                host.threads[chosen] = (
                    at,
                    [*texts[:-1], f"{texts[-1]} edited {moment}"],
                )
            else:
                host.threads[chosen] = (moment, [*texts, f"reply {moment}"])
        host.asked.clear()
        one_week(store, host, kills, abandoned=abandoned)
        if abandoned:
            continue
        # All that happens here lies within the overlap, so that everything is met again.
        assert {i: store.stored[i] for i in store.stored if i not in store.gone} == {
            i: posts for i, (_, posts) in host.threads.items()
        }
        lists = sum(n for url, n in host.asked.items() if "/list/" in url)
        pages = sum(n for url, n in host.asked.items() if "/t/" in url)
        whole = sum(-(-len(posts) // POSTS) for _, posts in host.threads.values())
        assert lists <= -(-len(host.threads) // ROWS) + 1 + len(kills)
        assert pages <= whole + len(store.gone) + len(kills)


def test_a_recent_row_that_stands_on_every_page_does_not_keep_a_list_from_ending() -> (
    None
):
    class Pinned(Host):
        async def fetch(self, url: str, site: Site, **named: Any) -> Fetched:
            page = await super().fetch(url, site, **named)
            if "/list/" not in url:
                return page
            told = json.loads(page.body)
            told["rows"].insert(0, ["99", self.threads["99"][0].isoformat()])
            return replace(page, body=json.dumps(told).encode())

    host, store = Pinned(dated=True), Remembered(dated=True)
    host.threads = {
        str(n): (START + n * timedelta(days=10), ["post"]) for n in range(1, 20)
    }
    host.threads["99"] = (START + timedelta(days=300), ["pinned"])
    one_week(store, host, [], abandoned=False)
    assert len(store.stored) == len(host.threads)
    host.asked.clear()
    one_week(store, host, [], abandoned=False)
    assert sum(n for url, n in host.asked.items() if "/list/" in url) == 2


def test_a_thread_whose_later_page_is_missing_is_tried_again_and_not_gone() -> None:
    class Shrinking(Host):
        async def fetch(self, url: str, site: Site, **named: Any) -> Fetched:
            page = await super().fetch(url, site, **named)
            if url.endswith("/t/1/2"):
                raise FetchError(url, "gone", reason="not_found", status=404)
            return page

    host, ledger = Shrinking(dated=True), WeekLedger(Remembered(dated=True))
    host.threads = {"1": (START, ["a", "b", "c"])}
    asyncio.run(harvest(Board(), host.fetch, ledger, anonymise=str))
    problems = [event for event in ledger.events if isinstance(event, HarvestProblem)]
    assert [problem.kind for problem in problems] == ["fetch"]
