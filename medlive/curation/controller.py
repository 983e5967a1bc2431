"""The Controller: checks that the thread supports every element, and the elements support N and A.

Source: LiveMedBench §3.2.3; docs/method.md §1. Code finds exact errors; an engine judges the meaning, once.
A failed element goes back to the Screener, a failed text to its writer, with the finding, at most twice.
"""

from calendar import month_name
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from medlive.curation import controls
from medlive.curation.agent import Agent, check_ids, check_known
from medlive.curation.elements import (
    element_inputs,
    revise,
    thread_inputs,
)
from medlive.curation.identified import by_id, ids_of
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
            open_ = await self._revise(self._without_final(findings))

    def _without_final(self, findings: Mapping[str, str]) -> dict[str, str]:
        """The findings that may still be revised; the elements of the others are marked."""
        revisable = {}
        for identity, finding in findings.items():
            if self._revisions[identity] < MAX_REVISIONS:
                revisable[identity] = finding
            elif self._elements[identity].side is Side.NARRATIVE:
                self._mark(identity, ElementStatus.DROPPED)
            else:
                self._mark(identity, ElementStatus.UNSUPPORTED)
        return revisable

    def _check_exactly(self, ids: Sequence[str]) -> dict[str, str]:
        """Element → findings of the exact checks; an element that is unchanged since is not checked again."""
        findings: dict[str, str] = {}
        for identity in ids:
            round_ = self._revisions[identity]
            if (identity, round_) in self._checked:
                continue
            self._checked.add((identity, round_))
            checks = controls.exact_checks(
                self._thread, self._elements[identity], round_
            )
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
            lambda reply: check_ids(ids_of(reply.verdicts), wanted),
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


class WrittenCase(NamedTuple):
    """N and A as they were written last."""

    text: CaseText
    checks: tuple[ControllerCheck, ...]  # Of every version, in order
    findings: str  # What is wrong with the last version; empty when it is faithful


async def write(
    elements: Sequence[Element], *, writer: Agent, judge: Agent
) -> WrittenCase:
    """Write N and A from the elements, with revisions; `judge` reads what `writer` wrote. Raises AgentFailure."""
    by_side: dict[Side, list[Element]] = {side: [] for side in Side}
    for element in elements:
        by_side[element.side].append(element)
    (query,) = by_side.pop(Side.QUERY)
    sides = by_side
    inputs: dict[str, Any] = {
        "query": query.statement,
        "narrative": element_inputs(sides[Side.NARRATIVE]),
        "advice": element_inputs(sides[Side.ADVICE], "kind", "statement"),
    }
    checks: list[ControllerCheck] = []
    text = CaseText("", query.statement, "")
    findings = ""
    for round_ in range(MAX_REVISIONS + 1):
        reply = await writer.ask(WriteReply, inputs)
        text = replace(text, narrative=reply.narrative, advice=reply.advice)
        control = _TextControl(text, sides, round_)
        await control.run(judge)
        checks += control.checks
        faults = [f"{c.subject}: {c.detail}" for c in control.checks if not c.passed]
        findings = "; ".join(faults)[:2000]
        if not faults:
            break
        inputs |= {
            "earlier": {"narrative": text.narrative, "advice": text.advice},
            "findings": faults,
        }
    return WrittenCase(text, tuple(checks), findings)


class _TextControl:
    """The checks of one version of N and A."""

    def __init__(
        self, text: CaseText, sides: Mapping[Side, Sequence[Element]], round_: int
    ) -> None:
        self._query = text.query
        self._sides = sides
        self._round = round_
        self._written = {Side.NARRATIVE: text.narrative, Side.ADVICE: text.advice}
        self.checks: list[ControllerCheck] = []

    async def run(self, judge: Agent) -> None:
        """The exact checks and the engine's judgement of both texts, in this order."""
        for side, text in self._written.items():
            sources = [e.statement for e in self._sides[side]]
            sources.append(self._query)
            self.checks.append(
                controls.check_text_numbers(side.value, text, sources, self._round)
            )
        if not all(c.passed for c in self.checks):
            return  # certain errors go back before anything is paid
        reply = await self._judge(judge)
        for side in self._written:
            self._note(side, self._problems(side, reply))

    def _problems(self, side: Side, reply: TextReply) -> list[str]:
        """What the engine found in the text of one side."""
        problems = []
        for problem in reply.problems:
            if problem.text == side.value:
                problems.append(f"{problem.words!r}: {problem.problem}")
        for element in self._sides[side]:
            if element.id in reply.missing:
                problems.append(f"leaves out: {element.statement}")
        return problems

    async def _judge(self, judge: Agent) -> TextReply:
        known: set[str] = set()
        for elements in self._sides.values():
            known.update(ids_of(elements))

        def check(reply: TextReply) -> str | None:
            for problem in reply.problems:
                if not contains_quote(problem.words, self._written[Side(problem.text)]):
                    return (
                        f"{problem.words[:60]!r} does not stand in the {problem.text}"
                    )
            return check_known(set(reply.missing), known, "a statement")

        inputs: dict[str, Any] = {"query": self._query}
        for side, text in self._written.items():
            inputs[side.value] = {
                "elements": element_inputs(self._sides[side]),
                "text": text,
            }
        return await judge.ask(TextReply, inputs, check)

    def _note(self, side: Side, problems: Sequence[str]) -> None:
        detail = "; ".join(problems)[:2000]
        self.checks.append(
            ControllerCheck(
                Check.SUPPORTED, side.value, not problems, detail, self._round
            )
        )


def dated(text: CaseText, month: str, language: str) -> CaseText:
    """A case whose narrative says when it was asked (`month`: YYYY-MM)."""
    year, number = month.split("-")
    month_words = f" The question was asked in {month_name[int(number)]} {year}."
    if language == "zh":
        month_words = f"提问时间为{year}年{int(number)}月。"
    return replace(text, narrative=text.narrative + month_words)
