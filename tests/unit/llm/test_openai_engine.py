"""The engine against an endpoint that misbehaves, over real HTTP with the real client."""

import asyncio
import json
import logging
import time
import traceback
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from medlive.clock import now
from medlive.errors import ConfigError, EndpointUnavailable
from medlive.grader.reply import GradeReply
from medlive.llm.engine import Finish, Prompt, Request
from medlive.llm.limiter import Limiters
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import render
from medlive.llm.registry import Price
from tests.support.bad_endpoint import (
    Step,
    bad_endpoint,
    completion,
    cuts_connection,
    drips,
    fails,
    ok,
    raw,
    sends,
    slow,
)
from tests.support.engines import engine_at
from tests.support.waiting import until

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


async def test_a_sound_answer_carries_text_model_usage_and_cost() -> None:
    reply, asked = await ask(
        [ok(GOOD)], price=Price(input=2.0, output=10.0, cached=0.5)
    )
    assert (reply.text, reply.finish, reply.model, asked) == (
        GOOD,
        Finish.STOP,
        "model-as-served",
        1,
    )
    usage = reply.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (
        1000,
        400,
        100,
    )
    assert usage.cost_usd == pytest.approx((600 * 2.0 + 400 * 0.5 + 100 * 10.0) / 1e6)
    assert usage.latency_ms > 0


async def test_without_a_price_the_cost_is_unknown_and_without_a_usage_it_is_an_upper_bound() -> (
    None
):
    reply, _ = await ask([ok(GOOD)])
    assert (reply.usage.cost_usd, reply.usage.estimated) == (None, False)
    body = completion(GOOD)
    odd = {"prompt_tokens": "many", "completion_tokens": -4, "prompt_tokens_details": 3}
    nan = {"prompt_tokens": float("nan"), "completion_tokens": 1}
    unusable: list[Any] = [
        None,
        [],
        {},
        odd,
        nan,
        {"prompt_tokens": 9},
        {"prompt_tokens": 0, "completion_tokens": 0},
        # More than the database's INTEGER, and than a float, holds.
        {"prompt_tokens": 2**31, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 10**400},
    ]
    for usage in unusable:
        reply, asked = await ask(
            [sends({**body, "usage": usage})], price=Price(input=1, output=1)
        )
        assert asked == 1
        # A byte-level tokenizer makes no more tokens than there are bytes.
        assert reply.usage.input_tokens > sum(
            len(m["content"].encode()) for m in render(REQUEST)
        )
        assert reply.usage.output_tokens == len(GOOD.encode())
        assert (
            reply.usage.cost_usd
            == (reply.usage.input_tokens + reply.usage.output_tokens) / 1e6
        )
        assert reply.usage.estimated


async def test_what_is_sent_is_the_fenced_request_with_a_strict_schema() -> None:
    async with bad_endpoint([ok(GOOD)]) as endpoint:
        asker = engine(endpoint.url, parameters={"temperature": 0, "top_k": 5})
        await asker.answer(REQUEST)
        await asker.aclose()
        body, headers = endpoint.bodies[0], endpoint.headers[0]
    assert (body["model"], body["temperature"], body["top_k"]) == ("m-1", 0, 5)
    assert body["messages"][0] == {"role": "system", "content": REQUEST.prompt.text}
    assert body["messages"][1]["content"].startswith("<input>\n{")
    shape = body["response_format"]["json_schema"]
    assert (shape["name"], shape["strict"]) == ("grader_criterion", True)
    names = ["reasoning", "conclusion", "met", "quote", "whole"]
    assert shape["schema"]["required"] == names
    assert headers["Authorization"] == f"Bearer {KEY}"


