"""Requests over real HTTP: where they go, what they carry, and how much of an answer is read."""

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from medlive.errors import ConfigError, EndpointUnavailable
from medlive.llm.engine import Prompt, Request
from tests.support.bad_endpoint import completion
from tests.support.engines import engine_at

KEY = "sk-transport-1"
LONG = b" " * 8_000_000
PACKED = gzip.compress(LONG, 1)
REQUEST = Request(
    "grader.criterion",
    Prompt("grader.criterion", "p"),
    {},
    {"type": "object", "properties": {}},
)


@asynccontextmanager
async def serving(handler: Any) -> AsyncIterator[str]:
    """An endpoint whose every path is answered by the handler; its address without a path."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def ask(url: str) -> str:
    """The reply's text, or the error's message and hint."""
    engine = engine_at("m", url, KEY, max_retries=0)
    try:
        return (await engine.answer(REQUEST)).text
    except EndpointUnavailable as error:
        return f"{error.message} {error.hint}"
    finally:
        await engine.aclose()


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [True, False])
async def test_no_more_is_read_than_is_allowed(status: int, packed: bool) -> None:
    async def flood(_: web.Request) -> web.Response:
        if packed:
            return web.Response(
                body=PACKED,
                status=status,
                headers={"Content-Encoding": "gzip"},
            )
        return web.Response(body=LONG, status=status)

    async with serving(flood) as url:
        assert "is longer than" in await ask(f"{url}/v1")


async def test_a_body_that_cannot_be_unpacked_is_a_broken_connection() -> None:
    async def garble(_: web.Request) -> web.Response:
        return web.Response(
            body=b"no gzip at all", headers={"Content-Encoding": "gzip"}
        )

    async with serving(garble) as url:
        assert "the connection broke" in await ask(f"{url}/v1")


async def test_no_redirect_takes_the_key_elsewhere() -> None:
    seen: list[str] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(
            status=307, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"}
        )

    async with serving(keep) as url:
        assert "status 307" in (message := await ask(f"{url}/v1"))
    assert "the address, which mostly ends in /v1" in message
    assert seen == [f"Bearer {KEY}"]


@pytest.mark.security
async def test_what_the_environment_says_to_openais_client_goes_to_no_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-1")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-1")
    monkeypatch.setenv("OPENAI_API_KEY", "key-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Own: own-1")
    seen: list[str] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append(str(request.headers))
        return web.json_response(completion("ok"))

    async with serving(keep) as url:
        engine = engine_at("m", f"{url}/v1")
        await engine.answer(REQUEST)
        await engine.aclose()
    assert not re.search("(org|project|admin|key|own)-1|authorization", seen[0], re.I)


async def test_a_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        asked.append(request.headers["Host"])
        return web.json_response(completion("ok"))

    async with serving(proxy) as url:
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", url)
        assert await ask("http://endpoint.invalid/v1") == "ok"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await ask(f"{url}/v1") == "ok"
    assert asked == ["endpoint.invalid", url.removeprefix("http://")]


def test_a_proxy_that_is_not_one_over_http_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", "socks5h://127.0.0.1:9")
    with pytest.raises(ConfigError, match="proxy"):
        engine_at("m", "http://endpoint.invalid/v1")
