"""What goes over the wire to an OpenAI-compatible endpoint and what comes back, whichever way it travels: a call
of the live client, or a line of a batch file. Pure: nothing is sent here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

from pydantic_core import from_json

from medlive.digest import canonical_json
from medlive.llm.engine import UNNAMED, Finish, Reply, Request, Usage
from medlive.llm.fence import CLOSE, LONGEST, OPEN, fenced, schema_name

# What endpoints that call themselves compatible give as finish_reason, in lower case.
_STOPPED: Final = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "completed"})
_CUT: Final = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})
_REFUSED: Final = frozenset(
    {"content_filter", "refusal", "safety", "sensitive", "recitation", "blocklist", "prohibited_content"}
)


class NotACompletion(ValueError):
    """A body is not a chat completion that can be used; the text says why."""

    def __init__(self, problem: str, usage: Usage | None = None) -> None:
        """`usage` is what the body says that it took."""
        super().__init__(problem)
        self.usage = usage


class JsonMode(StrEnum):
    """How an endpoint is told that a reply must be JSON, from the strictest."""

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
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, str]],
    parameters: Mapping[str, Any],
    response_format: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a chat request."""
    body: dict[str, Any] = {"model": model, "messages": [dict(message) for message in messages], **parameters}
    if response_format is not None:
        body["response_format"] = dict(response_format)
    return body


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as it is sent. A lone surrogate has no UTF-8 form; the endpoint gets a question mark in its place."""
    return canonical_json(body).encode("utf-8", "replace")


class Frame:
    """The bytes of a task's chat body around the text of its last message: all its first requests share them."""

    def __init__(
        self,
        model: str,
        request: Request,
        parameters: Mapping[str, Any],
        response_format: Mapping[str, Any] | None,
    ) -> None:
        """Of `request` only the prompt counts."""
        self.prompt, self.schema = request.prompt, request.schema
        body = chat_body(model, [], parameters, response_format)
        before = canonical_json({name: value for name, value in body.items() if name < "messages"})[1:-1]
        after = canonical_json({name: value for name, value in body.items() if name > "messages"})[1:]
        system = canonical_json({"role": "system", "content": request.prompt.text})
        head = f'{{{before}{"," if before else ""}"messages":[{system},{{"content":'
        self._head = head.encode("utf-8", "replace")
        self._tail = f',"role":"user"}}],{after}'.encode("utf-8", "replace")

    def fits(self, request: Request) -> bool:
        """Whether the frame is of the request's prompt and schema, and the request is a first one."""
        return request.prompt is self.prompt and request.schema is self.schema and not request.repair

    def around(self, request: Request) -> bytes:
        """The body of a request that fits: byte for byte what `encoded` makes of its messages."""
        inputs = b",".join([_member(name, value) for name, value in request.inputs.items()])
        return b"".join((self._head, _BEFORE, inputs, _AFTER, self._tail))


def _member(name: str, value: Any) -> bytes:
    """One of a request's inputs as it stands inside the text of its message."""
    if isinstance(value, str) and len(value) <= LONGEST:
        return _remembered(name, value)
    return _within(fenced({name: value})[1:-1])


@lru_cache(maxsize=64)
def _remembered(name: str, text: str) -> bytes:
    """Calls of one case share its texts, and come after each other."""
    return _within(fenced({name: text})[1:-1])


def _within(text: str) -> bytes:
    """A part of a string as JSON spells it: each character for itself, so parts may be put together."""
    return encode_basestring(text)[1:-1].encode("utf-8", "replace")


_BEFORE: Final = b'"' + _within(f"{OPEN}\n{{")
_AFTER: Final = _within(f"}}\n{CLOSE}") + b'"'


def response_format(mode: JsonMode, request: Request) -> dict[str, Any] | None:
    """How a request's reply is asked to be JSON; None where it is not."""
    if mode is JsonMode.NONE:
        return None
    if mode is JsonMode.OBJECT:
        return {"type": "json_object"}
    shape = {"name": schema_name(request.task), "strict": True, "schema": strict_schema(request.schema)}
    return {"type": "json_schema", "json_schema": shape}


