"""The Controller: checks that the thread supports every element, and the elements support N and A.

Source: LiveMedBench §3.2.3; docs/method.md §1. Code finds exact errors; an engine judges the meaning, once.
A failed element goes back to the Screener, a failed text to its writer, with the finding, at most twice.
"""

from calendar import month_name
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medlive.text.normalise import contains_quote
from medlive.text.quantities import doses_exchanged, numbers_missing
from medlive.threads.model import Thread

from .agent import Agent, check_known, ids_of
from .elements import (
    Brief,
    check_message_ids,
    element_inputs,
    message_text,
    thread_inputs,
    visible_texts,
)
from .model import (
    CaseText,
    Check,
    ControllerCheck,
    Element,
    ElementStatus,
    Side,
)
from .tasks import RevisedItem, SupportItem, TextReply, WriteReply

_SHOWN = ("message_id", "quote", "statement")
"""The fields of an element that an engine sees, and may change."""
# How often an element or text is revised before a finding is final
MAX_REVISIONS = 2


@dataclass
class ElementControl:
    """The checks and revisions of one thread's elements."""

    thread: Thread
    current: dict[str, Element]  # By their ids
    screener: Agent  # Revises the elements that fail the exact checks or `judge`
    judge: Agent
    # Element → how often it was revised
    revisions: Counter[str] = field(default_factory=Counter)
    checked: set[str] = field(default_factory=set)
    """The elements that the exact checks have seen since their last change."""
    checks: list[ControllerCheck] = field(default_factory=list)
    """Every check of every round, in order."""

    @property
    def elements(self) -> tuple[Element, ...]:
        """The elements with their current text and status."""
        return tuple(self.current.values())

    async def run(self, *, judged: bool) -> None:
        """Run the exact checks, and the engine's judgement if `judged`, with revisions; mark what still fails.

        Raises AgentFailure.
        """
        open_ = [e for e in self.elements if e.status is ElementStatus.KEPT]
        while open_:
            findings = self._check_exactly(open_)
            rest = [element for element in open_ if element.id not in findings]
            if judged and rest:
                # The engine says whether it finds them supported, and why not.
                inputs = thread_inputs(self.thread)
                inputs["elements"] = element_inputs(rest, *_SHOWN)
                verdicts = await self.judge.ask_each(SupportItem, inputs, ids_of(rest))
                for name in ids_of(rest):
                    verdict = verdicts[name]
                    reason = verdict.reason
                    self._note(Check.SUPPORTED, name, verdict.supported, reason)
                    if not verdict.supported:
                        findings[name] = reason
            for identity in list(findings):
                if self.revisions[identity] < MAX_REVISIONS:
                    continue
                del findings[identity]
                status = ElementStatus.UNSUPPORTED
                if self.current[identity].side is Side.NARRATIVE:
                    status = ElementStatus.DROPPED
                self._mark(identity, status)
            open_ = await self._revise(findings) if findings else []

    def _check_exactly(self, elements: Sequence[Element]) -> dict[str, str]:
        """Element → findings of the exact checks.

        The quote is in its message, and the numbers agree with the thread. A number conflicts when the visible thread
        does not state it; a dose also when the quote has another one and the message does not state this one.
        """
        findings: dict[str, str] = {}
        whole = "\n".join(visible_texts(self.thread))
        for element in elements:
            if element.id in self.checked:
                continue
            self.checked.add(element.id)
            source = message_text(self.thread, element.message_id)
            absent = unstated = ""
            if not contains_quote(element.quote, source):
                absent = (
                    f"not in the message, character by character: {element.quote[:200]}"
                )
            statement = element.statement
            missing = numbers_missing(statement, whole)
            missing = missing or doses_exchanged(statement, element.quote, source)
            if missing:
                unstated = f"the message does not state {', '.join(missing)[:200]}"
            self._note(Check.QUOTE_IN_MESSAGE, element.id, not absent, absent)
            self._note(Check.NUMBERS_AGREE, element.id, not unstated, unstated)
            if absent or unstated:
                findings[element.id] = "; ".join(filter(None, (absent, unstated)))
        return findings

    async def _revise(self, findings: Mapping[str, str]) -> list[Element]:
        """Send the elements back to the Screener; those that were revised and need checking."""
        objected = map(self.current.__getitem__, findings)
        asked = element_inputs(objected, "side", *_SHOWN)
        for shown in asked:
            shown["finding"] = findings[shown["id"]]
        inputs = {**thread_inputs(self.thread), "elements": asked}

        def fault_of(item: RevisedItem) -> str | None:
            side = self.current[item.id].side
            fault = check_message_ids(self.thread, side, [item.message_id])
            return f"{item.id}: {fault}" if item.keep and fault else None

        items = await self.screener.ask_each(RevisedItem, inputs, findings, fault_of)
        changed = []
        for identity, item in items.items():
            self.revisions[identity] += 1
            if not item.keep:
                self._note(Check.WITHDRAWN, identity, False, findings[identity])
                self._mark(identity, ElementStatus.DROPPED)
                continue
            mended = item.model_dump(include=set(_SHOWN))
            element = replace(self.current[identity], **mended)
            self.current[identity] = element
            self.checked.discard(identity)
            changed.append(element)
        return changed

    def _mark(self, identity: str, status: ElementStatus) -> None:
        """Give an element a status."""
        self.current[identity] = replace(self.current[identity], status=status)

    def _note(
        self,
        check: Check,
        subject: str,
        passed: bool,
        detail: str,
    ) -> None:
        """Record a check of the element `subject`."""
        number = self.revisions[subject]
        noted = ControllerCheck(check, subject, passed, detail[:2000], number)
        self.checks.append(noted)


