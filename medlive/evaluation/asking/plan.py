"""What calls would take, before any is made: how many, their tokens, money and time. Nothing is sent.

Tokens are an estimate, since tokenisers are the endpoints' own: by the script of each character, and scaled by
what the same model was charged for calls on record, where the log has enough of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from medlive.digest import canonical_json
from medlive.llm.engine import Request
from medlive.llm.fence import render
from medlive.llm.wire import JsonMode, Price, response_format

CHARACTERS_A_TOKEN: Final[Mapping[str, float]] = {"Han": 1.4, "ASCII": 4.0, "other": 2.0}
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
    wide = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
    han = len(wide) - len(_HAN.sub("", wide))
    by = CHARACTERS_A_TOKEN
    return round((size - len(wide)) / by["ASCII"] + han / by["Han"] + (len(wide) - han) / by["other"])


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
    cacheable_tokens: int
    """Of these, beginnings that the call before sent as well: what an endpoint's prefix cache can hold."""
    output_tokens: int
    usd: float | None
    """Without any prefix cache; None: the model has no price."""
    usd_cached: float | None
    """With all that can be cached at the price of cached tokens."""
    seconds: float | None
    """At the given concurrency and the latency measured; None: none was."""
    concurrency: int
    latency_ms: float | None
    estimator: str
    """How tokens were estimated."""


def plan_calls(
    calls: Iterable[Call],
    record: Iterable[Sample] = (),
    *,
    about: Mapping[str, int],
    price: Price | None,
    concurrency: int,
    output_tokens: float = OUTPUT_A_CRITERION,
) -> Plan:
    """Sum up calls in the order they would be made, scaled by what those on record took.

    `output_tokens`: of a reply, or of each verdict in one, where the record does not tell. Money is unknown
    without a `price`, of the rules as well: an endpoint may charge for them.
    """
    measured = _measure(record)
    n = asked = cacheable = 0
    answered = 0.0
    before = ""
    languages: set[str] = set()
    for call in calls:
        tokens = estimate_tokens(call.text) * measured.scale.get(call.language, 1.0)
        n += 1
        asked += round(tokens)
        cacheable += round(tokens * common_length(before, call.text) / max(1, len(call.text)))
        answered += call.replies * measured.output.get(call.language, output_tokens)
        before = call.text
        languages.add(call.language)
    return Plan(
        about=about,
        calls=n,
        input_tokens=asked,
        cacheable_tokens=cacheable,
        output_tokens=round(answered),
        usd=price.cost(asked, 0, round(answered)) if price else None,
        usd_cached=price.cost(asked, cacheable, round(answered)) if price else None,
        seconds=_seconds(n, concurrency, measured.latency_ms),
        concurrency=concurrency,
        latency_ms=measured.latency_ms,
        estimator=_describe(measured, sorted(languages)),
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """What calls on record took, by language; a language without enough of them is not in it."""

    scale: Mapping[str, float]
    """Tokens charged for each token estimated."""
    output: Mapping[str, float]
    """Output tokens for each verdict."""
    calls: Mapping[str, int]
    latency_ms: float | None
    """Of a call; None: nothing measured."""


def _measure(record: Iterable[Sample]) -> _Measured:
    """What calls on record took; one without tokens tells nothing, and a language with too few is left out."""
    ratios: dict[str, list[float]] = {}
    outputs: dict[str, list[float]] = {}
    latencies: list[float] = []
    for one in record:
        call, asked, answered = one.call, one.usage.get("input_tokens"), one.usage.get("output_tokens")
        if not asked or not answered:
            continue
        ratios.setdefault(call.language, []).append(asked / max(1, estimate_tokens(call.text)))
        outputs.setdefault(call.language, []).append(answered / call.replies)
        if latency := one.usage.get("latency_ms"):
            latencies.append(latency)
    known = [language for language, found in ratios.items() if len(found) >= ENOUGH]
    return _Measured(
        # A call that was repaired was charged twice: the median does not mind.
        scale={language: median(ratios[language]) for language in known},
        output={language: sum(outputs[language]) / len(outputs[language]) for language in known},
        calls={language: len(ratios[language]) for language in known},
        latency_ms=median(latencies) if len(latencies) >= ENOUGH else None,
    )


def _seconds(calls: int, concurrency: int, latency_ms: float | None) -> float | None:
    """Of calls side by side; what is made at all takes one call's time at least."""
    if latency_ms is None:
        return None
    return max(calls / concurrency, 1.0 if calls else 0.0) * latency_ms / 1000


def sent_text(request: Request) -> str:
    """All the text of a request, in the order it is read: the shape of the reply, then the messages."""
    shape = response_format(JsonMode.SCHEMA, request)
    return "\n".join([canonical_json(shape), *(message["content"] for message in render(request))])


def common_length(one: str, other: str) -> int:
    """The length of the beginning that two texts share, found by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _describe(measured: _Measured, languages: Sequence[str]) -> str:
    default = ", ".join(f"{script} {n:g}" for script, n in CHARACTERS_A_TOKEN.items())
    parts = []
    for language in languages:
        if language in measured.scale:
            n, scale = measured.calls[language], measured.scale[language]
            parts.append(f"{language}: scaled by {scale:.2f}, as charged for {n} calls on record")
        else:
            parts.append(f"{language}: not scaled, too few calls on record")
    return "; ".join([f"characters a token: {default}", *parts])
