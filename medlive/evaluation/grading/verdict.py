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
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from medlive.evaluation.grading.verdict_words import said_before, said_in, spelt_out, taken_back, thinking_lasts
from medlive.llm.ask import Unusable, first_fault
from medlive.llm.reading import NoObject, read_object, without_thinking
from medlive.text.neutral import neutralise
from medlive.text.normalise import contains_quote, fold, strip_unstorable

MOST_QUOTE: Final = 4_000
"""Characters of a quote, as the schemas of replies have it; a log from elsewhere may hold longer ones."""
MOST_REASONING: Final = 4_000
"""Characters of a reasoning that are kept; the reply stands whole in the log."""
_MOST_NAMES: Final = 5_000
_MOST_BRACES: Final = 6
_MOST_PLANTED: Final = 12_000
"""Characters of a verdict that an answer may plant: no longer one would be read."""
_TAIL: Final = re.compile(
    r"(?:</(?:answer|json|output|response|result|verdict|s)>|<\|[a-z_]{1,30}\|>)\Z", re.IGNORECASE
)
"""What chat templates and habits leave at the end of a reply."""
_ELLIPSIS: Final = re.compile(r"\.{3,}|…+|\[\.{3}\]|\[…\]")
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


Reasoning = Annotated[str, StringConstraints(max_length=4000)]


class GradeReply(BaseModel):
    """`grader.criterion`: whether the answer meets one criterion.

    Inputs: language, question (narrative, blank line, query), answer, criterion. `met` is a JSON boolean and
    nothing else. `quote` is verbatim from the answer when met (what fulfils the criterion, or commits the
    error of a negative one), else "".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    met: bool
    quote: Annotated[str, StringConstraints(max_length=4000)]
    reasoning: Reasoning


class RubricGradeItem(BaseModel):
    """One criterion's grade in rubric mode."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str
    met: bool
    quote: Annotated[str, StringConstraints(max_length=4000)]
    reasoning: Reasoning


class RubricGradeReply(BaseModel):
    """`grader.rubric`: one grade for each criterion given. Inputs: language, question, answer,
    criteria [{id, criterion}]."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    grades: Annotated[tuple[RubricGradeItem, ...], Field(max_length=60, strict=False)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a grader decided about one criterion; `quote` is in the answer when met."""

    met: bool
    quote: str
    reasoning: str


def read_criterion(text: str, answer: str) -> Verdict:
    """The verdict of a reply to `grader.criterion`. Raises Unusable."""
    value, before = _one_value(text, "met")
    if isinstance(value, list):
        if len(value) != 1:
            raise Unusable(f"one verdict was asked for, the reply holds {len(value)}")
        value = value[0]
    if not isinstance(value, dict):
        raise Unusable("the reply is no JSON object")
    fields = _fields(value, _HARMLESS)
    try:
        reply = GradeReply.model_validate(fields)
    except ValidationError as exc:
        raise Unusable(first_fault(exc)) from exc
    if before and said_before(before) is (not reply.met):
        raise Unusable("the words before the JSON object say the contrary of it")
    return _certain(Verdict(reply.met, reply.quote, reply.reasoning), answer)


def read_rubric(text: str, ids: Sequence[str], answer: str) -> dict[str, Verdict | str]:
    """For each id its verdict, or why there is none. Raises Unusable when the reply as a whole cannot be read.

    An entry for another id counts for nothing; two entries for one id leave it without a verdict. Where such
    entries stand while others are lacking, the grader has counted in a way of its own, and none of them counts.
    """
    value, before = _one_value(text, "grades")
    if spelt_out(before):
        raise Unusable("the reply gives verdicts before its JSON")
    items = _items(value, ids)
    given = [_id(item) for item in items]
    times = Counter(one for one in given if one in ids)
    astray = [one for one in given if one not in times] or [one for one, n in times.items() if n > 1]
    if astray and len(ids) > 1 and any(one not in times for one in ids):
        raise Unusable("the ids of the reply are not those that were asked for")
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
            found[one] = first_fault(exc)
        except Unusable as exc:
            found[one] = str(exc)
    return {one: found.get(one, "the reply does not grade it") for one in ids}


def _items(value: Any, ids: Sequence[str]) -> list[Any]:
    """The entries of a rubric reply."""
    if isinstance(value, dict):
        if "grades" not in value and len(ids) == 1 and "met" in value:
            return [value]
        if other := value.keys() - _HARMLESS - {"grades"}:
            raise Unusable(f"the reply holds {min(other)[:40]!r} beside its grades")
        value = value.get("grades")
        if isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
            return [{"id": one, **item} for one, item in value.items()]
    if not isinstance(value, list):
        raise Unusable("the reply holds no list `grades`")
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


