"""A chat endpoint that fails as it is told to and knows which answers it gave to what."""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from aiohttp import web

from medlive.llm.rules.engine import RulesEngine
from tests.support.engines import serve

MODEL = "chaos-1"
"""Not a name of the rules engine's, so that what it makes may be published."""
HANG_S = 2.5
OTHER = "another model"
KINDS = ("500", "503", "429", "hang", "broken JSON", "useless text", "reset", "cut off")
LATENCY_S = 0.03


@dataclass
class Endpoint:
    """The rules engine's answers, each computed once, under serial numbers that a reply's row keeps."""

    url: str = ""
    fault: Callable[[], str | None] = lambda: None
    """Which of KINDS, or OTHER, happens to the next request; None: it is answered."""
    asked: int = 0
    serial: int = 0
    """Stands in an answer's `completion_tokens`, which are stored with the reply."""
    given: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Request → the serials of the sound answers that it got."""
    came: dict[int, datetime] = field(default_factory=dict)
    """Serial → when the request came that it answers, by the clock of the week's database."""
    ahead: Callable[[], timedelta] = timedelta
    """How far that clock is ahead of the machine's."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    rules_url: str = ""

    def begin(self) -> None:
        """Forget what was asked; the answers stay computed."""
        self.asked, self.fault, self.ahead = 0, lambda: None, timedelta
        self.given.clear()
        self.came.clear()

    @property
    def repeated(self) -> int:
        """Sound answers beyond the first to one request: the earlier one was cut off on its way."""
        return sum(len(serials) - 1 for serials in self.given.values())

    async def chat(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        name = json.loads(raw)["response_format"]["json_schema"]["name"]
        key = f"{name} ({hashlib.sha256(raw).hexdigest()[:12]})"
        self.asked += 1
        came = datetime.now(UTC) + self.ahead()
        await asyncio.sleep(LATENCY_S)
        kind = self.fault()
        if kind in ("500", "503", "429"):
            return web.json_response(
                {"error": {"message": kind, "type": "t"}}, status=int(kind)
            )
        if kind == "hang":
            await asyncio.sleep(HANG_S)
        if kind in ("hang", "reset"):
            return _reset(http)
        if kind == "broken JSON":
            return web.Response(
                body=b'{"choices": [{"mess', content_type="application/json"
            )
        answer = json.loads(json.dumps(await self._answer(key, raw)))
        answer["model"] = "chaos-2" if kind == OTHER else MODEL
        answer["usage"] = {"prompt_tokens": 1, "total_tokens": 1}
        self.serial += 1
        answer["usage"]["completion_tokens"] = self.serial
        if kind == "useless text":
            answer["choices"][0]["message"]["content"] = "I would rather not say."
        if kind in ("useless text", OTHER):
            return web.json_response(answer)
        body = json.dumps(answer).encode()
        if kind == "cut off":
            half = web.StreamResponse(headers={"Content-Type": "application/json"})
            half.content_length = len(body)
            with suppress(ConnectionResetError):  # who asked was killed
                await half.prepare(http)
                await half.write(body[: len(body) // 2])
            return _reset(http)
        self.given[key].append(self.serial)
        self.came[self.serial] = came
        return web.Response(body=body, content_type="application/json")

    async def _answer(self, key: str, raw: bytes) -> dict[str, Any]:
        if key not in self.answers:
            body = json.loads(raw) | {"model": "rules"}
            async with httpx2.AsyncClient() as client:
                reply = await client.post(self.rules_url, json=body)
            assert reply.status_code == 200, reply.text
            self.answers[key] = reply.json()
        return self.answers[key]


def _reset(http: web.Request) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.abort()
    return web.Response()


@asynccontextmanager
async def serve_endpoint() -> AsyncIterator[Endpoint]:
    """The endpoint while the context lasts."""
    endpoint = Endpoint()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    async with serve(RulesEngine) as rules_url:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint.rules_url = f"{rules_url}/chat/completions"
        endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield endpoint
        finally:
            await runner.cleanup()
