"""The controls of elements and texts that are code: exact ones bind, suspicions only say where to look.

Source: docs/method.md §1, Controller. A suspicion compares words and understands none of them: it is put to the
engine as a question and shown to people, and decides nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from medlive.curation.model import Check, ControllerCheck, Element
from medlive.curation.shown import TITLE, shown_messages
from medlive.text.normalise import contains_quote, fold
from medlive.text.quantities import doses_exchanged, numbers_missing
from medlive.threads.model import Thread

_DENIAL: Final = re.compile(
    r"\b(?:no|not|never|none|nor|neither|nil|nothing|without|cannot|\w+n['’]t"
    r"|(?:do|does|did|ca|wo|is|was|are|have|has|could|should|would)nt|den(?:y|ies|ied)|negative|absent|free of"
    r"|avoid\w*|against|stop\w*|unlikely)\b|[不没無无未勿别莫忌]|否认|阴性|避免|禁|停",
    re.IGNORECASE,
)
_HEDGES: Final[Mapping[str, re.Pattern[str]]] = {
    "doubt": re.compile(
        r"\b(?:may|might|could|maybe|perhaps|possibl[ey]|probabl[ey]|suspect\w*|likely|seems?|appears?|rule out"
        r"|versus|vs|or)\b"
        r"|\?|？|可能|怀疑|疑|待排|大概|好像|似乎|也许|不排除|倾向|考虑|估计|或",
        re.IGNORECASE,
    ),
    "condition": re.compile(
        r"\b(?:if|unless|in case(?! of)|provided|only|until)\b"
        r"|如果|若|要是|假如|除非|一旦|只有|的话|必要时",
        re.IGNORECASE,
    ),
    "fear or plan": re.compile(
        r"\b(?:afraid|worr\w+|scared|fear\w*|wonder\w*|plan(?:s|ned|ning)?|want\w*|going to)\b"
        r"|担心|害怕|怕|打算|准备|想",
        re.IGNORECASE,
    ),
}
"""What makes a quote less than a plain fact: a statement that drops it is under suspicion."""
_PERSON: Final = re.compile(
    r"\b(?:father|dad|mother|mum|mom|parents?|brother|sister|husband|wife|partner|uncle|aunt|grand\w+|cousin)\b"
    r"|[爸妈父母爷奶哥姐弟妹]|老公|丈夫|老婆|妻子|爱人|同事|公公|婆婆|外公|外婆",
    re.IGNORECASE,
)
"""Relatives who are seldom the patient; a child who is asked for mostly is."""
_OPPOSITES: Final[tuple[tuple[str, str, str], ...]] = (
    ("side", r"\bleft\b|左", r"\bright\b(?! now| away)|右"),
    ("side", r"\bupper\b|上[腹肢眼]", r"\blower\b|下[腹肢眼]"),
    ("order", r"\bbefore\b|\bprior to\b|前(?!列|庭|臂)", r"\bafter\b|\bsince\b|后(?!背|脑)"),
    ("direction", r"\b(?:high\w*|rais\w+|elevat\w+|increas\w+|rise\w*|up)\b|[高升增涨]",
     r"\b(?:low\w*|decreas\w+|reduc\w+|drop\w*|fall\w*|down)\b|[低降减跌]"),
    ("course", r"\b(?:better|improv\w+|resolv\w+|recover\w*)\b|好转|缓解|减轻|改善",
     r"\b(?:worse\w*|deteriorat\w+|progress\w+)\b|加重|恶化|严重了"),
    ("degree", r"\b(?:mild\w*|slight\w*|minor)\b|轻|微",
     r"\b(?:severe\w*|intense|serious|major)\b|重度|严重|剧烈"),
    ("frequency", r"\b(?:sometimes|occasional\w*|rare\w*|seldom)\b|偶尔|偶|有时",
     r"\b(?:always|often|frequent\w*|constant\w*)\b|经常|总是|频繁|一直"),
    ("start or stop", r"\b(?:start\w*|begin\w*|began|continu\w+|tak(?:e|es|ing))\b|开始|继续|正在|服用",
     r"\b(?:stop\w*|discontinu\w+|quit\w*|used to|took|finished)\b|停|戒|曾|以前|吃过"),
    ("time", r"\b(?:now|current\w*|at present)\b|目前|现在|正",
     r"\b(?:ago|previous\w*|past|formerly|last year|history of)\b|以前|曾|既往|去年|过去"),
)  # fmt: skip
"""Words of which a careless reader writes one for the other: (what they are about, the one, the other)."""
_COMPILED: Final = tuple(
    (about, re.compile(one, re.IGNORECASE), re.compile(other, re.IGNORECASE)) for about, one, other in _OPPOSITES
)
_CLAUSE_END: Final = re.compile(r"[,.;:!?，。；：！？、\n]|\b(?:but|and)\b|但")
_LATIN: Final = re.compile(r"[a-z][a-z'-]{3,}")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_DOSE: Final = re.compile(
    r"([a-z]{4,}|[\u3400-\u9fff]{2,6})\s?(\d+(?:\.\d+)?)\s?(mg|mcg|µg|μg|g|ml|iu|毫克|微克|克|毫升|片|粒)"
)
_FRAME_TEXT: Final = (
    "about after also been being case does during every feels from given have having into patient patients person"
    " reports reported should some such taken takes taking than that their them there these they this those under"
    " used using were what when where which while will with within without would years year month months week"
    " weeks days male female advised recommended treatment condition symptoms"
)
_FRAME: Final = frozenset(word[:5] for word in _FRAME_TEXT.split())
_FRAME_HAN: Final = frozenset(
    "患者病人的了是有在和与及为被其已曾可能建议应该需要进行服用出现存在因此医生感觉得认时间年月天日"
)


def exact(thread: Thread, element: Element, round_: int = 0) -> list[ControllerCheck]:
    """Whether the quote stands in its message, and whether no number is in conflict with the thread's.

    A number of the statement is in conflict when nothing that was shown of the thread states it; a dose also when
    the quote holds another one and the message does not state this one.
    """
    source = text_of(thread, element.message_id)
    found = contains_quote(element.quote, source)
    whole = "\n".join([thread.title, *(m.text for m in shown_messages(thread))])
    missing = numbers_missing(element.statement, whole)
    missing = missing or doses_exchanged(element.statement, element.quote, source)
    return [
        ControllerCheck(
            Check.QUOTE_IN_MESSAGE,
            element.id,
            found,
            "" if found else f"not in the message, character by character: {element.quote[:200]}",
            round_,
        ),
        ControllerCheck(
            Check.NUMBERS_AGREE,
            element.id,
            not missing,
            f"the message does not state {', '.join(missing)[:200]}" if missing else "",
            round_,
        ),
    ]


def text_numbers(subject: str, text: str, sources: Sequence[str], round_: int = 0) -> ControllerCheck:
    """Whether a written text ("narrative" or "advice") states only numbers of its sources."""
    missing = numbers_missing(text, *sources)
    detail = f"no statement holds {', '.join(missing)[:200]}" if missing else ""
    return ControllerCheck(Check.NUMBERS_AGREE, subject, not missing, detail, round_)


def suspicions(statement: str, quote: str, context: str = "") -> tuple[str, ...]:
    """Where a statement may say something else than its quote, read within its context: empty for no suspicion.

    `context` holds the message that the quote stands in, and whatever else may resolve a pronoun. Of a list whose
    items share a quote, the clauses are looked at that have a word in common with the statement.
    """
    ours = fold(statement)
    theirs = _clauses_about(ours, quote)
    found = []
    before = _clause_before(quote, context)
    if bool(_DENIAL.search(ours)) != bool(_DENIAL.search(theirs)):
        found.append("one of statement and quote denies something, the other does not")
    elif _DENIAL.search(before) and not _DENIAL.search(ours):
        found.append(f"the words before the quote deny something: {before[-60:]}")
    for name, pattern in _HEDGES.items():
        hedge = pattern.search(theirs) or (name == "condition" and pattern.search(before))
        if hedge and not pattern.search(ours):
            found.append(f"{name}: {hedge.group()!r} in the quote, nothing like it in the statement")
    person = _PERSON.search(theirs) or _PERSON.search(before)
    if person and not _PERSON.search(ours):
        found.append(f"person: {person.group()!r} in the quote, nobody but the patient in the statement")
    found += _opposites(ours, theirs) + _doses(ours, fold(f"{quote}\n{context}"))
    return tuple(found)


def text_suspicions(text: str, statements: Sequence[str]) -> tuple[str, ...]:
    """Where a written text may say something else than the statements it was written from."""
    ours, theirs = fold(text), fold("\n".join(statements))
    found = _opposites(ours, theirs) + _doses(ours, theirs)
    for name, pattern in (("denials", _DENIAL), *_HEDGES.items(), ("other persons", _PERSON)):
        written, stated = len(pattern.findall(ours)), len(pattern.findall(theirs))
        if (written == 0) != (stated == 0):
            found.append(f"{name}: {stated} in the statements, {written} in the text")
    return tuple(found)


def text_of(thread: Thread, message_id: str) -> str:
    """The text that a quote of that message must stand in; empty for no such message."""
    if message_id == TITLE:
        return thread.title
    message = thread.message(message_id)
    return message.text if message else ""


def _opposites(ours: str, theirs: str) -> list[str]:
    found = []
    for about, one, other in _COMPILED:
        for mine, its in ((one, other), (other, one)):
            written = mine.search(ours)
            if written and not mine.search(theirs) and (opposite := its.search(theirs)):
                found.append(f"{about}: {opposite.group()!r} in the source, {written.group()!r} in the statement")
    return found


def _doses(ours: str, theirs: str) -> list[str]:
    """Doses that the source names, beside another name than there."""
    stated = {(name, amount + unit) for name, amount, unit in _DOSE.findall(theirs)}
    amounts = {dose for _, dose in stated}
    return [
        f"dose: {dose} stands beside {name} in the statement"
        for name, amount, unit in _DOSE.findall(ours)
        if (dose := amount + unit) in amounts and (name, dose) not in stated
    ]


@lru_cache(maxsize=256)
def _words(folded: str) -> dict[str, None]:
    """What a text is about: the beginnings of its longer Latin words, and its Chinese characters in pairs."""
    found = [word[:5] for word in _LATIN.findall(folded) if word[:5] not in _FRAME]
    for run in _HAN.findall(folded):
        found += [run[i : i + 2] for i in range(len(run) - 1) if _FRAME_HAN.isdisjoint(run[i : i + 2])]
    return dict.fromkeys(found)


def _clauses_about(ours: str, quote: str) -> str:
    """The clauses of a quote that have a word in common with a statement; all of it where none has."""
    words = _words(ours)
    about = [c for c in map(fold, _CLAUSE_END.split(quote)) if not words.keys().isdisjoint(_words(c))]
    return ", ".join(about) or fold(quote)


def _clause_before(quote: str, context: str) -> str:
    """The words of the quote's clause that stand before it in its message."""
    at = context.find(quote) if quote else -1
    return fold(_CLAUSE_END.split(context[max(0, at - 80) : at])[-1]) if at > 0 else ""
