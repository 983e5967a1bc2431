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

from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)

from medlive.demo.communities import Communities, serve_communities
from medlive.demo.samples import (
    SITES,
    SampleMessage,
    SampleThread,
    Site,
    load_sample_threads,
)
from medlive.guard.serving import serve_app
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
            self._said.setdefault((language, message.role, asks), []).append(sentence)

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
            seen,
            first_port=self._first_port,
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._spoil)],
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

    async def _spoil(
        self, request: Request, answer: RequestResponseEndpoint
    ) -> Response:
        site = self.ports.get(request.url.port or 0)
        if site in self.banned:
            return PlainTextResponse("You have been blocked.", 403)
        response = await answer(request)
        if site in self.changed_layout and response.status_code == 200:
            # A redesign: every class and every script variable has another name.
            page = (await _read(response)).decode("utf-8", "replace")
            page = page.replace('class="', 'class="v2-').replace("__", "_v2_")
            return HTMLResponse(page)
        return response

    async def guard(
        self, request: Request, answer: RequestResponseEndpoint
    ) -> Response:
        """Check the endpoint's key; its models are called as the configuration names them."""
        if request.url.path == "/told":
            self.told(await request.json())
            return Response(status_code=204)
        if request.headers.get("Authorization") != f"Bearer {self.good_key}":
            self.refused += 1
            error = {"message": "invalid key", "code": "invalid_api_key"}
            return JSONResponse({"error": error}, 401)
        body = await request.json()
        asked, body["model"] = body["model"], "rules"
        request._body = json.dumps(body).encode()  # what the endpoint reads
        self.calls += 1
        response = await answer(request)
        reply = json.loads(await _read(response))
        if response.status_code == 200:
            reply["model"] = asked
        return JSONResponse(reply, response.status_code)


@asynccontextmanager
async def serve_endpoint(world: World) -> AsyncIterator[str]:
    """The rules engine as an endpoint that wants a key; the base URL."""
    app = build_app(RulesEngine())
    app.add_middleware(BaseHTTPMiddleware, dispatch=world.guard)
    async with serve_app(app, "127.0.0.1", 0) as address:
        yield f"{address}/v1"


async def _read(response: Response) -> bytes:
    """The body of a response on its way through a middleware."""
    return b"".join([bytes(part) async for part in response.body_iterator])  # type: ignore[attr-defined]


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
    return () if site == "icliniq" else communities[site].boards
