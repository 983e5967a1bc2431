"""The format of chat completions: `chat_body` makes a request, `read_completion` and `read_error` read the answer.

An answer is a Reply, a Refusal of the request, or Trouble that may pass. `openai` does the sending.
docs/endpoints.md and tests/unit/llm/test_dialects.py list how endpoints differ.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from medlive.clock import parse_retry_after
from medlive.errors import CallerRefused, EndpointUnavailable, RequestRefused
from medlive.guard.bounds import REPLY_TOKENS
from medlive.integrity.digest import canonical_json

from .engine import UNNAMED, Finish, Reply, Request, Usage
from .reading import split_thinking
from .registry import JsonMode, Price

if TYPE_CHECKING:
    from openai import APIStatusError

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
"""Values of finish_reason, in lower case. An endpoint that gives none is taken to have stopped; any other value, as a
tool call or an error, is Trouble."""


# Error codes, in lower case
_NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_NO_MONEY_WORDS = ("insufficient_quota", "insufficient balance", "余额不足")
"""Words of endpoints without such a code, in lower case. A quota that is "exceeded" may be that of a minute."""
# Codes that blame the key or the model's name
_OF_CALLER = frozenset({"model_not_found", "invalid_api_key"})
# Codes that do not depend on the parameters or the way of asking for JSON
_WHATEVER_THE_FORM = _OF_CALLER | {"context_length_exceeded"}
_OF_FILTER = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
)
_OF_PARAMETER = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
)
_OF_PARAMETER_WORDS = (
    "unsupported",
    "not support",
    "unrecognized",
    "unknown param",
    "unexpected",
    "not permitted",
)
"""Words about a parameter by endpoints without such a code, in lower case."""
_OF_FORMAT_WORDS = (
    "response_format",
    "json_schema",
    "json_object",
    "json schema",
    "structured output",
    "grammar",
    "validation error",
)
"""Words of a refusal of the way JSON is asked for, whatever its status, in lower case."""
# Statuses below 500 after which a request is sent again
_RETRIED = frozenset({408, 409, 425, 429})
_OVERLOADED = frozenset({503, 504, 529})


Ended = Literal["answered", "limited", "overloaded", "other"]
"""How a call ended, as far as it says something about the endpoint's load: status 429 is `limited`; 503, 504, 529 and
no answer in time are `overloaded`; a refused connection is `other`."""


JSON_MODES: tuple[JsonMode, ...] = get_args(JsonMode)
"""From the strictest."""


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, str]],
    parameters: Mapping[str, Any],
    response_format: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a chat request."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(map(dict, messages)),
        **parameters,
    }
    if response_format is not None:
        body["response_format"] = dict(response_format)
    return body


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as it is sent. A lone surrogate has no UTF-8 form; the endpoint gets a question mark in its place."""
    return canonical_json(body).encode("utf-8", "replace")


def response_format(mode: JsonMode, request: Request) -> dict[str, Any] | None:
    """The response_format that asks for a request's reply as JSON; None in mode "none"."""
    if mode == "none":
        return None
    if mode == "object":
        return {"type": "json_object"}
    shape = {
        "name": request.task.replace(".", "_"),
        "strict": True,
        "schema": strict_schema(request.schema),
    }
    return {"type": "json_schema", "json_schema": shape}


def _text(value: object, *names: str) -> str | None:
    """The text in the first field of `names` that holds one; None where none does, or `value` is no object."""
    if isinstance(value, dict):
        for name in names:
            if isinstance(value.get(name), str):
                return str(value[name])
    return None


