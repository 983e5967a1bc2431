"""What calls would take, before any is made: how many, their tokens, money and time. Nothing is sent.

Tokens are an estimate, since tokenisers are the endpoints' own: by the script of each character, and scaled by
what the same model was charged for calls on record, where the log has enough of them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from medlive.integrity.digest import canonical_json
from medlive.llm.engine import Request
from medlive.llm.prompts import render
from medlive.llm.wire import JsonMode, Price, response_format

CHARACTERS_A_TOKEN: Final[Mapping[str, float]] = {
    "Han": 1.4,
    "ASCII": 4.0,
    "other": 2.0,
}
"""Characters of a script that make a token, as tokenisers of 100,000 and more entries cut them."""
OUTPUT_A_CRITERION: Final = 70
"""Tokens of a verdict with its quote and reasoning, where none is on record."""
ENOUGH: Final = 20
"""Calls of a language on record from which an estimate is scaled."""

_HAN: Final = re.compile("[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]+")
_ASCII: Final = bytes(range(128))


def estimate_tokens(text: str) -> int:
    """The tokens of a text, by the script of its characters."""
    size = len(text)
    if text.isascii():
        return round(size / CHARACTERS_A_TOKEN["ASCII"])
    wide = (
        text.encode("utf-8", "surrogatepass")
        .translate(None, _ASCII)
        .decode("utf-8", "surrogatepass")
    )
    han = len(wide) - len(_HAN.sub("", wide))
    by = CHARACTERS_A_TOKEN
    return round(
        (size - len(wide)) / by["ASCII"]
        + han / by["Han"]
        + (len(wide) - han) / by["other"]
    )


@dataclass(frozen=True, slots=True)
class Call:
    """A call that could be made."""

    language: str
    text: str
    """All that is sent, in its order."""
    replies: int = 1
    """Verdicts that are asked for, or 1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A call on record, and what it took: tokens and latency as an engine reports them."""

    call: Call
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What calls would take."""

    about: Mapping[str, int]
    """What they are about, counted: `{"answers": 30, "scored": 5}`."""
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    """Without any prefix cache; None: the model has no price."""
    seconds: float | None
    """At the given concurrency and the latency measured; None: none was."""
    concurrency: int
    latency_ms: float | None


def plan_calls(
    calls: Iterable[Call],
    record: Iterable[Sample] = (),
    *,
    about: Mapping[str, int],
    price: Price | None,
    concurrency: int,
    output_tokens: float = OUTPUT_A_CRITERION,
) -> Plan:
    """Sum up calls, scaled by what those on record took.

    `output_tokens`: of a reply, or of each verdict in one, where the record does not tell. Money is unknown
    without a `price`, of the rules as well: an endpoint may charge for them.
    """
    measured = _measure(record)
    n = asked = 0
    answered = 0.0
    for call in calls:
        language = measured.get(call.language)
        tokens = estimate_tokens(call.text) * (language.scale if language else 1.0)
        n += 1
        asked += round(tokens)
        answered += call.replies * (language.output if language else output_tokens)
    latencies: list[float] = []
    for language in measured.values():
        latencies += language.latencies
    latency_ms = median(latencies) if len(latencies) >= ENOUGH else None
    # What is made at all takes one call's time at least.
    rounds = max(n / concurrency, 1.0 if n else 0.0)
    return Plan(
        about=about,
        calls=n,
        input_tokens=asked,
        output_tokens=round(answered),
        usd=price.cost(asked, 0, round(answered)) if price else None,
        seconds=None if latency_ms is None else rounds * latency_ms / 1000,
        concurrency=concurrency,
        latency_ms=latency_ms,
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """What calls of one language on record took."""

    scale: float
    """Tokens charged for each token estimated."""
    output: float
    """Output tokens for each verdict."""
    latencies: list[float]


def _measure(record: Iterable[Sample]) -> dict[str, _Measured]:
    """What calls on record took, by language; a language with too few of them is left out."""
    by_language: dict[str, list[Sample]] = {}
    for asked in record:
        # A call without tokens says nothing.
        if asked.usage.get("input_tokens") and asked.usage.get("output_tokens"):
            by_language.setdefault(asked.call.language, []).append(asked)
    measured = {}
    for language, calls in by_language.items():
        if len(calls) < ENOUGH:
            continue
        scales: list[float] = []
        latencies: list[float] = []
        output = 0.0
        for asked in calls:
            estimated = max(1, estimate_tokens(asked.call.text))
            scales.append(asked.usage["input_tokens"] / estimated)
            output += asked.usage["output_tokens"] / asked.call.replies
            if latency := asked.usage.get("latency_ms"):
                latencies.append(latency)
        # A call that was repaired was charged twice: the median does not mind.
        measured[language] = _Measured(median(scales), output / len(calls), latencies)
    return measured


def sent_text(request: Request) -> str:
    """All the text of a request, in the order it is read: the shape of the reply, then the messages."""
    shape = response_format(JsonMode.SCHEMA, request)
    return "\n".join(
        [canonical_json(shape), *(message["content"] for message in render(request))]
    )
