"""The rules engine as a chat endpoint, over real HTTP, that counts what it was asked."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from medlive.guard.serving import serve_app
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

    async def count(request: Request, answer: RequestResponseEndpoint) -> Response:
        endpoint.bodies[hashlib.sha256(await request.body()).hexdigest()] += 1
        await endpoint.answers.wait()
        await asyncio.sleep(latency_ms / 1000)
        response = await answer(request)
        parts = [bytes(part) async for part in response.body_iterator]  # type: ignore[attr-defined]
        body = json.loads(b"".join(parts))
        if response.status_code == 200 and endpoint.names is not None:
            body["model"] = endpoint.names
        if response.status_code == 200 and not usage:
            body["usage"] = None
        return JSONResponse(body, response.status_code)

    app = build_app(engine)
    app.add_middleware(BaseHTTPMiddleware, dispatch=count)
    try:
        async with serve_app(app, "127.0.0.1", 0) as address:
            endpoint.url = f"{address}/v1"
            yield endpoint
    finally:
        await engine.aclose()
