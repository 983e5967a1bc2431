"""What lies outside medlive in the simulation: four growing communities and an endpoint, with their faults."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from medlive.demo.communities import Communities, serve_communities
from medlive.demo.samples import (
    SITES,
    SampleMessage,
    SampleThread,
    Site,
    load_sample_threads,
)
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import build_app

WEEK = timedelta(days=7)
_SENTENCES = re.compile(r"(?<=[.?!])\s+|(?<=[。？！])|\n")
_GROWTH = (1, 3)
"""New threads of a community a week, at the beginning and at the end of the year."""


class Writer:
    """Writes threads from the sentences of the sample threads that are to be kept, no two alike."""

    def __init__(self, seed: int) -> None:
        """The same seed writes the same threads."""
        self._random = random.Random(seed)
        self._number = 0
        self._models: dict[Site, list[SampleThread]] = {site: [] for site in SITES}
        self._said: dict[tuple[str | None, str, bool], list[str]] = {}
        self._boards: dict[Site, tuple[str, str | None]] = {}
        for thread in load_sample_threads():
            if thread.expect.outcome == "kept" and thread.language in ("en", "zh"):
                self._models[thread.site].append(thread)
                self._boards.setdefault(thread.site, (thread.board, thread.section))
                for message in thread.messages:
                    self._learn(thread.language, message)

    def _learn(self, language: str, message: SampleMessage) -> None:
        for sentence in filter(None, map(str.strip, _SENTENCES.split(message.text))):
            asks = sentence[-1] in "?？"
            self._said.setdefault((language, message.role.value, asks), []).append(
                sentence
            )

    def write(self, site: Site, posted: datetime) -> SampleThread:
        """A new thread of a site."""
        chance, model = self._random, self._random.choice(self._models[site])
        self._number += 1
        number, language = 500_000 + self._number, model.language
        board, section = self._boards[site]
        asked = chance.choice(self._said[language, "patient", True])
        history = chance.sample(self._said[language, "patient", False], 7)
        advice = chance.sample(self._said[language, "physician", False], 5)
        opening, answer = (
            model.messages[0],
            next(m for m in model.messages if m.verified),
        )
        space = "" if language == "zh" else " "
        replied = posted + timedelta(hours=2)
        messages = (
            opening.model_copy(
                update={
                    "text": space.join([*history, asked]),
                    "posted_at": posted,
                    "media": (),
                }
            ),
            answer.model_copy(
                update={
                    "text": space.join(advice),
                    "posted_at": replied if answer.posted_at else None,
                }
            ),
        )
        thread_id = {
            "icliniq": f"{board}/question-{number}",
            "sdn": f"{number}",
            "dxy": f"{number}",
            "medlive": f"show-{number}_53",
        }[site]
        path = {
            "icliniq": f"qa/{thread_id}",
            "sdn": f"threads/question.{number}/",
            "dxy": f"question/{number}",
            "medlive": f"case/{thread_id}.html",
        }[site]
        return model.model_copy(
            update={
                "board": board,
                "section": section,
                "thread_id": thread_id,
                "url": f"https://{site}.example/{path}",
                "title": asked,
                "posted_at": posted,
                "messages": messages,
                "charset": "utf-8",
            }
        )

    def week(self, monday: datetime, share: float) -> list[SampleThread]:
        """The threads posted in a week; `share` of the year has passed."""
        least, most = _GROWTH
        count = round(least + (most - least) * share)
        hours = sorted(self._random.sample(range(24 * 7 - 6), count))
        return [
            self.write(site, monday + timedelta(hours=hour))
            for site in SITES
            for hour in hours
        ]

    def edited(self, thread: SampleThread) -> SampleThread:
        """The thread with another reply by its physician, as an edit of the old one."""
        *before, answer = thread.messages
        more = self._random.choice(self._said[thread.language, "physician", False])
        return thread.model_copy(
            update={
                "messages": (
                    *before,
                    answer.model_copy(update={"text": answer.text + more}),
                )
            }
        )


@dataclass
class World:
    """The state that the scenario changes."""

    threads: list[SampleThread] = field(default_factory=list)
    changed_layout: set[Site] = field(default_factory=set)
    banned: set[Site] = field(default_factory=set)
    good_key: str = "key-1"
    calls: int = 0
    refused: int = 0
    told: Callable[[dict[str, str]], None] = lambda message: None
    """Gets what the webhook is sent."""
    ports: Mapping[int, Site] = field(default_factory=dict)
    communities: Communities | None = None
    _first_port: int = 0
    _serving: Any = None

    async def publish(self, moment: datetime) -> Communities:
        """Serve what was posted by a moment, at the same addresses as before."""
        await self.close()
        seen = [
            t for t in self.threads if t.posted_at is not None and t.posted_at <= moment
        ]
        if not self._first_port:
            self._first_port = await _free_ports(len(SITES))
        self._serving = serve_communities(
            seen, first_port=self._first_port, middlewares=[self._spoil]
        )
        self.communities = await self._serving.__aenter__()
        self.ports = {
            self._first_port + place: site for place, site in enumerate(SITES)
        }
        return self.communities

    async def close(self) -> None:
        """Stop serving the communities."""
        if self._serving is not None:
            await self._serving.__aexit__(None, None, None)
            self._serving = None

    @property
    def _spoil(self) -> Any:
        @web.middleware
        async def spoil(request: web.Request, handler: Handler) -> web.StreamResponse:
            site = self.ports.get(request.url.port or 0)
            if site in self.banned:
                return web.Response(status=403, text="You have been blocked.")
            response = await handler(request)
            if (
                site in self.changed_layout
                and isinstance(response, web.Response)
                and response.body
            ):
                # A redesign: every class and every script variable has another name.
                text = (
                    str(response.text)
                    .replace('class="', 'class="v2-')
                    .replace("__", "_v2_")
                )
                response = web.Response(text=text, content_type="text/html")
            return response

        return spoil

    @property
    def guard(self) -> Any:
        """The endpoint's check of the key; its models are called as the configuration names them."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path == "/told":
                self.told(await request.json())
                return web.Response(status=204)
            if request.headers.get("Authorization") != f"Bearer {self.good_key}":
                self.refused += 1
                return web.json_response(
                    {"error": {"message": "invalid key", "code": "invalid_api_key"}},
                    status=401,
                )
            body = await request.json()
            asked, body["model"] = body["model"], "rules"
            request._read_bytes = json.dumps(
                body
            ).encode()  # what the next handler reads
            self.calls += 1
            response = await handler(request)
            if isinstance(response, web.Response) and response.status == 200:
                answer = json.loads(response.body)  # type: ignore[arg-type]
                answer["model"] = asked
                response = web.json_response(answer)
            return response

        return guard


@asynccontextmanager
async def serve_endpoint(world: World) -> AsyncIterator[str]:
    """The rules engine as an endpoint that wants a key; the base URL."""
    app = build_app(RulesEngine())
    app.middlewares.append(world.guard)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _free_ports(count: int) -> int:
    """The first of some free ports in a row."""
    for first in range(20_000, 60_000, 50):
        servers: list[asyncio.Server] = []
        try:
            for port in range(first, first + count):
                servers.append(
                    await asyncio.start_server(lambda r, w: None, "127.0.0.1", port)
                )
            return first
        except OSError:
            continue
        finally:
            for server in servers:
                server.close()
    raise OSError("no free ports")


def boards(communities: Communities, site: Site) -> Sequence[str]:
    """What to list of a site; iCliniq's front list has every topic."""
    return () if site == "icliniq" else communities.boards[site]
