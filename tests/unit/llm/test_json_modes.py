"""How JSON is asked for: a strict schema, and looser ways where an endpoint refuses one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from medlive.curation import tasks
from medlive.errors import EndpointUnavailable, RequestRefused
from medlive.grader.reply import GradeReply, RubricGradeReply
from medlive.llm.ask import each_reply
from medlive.llm.engine import Prompt, Request
from medlive.llm.openai import OpenAIEngine
from medlive.llm.registry import JsonMode
from medlive.llm.wire import strict_schema
from medlive.rubric.write import RubricReply
from tests.support.bad_endpoint import (
    Step,
    bad_endpoint,
    fails,
    ok,
)
from tests.support.engines import engine_at

KEY = "sk-very-secret-0123456789"
GOOD = '{"met": false, "quote": "", "reasoning": ""}'
REQUEST = Request(
    "grader.criterion",
    Prompt("grader.criterion", "# Task: grader.criterion\n"),
    {"language": "en", "answer": "a", "criterion": "c"},
    GradeReply.model_json_schema(),
)


def engine(url: str, **more: Any) -> OpenAIEngine:
    return engine_at("m-1", url, KEY, **{"backoff_s": 0.01, "timeout_s": 5.0, **more})


async def ask(script: list[Step], **more: Any) -> tuple[Any, int]:
    """The reply or the error to one request, and how many requests it took."""
    async with bad_endpoint(script) as endpoint:
        asker = engine(endpoint.url, **more)
        try:
            return await asker.answer(REQUEST), endpoint.asked
        except EndpointUnavailable as error:
            return error, endpoint.asked
        finally:
            await asker.aclose()


def picky(
    allowed: set[str], status: int = 400, said: str = "unsupported response_format"
) -> Step:
    async def step(body: dict[str, Any]) -> Any:
        kind = body.get("response_format", {}).get("type", "none")
        answer = ok(GOOD) if kind in allowed else fails(status, said)
        return await answer(body)

    return step


@pytest.mark.parametrize(
    ("allowed", "mode", "first"),
    [
        ({"json_schema"}, "schema", 1),
        ({"json_object", "none"}, "object", 2),
        ({"none"}, "none", 3),
    ],
)
async def test_a_refused_response_format_is_loosened_once_and_remembered(
    allowed: set[str], mode: JsonMode, first: int
) -> None:
    async with bad_endpoint([picky(allowed)]) as endpoint:
        asker = engine(endpoint.url)
        before = asker.identity
        assert (await asker.answer(REQUEST)).text == GOOD
        assert endpoint.asked == first
        await asker.answer(REQUEST)
        assert endpoint.asked == first + 1
        assert asker.json_mode is mode
        assert asker.identity == before
        await asker.aclose()


LLAMA_CPP = (
    "1 validation error: {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
    "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}"
)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, LLAMA_CPP),
        (503, "failed to parse grammar"),
        (404, "No endpoints found that support response_format"),
        (501, "json_schema is not implemented"),
        (500, "2 validation errors for Options: Extra inputs are not permitted"),
        (403, "Structured outputs are not part of your plan"),
    ],
)
async def test_a_refused_format_is_no_outage_whatever_its_status(
    status: int, said: str
) -> None:
    async with bad_endpoint([picky({"json_object"}, status, said)]) as endpoint:
        asker = engine(endpoint.url)
        assert (await asker.answer(REQUEST)).text == GOOD
        assert endpoint.asked == 2
        assert await asker.circuit.opening() is None
        await asker.aclose()


async def test_an_outage_that_speaks_of_a_format_is_one_once_none_is_asked_for() -> (
    None
):
    async with bad_endpoint([fails(500, LLAMA_CPP)]) as endpoint:
        asker = engine(endpoint.url, max_retries=1)
        with pytest.raises(EndpointUnavailable, match="in 2 attempts: status 500"):
            await asker.answer(REQUEST)
        assert endpoint.asked == 4
        assert asker.json_mode == "schema"
        with pytest.raises(EndpointUnavailable, match="in 2 attempts"):
            await asker.complete([{"role": "user", "content": "q"}])
        await asker.aclose()


async def test_a_context_that_is_too_long_is_said_after_a_refused_format() -> None:
    long = fails(400, "maximum context length", "context_length_exceeded")
    async with bad_endpoint([fails(500, LLAMA_CPP), long]) as endpoint:
        asker = engine(endpoint.url)
        with pytest.raises(RequestRefused, match="maximum context length"):
            await asker.answer(REQUEST)
        await asker.aclose()


async def test_a_request_that_is_refused_in_every_form_changes_nothing() -> None:
    async with bad_endpoint(
        [fails(400, "bad temperature"), fails(400, "second"), fails(400, "third")]
    ) as endpoint:
        asker = engine(endpoint.url)
        with pytest.raises(EndpointUnavailable, match="bad temperature"):
            await asker.answer(REQUEST)
        assert asker.json_mode == "schema"
        await asker.aclose()


REPLIES: list[type[BaseModel]] = [
    tasks.ExtractReply,
    tasks.ComplaintReply,
    tasks.SufficiencyReply,
    each_reply(tasks.AlignmentItem),
    each_reply(tasks.VetoItem),
    each_reply(tasks.SupportItem),
    tasks.WriteReply,
    RubricReply,
    GradeReply,
    RubricGradeReply,
]
STRICT = {
    "$defs",
    "$ref",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "maxItems",
    "minItems",
    "maximum",
    "minimum",
}


def _schemas(schema: Any) -> list[dict[str, Any]]:
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]
    inner += [schema["items"]] if "items" in schema else []
    return [schema, *(found for part in inner for found in _schemas(part))]


@pytest.mark.parametrize("reply", REPLIES)
def test_every_reply_has_a_schema_that_strict_mode_accepts(
    reply: type[BaseModel],
) -> None:
    for schema in _schemas(strict_schema(reply.model_json_schema())):
        assert set(schema) <= STRICT
        assert "$ref" not in schema or set(schema) == {"$ref"}
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


@given(
    st.sampled_from(
        ["title", "description", "default", "minLength", "properties", "$defs"]
    )
)
def test_a_property_may_be_named_like_a_keyword(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string", "title": "T"}}}
    strict = strict_schema(schema)
    assert strict["properties"] == {name: {"type": "string"}}
    assert (strict["additionalProperties"], strict["required"]) == (False, [name])
