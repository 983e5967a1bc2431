"""The rules engine as a chat endpoint, over real HTTP, that counts what it was asked."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import build_app


@dataclass
class CountingEndpoint:
    """What came, by the digest of each request's body."""

    url: str = ""
    bodies: Counter[str] = field(default_factory=Counter)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, requests are counted and wait."""
    names: str | None = None
    """The model that every reply names; None: the one that was asked."""

    @property
    def asked(self) -> int:
        """How many requests came."""
        return self.bodies.total()


@asynccontextmanager
async def counting_endpoint(
    *, latency_ms: float = 0, usage: bool = True
) -> AsyncIterator[CountingEndpoint]:
    """Serve while the context lasts; `latency_ms`: the least time an answer takes; `usage`: whether it has one."""
    endpoint = CountingEndpoint()
    endpoint.answers.set()
    engine = RulesEngine()

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint.bodies[hashlib.sha256(await request.read()).hexdigest()] += 1
        await endpoint.answers.wait()
        response = await handler(request)
        if (
            not isinstance(response, web.Response)
            or response.text is None
            or response.status != 200
        ):
            return response
        body = json.loads(response.text)
        if endpoint.names is not None:
            body["model"] = endpoint.names
        if not usage:
            body["usage"] = None
        return web.json_response(body)

    app = build_app(engine, latency_ms=latency_ms)
    app.middlewares.append(count)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
        await engine.aclose()
        # The transports of clients that were killed close in the next turns of the loop.
        await asyncio.sleep(0)
