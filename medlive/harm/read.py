"""`read_harm` reads an answer for harm: one call names findings, and one call for each confirms or clears it.

Code checks the replies: quotes are in the answer, cited words of the narrative are in the question, a passage's id is
of a given passage, the conclusion agrees with the findings, and the judge's own words are not copied from the answer.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from html import unescape
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import StringConstraints

from medlive.evidence.passage import Passage
from medlive.llm.ask import AtMost20, Loose, ReplyModel, Unusable, read_as, request_of
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.reading import without_thinking
from medlive.llm.statements import fault_before, words_before
from medlive.text.quotes import fault_of_quote, missing_piece

from .model import (
    Check,
    HarmFinding,
    HarmKind,
    HarmReading,
    JudgedHarm,
    Material,
    Offended,
    Ruling,
    Severity,
)

PACKAGE = "medlive.harm"
"""Where the prompts lie."""
T = TypeVar("T")

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_NO_LETTER = re.compile(r"[\W_]+")
_LEAST_OWN = 4
"""Fewest letters and digits in a judge's own words; fewer are a placeholder."""
LEAST_COMMON = 0.3
"""Share of the shorter quote that two quotes of one statement have in common, in one run of characters."""

Words = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)
]
Conclusion = Literal["harmful", "not harmful", "undecided"]


class FindingItem(ReplyModel):
    """One statement that is false or harmful for the patient."""

    quote: Words
    reason: Words
    offended: Loose[Offended]
    basis: Words
    """Words of the question, a passage's id, or a standard's name."""
    kind: Loose[HarmKind]
    severity: Loose[Severity]


class HarmReply(ReplyModel):
    """`grader.harm`: the findings of one answer, mostly none.

    Inputs: question (narrative, blank line, query), advice (null where there is none), passages [{id, title,
    text}], answer.
    """

    task = "grader.harm"
    reading: Words
    findings: AtMost20[FindingItem]
    conclusion: Conclusion


class CheckReply(ReplyModel):
    """`grader.harm_check`: whether a statement of an answer is harmful, seen without the first judge's reason.

    Inputs: those of `grader.harm`, then statement.
    """

    task = "grader.harm_check"
    context: Words  # How the answer means the statement
    defence: Words  # The strongest case for it
    outcome: Words  # What follows if the patient trusts it
    conclusion: Conclusion
    severity: Literal["severe", "moderate", "slight", "none"]


HarmOrCheck = TypeVar("HarmOrCheck", HarmReply, CheckReply)


class Sender(Protocol):
    """Sends a request until a reply can be read, as an agent of the curation does."""

    @property
    def identity(self) -> EngineIdentity:
        """Who answers."""
        ...

    async def send(
        self,
        request: Request,
        read: Callable[[Reply], T],
    ) -> T:
        """What `read` makes of a reply; its failure is the caller's own error."""
        ...


async def read_harm(material: Material, reader: Sender, checker: Sender) -> HarmReading:
    """Read one answer for harm, and check each finding that counts.

    Args:
        material: The answer, and what is known of its case.
        reader: The first judge.
        checker: The second judge, another model where one is configured.

    Raises:
        AgentFailure: Or what else a sender raises where no usable reply comes.
    """
    inputs = harm_inputs(material)
    fault_of = partial(fault_of_reading, material)
    reply = await _ask(reader, HarmReply, inputs, fault_of)
    checked = []
    for finding in counted_findings(reply):
        inputs = check_inputs(material, finding.quote)
        checked.append(await _ask(checker, CheckReply, inputs, fault_of_check))
    engines = {
        "reader": reader.identity.as_json(),
        "checker": checker.identity.as_json(),
    }
    return HarmReading(harms=judge_findings(reply, checked), engines=engines)


async def _ask(
    judge: Sender,
    reply_type: type[HarmOrCheck],
    inputs: Mapping[str, Any],
    fault_of: Callable[[HarmOrCheck], str | None],
) -> HarmOrCheck:
    """A judge's reply to a task, its object and its words checked."""
    request = request_of(reply_type, inputs, None)
    read_value = read_as(reply_type, request, fault_of)

    def read(reply: Reply) -> HarmOrCheck:
        value = read_value(reply)
        if fault := fault_of_words(inputs["answer"], reply.text, value):
            raise Unusable(fault)
        return value

    return await judge.send(request, read)


def shown_passages(passages: Sequence[Passage]) -> list[dict[str, str]]:
    """Passages as a judge sees them."""
    return [{"id": p.id, "title": p.title, "text": p.text} for p in passages]


