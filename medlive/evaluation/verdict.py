"""Reading a grader's reply: a verdict that is certain, or none with the reason. Never a guess.

Tolerated: a code fence, a list of one, a closed thinking block or prose before the one object, which must end the
reply, line ends within texts, null for an empty text, another name for the reasoning. Not tolerated, since each
has more than one reading: `met` that is no JSON boolean, two objects, a key given twice, words after the object,
words before it or in its reasoning that say otherwise, a cut reply, thinking that does not end, a verdict that
stands in the answer itself, a met criterion whose quote is not in the answer, a list with ids of its own.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from medlive.evaluation.tasks import GradeReply, RubricGradeItem
from medlive.llm.neutral import neutralise
from medlive.llm.reading import without_thinking
from medlive.threads.normalise import contains_quote, fold, strip_unstorable

MOST_REPLY: Final = 400_000
MOST_REASONING: Final = 4_000
"""Characters of a reasoning that are kept; the reply stands whole in the log."""
_MOST_OBJECTS: Final = 300
_LOOKED_AT: Final = 4_000
"""Characters before a verdict that are searched for another one."""

_TAG: Final = r"(?:seed:)?(?:think|thinking|thought|reasoning|reflection|scratchpad|analysis)"
_THINKING_OPENS: Final = re.compile(rf"[<\[◁]{_TAG}[>\]▷]", re.IGNORECASE)
_THINKING_ENDS: Final = re.compile(rf"[<\[◁]/{_TAG}[>\]▷]", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"[.!?:;,()\n。！？：；，（）]")
_DENIED: Final = re.compile(
    r"\b(?:not|never|no|wrong|rather than|instead of)\b|n['’]t\b|不|并非|没有|错", re.IGNORECASE
)
_DENIED_AHEAD: Final = re.compile(
    r"\b(?:wrong|incorrect|mistaken|rather than|instead of|suppose|hypothetical(?:ly)?|for example|for instance"
    r"|would be)\b|(?:\b(?:not|never|cannot)\b|n['’]t\b)\s+(?:be\s+|to\s+|have\s+)?"
    r"(?:say|said|reply|replied|answer|answered|output|return|give|given|write|written|grade|this|correct|right|valid)"
    r"\b|错误|并非|不应|不能|不要|不会|不是|而非|例如|比如|假如|假设",
    re.IGNORECASE,
)
"""Of words that a colon ends: those before it mostly give the verdict's ground, which may hold any "not"."""
_STATED: Final = re.compile(
    r"\b(?:is|was|are|has been)(?P<no1>n['’]t|\s+not|\s+never)?(?:\s+(?!it\b|this\b|the\b|not\b)\w+){0,2}?\s+"
    r"(?P<no2>not\s+)?(?:been\s+)?(?P<no3>un)?(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when)\b)"
    r"|\b(?:does|do|did)(?P<no4>n['’]t|\s+not)\s+(?:\w+\s+)?(?:meet|satisfy|fulfil+)\b"
    r"|\b(?P<no5>fails?\s+to\s+)(?:meet|satisfy|fulfil+)\b"
    r"|(?P<no6>(?:[不未没]|无法|难以)(?:有|能够?|被|完全|充分){0,2})?满足",
    re.IGNORECASE,
)
_ABOUT_CRITERION: Final = re.compile(
    r"\bcriterion\s+(?:is|was|has been)(?P<no1>n['’]t|\s+not|\s+never)?"
    r"(?:\s+(?:therefore|thus|clearly|hence|so|then|fully|indeed|also))*\s+"
    r"(?P<no2>not\s+)?(?:been\s+)?(?P<no3>un)?(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when|in)\b)"
    r"|(?:该|本|此)(?:评分)?(?:标准|条目|项)(?P<no4>(?:并?[不未没]|无法)(?:有|能够?|被|完全){0,2})?(?:被)?满足",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|when|were|would|could|unless|until)\b|如果|若|只有|是否|能否", re.IGNORECASE
)
_SPELT_OUT: Final = re.compile(
    r"""\bmet\b["'”*]*\s*[:=：]\s*["'“*]*\s*(?:(?P<yes>true|yes)|false|no)\b""", re.IGNORECASE
)