def read_completion(raw: bytes, price: Price | None, latency_ms: float = 0.0) -> Reply:
    """The reply in a chat completion's body, as JSON text; see `completion`."""
    try:
        body = from_json(raw)
    except ValueError:
        body = _slowly(raw)
    return completion(body, price, latency_ms)


def _slowly(raw: bytes) -> object:
    """The json module reads more: other encodings, the escape of a lone surrogate. Its word is the last."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise NotACompletion(f"the answer is no JSON: {raw[:60]!r}") from None


def completion(body: object, price: Price | None, latency_ms: float = 0.0) -> Reply:
    """The reply in a chat completion. Raises NotACompletion."""
    if not isinstance(body, dict):
        raise NotACompletion("the answer holds no choice")
    usage = _usage(body.get("usage"), price, latency_ms)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = body.get("error")
        raise NotACompletion(f"the answer holds no choice{f': {said}' if said else ''}", usage)
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NotACompletion("the answer's choice holds no message", usage)
    text = _text(message.get("content"))
    refusal = _text(message.get("refusal"))
    finish = _finish(choice.get("finish_reason"))
    if finish is Finish.REFUSAL or refusal:
        finish, text = Finish.REFUSAL, refusal or text or ""
    elif finish is Finish.LENGTH:
        text = text or ""
    elif finish is None or text is None:
        reason = choice.get("finish_reason")
        told = "holds no text" if text is None else "may not be whole"
        raise NotACompletion(f"the answer's message {told} (finish_reason {reason!r:.40})", usage)
    model = body.get("model")
    return Reply(
        text=text, finish=finish, usage=usage, model=model if isinstance(model, str) and model else UNNAMED
    )


def _usage(usage: object, price: Price | None, latency_ms: float) -> Usage:
    if not isinstance(usage, dict):
        return Usage(latency_ms=latency_ms)
    details = usage.get("prompt_tokens_details")
    asked, answered = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    # More cached than read is a slip of the endpoint's; what was read bounds it.
    cached = min(asked, count(details.get("cached_tokens"))) if isinstance(details, dict) else 0
    known = price is not None and "prompt_tokens" in usage and "completion_tokens" in usage
    cost = price.cost(asked, cached, answered) if price and known else None
    return Usage(asked, cached, answered, cost, latency_ms)


def _text(content: object) -> str | None:
    """A message's text; some endpoints send it in parts. None where there is none."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return None


def _finish(reason: object) -> Finish | None:
    """Why the endpoint says it stopped; None for what it should not stop for (a tool call, an error, a word that
    is not known). An endpoint that gives no reason is taken to have stopped: the reply's own shape tells."""
    if reason == "stop" or reason is None or reason == "":
        return Finish.STOP
    named = reason.casefold() if isinstance(reason, str) else ""
    for known, finish in ((_STOPPED, Finish.STOP), (_CUT, Finish.LENGTH), (_REFUSED, Finish.REFUSAL)):
        if named in known:
            return finish
    return None


def count(value: object) -> int:
    """A number of tokens; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


_LEFT_OUT: Final = frozenset({"title", "description", "default", "examples", "minLength", "maxLength"})


_BY_NAME: Final = frozenset({"properties", "$defs"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what strict mode has no room for; objects are closed and require all they hold."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LEFT_OUT:
            continue
        if key in _BY_NAME and isinstance(value, Mapping):
            found[key] = {name: strict_schema(part) for name, part in value.items()}
        elif isinstance(value, Mapping):
            found[key] = strict_schema(value)
        elif isinstance(value, list):
            found[key] = [strict_schema(part) if isinstance(part, Mapping) else part for part in value]
        else:
            found[key] = value
    if found.get("type") == "object":
        found["additionalProperties"] = False
        found["required"] = list(found.get("properties", {}))
    return found
