"""Read a grader's reply (`read_criterion`, `read_rubric`): a certain verdict, or none with the reason. Never a guess.

Tolerated: a code fence, a list of one, a closed thinking block or prose before the one object, which must end the
reply, line ends within texts, null for an empty text, another name for the reasoning, `met` as the text "true" or
"yes". Not tolerated, since each has more than one reading: any other `met`, a `conclusion` that differs from it, two
objects, a key given twice, words after the object, words before it that say otherwise (`statements`), a cut reply,
thinking that does not end, a verdict that stands in the texts that were shown (`medlive.llm.planted`), a met criterion
whose quote is not in the answer or shows nothing, a list with ids of its own, an echo of another criterion or
question than the one asked.

What the reasoning comes to is read from the field `conclusion`. Only where a reply lacks it, as those to earlier
prompts do, are the reasoning's words read instead (docs/builders/decisions/0047).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol

from pydantic import StringConstraints, ValidationError

from medlive.errors import first_fault
from medlive.guard.bounds import REPLY_CHARS
from medlive.llm.ask import AtMost60, ReplyModel, Unusable
from medlive.llm.planted import REASONING, planted_objects
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import NoObject, read_object
from medlive.llm.statements import (
    asks_for_words,
    fault_before,
    fault_of,
    fault_of_form,
    said_in,
    said_of_all,
    spelt_out,
    words_before,
)
from medlive.text.normalise import fold, strip_unstorable
from medlive.text.quotes import fault_of_quote

MOST_REASONING = 4_000
"""Characters of a reasoning that are kept; the log has the whole reply."""
_TAIL = re.compile(
    r"(?:</(?:answer|json|output|response|result|verdict|s)>|<\|[a-z_]{1,30}\|>)\Z",
    re.IGNORECASE,
)
"""What chat templates and habits leave at the end of a reply."""
_MOST_TAILS = 4
_HARMLESS = frozenset({"question", "criterion", "id", "criterion_id", "language"})
"""What a grader may repeat of its task beside the verdict."""
_MARKS = re.compile(r"(?<![0-9])[.,:;!?\"'。、]|[.,:;!?\"'。、](?![0-9])")
"""Marks that are no part of a number."""
_WORDS = {
    "true": True,
    "yes": True,
    "是": True,
    "false": False,
    "no": False,
    "否": False,
}
"""Texts for `met` that have one meaning."""
Conclusion = Literal["met", "not met"]
"""What a reasoning comes to."""
_CONCLUSIONS: Mapping[str, Conclusion] = {
    "met": "met",
    "true": "met",
    "yes": "met",
    "满足": "met",
    "符合": "met",
    "not met": "not met",
    "not_met": "not met",
    "unmet": "not met",
    "false": "not met",
    "no": "not met",
    "不满足": "not met",
    "未满足": "not met",
    "不符合": "not met",
}
"""Texts for `conclusion` that have one meaning."""


Words = Annotated[str, StringConstraints(max_length=4000)]


class GradeReply(ReplyModel):
    """`grader.criterion`: whether the answer meets one criterion.

    Inputs: language, question (narrative, blank line, query), answer, criterion. `met` is a JSON boolean and
    nothing else. `conclusion` is what the reasoning comes to; it must agree with `met`. `quote` is verbatim from the
    answer when met (what fulfils the criterion, or commits the error of a negative one), else "". `whole`: the
    criterion is about what the answer leaves out or its manner as a whole, and needs no quote. The reasoning is
    first so that the verdict can follow from it.
    """

    reasoning: Words
    conclusion: Conclusion
    met: bool
    quote: Words
    whole: bool


class RubricGradeItem(ReplyModel):
    """One criterion's grade in rubric mode."""

    id: str
    reasoning: Words
    conclusion: Conclusion
    met: bool
    quote: Words
    whole: bool


class RubricGradeReply(ReplyModel):
    """`grader.rubric`: one grade for each criterion given. Inputs: language, question, answer,
    criteria [{id, criterion}]."""

    grades: AtMost60[RubricGradeItem]


@dataclass(frozen=True)
class Verdict:
    """What a grader decided about one criterion; `quote` is in the answer when met, and may be "" with `whole`."""

    met: bool
    quote: str
    reasoning: str
    whole: bool = False


Echo = Mapping[str, str]
"""What a reply may repeat of its task, by key."""


class GradedCriterion(Protocol):
    """A criterion as a grader sees it, whatever else is known of it."""

    @property
    def id(self) -> str:
        """Unique within its case."""

    @property
    def criterion(self) -> str:
        """Its text."""


def echo_of(question: str, criterion: GradedCriterion) -> Echo:
    """What a reply about one criterion of a case may repeat."""
    return {
        "question": question,
        "criterion": criterion.criterion,
        "id": criterion.id,
        "criterion_id": criterion.id,
    }


