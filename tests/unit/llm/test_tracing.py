"""Spans of calls, as a collector on this machine receives them from another process."""

import asyncio
import os
import sys
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from medlive.llm import tracing
from tests.support.bad_endpoint import Step, bad_endpoint, fails, ok

KEY, WORDS, ANSWER = (
    "sk-a-secret-key",
    "a patient's own words",
    '{"answer": "stay in bed"}',
)
SCRIPT = f"""
import asyncio, os, sys
from medlive.llm import tracing
from medlive.llm.engine import Prompt, Request
from medlive.llm.openai import OpenAIEngine
from medlive.logs import bound

async def main():
    tracing.configure(os.environ)
    engine = OpenAIEngine("m-1", sys.argv[1], {KEY!r}, {{"temperature": 0.5}}, backoff_s=0.01, max_retries=1)
    prompt, schema = Prompt("screener.extract", "p"), {{"type": "object"}}
    request = Request("screener.extract", prompt, {{"text": {WORDS!r}}}, schema)
    try:
        with bound(thread="sdn/7", hint="not an id"):
            await engine.answer(request)
    except Exception as error:
        print(type(error).__name__)
    finally:
        await engine.aclose()

asyncio.run(main())
"""


async def spans_of(script: list[Step]) -> tuple[list[Span], bytes]:
    """The spans of one request to an endpoint with this script, and all bytes that the collector got."""
    bodies: list[bytes] = []

    async def collect(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with bad_endpoint(script) as endpoint:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                SCRIPT,
                endpoint.url,
                env={
                    **os.environ,
                    tracing.ENDPOINT: collector,
                    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
                },
            )
            assert await process.wait() == 0
    finally:
        await runner.cleanup()
    found = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    scopes = [
        scope
        for one in found
        for resource in one.resource_spans
        for scope in resource.scope_spans
    ]
    return [span for scope in scopes for span in scope.spans], b"".join(bodies)


def attributes(span: Span) -> dict[str, Any]:
    """A span's attributes as Python values."""

    def value(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        held = getattr(any_value, kind)
        return [value(one) for one in held.values] if kind == "array_value" else held

    return {pair.key: value(pair.value) for pair in span.attributes}


async def test_each_call_is_a_span_with_its_tokens() -> None:
    (span,), _ = await spans_of([ok(ANSWER)])
    assert (span.name, span.kind) == ("chat m-1", Span.SPAN_KIND_CLIENT)
    assert attributes(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "model-as-served",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100,
        "server.address": "127.0.0.1",
        "medlive.thread": "sdn/7",
    }
    assert span.end_time_unix_nano > span.start_time_unix_nano


async def test_a_call_that_fails_is_a_span_of_its_own_and_says_no_more_than_the_kind() -> (
    None
):
    (refused, answered), sent = await spans_of(
        [fails(500, f"{WORDS} {KEY}"), ok(ANSWER)]
    )
    assert refused.status.code == Status.STATUS_CODE_ERROR
    assert "error.type" in attributes(refused)
    assert refused.events == []
    assert answered.status.code != Status.STATUS_CODE_ERROR
    assert WORDS.encode() not in sent


@pytest.mark.parametrize("script", [[ok(ANSWER)], [fails(401, f"{WORDS} {KEY}")]])
async def test_no_word_of_prompt_reply_or_key_leaves_by_a_span(
    script: list[Step],
) -> None:
    spans, sent = await spans_of(script)
    assert spans
    for secret in (KEY, WORDS, "stay in bed"):
        assert secret.encode() not in sent


def test_without_an_address_nothing_is_loaded() -> None:
    tracing.configure({})
    assert tracing._tracer is None