async def write(
    brief: Brief, *, writer: Agent, judge: Agent
) -> tuple[CaseText, tuple[ControllerCheck, ...], str]:
    """Write N and A from the elements, with revisions; `judge` reads what `writer` wrote. Raises AgentFailure.

    Returns:
        The texts as they were written last, the checks of every version in order, and what is wrong with the last
        one; empty when it is faithful.
    """
    query = brief.query.statement
    by_side = {Side.NARRATIVE: brief.narrative, Side.ADVICE: brief.advice}
    inputs: dict[str, Any] = {
        "query": query,
        "narrative": element_inputs(brief.narrative),
        "advice": element_inputs(brief.advice, "kind", "statement"),
    }
    checks: list[ControllerCheck] = []

    def note(
        check: Check,
        details: Mapping[Side, str],
        round_: int,
    ) -> list[str]:
        """Record a check of both texts (side → what is wrong, "" for nothing); the faults."""
        faults = []
        for side, detail in details.items():
            detail = detail[:2000]
            noted = ControllerCheck(check, side.value, not detail, detail, round_)
            checks.append(noted)
            if detail:
                faults.append(f"{side.value}: {detail}")
        return faults

    for round_ in range(MAX_REVISIONS + 1):
        reply = await writer.ask(WriteReply, inputs)
        written = {Side.NARRATIVE: reply.narrative, Side.ADVICE: reply.advice}
        unstated = {}
        for side, text in written.items():
            sources = [*(e.statement for e in by_side[side]), query]
            missing = ", ".join(numbers_missing(text, *sources))[:200]
            unstated[side] = f"no statement holds {missing}" if missing else ""
        faults = note(Check.NUMBERS_AGREE, unstated, round_)
        # Errors that code finds go back before an engine is paid to read.
        if not faults:
            read = await _read_texts(query, by_side, written, judge)
            faults = note(Check.SUPPORTED, read, round_)
        if not faults:
            break
        earlier = {side.value: text for side, text in written.items()}
        inputs |= {"earlier": earlier, "findings": faults}
    case = CaseText(reply.narrative, query, reply.advice)
    return case, tuple(checks), "; ".join(faults)[:2000]


async def _read_texts(
    query: str,
    sides: Mapping[Side, Sequence[Element]],
    written: Mapping[Side, str],
    judge: Agent,
) -> dict[Side, str]:
    """What the engine finds wrong with each text, "" for nothing."""
    inputs: dict[str, Any] = {"query": query}
    known: set[str] = set()
    for side, text in written.items():
        known.update(ids_of(sides[side]))
        elements = element_inputs(sides[side])
        inputs[side.value] = {"elements": elements, "text": text}

    def check(reply: TextReply) -> str | None:
        for problem in reply.problems:
            if not contains_quote(problem.words, written[Side(problem.text)]):
                return f"{problem.words[:60]!r} does not stand in the {problem.text}"
        return check_known(reply.missing, known, "a statement")

    reply = await judge.ask(TextReply, inputs, check)
    problems: dict[Side, list[str]] = {side: [] for side in written}
    for problem in reply.problems:
        problems[Side(problem.text)].append(f"{problem.words!r}: {problem.problem}")
    for side in written:
        for element in sides[side]:
            if element.id in reply.missing:
                problems[side].append(f"leaves out: {element.statement}")
    return {side: "; ".join(faults) for side, faults in problems.items()}


def dated(text: CaseText, month: str, language: str) -> CaseText:
    """A case whose narrative says when it was asked (`month`: YYYY-MM)."""
    year, number = month.split("-")
    month_words = f" The question was asked in {month_name[int(number)]} {year}."
    if language == "zh":
        month_words = f"提问时间为{year}年{int(number)}月。"
    return replace(text, narrative=text.narrative + month_words)
