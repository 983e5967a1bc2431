"""A chat endpoint that misbehaves as it is told to, over real HTTP, and counts how often it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Step = Callable[[dict[str, Any]], Awaitable[web.StreamResponse]]
"""How one request is answered, given its body."""


def completion(
    content: object, *, finish: str = "stop", **message: object
) -> dict[str, Any]:
    """A chat completion whose message holds `content` and whatever else is given."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "model-as-served",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 400},
        },
    }


def ok(content: str) -> Step:
    """A sound answer."""
    return sends(completion(content))


def sends(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Step:
    """Some JSON with some status."""

    async def step(_: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return step


def fails(
    status: int, message: str = "no", code: str | None = None, **headers: str
) -> Step:
    """An error in OpenAI's form; `Retry_After="1"` becomes the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return sends(
        {"error": {"message": message, "type": "t", "param": None, "code": code}},
        status,
        named,
    )


def raw(body: bytes, content_type: str = "application/json", status: int = 200) -> Step:
    """Any bytes."""

    async def step(_: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type, status=status)

    return step


def slow(seconds: float, then: Step) -> Step:
    """An answer that comes late."""

    async def step(body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(body)

    return step


@dataclass
class BadEndpoint:
    """Answers by its script, one step a request; the last step answers all that follow."""

    script: list[Step]
    choose: Callable[[dict[str, Any]], Step] | None = None
    """Picks a request's step by its body, in place of the script."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """What was asked, in order."""
    headers: list[Mapping[str, str]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    url: str = ""

    @property
    def asked(self) -> int:
        """How many requests came."""
        return len(self.bodies)

    async def chat(self, http: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await http.read()))
        self.headers.append(dict(http.headers))
        if self.choose is not None:
            step = self.choose(self.bodies[-1])
        else:
            step = self.script[min(self.asked, len(self.script)) - 1]
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if step is cuts_connection:
                http.transport.abort()
                return web.Response()
            if step is drips:
                return await _drip(http)
            return await step(self.bodies[-1])
        finally:
            self.under_way -= 1


async def cuts_connection(_: dict[str, Any]) -> web.StreamResponse:
    """Stands for an endpoint that hangs up without a word."""
    raise AssertionError("handled by the endpoint")


async def hangs(_: dict[str, Any]) -> web.StreamResponse:
    """No answer, however long the client waits."""
    await asyncio.Event().wait()
    raise AssertionError


async def drips(_: dict[str, Any]) -> web.StreamResponse:
    """Stands for an endpoint that sends a byte now and then, for ever."""
    raise AssertionError("handled by the endpoint")


async def _drip(http: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(http)
    for _ in range(1000):
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


@asynccontextmanager
async def bad_endpoint(
    script: Iterable[Step] = (), choose: Callable[[dict[str, Any]], Step] | None = None
) -> AsyncIterator[BadEndpoint]:
    """A misbehaving endpoint while the context lasts; `url` is its base URL."""
    endpoint = BadEndpoint(list(script), choose)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
