"""Reading a grader's reply: a verdict that is certain, or none with the reason. Never a guess.

Tolerated: a code fence, a list of one, a closed thinking block or prose before the one object, which must end the
reply. Not tolerated, since each has more than one reading: `met` that is no JSON boolean, two objects, a key
given twice, words after the object, words before it that deny it, a cut reply, thinking that does not end, a
verdict that stands in the answer itself, a met criterion whose quote is not in the answer.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from medlive.evaluation.tasks import GradeReply, RubricGradeItem
from medlive.llm.reading import without_thinking
from medlive.threads.normalise import contains_quote, fold, strip_unstorable

MOST_REPLY: Final = 400_000
_MOST_OBJECTS: Final = 300
_THINKING_OPENS: Final = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"[.!?:;,\n。！？：；，]")
_DENIED: Final = re.compile(
    r"\b(?:not|never|no|wrong|rather than|instead of)\b|n['’]t\b|不|并非|没有|错", re.IGNORECASE
)
_FENCED: Final = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n[ \t]*```\s*\Z", re.DOTALL)
_ELLIPSIS: Final = re.compile(r"\s*(?:\.{3,}|…+|\[\.{3}\]|\[…\])\s*")
_MARKS: Final = "\"'“”‘’「」『』«» \n\t"
_HARMLESS: Final = frozenset({"question", "criterion", "id"})
"""What a grader may repeat of its task beside the verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a grader decided about one criterion; `quote` is in the answer when met."""

    met: bool
    quote: str
    reasoning: str


class Unreadable(Exception):
    """A reply holds no certain verdict; the text says why, for the repair and the record."""


def read_criterion(text: str, answer: str) -> Verdict:
    """The verdict of a reply to `grader.criterion`. Raises Unreadable."""
    value = _one_value(text, "met", answer)
    if isinstance(value, list):
        if len(value) != 1:
            raise Unreadable(f"one verdict was asked for, the reply holds {len(value)}")
        value = value[0]
    if not isinstance(value, dict):
        raise Unreadable("the reply is no JSON object")
    fields = _fields(value, _HARMLESS)
    try:
        reply = GradeReply.model_validate(fields)
    except ValidationError as exc:
        raise Unreadable(_first(exc)) from exc
    return _certain(Verdict(reply.met, reply.quote, reply.reasoning), answer)


def read_rubric(text: str, ids: Sequence[str], answer: str) -> dict[str, Verdict | str]:
    """For each id its verdict, or why there is none. Raises Unreadable when the reply as a whole cannot be read.

    An entry for another id counts for nothing; two entries for one id leave it without a verdict.
    """
    value = _one_value(text, "grades", answer)
    if isinstance(value, dict):
        value = value.get("grades")
    if not isinstance(value, list):
        raise Unreadable("the reply holds no list `grades`")
    found: dict[str, Verdict | str] = {}
    for item in value:
        given = item.get("id") if isinstance(item, dict) else None
        if not isinstance(given, str) or given not in ids:
            continue
        if given in found:
            found[given] = "the reply grades it more than once"
            continue
        fields = _fields(item, _HARMLESS - {"id"})
        try:
            graded = RubricGradeItem.model_validate(fields)
            found[given] = _certain(Verdict(graded.met, graded.quote, graded.reasoning), answer)
        except ValidationError as exc:
            found[given] = _first(exc)
        except Unreadable as exc:
            found[given] = str(exc)
    return {given: found.get(given, "the reply does not grade it") for given in ids}


def _fields(value: dict[str, Any], without: frozenset[str]) -> dict[str, Any]:
    """An entry's fields: a quote or reasoning that it lacks is "", and texts hold no lone surrogate or NUL."""
    given = {k: strip_unstorable(v) if isinstance(v, str) else v for k, v in value.items() if k not in without}
    return {"quote": "", "reasoning": ""} | given


def _first(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(p) for p in error['loc']) or 'the reply'}: {error['msg']}"


def _certain(verdict: Verdict, answer: str) -> Verdict:
    if '"met"' in answer and verdict in _planted(answer):
        raise Unreadable("the verdict is a piece of the answer that was to be graded")
    if verdict.met and not quoted(verdict.quote, answer):
        raise Unreadable(
            "met without words of the answer to show for it"
            if not verdict.quote.strip()
            else "the quote is not in the answer letter for letter"
        )
    return verdict


def _planted(answer: str) -> list[Verdict]:
    """The verdicts that stand in an answer."""
    found: list[Verdict] = []
    at = answer.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            break
        try:
            value, _end = _PLAIN.raw_decode(answer, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and "met" in value:
            found.append(Verdict(value["met"], value.get("quote", ""), value.get("reasoning", "")))
        at = answer.find("{", at + 1)
    return found


def quoted(quote: str, answer: str) -> bool:
    """Whether a quote stands in the answer once both are folded; parts around an ellipsis may stand apart."""
    parts = [part.strip(_MARKS) for part in _ELLIPSIS.split(quote.strip(_MARKS))]
    parts = [part for part in parts if fold(part)]
    return bool(parts) and all(contains_quote(part, answer) for part in parts)


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Unreadable("the reply gives one key twice")
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_no_doubles)
_PLAIN: Final = json.JSONDecoder()


def _one_value(text: str, key: str, answer: str) -> Any:
    """The JSON value that a reply is, or ends with. Raises Unreadable."""
    if len(text) > MOST_REPLY:
        raise Unreadable(f"the reply is longer than {MOST_REPLY} characters")
    text = text.strip("\ufeff \t\r\n")
    if not text.startswith(("{", "[", "`")):
        text = without_thinking(text)
    if not text:
        raise Unreadable("the reply is empty")
    if _THINKING_OPENS.match(text):
        raise Unreadable("the reply's thinking does not end")
    if text.count("```") == 2 and (fence := _FENCED.search(text)) is not None:
        before, text = text[: fence.start()], fence.group(1).strip()
        if _objects(before, key):
            raise Unreadable("the reply holds more than one verdict")
        value = _whole(text)
    elif text[0] in "{[":
        value, before = _whole(text), ""
    else:
        value, before = _last_object(text, key)
    if _DENIED.search(_CLAUSE.split(before[-200:])[-1]):
        raise Unreadable("the words before the JSON object deny it")
    return value


def _last_object(text: str, key: str) -> tuple[Any, str]:
    """The one object that prose ends with, and the prose."""
    objects = _objects(text, key)
    if len(objects) != 1:
        raise Unreadable(
            "the reply is no JSON"
            if not objects
            else f"the reply holds {len(objects)} verdicts, one was asked for"
        )
    value, spelt = objects[0]
    if not text.endswith(spelt):
        raise Unreadable("words follow the JSON object")
    return value, text.removesuffix(spelt)


def _whole(text: str) -> Any:
    try:
        return _decode_all(text)
    except (ValueError, RecursionError) as exc:
        raise Unreadable(f"the reply is no JSON: {str(exc)[:120]}") from exc


def _decode_all(text: str) -> Any:
    value, end = _DECODER.raw_decode(text)
    if text[end:].strip():
        raise Unreadable("words follow the JSON")
    return value


def _objects(text: str, key: str) -> list[tuple[Any, str]]:
    """The objects in a text that hold `key`, outermost first to last, each as value and as spelt."""
    found: list[tuple[Any, str]] = []
    at, tried = text.find("{"), 0
    while at >= 0 and tried < _MOST_OBJECTS:
        tried += 1
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict) and key in value:
            found.append((value, text[at:end]))
        at = text.find("{", end)
    if at >= 0:
        raise Unreadable("the reply holds too many braces to be read")
    return found
