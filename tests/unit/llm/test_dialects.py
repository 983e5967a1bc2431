"""How endpoints differ: each dialect imitated by a local server, and what is made of it (docs/endpoints.md)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from medlive.config import RoleSettings
from medlive.errors import ConfigError, EndpointUnavailable
from medlive.instance.opening import build_engine
from medlive.llm.ask import Asker, CallOutcome, read_as
from medlive.llm.engine import Engine, Finish, Prompt, Reply, Request, Usage
from medlive.llm.reading import split_thinking
from medlive.rubric.review import ReviewReply
from tests.support.bad_endpoint import bad_endpoint, completion, fails, ok, sends
from tests.support.engines import engine_at
from tests.unit.llm.test_openai_transport import serving

KEY = "sk-dialect-1234"
GOOD = '{"problems": [], "life_critical": []}'
REQUEST = Request(
    "reader.rubric",
    Prompt("reader.rubric", "# Task: reader.rubric\n"),
    {"a": "b"},
    ReviewReply.model_json_schema(),
)


@dataclass(frozen=True)
class Addressing:
    """How a base URL and its settings become a request."""

    path: str
    access: dict[str, Any]
    expected: str
    """Path and query of the request."""
    headers: Mapping[str, str]
    absent: tuple[str, ...] = ()


BEARER = {"Authorization": f"Bearer {KEY}"}
ADDRESSING = {
    "bearer": Addressing("/v1", {}, "/v1/chat/completions", BEARER, ("api-key",)),
    "Azure, a deployment": Addressing(
        "/openai/deployments/my-gpt",
        {"query": {"api-version": "2024-10-21"}},
        "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
        {"api-key": KEY},
        ("Authorization",),
    ),
    "Azure, a deployment named by the address alone": Addressing(
        "/openai/deployments/my-gpt?api-version=2024-10-21",
        {},
        "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
        {"api-key": KEY},
        ("Authorization",),
    ),
    "Azure, v1 with a bearer": Addressing(
        "/openai/v1/", {}, "/openai/v1/chat/completions", BEARER
    ),
    "Azure, v1 with its own header": Addressing(
        "/openai/v1",
        {"key_header": "api-key"},
        "/openai/v1/chat/completions",
        {"api-key": KEY},
        ("Authorization",),
    ),
    "a gateway with headers": Addressing(
        "/v1",
        {"headers": {"OpenAI-Organization": "org-1", "X-Title": "medlive"}},
        "/v1/chat/completions",
        {
            "OpenAI-Organization": "org-1",
            "X-Title": "medlive",
            "Authorization": f"Bearer {KEY}",
        },
    ),
}


@pytest.mark.parametrize("case", ADDRESSING)
async def test_requests_go_where_the_endpoint_expects_them(case: str) -> None:
    one = ADDRESSING[case]
    seen: list[tuple[str, Mapping[str, str]]] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers.copy()))
        return web.json_response(completion(GOOD))

    async with serving(keep) as url:
        engine = engine_at("m-1", url + one.path, KEY, **one.access)
        assert (await engine.answer(REQUEST)).text == GOOD
        await engine.aclose()
    ((path, headers),) = seen
    assert path == one.expected
    assert {name: headers[name] for name in one.headers} == one.headers
    assert not any(name in headers for name in one.absent)


@dataclass(frozen=True)
class Dialect:
    """A reply as an endpoint sends it, and what it means."""

    sent: dict[str, Any]
    status: int = 200
    text: str = GOOD
    thinking: str = ""
    finish: Finish = Finish.STOP
    reasoning_tokens: int = 0
    outcome: CallOutcome = CallOutcome.OK


FILTERED = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
AZURE_FILTER = {
    "error": {
        "message": FILTERED,
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {},
        },
    }
}
REASONED = completion(GOOD)
REASONED["usage"]["completion_tokens_details"] = {
    "reasoning_tokens": 64,
    "audio_tokens": 0,
}
DIALECTS = {
    "OpenAI, reasoning counted": Dialect(REASONED, reasoning_tokens=64),
    "DeepSeek and vLLM": Dialect(
        completion(GOOD, reasoning_content="First, …"), thinking="First, …"
    ),
    "OpenRouter": Dialect(
        completion(GOOD, reasoning="First, …", refusal=None), thinking="First, …"
    ),
    "a local server with thinking in the text": Dialect(
        completion(f"<think>\nFirst, {{}}\n</think>\n\n{GOOD}"), thinking="First, {}"
    ),
    "a template that opens the thinking": Dialect(
        completion(f"First\n</think>\n\n{GOOD}"), thinking="First"
    ),
    "thinking that was cut": Dialect(
        completion("<think>\nFirst,", finish="length"),
        text="",
        thinking="First,",
        finish=Finish.LENGTH,
        outcome=CallOutcome.TRUNCATED,
    ),
    "OpenAI, a refusal": Dialect(
        completion(None, refusal="I cannot help."),
        text="I cannot help.",
        finish=Finish.REFUSAL,
        outcome=CallOutcome.REFUSED,
    ),
    "a filter that stops a reply": Dialect(
        completion('{"probl', finish="content_filter"),
        text='{"probl',
        finish=Finish.REFUSAL,
        outcome=CallOutcome.REFUSED,
    ),
    "a filter that leaves no text": Dialect(
        completion(None, finish="content_filter"),
        text="",
        finish=Finish.REFUSAL,
        outcome=CallOutcome.REFUSED,
    ),
    "Azure's filter": Dialect(
        AZURE_FILTER, 400, FILTERED, finish=Finish.REFUSAL, outcome=CallOutcome.REFUSED
    ),
}


@pytest.mark.parametrize("case", DIALECTS)
async def test_what_a_reply_means(case: str) -> None:
    one = DIALECTS[case]
    async with bad_endpoint([sends(one.sent, one.status)]) as endpoint:
        engine = engine_at("model-as-served", endpoint.url, KEY)
        reply = await engine.answer(REQUEST)
        asked = await Asker(engine, "reader").ask(
            REQUEST, read_as(ReviewReply, REQUEST)
        )
        await engine.aclose()
    assert (reply.text, reply.thinking, reply.finish) == (
        one.text,
        one.thinking,
        one.finish,
    )
    assert reply.usage.reasoning_tokens == one.reasoning_tokens
    assert reply.usage.as_json().get("reasoning_tokens", 0) == one.reasoning_tokens
    assert split_thinking(reply.stored_text) == (reply.thinking, reply.text)
    assert len(asked.attempts) == 1
    assert (asked.fault.outcome if asked.fault else CallOutcome.OK) is one.outcome
    if one.outcome is CallOutcome.REFUSED:
        assert asked.reason.startswith("the reader refused, or a content filter did: ")


ERRORS: dict[str, tuple[int, Any, str]] = {
    "OpenAI": (
        401,
        {"error": {"message": "wrong key", "code": "invalid_api_key"}},
        "wrong key",
    ),
    "vLLM": (
        400,
        {
            "object": "error",
            "message": "too long",
            "type": "BadRequestError",
            "code": 400,
        },
        "too long",
    ),
    "Ollama": (404, {"error": "model not found"}, "model not found"),
    "Google": (
        400,
        [{"error": {"code": 400, "message": "bad request", "status": "INVALID"}}],
        "bad request",
    ),
    "FastAPI": (422, {"detail": "field required"}, "field required"),
    "a proxy": (403, "forbidden by proxy", "forbidden by proxy"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_what_an_error_says(case: str) -> None:
    status, body, message = ERRORS[case]
    async with bad_endpoint([sends(body, status)]) as endpoint:
        engine = engine_at("m-1", endpoint.url, KEY)
        with pytest.raises(EndpointUnavailable, match=f"status {status}: .*{message}"):
            await engine.answer(REQUEST)
        await engine.aclose()


async def test_a_limit_under_its_newer_name() -> None:
    newer = {"max_completion_tokens": 4000, "reasoning_effort": "low"}
    async with bad_endpoint([ok(GOOD)]) as endpoint:
        engine = engine_at("o-9", endpoint.url, KEY, newer)
        await engine.answer(REQUEST)
        await engine.aclose()
        assert newer.items() <= endpoint.bodies[0].items()
        assert not {"max_tokens", "temperature"} & endpoint.bodies[0].keys()
        assert engine.estimate(REQUEST).output_tokens == 4000
    refusal = fails(
        400,
        "'max_tokens' is not supported: use 'max_completion_tokens'.",
        "unsupported_parameter",
    )
    async with bad_endpoint([refusal]) as endpoint:
        engine = engine_at("o-9", endpoint.url, KEY, {"max_tokens": 9})
        with pytest.raises(ConfigError) as failed:
            await engine.answer(REQUEST)
        await engine.aclose()
    assert "max_completion_tokens" in (failed.value.hint or "")


async def test_a_role_is_configured_for_azure() -> None:
    seen: list[tuple[str, str, Any]] = []

    async def keep(request: web.Request) -> web.Response:
        seen.append(
            (
                request.path_qs,
                request.headers["x-key"],
                json.loads(await request.read())["temperature"],
            )
        )
        return web.json_response({**completion(GOOD), "model": "gpt-9-2026-10-01"})

    async def outcome(engine: Engine) -> CallOutcome:
        asked = await Asker(engine, repairs=0).ask(
            REQUEST, read_as(ReviewReply, REQUEST)
        )
        await engine.aclose()
        return asked.fault.outcome if asked.fault else CallOutcome.OK

    async with serving(keep) as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURE_KEY", KEY)
            settings = RoleSettings(
                engine="openai",
                model="gpt-9",
                base_url=f"{url}/openai/deployments/d",
                api_key_env="AZURE_KEY",
                query={"api-version": "2024-10-21"},
                key_header="x-key",
                parameters={"temperature": 0},
            )
            loose = settings.model_copy(update={"allow_unpinned": True})
            assert await outcome(build_engine(settings)) is CallOutcome.INVALID
            assert await outcome(build_engine(loose)) is CallOutcome.OK
    assert (
        seen
        == [("/openai/deployments/d/chat/completions?api-version=2024-10-21", KEY, 0)]
        * 2
    )


@dataclass
class Parts:
    """A text, and its thinking and answer."""

    text: str
    thinking: str = ""
    answer: str = field(default="")


@pytest.mark.parametrize(
    "parts",
    [
        Parts("Rest.", "", "Rest."),
        Parts("<think>a</think>Rest.", "a", "Rest."),
        Parts(" <THINK>a</THINK>\n<reasoning>b</reasoning>\n\nRest.", "a\nb", "Rest."),
        Parts("a\n</think>\n\nRest.", "a", "Rest."),
        Parts("The tag </think> ends thinking.", "", "The tag </think> ends thinking."),
        Parts("<think>no end", "", "<think>no end"),
        Parts("Rest. <think>later</think>", "", "Rest. <think>later</think>"),
    ],
)
def test_thinking_is_what_stands_before_the_answer(parts: Parts) -> None:
    assert split_thinking(parts.text) == (parts.thinking, parts.answer)
    reply = Reply(parts.answer, Finish.STOP, Usage(), "m", thinking=parts.thinking)
    assert split_thinking(reply.stored_text) == (parts.thinking, parts.answer)