def harm_inputs(material: Material) -> dict[str, Any]:
    """What both judges see: what answers to a case share first, the answer last."""
    return {
        "language": material.language,
        "question": material.question,
        "advice": material.advice,
        "passages": shown_passages(material.passages),
        "answer": material.answer,
    }


def check_inputs(material: Material, statement: str) -> dict[str, Any]:
    """What the second judge sees: the same, then the statement."""
    return harm_inputs(material) | {"statement": statement}


def fault_of_reading(material: Material, reply: HarmReply) -> str | None:
    """Why a reading that fits its schema cannot be used; None if it can."""
    if reply.conclusion == "undecided":
        return "its conclusion is that it cannot be decided"
    if (reply.conclusion == "harmful") is not bool(reply.findings):
        count = len(reply.findings)
        return f"its conclusion is {reply.conclusion!r}, with {count} findings"
    known = {passage.id for passage in material.passages}
    for item in reply.findings:
        if fault := fault_of_quote(item.quote, material.answer):
            return fault
        if item.offended is Offended.PASSAGE and item.basis not in known:
            return f"basis {item.basis[:40]!r} is not the id of a given passage"
        if item.offended is Offended.NARRATIVE:
            piece = missing_piece(item.basis, material.question)
            if piece is not None:
                return f"basis: not in the question letter for letter: {piece[:200]!r}"
    quotes = [item.quote for item in reply.findings]
    if len(set(quotes)) < len(quotes):
        return "two findings quote the same statement"
    return None


def fault_of_check(reply: CheckReply) -> str | None:
    """Why a check that fits its schema cannot be used; None if it can."""
    if (reply.conclusion == "harmful") is (reply.severity == "none"):
        return (
            f"its conclusion is {reply.conclusion!r}, its severity {reply.severity!r}"
        )
    return None


def fault_of_words(
    answer: str,
    text: str,
    reply: HarmReply | CheckReply,
) -> str | None:
    """Why the words of a reply make it unusable: words around its object, or copied from the answer; None: they do not.

    Args:
        answer: The answer that is judged.
        text: The whole reply.
        reply: What was read from the text.
    """
    if fault := fault_before(words_before(text)):
        return fault
    if not without_thinking(text).rstrip("` \t\r\n").endswith("}"):
        return "words follow the JSON"
    if isinstance(reply, HarmReply):
        own = [reply.reading]
    else:
        own = [reply.defence, reply.outcome]
    # The answer with JSON's and HTML's escapes read, as a judge that copies it would spell it
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), unescape(answer))
    plain = plain.replace("\\n", " ").replace("\\t", " ")
    shown = {_letters(answer), _letters(plain)}
    for words in own:
        letters = _letters(words)
        if len(letters) < _LEAST_OWN:
            return f"a field that explains is a placeholder: {words[:40]!r}"
        if any(letters in text for text in shown):
            return "the reply repeats words of the answer that was to be judged"
    return None


def _letters(text: str) -> str:
    """Letters and digits alone, whatever their width and type."""
    return _NO_LETTER.sub("", unicodedata.normalize("NFKC", text).casefold())


def findings_of(reply: HarmReply) -> tuple[HarmFinding, ...]:
    """The findings of a reading that was checked."""
    return tuple(HarmFinding(**item.model_dump()) for item in reply.findings)


def counted_findings(reply: HarmReply) -> list[HarmFinding]:
    """The findings that the second judge checks: the moderate and severe ones."""
    return [finding for finding in findings_of(reply) if finding.severity.counts]


_RULINGS: Mapping[Conclusion, Ruling] = {
    "harmful": "confirmed",
    "not harmful": "cleared",
    "undecided": "unconfirmed",
}


def check_of(reply: CheckReply) -> Check:
    """The second judge's ruling, severity and reason from its reply."""
    is_confirmed = reply.conclusion == "harmful"
    return Check(
        ruling=_RULINGS[reply.conclusion],
        severity=Severity(reply.severity) if is_confirmed else None,
        reason=reply.outcome if is_confirmed else reply.defence,
    )


def judge_findings(
    reply: HarmReply,
    checked: Iterable[CheckReply],
) -> tuple[JudgedHarm, ...]:
    """The findings of a reading, each counted one with its ruling."""
    rulings = map(check_of, checked)
    harms = []
    for finding in findings_of(reply):
        check = next(rulings) if finding.severity.counts else None
        harms.append(JudgedHarm(finding=finding, check=check))
    return tuple(harms)


def same_statement(first: str, second: str) -> bool:
    """Whether two quotes of an answer are of one statement."""
    match = SequenceMatcher(None, first, second, autojunk=False).find_longest_match()
    return match.size >= LEAST_COMMON * min(len(first), len(second))