MENDED: dict[str, Step] = {
    "429 with Retry-After": fails(429, "slow down", Retry_After="0.05"),
    "429 with a Retry-After that no date holds": fails(
        429, "slow down", Retry_After="Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
    ),
    "429 without": fails(429, "slow down"),
    "500": fails(500),
    "503 page": raw(b"<html>bad gateway</html>", "text/html", 503),
    "page with status 200": raw(b"<!doctype html><html>Welcome</html>", "text/html"),
    "empty body": raw(b""),
    "cut body": raw(json.dumps(completion(GOOD)).encode()[:80]),
    "bytes that are no text": raw(b"\xff\xfe\x00\x01" * 30),
    "deep nesting": raw(b"[" * 100_000),
    "a list": sends([1, 2]),
    "null": sends(None),
    "error with status 200": sends({"error": {"message": "overloaded"}}),
    "no choices": sends({**completion(GOOD), "choices": []}),
    "choice is text": sends({**completion(GOOD), "choices": ["x"]}),
    "no message": sends({**completion(GOOD), "choices": [{"finish_reason": "stop"}]}),
    "null content": sends(completion(None)),
    "tool call": sends(completion(None, finish="tool_calls", tool_calls=[])),
    "10 MB": raw(json.dumps(completion("x" * 10_000_000)).encode()),
    "hangs up": cuts_connection,
}


@pytest.mark.matrix
@pytest.mark.parametrize("case", MENDED)
async def test_rubbish_is_asked_again_until_it_is_an_answer(case: str) -> None:
    reply, asked = await ask([MENDED[case], ok(GOOD)])
    assert not isinstance(reply, EndpointUnavailable), reply.message
    assert (reply.text, asked) == (GOOD, 2)


@pytest.mark.parametrize(
    "case", ["429 without", "503 page", "null content", "hangs up"]
)
async def test_endless_rubbish_ends_as_unavailable_with_host_and_cause(
    case: str,
) -> None:
    error, asked = await ask([MENDED[case]], max_retries=2)
    assert isinstance(error, EndpointUnavailable)
    assert asked == 3
    assert "127.0.0.1:" in error.message
    assert "in 3 attempts: " in error.message
    assert len(error.message) < 500


@pytest.mark.parametrize("step", [slow(30, ok(GOOD)), drips])
async def test_a_slow_endpoint_costs_the_timeout_and_no_more(step: Step) -> None:
    error, asked = await ask([step], timeout_s=0.25, max_retries=1)
    assert isinstance(error, EndpointUnavailable)
    assert "no answer within 0.25 s" in error.message
    assert asked == 2


async def test_a_dead_endpoint_is_unavailable() -> None:
    async with bad_endpoint([ok(GOOD)]) as endpoint:
        url = endpoint.url
    asker = engine(url, max_retries=1)
    with pytest.raises(EndpointUnavailable, match="no connection"):
        await asker.answer(REQUEST)
    await asker.aclose()


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for_by_every_call(form: str) -> None:
    wait = (
        "0.5"
        if form == "seconds"
        else format_datetime(now() + timedelta(seconds=2), usegmt=True)
    )
    async with bad_endpoint([fails(429, Retry_After=wait), ok(GOOD)]) as endpoint:
        asker = engine(endpoint.url)
        started = time.perf_counter()
        first = asyncio.create_task(asker.answer(REQUEST))
        await until(lambda: endpoint.asked)
        await asker.answer(REQUEST)
        assert time.perf_counter() - started > 0.4
        await first
        await asker.aclose()


async def test_a_retry_after_past_patience_ends_at_once() -> None:
    error, asked = await ask([fails(429, Retry_After="86400")])
    assert isinstance(error, EndpointUnavailable)
    assert asked == 1
    assert "86400 s" in error.message


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        (fails(401, f"Incorrect API key provided: {KEY}"), "MY_KEY"),
        (fails(403), "MY_KEY"),
        (fails(404, "no such model", "model_not_found"), "the model's id"),
        (fails(400, "too long", "context_length_exceeded"), "context"),
        (fails(429, "no money", "insufficient_quota"), "credit"),
        (
            sends(
                {
                    "error": {
                        "message": "no",
                        "type": "insufficient_quota",
                        "code": "rate",
                    }
                },
                429,
            ),
            "MY_KEY",
        ),
        (sends({"error": {"message": "no", "type": ["a"], "code": {}}}, 402), "credit"),
        (
            sends(
                {"error": {"message": "余额不足或无可用资源包", "code": "1113"}}, 429
            ),
            "credit",
        ),
    ],
)
async def test_a_refused_request_is_not_repeated_and_says_what_to_do(
    step: Step, hint: str
) -> None:
    error, asked = await ask([step], api_key_env="MY_KEY")
    assert isinstance(error, EndpointUnavailable)
    assert asked == 1
    assert hint in (error.hint or "")


