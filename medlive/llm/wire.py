"""The body of a chat request and the reply in a completion, of a live call as of a line of a batch file.

Nothing is sent here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from medlive.guard.bounds import REPLY_TOKENS
from medlive.integrity.digest import canonical_json
from medlive.llm.engine import UNNAMED, Finish, Reply, Request, Usage
from medlive.llm.fence import schema_name
from medlive.llm.reading import split_thinking

_FINISH = {
    **dict.fromkeys(
        ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "completed"),
        Finish.STOP,
    ),
    **dict.fromkeys(
        ("length", "max_tokens", "model_length", "max_output_tokens"), Finish.LENGTH
    ),
    **dict.fromkeys(
        (
            "content_filter",
            "refusal",
            "safety",
            "sensitive",
            "recitation",
            "blocklist",
            "prohibited_content",
        ),
        Finish.REFUSAL,
    ),
}
"""What endpoints give as finish_reason, in lower case."""
_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Where endpoints put a model's thinking beside `content`: DeepSeek and vLLM, OpenRouter."""


class NotACompletion(ValueError):
    """A body is not a chat completion that can be used; the text says why."""

    def __init__(self, problem: str, usage: Usage | None = None) -> None:
        """`usage` is what the body says that it took."""
        super().__init__(problem)
        self.usage = usage


class JsonMode(StrEnum):
    """How an endpoint is asked for JSON, from the strictest."""

    SCHEMA = "schema"
    OBJECT = "object"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Input tokens that the endpoint's prefix cache held; None when they cost as much as others."""

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Dollars for one answer; the cached tokens are among the input tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, input_tokens - cached_tokens)
        return (
            fresh * self.input + cached_tokens * cached + output_tokens * self.output
        ) / 1e6


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, str]],
    parameters: Mapping[str, Any],
    response_format: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a chat request."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        **parameters,
    }
    if response_format is not None:
        body["response_format"] = dict(response_format)
    return body


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as it is sent. A lone surrogate has no UTF-8 form; the endpoint gets a question mark in its place."""
    return canonical_json(body).encode("utf-8", "replace")


def response_format(mode: JsonMode, request: Request) -> dict[str, Any] | None:
    """How a request's reply is asked to be JSON; None where it is not."""
    if mode is JsonMode.NONE:
        return None
    if mode is JsonMode.OBJECT:
        return {"type": "json_object"}
    shape = {
        "name": schema_name(request.task),
        "strict": True,
        "schema": strict_schema(request.schema),
    }
    return {"type": "json_schema", "json_schema": shape}


def read_completion(
    raw: bytes, sent: bytes, price: Price | None, latency_ms: float = 0.0
) -> Reply:
    """The reply in a chat completion's body; `sent` is the request's, for an endpoint that reports no usage.

    Raises NotACompletion.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise NotACompletion(f"the answer is not JSON: {raw[:60]!r}") from None
    reply = completion(body, price, latency_ms)
    if reply.usage.input_tokens:
        return reply
    return replace(
        reply, usage=usage_bound(sent, reply.thinking + reply.text, price, latency_ms)
    )


def usage_bound(
    sent: bytes, answer: str, price: Price | None, latency_ms: float
) -> Usage:
    """The most tokens that a request and its visible answer can have taken: one for each byte.

    A byte-level tokenizer never makes more tokens than there are bytes. The JSON around the messages is longer
    than the few special tokens that a chat template adds. Reasoning that an endpoint does not show is not counted.
    """
    asked, answered = len(sent), len(answer.encode("utf-8", "replace"))
    return Usage(
        input_tokens=asked,
        output_tokens=answered,
        cost_usd=price.cost(asked, 0, answered) if price else None,
        latency_ms=latency_ms,
        estimated=True,
    )


def completion(body: object, price: Price | None, latency_ms: float = 0.0) -> Reply:
    """The reply in a chat completion: its thinking apart, a refusal by model or filter as one.

    Raises NotACompletion.
    """
    usage = _usage(
        body.get("usage") if isinstance(body, dict) else None, price, latency_ms
    )
    choice = _first_choice(body, usage)
    reason, message = choice.get("finish_reason"), choice["message"]
    # An endpoint that gives no reason is taken to have stopped. Others: a tool call, an error, an unknown word.
    finish = _FINISH.get(str(reason or "stop").casefold())
    text, refusal = _text(message.get("content")), _text(message.get("refusal"))
    if refusal:
        finish, text = Finish.REFUSAL, refusal
    if finish is None or (text is None and finish is Finish.STOP):
        fault = "may not be whole" if finish is None else "holds no text"
        raise NotACompletion(
            f"the answer's message {fault} (finish_reason {reason!r:.40})", usage
        )
    thinking, text = split_thinking(text or "", cut=finish is Finish.LENGTH)
    thinking = next(
        (thought for name in _THINKING_FIELDS if (thought := _text(message.get(name)))),
        thinking,
    )
    return Reply(text, finish, usage, choice["model"], thinking=thinking)


def _first_choice(body: object, usage: Usage) -> dict[str, Any]:
    """A completion's first choice, with the model that is named. Raises NotACompletion."""
    if not isinstance(body, dict):
        raise NotACompletion("the answer holds no choice", usage)
    choices, error, model = body.get("choices"), body.get("error"), body.get("model")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise NotACompletion(
            f"the answer holds no choice{f': {error}' if error else ''}", usage
        )
    if not isinstance(choices[0].get("message"), dict):
        raise NotACompletion("the answer's choice holds no message", usage)
    return {
        **choices[0],
        "model": model if isinstance(model, str) and model else UNNAMED,
    }