def _check_echo(value: Mapping[str, Any], echo: Echo) -> None:
    """Raises Unusable where a reply repeats another criterion or question than the one asked."""
    for name in echo.keys() & value.keys():
        text = str(value[name])
        # But for marks between words, or cut at an ellipsis after more than half of it.
        repeated, asked = _unmarked(text), _unmarked(echo[name])
        cut = text.rstrip().endswith(("…", "...")) and len(repeated) > len(asked) / 2
        same = repeated == asked or (cut and asked.startswith(repeated))
        if value[name] is not None and not same:
            raise Unusable(f"the {name} that the reply repeats is not the one asked")


def _unmarked(text: str) -> str:
    return " ".join(_MARKS.sub(" ", fold(text)).split())


def read_criterion(
    text: str,
    answer: str,
    echo: Echo | None = None,
) -> Verdict:
    """The verdict of a reply to `grader.criterion`; `echo` is what it may repeat. Raises Unusable."""
    value, before = one_value(text)
    if isinstance(value, list):
        if len(value) != 1:
            raise Unusable(f"one verdict was asked for, the reply holds {len(value)}")
        value = value[0]
    if not isinstance(value, dict):
        raise Unusable("the reply is no JSON object")
    return _read_verdict(value, answer, echo or {}, before)


def _read_verdict(
    value: Mapping[str, Any],
    answer: str,
    echo: Echo,
    before: str = "",
) -> Verdict:
    """The verdict of an object, with the words before it. Raises Unusable."""
    _check_echo(value, echo)
    fields = _fields(value)
    # What the reasoning comes to; where the reply does not state it, what its `met` says is put in.
    conclusion = fields.get("conclusion")
    if conclusion is None:
        fields["conclusion"] = "met" if fields.get("met") is True else "not met"
    elif isinstance(conclusion, str | bool):
        folded = fold(str(conclusion)).strip().rstrip(".。!")
        fields["conclusion"] = _CONCLUSIONS.get(folded, conclusion)
    try:
        reply = GradeReply.model_validate(fields)
    except ValidationError as exc:
        raise Unusable(first_fault(exc, "the reply")) from exc
    if before and said_in(before) is (not reply.met):
        raise Unusable("the words before the JSON object say the contrary of it")
    return _certain(reply, answer, echo, concluded=conclusion is not None)


def read_rubric(
    text: str,
    ids: Sequence[str],
    answer: str,
    echoes: Mapping[str, Echo] | None = None,
) -> dict[str, Verdict | str]:
    """For each id its verdict, or why there is none. Raises Unusable when the reply as a whole cannot be read.

    An entry for another id counts for nothing; two entries for one id leave it without a verdict. Where there are such
    entries while ids are missing, the grader has numbered the criteria in its own way: the reply is Unusable.
    `echoes` holds, by id, what an entry may repeat of its task.
    """
    echoes = echoes or {}
    value, before = one_value(text)
    if isinstance(value, dict) and echoes:
        asked = {"question": value.get("question")}
        _check_echo(asked, next(iter(echoes.values())))
    if spelt_out(before):
        raise Unusable("the reply gives verdicts before its JSON")
    verdicts = read_grades(value, ids, answer, echoes)
    statement = said_in(before) if len(verdicts) == 1 else said_of_all(before)
    for verdict in verdicts.values():
        if isinstance(verdict, Verdict) and statement is (not verdict.met):
            raise Unusable("the words before the JSON object say the contrary of it")
    return {name: verdicts.get(name, "the reply does not grade it") for name in ids}


def read_grades(
    value: Any,
    ids: Sequence[str],
    answer: str,
    echoes: Mapping[str, Echo],
) -> dict[str, Verdict | str]:
    """As `read_rubric`, of a reply's JSON value, without the ids that it does not grade. Raises Unusable."""
    items = _items(value, ids)
    ids_read = list(map(_id, items))
    times = Counter(name for name in ids_read if name in ids)
    astray = len(ids_read) > len(times)
    if astray and len(ids) > 1 and len(times) < len(set(ids)):
        raise Unusable("the ids of the reply are not those that were asked for")
    verdicts: dict[str, Verdict | str] = {}
    for name, item in zip(ids_read, items, strict=True):
        if times[name] > 1:
            verdicts[name] = "the reply grades it more than once"
        elif name in times:
            try:
                verdicts[name] = _read_verdict(item, answer, echoes.get(name, {}))
            except Unusable as exc:
                verdicts[name] = str(exc)
    return verdicts