def _certain(verdict: Verdict, answer: str) -> Verdict:
    if (planted := _planted(answer)) and _core(verdict) in planted:
        raise Unusable("the verdict is a piece of the answer that was to be graded")
    if said_in(verdict.reasoning) is (not verdict.met):
        raise Unusable("its reasoning says the contrary of the verdict")
    if verdict.met and not quoted(verdict.quote, answer):
        raise Unusable(
            "met without words of the answer to show for it"
            if not verdict.quote.strip()
            else "the quote is not in the answer letter for letter"
        )
    return verdict


def _core(verdict: Verdict) -> tuple[bool, str, str]:
    return verdict.met, fold(verdict.quote), fold(verdict.reasoning)


@lru_cache(maxsize=64)
def _planted(answer: str) -> frozenset[tuple[bool, str, str]]:
    """The verdicts that stand in an answer."""
    return frozenset(
        _core(Verdict(fields["met"], fields["quote"], fields["reasoning"]))
        for value in planted_objects(answer, "met")
        if isinstance(value["met"], int)
        and isinstance((fields := _fields(value, frozenset()))["quote"], str)
        and isinstance(fields["reasoning"], str)
    )


def planted_objects(answer: str, key: str) -> list[dict[str, Any]]:
    """The JSON objects with a key that stand in an answer, those within others too: as the answer is, as a grader
    sees it, and with its quotes spelt otherwise."""
    if key not in answer and answer.isascii():
        return []
    shown = neutralise(answer)
    spellings = dict.fromkeys((shown, shown.replace('\\"', '"'), shown.translate(_STRAIGHT)))
    return [value for spelt in spellings for value in _objects_around(spelt, f'"{key}"') if key in value]


def doubt(text: str, key: str, value: object, reasoning: str, answer: str) -> str | None:
    """What speaks against the `key` and reasoning that were read from a reply: words before its object that deny
    it, or an answer that holds the same; None: nothing."""
    if taken_back(words_before(text)):
        return "the words before the JSON object deny it"
    if any(
        one[key] == value and fold(str(one.get("reasoning", ""))) == fold(reasoning)
        for one in planted_objects(answer, key)
    ):
        return "the reply is a piece of the answer that was to be judged"
    return None


def words_before(text: str) -> str:
    """The words of a reply before its JSON object."""
    return without_thinking(text).partition("{")[0].partition("```")[0]


def _objects_around(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The objects that begin at one of the last braces before a name, wherever it stands."""
    tried = set[int]()
    at = text.find(name)
    for _ in range(_MOST_NAMES):
        if at < 0:
            return
        brace = at
        for _ in range(_MOST_BRACES):
            brace = text.rfind("{", 0, brace)
            if brace < 0 or brace in tried:
                break
            tried.add(brace)
            try:
                value, _end = _PLAIN.raw_decode(text[brace : brace + _MOST_PLANTED])
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value
        at = text.find(name, at + 1)


def quoted(quote: str, answer: str) -> bool:
    """Whether a quote stands in the answer once both are folded; parts around an ellipsis may stand apart.

    Marks of Markdown may be left out, and JSON escapes that were copied as they are spelt count as what they
    stand for. A quote without a letter, digit or sign shows nothing, nor does one that is too long to be one.
    """
    if len(quote) > MOST_QUOTE:
        return False
    if _stands(quote, answer):
        return True
    if "\\" in quote and _stands(quote := _unescaped(quote), answer):
        return True
    bare = _unmarked(quote), _unmarked(answer)
    return bare != (quote, answer) and _stands(*bare)


def _stands(quote: str, answer: str) -> bool:
    found = dict.fromkeys(part.strip().strip(_MARKS) for part in _ELLIPSIS.split(quote.strip(_MARKS)))
    parts = [part for part in found if _tells(fold(part))]
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


_PLAIN: Final = json.JSONDecoder(strict=False)


def _one_value(text: str, key: str) -> tuple[Any, str]:
    """The JSON value that a reply is or ends with, and the words before it. Raises Unusable."""
    text = text.strip("\ufeff \t\r\n")
    while (tail := _TAIL.search(text[-40:])) is not None:
        text = text[: -len(tail.group())].rstrip()
    try:
        value = read_object(text)
    except NoObject as exc:
        # These words stand in published logs.
        raise Unusable("the reply is no JSON" if text else str(exc)) from exc
    except ValueError as exc:
        raise Unusable(str(exc)[:120]) from exc
    if not text.rstrip("` \r\n").endswith(("}", "]")):
        raise Unusable("words follow the JSON")
    before = "" if text.startswith("{") else words_before(text)
    if thinking_lasts(before):
        raise Unusable("the reply's thinking does not end")
    if taken_back(before):
        raise Unusable("the words before the JSON object deny it")
    return value, before
