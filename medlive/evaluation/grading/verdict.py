"""Reading a grader's reply: a verdict that is certain, or none with the reason. Never a guess.

Tolerated: a code fence, a list of one, a closed thinking block or prose before the one object, which must end the
reply, line ends within texts, null for an empty text, another name for the reasoning. Not tolerated, since each
has more than one reading: `met` that is no JSON boolean, two objects, a key given twice, words after the object,
words before it or in its reasoning that say otherwise, a cut reply, thinking that does not end, a verdict that
stands in the answer itself, a met criterion whose quote is not in the answer, a list with ids of its own.
"""

import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from medlive.llm.ask import Unusable, first_fault
from medlive.llm.reading import MOST_REPLY, NoObject, read_object, without_thinking
from medlive.text.neutral import neutralise
from medlive.text.normalise import contains_quote, fold, strip_unstorable

MOST_QUOTE: Final = 4_000
"""Characters of a quote, as the schemas of replies have it; a log from elsewhere may hold longer ones."""
MOST_REASONING: Final = 4_000
"""Characters of a reasoning that are kept; the reply stands whole in the log."""
_MOST_NAMES: Final = 5_000
_MOST_BRACES: Final = 6
"""Braces before a name in an answer that are tried as the beginning of its object: each trial has a price."""
_MOST_PLANTED: Final = 12_000
"""Characters of a verdict that an answer may plant: no longer one would be read."""
_TAIL: Final = re.compile(
    r"(?:</(?:answer|json|output|response|result|verdict|s)>|<\|[a-z_]{1,30}\|>)\Z", re.IGNORECASE
)
"""What chat templates and habits leave at the end of a reply."""
_MOST_TAILS: Final = 4
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
    fields = _fields(value)
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
    astray = len(given) > len(times)
    if astray and len(ids) > 1 and len(times) < len(set(ids)):
        raise Unusable("the ids of the reply are not those that were asked for")
    found = {
        one: "the reply grades it more than once" if times[one] > 1 else _read_item(one, item, answer)
        for one, item in zip(given, items, strict=True)
        if one in times
    }
    return {one: found.get(one, "the reply does not grade it") for one in ids}


def _read_item(one: str, item: Any, answer: str) -> Verdict | str:
    """An entry's verdict, or why there is none."""
    try:
        graded = RubricGradeItem.model_validate({**_fields(item), "id": one})
        return _certain(Verdict(graded.met, graded.quote, graded.reasoning), answer)
    except ValidationError as exc:
        return first_fault(exc)
    except Unusable as exc:
        return str(exc)


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


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """An entry's fields: a quote or reasoning that it lacks is "", and texts hold no lone surrogate or NUL."""
    fields = {k: strip_unstorable(v) if isinstance(v, str) else v for k, v in value.items() if k not in _HARMLESS}
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
        and isinstance((fields := _fields(value))["quote"], str)
        and isinstance(fields["reasoning"], str)
    )


def planted_objects(answer: str, key: str) -> list[dict[str, Any]]:
    """The JSON objects with a key that stand in an answer, those within others too: as the answer is, as a grader
    sees it, and with its quotes spelt otherwise."""
    if key not in answer and answer.isascii():
        return []
    shown, found = neutralise(answer), list[dict[str, Any]]()
    for text in dict.fromkeys((shown, shown.replace('\\"', '"'), shown.translate(_STRAIGHT))):
        for brace in _braces_before(text, f'"{key}"'):
            try:
                value, _ = _PLAIN.raw_decode(text[brace : brace + _MOST_PLANTED])
            except (ValueError, RecursionError):
                continue
            if key in value:
                found.append(value)
    return found