_FENCED: Final = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n[ \t]*```\s*\Z", re.DOTALL)
_ELLIPSIS: Final = re.compile(r"\s*(?:\.{3,}|…+|\[\.{3}\]|\[…\])\s*")
_EMPHASIS: Final = re.compile(
    r"\*{2,3}|_{2,3}|`{1,3}|(?<![A-Za-z0-9*)])\*(?=[^\s*])|(?<=[^\s*])\*(?![A-Za-z0-9*(])"
)
_LINE_MARK: Final = re.compile(r"^[ \t]*(?:#{1,6}|[-*+•]|>)[ \t]+", re.MULTILINE)
_MARKS: Final = "\"'“”‘’「」『』«» \n\t"
_STRAIGHT: Final = str.maketrans("“”„‘’", '"""\'\'')
_HARMLESS: Final = frozenset({"question", "criterion", "id", "criterion_id", "language"})
"""What a grader may repeat of its task beside the verdict."""
_REASONING: Final = ("explanation", "rationale", "reason", "justification")
"""What graders call `reasoning` that are held to no schema."""


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
    value, before = _one_value(text, "met")
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
    if before and _said_before(before) is (not reply.met):
        raise Unreadable("the words before the JSON object say the contrary of it")
    return _certain(Verdict(reply.met, reply.quote, reply.reasoning), answer)


def read_rubric(text: str, ids: Sequence[str], answer: str) -> dict[str, Verdict | str]:
    """For each id its verdict, or why there is none. Raises Unreadable when the reply as a whole cannot be read.

    An entry for another id counts for nothing; two entries for one id leave it without a verdict. Where such
    entries stand while others are lacking, the grader has counted in a way of its own, and none of them counts.
    """
    value, before = _one_value(text, "grades")
    if _SPELT_OUT.search(before):
        raise Unreadable("the reply gives verdicts before its JSON")
    items = _items(value, ids)
    given = [_id(item) for item in items]
    times = Counter(one for one in given if one in ids)
    astray = [one for one in given if one not in times] or [one for one, n in times.items() if n > 1]
    if astray and len(ids) > 1 and any(one not in times for one in ids):
        raise Unreadable("the ids of the reply are not those that were asked for")
    found: dict[str, Verdict | str] = {}
    for one, item in zip(given, items, strict=True):
        if one not in times:
            continue
        if times[one] > 1:
            found[one] = "the reply grades it more than once"
            continue
        try:
            graded = RubricGradeItem.model_validate({**_fields(item, _HARMLESS), "id": one})
            found[one] = _certain(Verdict(graded.met, graded.quote, graded.reasoning), answer)
        except ValidationError as exc:
            found[one] = _first(exc)
        except Unreadable as exc:
            found[one] = str(exc)
    return {one: found.get(one, "the reply does not grade it") for one in ids}


def _items(value: Any, ids: Sequence[str]) -> list[Any]:
    """The entries of a rubric reply."""
    if isinstance(value, dict):
        if "grades" not in value and len(ids) == 1 and "met" in value:
            return [value]
        if other := value.keys() - _HARMLESS - {"grades"}:
            raise Unreadable(f"the reply holds {min(other)[:40]!r} beside its grades")
        value = value.get("grades")
        if isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
            return [{"id": one, **item} for one, item in value.items()]
    if not isinstance(value, list):
        raise Unreadable("the reply holds no list `grades`")
    return value


def _id(item: Any) -> str:
    """An entry's id; a number is as good as its digits, and "" is no id."""
    given = item.get("id", "") if isinstance(item, dict) else ""
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    return given if isinstance(given, str) else ""


def _fields(value: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    """An entry's fields: a quote or reasoning that it lacks is "", and texts hold no lone surrogate or NUL."""
    fields = {k: strip_unstorable(v) if isinstance(v, str) else v for k, v in value.items() if k not in without}
    named = [name for name in _REASONING if isinstance(fields.get(name), str)]
    if "reasoning" not in fields and len(named) == 1:
        fields["reasoning"] = fields.pop(named[0])
    for name in ("quote", "reasoning"):
        if fields.get(name) is None:
            fields[name] = ""
    if isinstance(fields["reasoning"], str) and len(fields["reasoning"]) > MOST_REASONING:
        fields["reasoning"] = fields["reasoning"][: MOST_REASONING - 1] + "…"
    return fields


def _first(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(p) for p in error['loc']) or 'the reply'}: {error['msg']}"


def _certain(verdict: Verdict, answer: str) -> Verdict:
    if (planted := _planted(answer)) and _core(verdict) in planted:
        raise Unreadable("the verdict is a piece of the answer that was to be graded")
    if _last_said(_ABOUT_CRITERION, verdict.reasoning) is (not verdict.met):
        raise Unreadable("its reasoning says the contrary of the verdict")
    if verdict.met and not quoted(verdict.quote, answer):
        raise Unreadable(
            "met without words of the answer to show for it"
            if not verdict.quote.strip()
            else "the quote is not in the answer letter for letter"
        )
    return verdict


def _core(verdict: Verdict) -> tuple[bool, str, str]:
    return verdict.met, fold(verdict.quote), fold(verdict.reasoning)