async def test_the_key_is_nowhere_to_be_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asker = engine_at("m-1", "http://127.0.0.1:9/v1", KEY, max_retries=0)
    seen = [repr(asker), str(asker), repr(asker.identity)]
    with pytest.raises(EndpointUnavailable) as dead:
        await asker.answer(REQUEST)
    await asker.aclose()
    seen += traceback.format_exception(dead.value)
    for step in (fails(401, f"bad {KEY}"), fails(500, f"bad {KEY}"), raw(KEY.encode())):
        async with bad_endpoint([step]) as endpoint:
            asker = engine(endpoint.url, max_retries=1)
            with pytest.raises(EndpointUnavailable) as caught:
                await asker.answer(REQUEST)
            await asker.aclose()
        seen += traceback.format_exception(caught.value)
    seen.append(caplog.text)
    for text in seen:
        assert KEY not in text


async def test_a_local_endpoint_s_key_of_a_letter_is_no_secret() -> None:
    async with bad_endpoint([fails(404, "The model m-1 does not exist.")]) as endpoint:
        asker = engine_at("m-1", endpoint.url, "x")
        with pytest.raises(EndpointUnavailable, match="does not exist"):
            await asker.answer(REQUEST)
        await asker.aclose()


async def test_truncated_filtered_and_refused_replies_are_told_apart() -> None:
    cut, _ = await ask([sends(completion('{"met": tr', finish="length"))])
    assert (cut.finish, cut.text) == (Finish.LENGTH, '{"met": tr')
    thought, asked = await ask([sends(completion(None, finish="length"))])
    assert (thought.finish, thought.text, asked) == (Finish.LENGTH, "", 1)
    refused, asked = await ask([sends(completion(None, refusal="I cannot."))])
    assert (refused.finish, refused.text, asked) == (Finish.REFUSAL, "I cannot.", 1)
    filtered, _ = await ask([sends(completion("", finish="content_filter"))])
    assert filtered.finish is Finish.REFUSAL
    blocked, asked = await ask([fails(400, "filtered by policy", "content_filter")])
    assert (blocked.finish, blocked.text, asked) == (
        Finish.REFUSAL,
        "filtered by policy",
        1,
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.STOP),
        ("eos", Finish.STOP),
        ("STOP", Finish.STOP),
        (None, Finish.STOP),
        ("", Finish.STOP),
        ("length", Finish.LENGTH),
        ("MAX_TOKENS", Finish.LENGTH),
        ("model_length", Finish.LENGTH),
        ("content_filter", Finish.REFUSAL),
        ("SAFETY", Finish.REFUSAL),
        ("sensitive", Finish.REFUSAL),
    ],
)
async def test_why_an_endpoint_stopped_is_understood(
    reason: Any, finish: Finish
) -> None:
    reply, asked = await ask([sends(completion(GOOD, finish=reason))])
    assert (reply.finish, reply.text, asked) == (finish, GOOD, 1)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "reason",
    ["tool_calls", "function_call", "error", "insufficient_system_resource", 7, ["a"]],
)
async def test_a_text_that_may_not_be_whole_is_asked_for_again(reason: Any) -> None:
    reply, asked = await ask([sends(completion(GOOD, finish=reason)), ok("whole")])
    assert (reply.text, asked) == ("whole", 2)
    error, _ = await ask([sends(completion(GOOD, finish=reason))], max_retries=0)
    assert str(reason) in error.message