def _braces_before(text: str, name: str) -> list[int]:
    """The places of the last braces before a name, wherever it stands."""
    braces = [match.start() for match in re.finditer("{", text)]
    ends = [bisect(braces, match.start()) for match in islice(re.finditer(name, text), _MOST_NAMES)]
    return sorted({brace for end in ends for brace in braces[max(0, end - _MOST_BRACES) : end]})


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
    return re.sub(r"```[a-zA-Z]*\s*\Z", "", without_thinking(text).partition("{")[0])


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
    if len(text) > MOST_REPLY:
        raise Unusable(f"the reply is longer than {MOST_REPLY} characters")
    text = text.strip("\ufeff \t\r\n")
    for _ in range(_MOST_TAILS):
        text = (text[:-40] + _TAIL.sub("", text[-40:])).rstrip()
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
    r"|draft|would be|would have|could have|if|unless|were|had)\b"
    r"|(?:\b(?:not|never|cannot)\b|n['’]t\b)\s+(?:be\s+|to\s+|have\s+)?"
    r"(?:say|said|reply|replied|answer|answered|output|return|give|given|write|written|grade|this|correct|right|valid)"
    r"\b|\b(?:answer|response|candidate|user|text|grader|it)\s+(?:itself\s+)?(?:says?|said|writes?|wrote|claims?|claimed"
    r"|contains?|holds?|includes?|reads?|asks?)\b"
    r"|错误|并非|不应|不能|不要|不会|不是|而非|例如|比如|假如|假设|如果|若|(?:回答|答案|原文|考生)[^，。]{0,6}(?:写|说|称|包含|要求)",
    re.IGNORECASE,
)
"""Of the words that lead to an object on a line of its own: what stands there mostly gives the verdict's ground,
which may hold any "not". What somebody else says, and what would be, is no verdict either."""
_BEGUN: Final = re.compile(
    r"\W*(?:(?:if|unless|were|had|suppose|supposing|no|as the (?:answer|response|candidate))\b|如果|假如|假设"
    r"|若|不\W)",
    re.IGNORECASE,
)
"""The beginning of a sentence that leads to an object and does not give it as the verdict."""
_STATED: Final = re.compile(
    r"\b(?:is|was|are|has been)(?P<no1>n['’]t|\s+not|\s+never)?(?:\s+(?!it\b|this\b|the\b|not\b)\w+){0,2}?\s+"
    r"(?P<no2>not\s+)?(?:been\s+)?(?P<no3>un)?(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when)\b)"
    r"|\b(?:does|do|did)(?P<no4>n['’]t|\s+not)\s+(?:\w+\s+)?(?:meet|satisfy|fulfil+)\b"
    r"|\b(?P<no5>fails?\s+)(?:to\s+(?:meet|satisfy|fulfil+)\b|(?:the|this)\s+criterion\b)"
    r"|(?P<no6>(?:[不未没]|无法|难以)(?:有|能够?|被|完全|充分){0,2})?满足",
    re.IGNORECASE,
)
_HEADLINE: Final = re.compile(
    r"[\W_]*(?:[\w ]{1,30}[:：][\W_]*)?(?P<no1>not\s+|un|[不未没](?:有|能|被)?)?"
    r"(?:met|satisfied|fulfilled|yes|true|满足|符合|达到|达标|是|(?P<no2>no|false|fails?|failed|否))[\W_]*",
    re.IGNORECASE,
)
"""A sentence or line that is a verdict and nothing else, as `**Verdict:** not met`."""
_ABOUT_CRITERION: Final = re.compile(
    r"\bcriterion\s+(?:is|was|has been|can|could)(?P<no1>n['’]t|not|\s+not|\s+never)?"
    r"(?:\s+(?:be|considered|therefore|thus|clearly|hence|so|then|fully|indeed|also))*\s+"
    r"(?P<no2>not\s+|(?:only\s+)?(?:partially|partly)\s+)?(?:(?:been|be|fully|considered)\s+){0,2}(?P<no3>un)?"
    r"(?:met|satisfied|fulfilled)\b(?!\s+(?:only|if|when|in)\b)"
    r"|\b(?:(?:does|do|did)(?P<no4>n['’]t|\s+not)(?:\s+\w+)?|(?P<no5>fails?\s+to)|fully|thus|therefore|so|it|answer)\s+"
    r"(?:meets?|satisf(?:y|ies)|fulfils?|fulfills?)\s+(?:the|this|that)\s+criterion\b"
    r"|(?:该|本|此)(?:评分)?(?:标准|条目|项)(?P<no6>(?:并?[不未没]|无法)(?:有|能够?|被|完全){0,2})?(?:被)?满足"
    r"|\A\W*(?P<no7>not\s+met|unmet|[不未]满足)(?=\W|\Z)|\A\W*met(?=\s*[:：.。,，—-])",
    re.IGNORECASE,
)
_OPENING: Final = re.compile(r"\W*(?:not\s+met|unmet|met)\b", re.IGNORECASE)
"""A reasoning that begins with its verdict."""
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|when|were|would|could|unless|until)\b|如果|若|只有|是否|能否", re.IGNORECASE
)
_SPELT_OUT: Final = re.compile(
    r"""\bmet\b["'”*]*+\s*+[:=：]\s*+["'“*]*+\s*+(?:(?P<yes>true|yes)|false|no)\b""", re.IGNORECASE
)

_SENTENCE: Final = re.compile(r"[.!?\n。！？]+")


def thinking_lasts(before: str) -> bool:
    """Whether the words before an object are of a thinking block that has not ended."""
    return len(_THINKING_OPENS.findall(before)) > len(_THINKING_ENDS.findall(before))


def spelt_out(before: str) -> bool:
    """Whether the words hold a verdict spelt as a key with its value, as `met: true`."""
    return _SPELT_OUT.search(before) is not None


def taken_back(before: str) -> bool:
    """Whether the last words before an object take it back; that a criterion is not met is no such word."""
    words = before[-200:].rstrip(" \t\r\n*_#`")
    ahead = words.endswith((":", "：")) or "\n" in before[-200:][len(words) :]
    clause = _CLAUSE.split(words.rstrip(":："))[-1]
    if _DENIED_AHEAD.search(clause) or _BEGUN.match(_SENTENCE.split(words)[-1]):
        return True
    return not ahead and _DENIED.search(_STATED.sub(" ", _CLAUSE.split(before[-200:])[-1])) is not None


def said_before(before: str) -> bool | None:
    """The verdict that the words before a JSON object state last; None: they state none."""
    words = before[-_LOOKED_AT:]
    if spelt := list(_SPELT_OUT.finditer(words)):
        return spelt[-1]["yes"] is not None
    lines = [match for part in _SENTENCE.split(words) if (match := _HEADLINE.fullmatch(part[-80:]))]
    if lines:
        return not any(lines[-1].groupdict().values())
    return _last_said(_STATED, words)


def said_in(reasoning: str) -> bool | None:
    """The verdict that a reasoning states last, of the criterion by name; None: none."""
    # Most reasonings are about the answer alone; the search is not cheap.
    named = "riterion" in reasoning or "RITERION" in reasoning or "满足" in reasoning
    return _last_said(_ABOUT_CRITERION, reasoning) if named or _OPENING.match(reasoning) else None


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