def _usage(usage: object, price: Price | None, latency_ms: float) -> Usage:
    if not isinstance(usage, dict):
        return Usage(latency_ms=latency_ms)

    def detail(field: str, name: str) -> int:
        details = usage.get(field)
        return count(details.get(name)) if isinstance(details, dict) else 0

    asked, answered = (
        count(usage.get("prompt_tokens")),
        count(usage.get("completion_tokens")),
    )
    # Every request has input: a usage with neither, or with half of it, is not a usage.
    if not asked or (not answered and usage.get("completion_tokens") != 0):
        return Usage(latency_ms=latency_ms)
    # Some endpoints report more cached tokens than they read.
    cached = min(asked, detail("prompt_tokens_details", "cached_tokens"))
    cost = price.cost(asked, cached, answered) if price else None
    reasoning = detail("completion_tokens_details", "reasoning_tokens")
    return Usage(asked, cached, answered, cost, latency_ms, reasoning)


def _text(content: object) -> str | None:
    """A message's text, which some endpoints send in parts; None if there is none."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


class EndpointError(NamedTuple):
    """What an endpoint says of an error."""

    message: str
    codes: list[str]  # In lower case
    parameter: str  # The one that it names; else empty


def read_error(raw: bytes) -> EndpointError:
    """Read an error's body, in each form that endpoints give it."""
    plain = raw[:1000].decode("utf-8", "replace")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return EndpointError(plain, [], "")
    body = body[0] if isinstance(body, list) and body else body  # Google
    # vLLM: no envelope
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        # Ollama: a string
        return EndpointError(error if isinstance(error, str) else plain, [], "")
    inner = error.get("innererror")
    names = [
        error.get("code"),
        error.get("type"),
        inner.get("code") if isinstance(inner, dict) else None,
    ]
    codes = [name.casefold() for name in names if isinstance(name, str) and name]
    param = error.get("param")
    message = str(error.get("message") or error.get("detail") or plain)
    return EndpointError(message, codes, param if isinstance(param, str) else "")


def count(value: object) -> int:
    """A number of tokens; 0 if the value is not one, or more than any request takes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 < value <= REPLY_TOKENS else 0


_LEFT_OUT = frozenset(
    {"title", "description", "default", "examples", "minLength", "maxLength"}
)
_BY_NAME = frozenset({"properties", "$defs"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what strict mode has no room for; objects are closed and require all they hold."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LEFT_OUT:
            continue
        if key in _BY_NAME and isinstance(value, Mapping):
            strict[key] = {name: strict_schema(part) for name, part in value.items()}
        elif isinstance(value, Mapping):
            strict[key] = strict_schema(value)
        elif isinstance(value, list):
            strict[key] = [
                strict_schema(part) if isinstance(part, Mapping) else part
                for part in value
            ]
        else:
            strict[key] = value
    if strict.get("type") == "object":
        strict["additionalProperties"] = False
        strict["required"] = list(strict.get("properties", {}))
    return strict