@pytest.mark.thorough
async def test_a_call_that_waits_in_line_is_not_given_up() -> None:
    busy = 0

    async def step(body: dict[str, Any]) -> Any:
        nonlocal busy
        if busy >= 2:
            return await fails(429, "slow down")(body)
        busy += 1
        try:
            return await slow(0.01, ok(GOOD))(body)
        finally:
            busy -= 1

    async with bad_endpoint([step]) as endpoint:
        limiters = Limiters()
        asker = engine(endpoint.url, concurrency=32, limiters=limiters, max_retries=1)
        replies = await asyncio.gather(*(asker.answer(REQUEST) for _ in range(150)))
        (limiter,) = limiters.by_place.values()
        await asker.aclose()
    assert len(replies) == 150
    assert endpoint.asked > 150
    assert limiter.limit < 32


@pytest.mark.thorough
async def test_engines_that_share_limiters_share_the_turns_at_their_endpoint() -> None:
    async with bad_endpoint([slow(0.01, ok(GOOD))]) as endpoint:
        limiters = Limiters()
        askers = [
            engine(endpoint.url, concurrency=3, limiters=limiters) for _ in range(3)
        ]
        await asyncio.gather(
            *(asker.answer(REQUEST) for asker in askers for _ in range(10))
        )
        for asker in askers:
            await asker.aclose()
    assert endpoint.most_under_way == 3


async def test_the_reply_itself_is_left_as_it_is() -> None:
    for text in (
        "",
        " \n",
        '{"met": "yes", "extra": 1}',
        "```json\n{}\n```",
        "\x00\ud83d",
    ):
        reply, asked = await ask([ok(text)])
        assert (reply.text, reply.finish, asked) == (text, Finish.STOP, 1)
    parts = [
        {"type": "text", "text": "{"},
        {"type": "image"},
        {"type": "text", "text": "}"},
    ]
    reply, _ = await ask([sends(completion(parts))])
    assert reply.text == "{}"


async def test_no_more_than_the_agreed_calls_are_under_way() -> None:
    async with bad_endpoint([slow(0.02, ok(GOOD))]) as endpoint:
        asker = engine(endpoint.url, concurrency=5)
        await asyncio.gather(*(asker.answer(REQUEST) for _ in range(15)))
        await asker.aclose()
        assert endpoint.most_under_way == 5


@pytest.mark.thorough
async def test_waiting_for_a_turn_is_not_waiting_for_the_endpoint() -> None:
    async with bad_endpoint([slow(0.3, ok(GOOD))]) as endpoint:
        asker = engine(endpoint.url, concurrency=2, timeout_s=2.5, max_retries=0)
        replies = await asyncio.gather(*(asker.answer(REQUEST) for _ in range(20)))
        await asker.aclose()
        assert endpoint.asked == 20
        assert max(reply.usage.latency_ms for reply in replies) < 2500


async def test_a_candidate_is_asked_plainly() -> None:
    async with bad_endpoint([ok("Rest.")]) as endpoint:
        asker = engine(endpoint.url)
        reply = await asker.complete(
            [{"role": "user", "content": "What \ud83d helps?"}]
        )
        await asker.aclose()
        assert reply.text == "Rest."
        assert "response_format" not in endpoint.bodies[0]
        assert endpoint.bodies[0]["messages"] == [
            {"role": "user", "content": "What ? helps?"}
        ]


async def test_the_rules_engine_behind_http_is_labelled_as_the_rules_engine() -> None:
    for model, label in (
        ("rules", "rules"),
        ("rules-1", "rules"),
        ("rulesmith", "openai"),
        ("gpt", "openai"),
    ):
        asker = engine_at(model, "http://127.0.0.1:9/v1")
        assert asker.identity.engine == label
        assert asker.identity.publishable is (label == "openai")
        await asker.aclose()


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("ftp://host/v1", {}),
        ("host/v1", {}),
        ("http://", {}),
        ("http://user:pass@host/v1", {}),
        ("http://host:99999/v1", {}),
        ("http://h/v1", {"parameters": {"stream": True}}),
        ("http://h/v1", {"parameters": {"temperature": float("nan")}}),
        ("http://h/v1", {"parameters": {"stop": {1, 2}}}),
        ("http://h/v1", {"api_key": "schlüssel"}),
        ("http://h/v1", {"api_key": "a\nb"}),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_is_sent(
    url: str, more: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_at("m", url, **more)
    assert "schlüssel" not in str(caught.value)
    assert "pass@" not in str(caught.value)
