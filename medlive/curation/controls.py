"""Checks of elements and texts in code: exact checks bind, suspicions only flag.

Source: docs/method.md §1, Controller. A suspicion compares words: the engine is asked about it, people see it, and
it decides nothing.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final

from medlive.curation.elements import message_text, visible_messages
from medlive.curation.model import Check, ControllerCheck, Element
from medlive.text.normalise import contains_quote, fold
from medlive.text.quantities import doses_exchanged, numbers_missing
from medlive.threads.model import Thread

_TABLE: Final = tomllib.loads(
    files("medlive.curation").joinpath("suspicions.toml").read_text(encoding="utf-8")
)
_DENIAL, _PERSON = (
    re.compile(_TABLE[name], re.IGNORECASE) for name in ("denial", "person")
)
_HEDGES: Final = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in _TABLE["hedges"].items()
}
_OPPOSITES: Final = [
    (row["topic"], *(re.compile(row[name], re.IGNORECASE) for name in ("one", "other")))
    for row in _TABLE["opposites"]
]
_CLAUSE_END: Final = re.compile(r"[,.;:!?，。；：！？、\n]|\b(?:but|and)\b|但")
_LATIN: Final = re.compile(r"[a-z][a-z'-]{3,}")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_DOSE: Final = re.compile(
    r"([a-z]{4,}|[\u3400-\u9fff]{2,6})\s?(\d+(?:\.\d+)?)\s?(mg|mcg|µg|μg|g|ml|iu|毫克|微克|克|毫升|片|粒)"
)
_FRAME: Final = frozenset(word[:5] for word in _TABLE["frame"]["english"].split())
_FRAME_HAN: Final = frozenset(_TABLE["frame"]["chinese"])


def exact_checks(
    thread: Thread, element: Element, round_: int = 0
) -> list[ControllerCheck]:
    """Check that the quote is in its message and that the numbers agree with the thread.

    A number conflicts when the visible thread does not state it; a dose also when the quote has another one and
    the message does not state this one.
    """
    source = message_text(thread, element.message_id)
    whole = "\n".join([thread.title, *(m.text for m in visible_messages(thread))])
    missing = numbers_missing(element.statement, whole)
    missing = missing or doses_exchanged(element.statement, element.quote, source)
    quoted = contains_quote(element.quote, source)
    absent = (
        ""
        if quoted
        else f"not in the message, character by character: {element.quote[:200]}"
    )
    unstated = (
        f"the message does not state {', '.join(missing)[:200]}" if missing else ""
    )
    return [
        ControllerCheck(check, element.id, not fault, fault, round_)
        for check, fault in (
            (Check.QUOTE_IN_MESSAGE, absent),
            (Check.NUMBERS_AGREE, unstated),
        )
    ]


def check_text_numbers(
    subject: str, text: str, sources: Sequence[str], round_: int = 0
) -> ControllerCheck:
    """Check that a written text ("narrative" or "advice") states only numbers of its sources."""
    missing = numbers_missing(text, *sources)
    detail = f"no statement holds {', '.join(missing)[:200]}" if missing else ""
    return ControllerCheck(Check.NUMBERS_AGREE, subject, not missing, detail, round_)


def find_suspicions(statement: str, quote: str, context: str = "") -> tuple[str, ...]:
    """Where a statement may differ in meaning from its quote; empty if nowhere.

    `context` is the quote's message, and whatever else may resolve a pronoun. Only clauses of the quote that share
    a word with the statement are compared.
    """
    statement_text = fold(statement)
    source_text = _clauses_about(statement_text, quote)
    found = []
    before = _clause_before(quote, context)
    if bool(_DENIAL.search(statement_text)) != bool(_DENIAL.search(source_text)):
        found.append("one of statement and quote denies something, the other does not")
    elif _DENIAL.search(before) and not _DENIAL.search(statement_text):
        found.append(f"the words before the quote deny something: {before[-60:]}")
    for name, pattern in _HEDGES.items():
        hedge = pattern.search(source_text) or (
            name == "condition" and pattern.search(before)
        )
        if hedge and not pattern.search(statement_text):
            found.append(
                f"{name}: {hedge.group()!r} in the quote, nothing like it in the statement"
            )
    person = _PERSON.search(source_text) or _PERSON.search(before)
    if person and not _PERSON.search(statement_text):
        found.append(
            f"person: {person.group()!r} in the quote, nobody but the patient in the statement"
        )
    found += _opposites(statement_text, source_text) + _doses(
        statement_text, fold(f"{quote}\n{context}")
    )
    return tuple(found)


def find_text_suspicions(text: str, statements: Sequence[str]) -> tuple[str, ...]:
    """Where a written text may differ in meaning from its statements; empty if nowhere."""
    statement_text, source_text = fold(text), fold("\n".join(statements))
    found = _opposites(statement_text, source_text) + _doses(
        statement_text, source_text
    )
    for name, pattern in (
        ("denials", _DENIAL),
        *_HEDGES.items(),
        ("other persons", _PERSON),
    ):
        written, stated = (
            len(pattern.findall(statement_text)),
            len(pattern.findall(source_text)),
        )
        if (written == 0) != (stated == 0):
            found.append(f"{name}: {stated} in the statements, {written} in the text")
    return tuple(found)


def _opposites(statement_text: str, source_text: str) -> list[str]:
    found = []
    for about, one, other in _OPPOSITES:
        for mine, its in ((one, other), (other, one)):
            written = mine.search(statement_text)
            if (
                written
                and not mine.search(source_text)
                and (opposite := its.search(source_text))
            ):
                found.append(
                    f"{about}: {opposite.group()!r} in the source, {written.group()!r} in the statement"
                )
    return found


def _doses(statement_text: str, source_text: str) -> list[str]:
    """Doses that the source gives for another name."""
    stated = {
        (name, amount + unit) for name, amount, unit in _DOSE.findall(source_text)
    }
    amounts = {dose for _, dose in stated}
    return [
        f"dose: {dose} stands beside {name} in the statement"
        for name, amount, unit in _DOSE.findall(statement_text)
        if (dose := amount + unit) in amounts and (name, dose) not in stated
    ]


@lru_cache(maxsize=256)
def _words(folded: str) -> dict[str, None]:
    """The topic words of a text: prefixes of its longer Latin words, and pairs of Chinese characters."""
    found = [word[:5] for word in _LATIN.findall(folded) if word[:5] not in _FRAME]
    for run in _HAN.findall(folded):
        found += [
            run[i : i + 2]
            for i in range(len(run) - 1)
            if _FRAME_HAN.isdisjoint(run[i : i + 2])
        ]
    return dict.fromkeys(found)


def _clauses_about(statement_text: str, quote: str) -> str:
    """The clauses of a quote that share a word with the statement; the whole quote if none does."""
    words = _words(statement_text)
    about = [
        c
        for c in map(fold, _CLAUSE_END.split(quote))
        if not words.keys().isdisjoint(_words(c))
    ]
    return ", ".join(about) or fold(quote)


def _clause_before(quote: str, context: str) -> str:
    """The part of the quote's clause that precedes it in its message."""
    at = context.find(quote) if quote else -1
    return fold(_CLAUSE_END.split(context[max(0, at - 80) : at])[-1]) if at > 0 else ""
