"""What goes over the wire is what the official client sends, and what comes back means what it says it means."""

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.llm.engine import Prompt, Request
from medlive.llm.fence import fenced, render
from medlive.llm.transport import TooLongError, Transport
from medlive.llm.wire import Frame, JsonMode, chat_body, encoded, response_format
from medlive.text.neutral import inert, neutralise

MOST = 100_000
KEY = "sk-transport-1"


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


async def test_a_request_is_the_official_clients_but_for_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    seen: list[tuple[str, Mapping[str, str], bytes]] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers.copy(), await request.read()))
        return web.json_response({"choices": []})

    async with serving(keep) as url:
        transport = Transport(f"{url}/some%20where/v1?api-version=2", KEY)
        assert json.loads(await transport.post(b'{"model":"m","messages":[]}', MOST)) == {"choices": []}
        await transport.aclose()
        client = openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/some%20where/v1?api-version=2", max_retries=0)
        await client.chat.completions.create(model="m", messages=[])
        await client.close()
    (path, ours, body), (their_path, theirs, their_body) = seen
    assert path == their_path
    assert json.loads(body) == json.loads(their_body)
    apart = {"x-stainless-async", "user-agent", "accept-encoding", "connection", "content-length"}
    lower = [{k.lower(): v for k, v in one.items() if k.lower() not in apart} for one in (ours, theirs)]
    assert lower[0] == lower[1]
    assert lower[0]["authorization"] == f"Bearer {KEY}"
    assert lower[0]["openai-organization"] == "org-1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, openai.APIStatusError), (400, openai.BadRequestError), (401, openai.AuthenticationError),
        (404, openai.NotFoundError), (429, openai.RateLimitError), (500, openai.InternalServerError),
    ],
)  # fmt: skip
async def test_the_official_client_says_what_a_status_means(status: int, kind: type[Exception]) -> None:
    async def refuse(_: web.Request) -> web.Response:
        told = {"error": {"message": "told", "type": "t", "param": "temperature", "code": "c"}}
        packed = gzip.compress(json.dumps(told).encode())
        headers = {"Retry-After": "7", "Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed, status=status, headers=headers)

    async with serving(refuse) as url:
        transport = Transport(f"{url}/v1", KEY)
        with pytest.raises(openai.APIStatusError) as caught:
            await transport.post(b"{}", MOST)
        await transport.aclose()
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.type, error.param) == (status, "c", "t", "temperature")
    assert error.body == {"message": "told", "type": "t", "param": "temperature", "code": "c"}
    assert error.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [True, False])
async def test_no_more_is_read_than_is_allowed(status: int, packed: bool) -> None:
    async def flood(_: web.Request) -> web.Response:
        body = b" " * 2_000_000
        if packed:
            return web.Response(body=gzip.compress(body), status=status, headers={"Content-Encoding": "gzip"})
        return web.Response(body=body, status=status)

    async with serving(flood) as url:
        transport = Transport(f"{url}/v1", KEY)
        with pytest.raises(TooLongError if status == 200 else openai.InternalServerError):
            await transport.post(b"{}", MOST)
        await transport.aclose()


async def test_a_body_that_cannot_be_unpacked_is_a_broken_connection() -> None:
    async def garble(_: web.Request) -> web.Response:
        return web.Response(body=b"no gzip at all", headers={"Content-Encoding": "gzip"})

    async with serving(garble) as url:
        transport = Transport(f"{url}/v1", KEY)
        with pytest.raises(aiohttp.ClientError):
            await transport.post(b"{}", MOST)
        await transport.aclose()


async def test_the_key_does_not_follow_a_redirect_to_another_host() -> None:
    seen: list[str | None] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    async with serving(keep) as elsewhere:

        async def redirect(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            return web.Response(status=307, headers={"Location": f"{elsewhere}/v1/chat/completions"})

        async with serving(redirect) as url:
            transport = Transport(f"{url}/v1", KEY)
            assert await transport.post(b"{}", MOST) == b"{}"
            await transport.aclose()
    assert seen == [f"Bearer {KEY}", None]


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        asked.append(request.headers["Host"])
        return web.json_response({})

    async with serving(proxy) as url:
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", url)
        transport = Transport("http://endpoint.invalid/v1", KEY)
        await transport.post(b"{}", MOST)
        await transport.aclose()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        direct = Transport(f"{url}/v1", KEY)
        await direct.post(b"{}", MOST)
        await direct.aclose()
    assert asked == ["endpoint.invalid", url.removeprefix("http://")]


MARKS = st.sampled_from(
    ["<|im_start|>", "[INST]", "###", "```", "\nUser:", '"System: ', "Assistant：", "\u2581", "</input>", "\\",
     "[true]", "\x00", "\ud83d", "\u200b", "\r", "A" * 150]
)  # fmt: skip
TEXTS = st.lists(st.one_of(MARKS, st.text(max_size=12)), max_size=8).map("".join)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
NAMES = st.sampled_from(["language", "question", "answer", "criterion", "criteria"])


def visible(value: Any) -> Any:
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, dict):
        return {neutralise(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_piece_by_piece_is_what_is_written_whole(inputs: dict[str, Any]) -> None:
    assert fenced(inputs) == inert(json.dumps(visible(inputs), ensure_ascii=False, separators=(",", ":")))


PARAMETERS = st.dictionaries(st.sampled_from(["temperature", "a", "max_tokens", "messagez", "zz"]), VALUES)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, TEXTS, max_size=3), TEXTS, PARAMETERS, st.sampled_from(list(JsonMode)))
def test_a_framed_body_is_the_whole_body_byte_for_byte(
    inputs: dict[str, str], prompt: str, parameters: dict[str, Any], mode: JsonMode
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    request = Request("grader.criterion", Prompt("grader.criterion", prompt), inputs, schema)
    shape = response_format(mode, request)
    whole = encoded(chat_body("model", render(request), parameters, shape))
    assert Frame("model", request, parameters, shape).around(request) == whole
