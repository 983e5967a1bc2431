"""The Controller: checks that the thread supports every element, and the elements support N and A.

Source: LiveMedBench §3.2.3; docs/method.md §1. Code finds exact errors; an engine judges the meaning, once.
A failed element goes back to the Screener, a failed text to its writer, with the finding, at most twice.
"""

from calendar import month_name
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from medlive.curation import controls
from medlive.curation.agent import Agent, by_id, check_ids, check_known, ids_of
from medlive.curation.elements import (
    element_inputs,
    revise,
    thread_inputs,
)
from medlive.curation.model import (
    CaseText,
    Check,
    ControllerCheck,
    Element,
    ElementStatus,
    Side,
)
from medlive.curation.tasks import SupportReply, TextReply, WriteReply
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread

# How often an element or text is revised before a finding is final
MAX_REVISIONS: Final = 2


class ElementControl:
    """The checks and revisions of one thread's elements."""

    def __init__(
        self,
        thread: Thread,
        elements: Sequence[Element],
        *,
        screener: Agent,
        judge: Agent,
    ) -> None:
        """`screener` revises the elements that fail the exact checks or `judge`."""
        self._thread = thread
        self._screener = screener
        self._judge = judge
        self._elements = by_id(elements)
        self._revisions: Counter[str] = Counter()
        self._checked: set[tuple[str, int]] = set()
        self.checks: list[ControllerCheck] = []
        """Every check of every round, in order."""

    @property
    def elements(self) -> tuple[Element, ...]:
        """The elements with their current text and status."""
        return tuple(self._elements.values())

    async def run(self, *, judged: bool) -> None:
        """Run the exact checks, and the engine's judgement if `judged`, with revisions; mark what still fails.

        Raises AgentFailure.
        """
        kept = [e for e in self.elements if e.status is ElementStatus.KEPT]
        open_ = ids_of(kept)
        while open_:
            findings = self._check_exactly(open_)
            rest = [self._elements[i] for i in open_ if i not in findings]
            if judged and rest:
                findings |= await self._check_by_judgement(rest)
            for identity in list(findings):
                if self._revisions[identity] < MAX_REVISIONS:
                    continue
                del findings[identity]
                status = ElementStatus.UNSUPPORTED
                if self._elements[identity].side is Side.NARRATIVE:
                    status = ElementStatus.DROPPED
                self._mark(identity, status)
            open_ = await self._revise(findings)

    def _check_exactly(self, ids: Sequence[str]) -> dict[str, str]:
        """Element → findings of the exact checks; an element that is unchanged since is not checked again."""
        findings: dict[str, str] = {}
        for identity in ids:
            version = (identity, self._revisions[identity])
            if version in self._checked:
                continue
            self._checked.add(version)
            element = self._elements[identity]
            checks = controls.exact_checks(self._thread, element, version[1])
            self.checks += checks
            if failed := [c.detail for c in checks if not c.passed]:
                findings[identity] = "; ".join(failed)
        return findings

    async def _check_by_judgement(self, elements: Sequence[Element]) -> dict[str, str]:
        """Element → why the engine finds it unsupported."""
        inputs = thread_inputs(self._thread)
        inputs["elements"] = element_inputs(
            elements, "message_id", "quote", "statement"
        )
        wanted = ids_of(elements)
        reply = await self._judge.ask(
            SupportReply,
            inputs,
            lambda reply: check_ids(reply.verdicts, wanted),
        )
        verdicts = by_id(reply.verdicts)
        findings: dict[str, str] = {}
        for identity in wanted:
            verdict = verdicts[identity]
            self._note(Check.SUPPORTED, identity, verdict.supported, verdict.reason)
            if not verdict.supported:
                findings[identity] = verdict.reason
        return findings

    async def _revise(self, findings: Mapping[str, str]) -> list[str]:
        """Send the elements back; the ids of those that were revised and need checking."""
        if not findings:
            return []
        revised = await revise(self._thread, self._elements, findings, self._screener)
        changed = []
        for identity, element in revised.items():
            self._revisions[identity] += 1
            if element is None:
                self._note(Check.WITHDRAWN, identity, False, findings[identity])
                self._mark(identity, ElementStatus.DROPPED)
            else:
                self._elements[identity] = element
                changed.append(identity)
        return changed

    def _mark(self, identity: str, status: ElementStatus) -> None:
        self._elements[identity] = replace(self._elements[identity], status=status)

    def _note(self, check: Check, subject: str, passed: bool, detail: str) -> None:
        self.checks.append(
            ControllerCheck(
                check, subject, passed, detail[:2000], self._revisions[subject]
            )
        )


async def write(
    elements: Sequence[Element], *, writer: Agent, judge: Agent
) -> tuple[CaseText, tuple[ControllerCheck, ...], str]:
    """Write N and A from the elements, with revisions; `judge` reads what `writer` wrote. Raises AgentFailure.

    Returns:
        The texts as they were written last, the checks of every version in order, and what is wrong with the last
        one; empty when it is faithful.
    """
    by_side: dict[Side, list[Element]] = {side: [] for side in Side}
    for element in elements:
        by_side[element.side].append(element)
    (query,) = by_side.pop(Side.QUERY)
    inputs: dict[str, Any] = {
        "query": query.statement,
        "narrative": element_inputs(by_side[Side.NARRATIVE]),
        "advice": element_inputs(by_side[Side.ADVICE], "kind", "statement"),
    }
    checks: list[ControllerCheck] = []
    for round_ in range(MAX_REVISIONS + 1):
        reply = await writer.ask(WriteReply, inputs)
        written = {Side.NARRATIVE: reply.narrative, Side.ADVICE: reply.advice}
        own = []
        for side, text in written.items():
            sources = [*(e.statement for e in by_side[side]), query.statement]
            own.append(controls.check_text_numbers(side.value, text, sources, round_))
        # Certain errors go back before anything is paid.
        if all(c.passed for c in own):
            problems = await _read_texts(query.statement, by_side, written, judge)
            for side, findings in problems.items():
                check = ControllerCheck(
                    check=Check.SUPPORTED,
                    subject=side.value,
                    passed=not findings,
                    detail="; ".join(findings)[:2000],
                    round=round_,
                )
                own.append(check)
        checks += own
        faults = [f"{c.subject}: {c.detail}" for c in own if not c.passed]
        if not faults:
            break
        earlier = {side.value: text for side, text in written.items()}
        inputs |= {"earlier": earlier, "findings": faults}
    case = CaseText(reply.narrative, query.statement, reply.advice)
    return case, tuple(checks), "; ".join(faults)[:2000]


async def _read_texts(
    query: str,
    sides: Mapping[Side, Sequence[Element]],
    written: Mapping[Side, str],
    judge: Agent,
) -> dict[Side, list[str]]:
    """What the engine finds wrong with each text."""
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
        return check_known(set(reply.missing), known, "a statement")

    reply = await judge.ask(TextReply, inputs, check)
    problems: dict[Side, list[str]] = {side: [] for side in written}
    for problem in reply.problems:
        problems[Side(problem.text)].append(f"{problem.words!r}: {problem.problem}")
    for side in written:
        for element in sides[side]:
            if element.id in reply.missing:
                problems[side].append(f"leaves out: {element.statement}")
    return problems


def dated(text: CaseText, month: str, language: str) -> CaseText:
    """A case whose narrative says when it was asked (`month`: YYYY-MM)."""
    year, number = month.split("-")
    month_words = f" The question was asked in {month_name[int(number)]} {year}."
    if language == "zh":
        month_words = f"提问时间为{year}年{int(number)}月。"
    return replace(text, narrative=text.narrative + month_words)
