"""The body of a chat request and the reply in a completion, which `openai` sends and gets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    Strict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from medlive.guard.bounds import REPLY_TOKENS
from medlive.integrity.digest import canonical_json
from medlive.llm.engine import UNNAMED, Finish, Reply, Request, Usage
from medlive.llm.fence import schema_name
from medlive.llm.reading import split_thinking

_STOPPED = "stop eos eos_token end_turn stop_sequence completed"
_CUT = "length max_tokens model_length max_output_tokens"
_REFUSED = (
    "content_filter refusal safety sensitive recitation blocklist prohibited_content"
)
_FINISH = {
    **dict.fromkeys(_STOPPED.split(), Finish.STOP),
    **dict.fromkeys(_CUT.split(), Finish.LENGTH),
    **dict.fromkeys(_REFUSED.split(), Finish.REFUSAL),
}
"""What endpoints give as finish_reason, in lower case."""


Amount = Annotated[float, Field(ge=0)]


class NotACompletion(ValueError):
    """A body is not a chat completion that can be used; the text says why."""

    def __init__(self, problem: str, usage: Usage | None = None) -> None:
        """`usage` is what the body says that it took; None: it does not say."""
        super().__init__(problem)
        self.usage = usage


class JsonMode(StrEnum):
    """How an endpoint is asked for JSON, from the strictest."""

    SCHEMA = "schema"
    OBJECT = "object"
    NONE = "none"


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    input: Amount
    """Of a million tokens of a request."""
    # Of those that the endpoint's prefix cache held; None for the price of other tokens
    cached: Amount | None = None
    output: Amount
    """Of a million tokens of a reply."""

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


def _if_valid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


IF_VALID: Final = WrapValidator(_if_valid)
"""What an endpoint sends in a wrong form counts as not sent."""
Text = Annotated[InstanceOf[str] | None, IF_VALID]
"""A text, which may hold lone surrogates."""
_Tokens = Annotated[int | None, Strict(), Field(ge=0, le=REPLY_TOKENS), IF_VALID]


class _Part(BaseModel):
    text: Text = None


class _Message(BaseModel):
    content: Annotated[InstanceOf[str] | list[_Part] | None, IF_VALID] = None
    refusal: Text = None
    reasoning_content: Text = None  # DeepSeek and vLLM
    reasoning: Text = None  # OpenRouter

    @property
    def text(self) -> str | None:
        """The text, which some endpoints send in parts; None if there is none."""
        if isinstance(self.content, list):
            texts = [part.text for part in self.content if part.text is not None]
            return "".join(texts) if texts else None
        return self.content


class _Choice(BaseModel):
    message: _Message
    finish_reason: Any = None


class _Details(BaseModel):
    cached_tokens: _Tokens = None
    reasoning_tokens: _Tokens = None


class _Usage(BaseModel):
    prompt_tokens: _Tokens = None
    completion_tokens: _Tokens = None
    prompt_tokens_details: Annotated[_Details | None, IF_VALID] = None
    completion_tokens_details: Annotated[_Details | None, IF_VALID] = None


class _Completion(BaseModel):
    choices: Annotated[list[_Choice] | None, IF_VALID] = None
    model: Text = None
    usage: Annotated[_Usage | None, IF_VALID] = None
    error: Any = None


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
    reply = _completion(body, price, latency_ms)
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


def _completion(body: object, price: Price | None, latency_ms: float = 0.0) -> Reply:
    """The reply in a chat completion: its thinking apart, a refusal by model or filter as one.

    Raises NotACompletion.
    """
    try:
        parsed = _Completion.model_validate(body)
    except ValidationError:
        raise NotACompletion("the answer is not a JSON object") from None
    usage = _usage(parsed.usage, price, latency_ms)
    if not parsed.choices:
        error = f": {parsed.error}" if parsed.error else ""
        raise NotACompletion(f"the answer holds no choice with a message{error}", usage)
    message, reason = parsed.choices[0].message, parsed.choices[0].finish_reason
    # An endpoint that gives no reason is taken to have stopped. Others: a tool call, an error, an unknown word.
    finish, text = _FINISH.get(str(reason or "stop").casefold()), message.text
    if message.refusal:
        finish, text = Finish.REFUSAL, message.refusal
    if finish is None or (text is None and finish is Finish.STOP):
        fault = "may not be whole" if finish is None else "holds no text"
        raise NotACompletion(
            f"the answer's message {fault} (finish_reason {reason!r:.40})", usage
        )
    thinking, text = split_thinking(text or "", cut=finish is Finish.LENGTH)
    thinking = message.reasoning_content or message.reasoning or thinking
    return Reply(
        text,
        finish,
        usage or Usage(latency_ms=latency_ms),
        parsed.model or UNNAMED,
        thinking=thinking,
    )


def _usage(
    reported: _Usage | None, price: Price | None, latency_ms: float
) -> Usage | None:
    # Every request has input: a usage with neither, or with half of it, is not a usage.
    if (
        reported is None
        or not reported.prompt_tokens
        or reported.completion_tokens is None
    ):
        return None
    asked, answered = reported.prompt_tokens, reported.completion_tokens
    read = reported.prompt_tokens_details or _Details()
    wrote = reported.completion_tokens_details or _Details()
    # Some endpoints report more cached tokens than they read.
    cached = min(asked, read.cached_tokens or 0)
    return Usage(
        input_tokens=asked,
        cached_tokens=cached,
        output_tokens=answered,
        cost_usd=price.cost(asked, cached, answered) if price else None,
        latency_ms=latency_ms,
        reasoning_tokens=wrote.reasoning_tokens or 0,
    )


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
