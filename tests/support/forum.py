"""A forum of one board in SDN's page shapes, whose threads can be edited between harvests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from aiohttp import web

from medlive.demo import communities
from medlive.demo.samples import Expectation, SampleMessage, SampleThread
from medlive.integrity.digest import digest_bytes

BOARD = "internal-medicine-and-im-subspecialties.41"
START = datetime(2026, 10, 1, 8, tzinfo=UTC)


def thread(
    number: int, *, posts: int = 3, posted_at: datetime | None = None
) -> SampleThread:
    """A thread of that many posts, the second by an attending."""
    opened = posted_at or START + timedelta(hours=number)
    messages = [
        SampleMessage(
            author="asker" if place == 0 else f"doc{place % 5}",
            role="patient"
            if place == 0
            else "physician"
            if place % 5 == 1
            else "other",
            verified=place > 0 and place % 5 == 1,
            posted_at=opened + timedelta(minutes=place),
            text=f"Post {place} of thread {number}: lisinopril {10 + place} mg and a cough that stays.",
            status="Attending Physician" if place % 5 == 1 else None,
        )
        for place in range(posts)
    ]
    return SampleThread(
        site="sdn",
        source="sdn",
        thread_id=str(5000 + number),
        url=f"https://forum.example/threads/cough-{number}.{5000 + number}/",
        board=BOARD,
        section="Internal Medicine",
        title=f"Cough number {number}",
        language="en",
        tags=("Internal Medicine",),
        posted_at=opened,
        messages=tuple(messages),
        expect=Expectation(outcome="kept", why="it is not curated"),
    )


@dataclass
class Forum:
    """The forum's present state, and what it was asked."""

    threads: dict[str, SampleThread] = field(default_factory=dict)
    change: Callable[[str, str], str] = lambda path, page: page
    """What becomes of a page before it is sent, by its path."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Path → the status that answers instead of the page."""
    other: dict[str, str] = field(default_factory=dict)
    """Path → a page that is none of the board's."""
    encoding: str = "utf-8"
    delay_s: float = 0.0
    gate: asyncio.Event | None = None
    """What every page waits for before it is sent; None: nothing."""
    cuts: Callable[[], bool] = lambda: False
    """Whether the next connection is reset instead of answered."""
    asked: list[str] = field(default_factory=list)
    not_modified: int = 0
    sent: dict[str, str] = field(default_factory=dict)
    """Digest of each body that was sent → its path."""
    url: str = ""

    def add(self, *threads: SampleThread) -> None:
        """Put threads up, or the new state of threads that are up."""
        self.threads |= {t.thread_id: t for t in threads}

    def begin(self) -> None:
        """Forget what was asked and sent; the threads stay up."""
        self.cuts = lambda: False
        self.asked.clear()
        self.sent.clear()

    def answers(self) -> web.Application:
        """The forum as an application."""
        app = web.Application()
        app.router.add_get("/robots.txt", self._robots)
        app.router.add_get("/{path:.*}", self._page)
        return app

    async def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text="User-agent: *\nAllow: /\n")

    async def _page(self, request: web.Request) -> web.Response:
        path = request.path
        self.asked.append(path)
        if self.cuts() and request.transport is not None:
            request.transport.abort()
            return web.Response()
        gate = self.gate
        await asyncio.sleep(self.delay_s)
        if gate is not None:
            await gate.wait()
        if path in self.statuses:
            return web.Response(status=self.statuses[path])
        found = self.other.get(path) or self._render(path, request.query_string)
        if found is None:
            return web.Response(status=404)
        body = self.change(path, found).encode(self.encoding)
        tag = f'"{digest_bytes(body)[7:23]}"'
        if request.headers.get("If-None-Match") == tag:
            self.not_modified += 1
            return web.Response(status=304, headers={"ETag": tag})
        self.sent[digest_bytes(body)] = path
        return web.Response(
            body=body,
            headers={
                "ETag": tag,
                "Content-Type": f"text/html; charset={self.encoding}",
            },
        )

    def _render(self, path: str, query: str) -> str | None:
        base, _, page_text = path.partition("/page-")
        number = int(page_text or 1)
        if base.rstrip("/") == f"/forums/{BOARD}":
            ranked = sorted(
                self.threads.values(),
                key=lambda t: (t.last_post or START, t.thread_id),
                reverse=True,
            )
            return communities.sdn_list_page(
                BOARD, ranked, number, f"?{query}" if query else ""
            )
        found = next(
            (
                t
                for t in self.threads.values()
                if t.path.rstrip("/") == base.rstrip("/")
            ),
            None,
        )
        if found is None:
            return None
        return communities.sdn_thread_page(found, number)


@asynccontextmanager
async def serve_forum(forum: Forum) -> AsyncIterator[Forum]:
    """The forum on a loopback port while the block runs."""
    runner = web.AppRunner(forum.answers(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        forum.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield forum
    finally:
        await runner.cleanup()