def _part(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def read_completion(raw: bytes, sent: bytes) -> Reply:
    """The reply in a chat completion's body; `sent` is the request's body, to bound a usage that is not reported.

    Raises Trouble.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Trouble(f"the answer is not JSON: {raw[:60]!r}") from None
    reply = completion(body)
    if reply.usage.input_tokens:
        return reply
    return replace(reply, usage=usage_bound(sent, reply.thinking + reply.text))


def usage_bound(sent: bytes, answer: str) -> Usage:
    """The most tokens that a request and its visible answer can have taken: one for each byte.

    A byte-level tokenizer never makes more tokens than there are bytes. The JSON around the messages is longer
    than the few special tokens that a chat template adds. Reasoning that an endpoint does not show is not counted.
    """
    answered = len(answer.encode("utf-8", "replace"))
    return Usage(input_tokens=len(sent), output_tokens=answered, estimated=True)


def priced(usage: Usage, price: Price | None, latency_ms: float = 0.0) -> Usage:
    """The usage with its cost and latency; the cost is None without a price, or where no tokens are reported."""
    cost = None
    if price is not None and (usage.input_tokens or usage.output_tokens):
        cost = price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return replace(usage, cost_usd=cost, latency_ms=latency_ms)


def completion(body: object) -> Reply:
    """The reply in a chat completion, its thinking split off; a refusal by model or filter has Finish.REFUSAL.

    Its usage is not `priced` yet. A field of a wrong type counts as not sent. Raises Trouble.
    """
    if not isinstance(body, dict):
        raise Trouble("the answer is not a JSON object")
    usage = _usage(body.get("usage"))
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    message = _part(choice, "message")
    if not isinstance(message, dict):
        error = f": {body['error']}" if body.get("error") else ""
        cause = f"the answer holds no choice with a message{error}"
        raise Trouble(cause, usage=usage)
    finish, text = _read_end(message, _part(choice, "finish_reason"), usage)
    thinking, text = split_thinking(text or "", cut=finish is Finish.LENGTH)
    # DeepSeek and vLLM; OpenRouter
    for name in ("reasoning", "reasoning_content"):
        thinking = _text(message, name) or thinking
    return Reply(
        text,
        finish,
        usage or Usage(),
        _text(body, "model") or UNNAMED,
        thinking=thinking,
    )


def _read_end(
    message: Mapping[str, Any], reason: object, usage: Usage | None
) -> tuple[Finish, str | None]:
    """How a message ended, and its text. Raises Trouble."""
    if refusal := _text(message, "refusal"):
        return Finish.REFUSAL, refusal
    finish = _FINISH.get(str(reason or "stop").casefold())
    text = _text(message, "content")
    if isinstance(parts := message.get("content"), list):  # as some endpoints send it
        texts = [part for item in parts if (part := _text(item, "text")) is not None]
        text = "".join(texts) if texts else None
    if finish is None or (text is None and finish is Finish.STOP):
        fault = "may not be whole" if finish is None else "holds no text"
        cause = f"the answer's message {fault} (finish_reason {reason!r:.40})"
        raise Trouble(cause, usage=usage)
    return finish, text


def _count(value: object, name: str) -> int | None:
    count = _part(value, name)
    if type(count) is int and 0 <= count <= REPLY_TOKENS:
        return count
    return None


def _usage(value: object) -> Usage | None:
    asked = _count(value, "prompt_tokens")
    answered = _count(value, "completion_tokens")
    # Every request has input: a usage with neither, or with half of it, is not a usage.
    if not asked or answered is None:
        return None
    cached = _count(_part(value, "prompt_tokens_details"), "cached_tokens") or 0
    # Some endpoints report more cached tokens than they read.
    cached = min(asked, cached)
    details = _part(value, "completion_tokens_details")
    return Usage(
        input_tokens=asked,
        cached_tokens=cached,
        output_tokens=answered,
        reasoning_tokens=_count(details, "reasoning_tokens") or 0,
    )


# Keywords of JSON Schema that strict mode does not allow, or that engines need not see
_LEFT_OUT = frozenset(
    {"title", "description", "default", "examples", "minLength", "maxLength"}
)


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for strict mode, without the keywords of _LEFT_OUT; objects are closed and require all fields."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            strict[key] = {name: strict_schema(part) for name, part in value.items()}
        elif key not in _LEFT_OUT:
            strict[key] = _strict_part(value)
    if strict.get("type") == "object":
        strict["additionalProperties"] = False
        strict["required"] = list(strict.get("properties", {}))
    return strict


def _strict_part(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_strict_part, value))
    return strict_schema(value) if isinstance(value, Mapping) else value


@dataclass(eq=False)
class Trouble(Exception):
    """An attempt failed where another may succeed, or its answer is no chat completion that can be used."""

    cause: str
    ended: Ended = "other"
    retry_after: float | None = None
    usage: Usage | None = None
    """Usage of an answer without a usable reply; None: unknown, or nothing."""
    timed_out: bool = False


@dataclass(eq=False)
class Refusal(Exception):
    """The endpoint refused the request itself: the same request would be refused again."""

    status: int
    message: str
    codes: frozenset[str]  # In lower case
    parameter: str
    """The part of the request that the endpoint names, "" where it names none."""
    of_format: bool = False
    """Whether it speaks of the way that JSON was asked for."""

    @property
    def is_by_filter(self) -> bool:
        """Whether a content filter refuses the prompt, which it has read and charges for."""
        return self.status in {400, 403} and bool(self.codes & _OF_FILTER)

    @property
    def is_broke(self) -> bool:
        """Whether the account has no credit left."""
        message = self.message.casefold()
        return (
            self.status == 402
            or bool(self.codes & _NO_MONEY)
            or any(words in message for words in _NO_MONEY_WORDS)
        )

    @property
    def may_be_of_format(self) -> bool:
        """Whether the same request may be answered where JSON is asked for in another way."""
        if self.codes & _WHATEVER_THE_FORM:
            return False
        return self.of_format or self.status in {400, 415, 422}

    def find_parameter(self, parameters: Iterable[str]) -> str | None:
        """Which of a request's parameters it says the model does not take; None where it says no such thing."""
        message = self.message.casefold()
        if self.status not in {400, 422} or self.codes & _WHATEVER_THE_FORM:
            return None
        says_so = any(words in message for words in _OF_PARAMETER_WORDS)
        if not (says_so or self.codes & _OF_PARAMETER):
            return None
        named = self.parameter.split(".")[0]
        if named in parameters:
            return named
        words = set(re.findall(r"\w+", message))
        quoted = [name for name in parameters if name.casefold() in words]
        # The longest: "max_tokens" may be named beside the parameter that should replace it.
        return max(quoted, key=len, default=None)

    @property
    def kind(self) -> type[EndpointUnavailable]:
        """The error to raise: it blames this request, this caller (key, model's name, account) or the endpoint."""
        if self.of_format:
            return RequestRefused
        if self.is_broke or self.status in {401, 403, 404}:
            return CallerRefused
        if self.status in {400, 413, 422} and not self.codes & _OF_CALLER:
            return RequestRefused
        return EndpointUnavailable


def read_error(error: "APIStatusError", *, shaped: bool) -> Refusal | Trouble:
    """Read an error status: Trouble where the same request may be sent again, else a Refusal.

    Args:
        error: The error, in any form that endpoints give it.
        shaped: Whether the request held a response_format: an error that speaks of it is a refusal, not an outage.
    """
    refusal = _refusal_of(error)
    status = refusal.status
    if refusal.is_by_filter:
        return refusal
    words = f"{refusal.parameter} {refusal.message}".casefold()
    if shaped and status != 429 and any(word in words for word in _OF_FORMAT_WORDS):
        refusal.of_format = True
        return refusal
    if refusal.is_broke or not (status in _RETRIED or status >= 500):
        return refusal
    ended: Ended = "other"
    if status == 429:
        ended = "limited"
    elif status in _OVERLOADED:
        ended = "overloaded"
    retry_after = parse_retry_after(error.response.headers.get("Retry-After", ""))
    return Trouble(f"status {status}: {refusal.message}", ended, retry_after)


def _refusal_of(error: "APIStatusError") -> Refusal:
    details: Any = error.body  # The value under "error", or the whole body
    if isinstance(details, list) and details:
        details = _part(details[0], "error")  # Google
    plain = details if isinstance(details, str) else error.response.text
    inner = _part(details, "innererror")  # Azure
    codes = (_text(details, "code"), _text(details, "type"), _text(inner, "code"))
    return Refusal(
        status=error.status_code,
        # FastAPI sends `detail`
        message=_text(details, "message", "detail") or plain[:1000],
        codes=frozenset(code.casefold() for code in codes if code),
        parameter=_text(details, "param") or "",
    )