def _items(value: Any, ids: Sequence[str]) -> list[Any]:
    """The entries of a rubric reply."""
    if isinstance(value, dict):
        if "grades" not in value and len(ids) == 1 and "met" in value:
            return [value]
        if other := value.keys() - _HARMLESS - {"grades"}:
            raise Unusable(f"the reply holds {min(other)[:40]!r} beside its grades")
        value = value.get("grades")
        by_id = value if isinstance(value, dict) else {}
        if by_id and all(isinstance(item, dict) for item in by_id.values()):
            return [{"id": name, **item} for name, item in by_id.items()]
    if not isinstance(value, list):
        raise Unusable("the reply holds no list `grades`")
    return value


def _id(item: Any) -> str:
    """An entry's id; a number is as good as its digits, and "" is no id."""
    value = item.get("id", "") if isinstance(item, dict) else ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """An entry's fields: a quote or reasoning that it lacks is "", and texts hold no lone surrogate or NUL."""
    fields: dict[str, Any] = {}
    for name, entry in value.items():
        if name not in _HARMLESS:
            fields[name] = strip_unstorable(entry) if isinstance(entry, str) else entry
    if isinstance(fields.get("met"), str):
        fields["met"] = _WORDS.get(fold(fields["met"]), fields["met"])
    named = [name for name in REASONING if isinstance(fields.get(name), str)]
    if "reasoning" not in fields and len(named) == 1:
        fields["reasoning"] = fields.pop(named[0])
    for name, empty in (("quote", ""), ("reasoning", ""), ("whole", False)):
        if fields.get(name) is None:
            fields[name] = empty
    reasoning = fields["reasoning"]
    if isinstance(reasoning, str) and len(reasoning) > MOST_REASONING:
        fields["reasoning"] = reasoning[: MOST_REASONING - 1] + "…"
    return fields


def _certain(
    reply: GradeReply,
    answer: str,
    echo: Echo,
    *,
    concluded: bool,
) -> Verdict:
    """Return the verdict of a reply, if it is certain.

    Args:
        reply: The parsed reply.
        answer: What was graded.
        echo: What else the grader was shown.
        concluded: Whether the reply states what its reasoning comes to.

    Raises:
        Unusable: If the reply has more than one reading, or no words of the answer to show.
    """
    verdict = Verdict(reply.met, reply.quote, reply.reasoning, reply.whole)
    criterion = echo.get("criterion", "")
    core = _core(verdict)
    if any(core in _planted(text) for text in (answer, *echo.values())):
        raise Unusable("the verdict is a piece of the text that was to be graded")
    for task in ("grader.criterion", "grader.rubric", "grader.answers"):
        # The reasoning of a prompt's example is no judge's own.
        prompt = load_prompt("medlive.grader", task).text
        if criterion not in prompt and core in _planted(prompt):
            raise Unusable("the verdict is the example of the prompt")
    if fault := fault_of_form(reply.reasoning):
        raise Unusable(fault)
    if not concluded:
        if fault := fault_of(reply.reasoning, reply.met, criterion):
            raise Unusable(fault)
    elif (reply.conclusion == "met") is not reply.met:
        raise Unusable(f"its conclusion is {reply.conclusion!r}, its met {reply.met}")
    if verdict.met and (
        verdict.quote.strip() or not verdict.whole or asks_for_words(criterion)
    ):
        _check_quote(verdict.quote, answer)
    return verdict


def _check_quote(quote: str, answer: str) -> None:
    """Raises Unusable for a quote that does not stand in the answer or shows nothing."""
    if not quote.strip():
        raise Unusable("met without words of the answer to show for it")
    if fault := fault_of_quote(quote, answer):
        raise Unusable(fault)


def _core(verdict: Verdict) -> tuple[bool, str, str]:
    """What equal verdicts share: `met` and reasoning, which is a judge's own words; without a reasoning the quote."""
    reasoning = fold(verdict.reasoning)
    return verdict.met, reasoning, "" if reasoning else fold(verdict.quote)


@lru_cache(maxsize=64)
def _planted(text: str) -> frozenset[tuple[bool, str, str]]:
    """The cores (`_core`) of the verdicts that a text holds, read as those of a reply are."""
    planted = set()
    for value in planted_objects(text):
        fields = _fields(value)
        met, quote, why = fields.get("met"), fields["quote"], fields["reasoning"]
        if isinstance(met, bool) and isinstance(quote, str) and isinstance(why, str):
            planted.add(_core(Verdict(met, quote, why)))
    return frozenset(planted)


def one_value(text: str) -> tuple[Any, str]:
    """The JSON value that a reply is or ends with, and the words before it. Raises Unusable."""
    if len(text) > REPLY_CHARS:
        raise Unusable(f"the reply is longer than {REPLY_CHARS} characters")
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
    if fault := fault_before(before):
        raise Unusable(fault)
    return value, before