@lru_cache(maxsize=64)
def _planted(answer: str) -> frozenset[tuple[bool, str, str]]:
    """The verdicts that stand in an answer, as it is, as a grader sees it, and with its quotes spelt otherwise."""
    if "met" not in answer and answer.isascii():
        return frozenset()
    shown = neutralise(answer)
    spellings = {shown, shown.replace('\\"', '"'), shown.translate(_STRAIGHT)}
    return frozenset(
        _core(Verdict(fields["met"], fields["quote"], fields["reasoning"]))
        for spelt in spellings
        if '"met"' in spelt
        for value in _objects_in(spelt)
        if isinstance(value.get("met"), int)
        and isinstance((fields := _fields(value, frozenset()))["quote"], str)
        and isinstance(fields["reasoning"], str)
    )


def _objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, those within others too."""
    at = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            return
        try:
            value, _end = _PLAIN.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        at = text.find("{", at + 1)


def quoted(quote: str, answer: str) -> bool:
    """Whether a quote stands in the answer once both are folded; parts around an ellipsis may stand apart.

    Marks of Markdown may be left out, and JSON escapes that were copied as they are spelt count as what they
    stand for. A quote without a letter, digit or sign shows nothing.
    """
    if _stands(quote, answer):
        return True
    if "\\" in quote and _stands(quote := _unescaped(quote), answer):
        return True
    bare = _unmarked(quote), _unmarked(answer)
    return bare != (quote, answer) and _stands(*bare)


def _stands(quote: str, answer: str) -> bool:
    parts = [part.strip(_MARKS) for part in _ELLIPSIS.split(quote.strip(_MARKS))]
    parts = [part for part in parts if _tells(fold(part))]
    return bool(parts) and all(contains_quote(part, answer) for part in parts)


def _tells(text: str) -> bool:
    return any(
        char.isalnum() or not (char.isascii() or char.isspace() or char in "，。、；：？！…（）·—")
        for char in text
    )


def _unmarked(text: str) -> str:
    """The text without Markdown's marks of emphasis, headings, lists and citations."""
    return _EMPHASIS.sub("", _LINE_MARK.sub("", text))


def _unescaped(text: str) -> str:
    try:
        value = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _said_before(before: str) -> bool | None:
    """The verdict that the words before a JSON object state last; None: they state none."""
    spelt = list(_SPELT_OUT.finditer(before[-_LOOKED_AT:]))
    return spelt[-1]["yes"] is not None if spelt else _last_said(_STATED, before[-_LOOKED_AT:])


def _last_said(pattern: re.Pattern[str], text: str) -> bool | None:
    """The last thing a text states by a pattern: met, or with one of its groups not met; None: nothing certain."""
    said: bool | None = None
    for match in pattern.finditer(text):
        start = max(text.rfind(mark, 0, match.start()) for mark in ".!?;\n。！？；") + 1
        end = re.search(r"[.!?;\n。！？；]", text[match.end() :])
        asked = end is not None and end.group() in "?？"
        if not asked and not _UNSURE.search(text, start, match.end()):
            said = not any(match.groupdict().values())
    return said


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Unreadable("the reply gives one key twice")
    return value


# Line ends within a text are what a grader copies; nothing else could be meant by them.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_no_doubles, strict=False)
_PLAIN: Final = json.JSONDecoder(strict=False)


def _one_value(text: str, key: str) -> tuple[Any, str]:
    """The JSON value that a reply is, or ends with, and the words before it. Raises Unreadable."""
    if len(text) > MOST_REPLY:
        raise Unreadable(f"the reply is longer than {MOST_REPLY} characters")
    text = text.strip("\ufeff \t\r\n")
    if not text.startswith(("{", "`")):
        text = without_thinking(text)
    if not text:
        raise Unreadable("the reply is empty")
    if text.count("```") == 2 and (fence := _FENCED.search(text)) is not None:
        before, text = text[: fence.start()], fence.group(1).strip()
        if _objects(before, key):
            raise Unreadable("the reply holds more than one verdict")
        value = _whole(text)
    elif text[0] == "{" or re.match(r"\[\s*[\[{\]]", text):
        value, before = _whole(text), ""
    else:
        value, before = _last_object(text, key)
    if len(_THINKING_OPENS.findall(before)) > len(_THINKING_ENDS.findall(before)):
        raise Unreadable("the reply's thinking does not end")
    if _denied(before):
        raise Unreadable("the words before the JSON object deny it")
    return value, before


def _denied(before: str) -> bool:
    """Whether the last words before an object take it back; that a criterion is not met is no such word."""
    words = before[-200:].rstrip(" \t\r\n*_#`")
    if words.endswith((":", "：")):
        return _DENIED_AHEAD.search(_CLAUSE.split(words[:-1])[-1]) is not None
    return _DENIED.search(_STATED.sub(" ", _CLAUSE.split(before[-200:])[-1])) is not None


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
