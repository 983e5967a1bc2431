"""The Controller: checks that the thread supports every element, and the elements support N and A.

Source: LiveMedBench §3.2.3; docs/method.md §1. Code finds exact errors and flags suspicions; an engine judges.
A failed element goes back to the Screener, a failed text to its writer, with the finding, at most twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from medlive.curation import controls
from medlive.curation.agent import Agent, check_ids, check_known
from medlive.curation.elements import (
    TITLE,
    element_inputs,
    message_text,
    revise,
    thread_inputs,
    visible_messages,
)
from medlive.curation.model import (
    CaseText,
    Check,
    ControllerCheck,
    Element,
    ElementStatus,
    Kind,
    Side,
)
from medlive.curation.tasks import DoubtReply, SupportReply, TextReply, WriteReply
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread

# How often an element or text is revised before a finding is final
MAX_REVISIONS: Final = 2


class Statement(NamedTuple):
    """A statement under suspicion, and where it comes from."""

    id: str
    statement: str
    quote: str
    source_id: str
    suspicions: tuple[str, ...]


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
        self._thread, self._screener, self._judge = thread, screener, judge
        self._elements = {element.id: element for element in elements}
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
        open_ = [
            e.id for e in self._elements.values() if e.status is ElementStatus.KEPT
        ]
        while open_:
            findings = self._check_exactly(open_)
            if judged and (
                rest := [self._elements[i] for i in open_ if i not in findings]
            ):
                findings |= await self._check_by_judgement(rest)
            for identity in [
                i for i in findings if self._revisions[i] >= MAX_REVISIONS
            ]:
                dropped = self._elements[identity].side is Side.NARRATIVE
                self._mark(
                    identity,
                    ElementStatus.DROPPED if dropped else ElementStatus.UNSUPPORTED,
                )
                del findings[identity]
            open_ = await self._revise(findings) if findings else []

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
        """Element → why the engine finds it unsupported; an element under suspicion is judged twice."""
        inputs = thread_inputs(self._thread)
        inputs["elements"] = element_inputs(
            elements, "message_id", "quote", "statement"
        )
        wanted = [e.id for e in elements]
        reply = await self._judge.ask(
            SupportReply,
            inputs,
            lambda reply: check_ids([v.id for v in reply.verdicts], wanted),
        )
        findings = {v.id: v.reason for v in reply.verdicts if not v.supported}
        reasons = {v.id: v.reason for v in reply.verdicts}
        doubted: dict[str, tuple[str, ...]] = {}
        for element in elements:
            self._note(
                Check.SUPPORTED,
                element.id,
                element.id not in findings,
                reasons[element.id],
            )
            if found := self._suspicions(element):
                self._note(Check.SUSPICION, element.id, False, "; ".join(found))
                if element.id not in findings:
                    doubted[element.id] = found
        for identity, difference in (
            await self._ask_doubt(doubted) if doubted else {}
        ).items():
            self._note(Check.SUPPORTED_AGAIN, identity, not difference, difference)
            if difference:
                findings[identity] = difference
        return findings

    def _suspicions(self, element: Element) -> tuple[str, ...]:
        if element.kind is Kind.QUESTION:
            return ()  # the question may combine all that the patient wrote
        message = message_text(self._thread, element.message_id)
        return controls.find_suspicions(element.statement, element.quote, message)

    async def _ask_doubt(
        self, doubted: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        elements = [self._elements[i] for i in doubted]
        shown = visible_messages(self._thread)
        last = max(
            (i for i, m in enumerate(shown) for e in elements if m.id == e.message_id),
            default=-1,
        )
        sources = {
            TITLE: self._thread.title,
            **{m.id: m.text for m in shown[: last + 1]},
        }
        statements = [
            Statement(e.id, e.statement, e.quote, e.message_id, doubted[e.id])
            for e in elements
        ]
        return await _ask_doubt(sources, statements, self._judge)

    async def _revise(self, findings: Mapping[str, str]) -> list[str]:
        """Send the elements back; the ids of those that were revised and need checking."""
        revised = await revise(self._thread, self._elements, findings, self._screener)
        for identity, element in revised.items():
            self._revisions[identity] += 1
            if element is None:
                self._note(Check.WITHDRAWN, identity, False, findings[identity])
                self._mark(identity, ElementStatus.DROPPED)
            else:
                self._elements[identity] = element
        return [
            identity for identity, element in revised.items() if element is not None
        ]

    def _mark(self, identity: str, status: ElementStatus) -> None:
        self._elements[identity] = replace(self._elements[identity], status=status)

    def _note(self, check: Check, subject: str, passed: bool, detail: str) -> None:
        self.checks.append(
            ControllerCheck(
                check, subject, passed, detail[:2000], self._revisions[subject]
            )
        )


async def _ask_doubt(
    sources: Mapping[str, str], statements: Sequence[Statement], agent: Agent
) -> dict[str, str]:
    """Statement id → what a reader of the statement alone would believe wrongly; empty if nothing."""
    inputs = {
        "sources": [{"id": i, "text": t} for i, t in sources.items()],
        "statements": [
            {**s._asdict(), "suspicions": list(s.suspicions)} for s in statements
        ],
    }
    wanted = [s.id for s in statements]
    reply = await agent.ask(
        DoubtReply, inputs, lambda reply: check_ids([i.id for i in reply.items], wanted)
    )
    return {item.id: item.difference.strip() for item in reply.items}


async def write(
    elements: Sequence[Element], *, writer: Agent, judge: Agent, doubter: Agent
) -> tuple[CaseText, tuple[ControllerCheck, ...], str]:
    """Write N and A from the elements, with revisions; the texts, every check, and the remaining findings.

    The findings are empty when the texts are faithful. `judge` reads what `writer` wrote; `doubter` judges texts
    that `judge` passed and code suspects. Raises AgentFailure.
    """
    query = next(e for e in elements if e.side is Side.QUERY)
    sides = {
        side: [e for e in elements if e.side is side]
        for side in (Side.NARRATIVE, Side.ADVICE)
    }
    inputs: dict[str, Any] = {
        "query": query.statement,
        "narrative": element_inputs(sides[Side.NARRATIVE]),
        "advice": element_inputs(sides[Side.ADVICE], "kind", "statement"),
    }
    checks: list[ControllerCheck] = []
    text, findings = CaseText("", query.statement, ""), ""
    for round_ in range(MAX_REVISIONS + 1):
        reply = await writer.ask(WriteReply, inputs)
        text = replace(text, narrative=reply.narrative, advice=reply.advice)
        control = _TextControl(text, sides, round_)
        await control.run(judge, doubter)
        checks += control.checks
        failed = [
            c for c in control.checks if not c.passed and c.check is not Check.SUSPICION
        ]
        faults = [f"{c.subject}: {c.detail}" for c in failed]
        findings = "; ".join(faults)[:2000]
        if not faults:
            break
        inputs |= {
            "earlier": {"narrative": text.narrative, "advice": text.advice},
            "findings": faults,
        }
    return text, tuple(checks), findings


class _TextControl:
    """The checks of one version of N and A."""

    def __init__(
        self, text: CaseText, sides: Mapping[Side, Sequence[Element]], round_: int
    ) -> None:
        self._query, self._sides, self._round = text.query, sides, round_
        self._written = {Side.NARRATIVE: text.narrative, Side.ADVICE: text.advice}
        self._stated = {
            side: [e.statement for e in elements] for side, elements in sides.items()
        }
        self.checks: list[ControllerCheck] = []

    async def run(self, judge: Agent, doubter: Agent) -> None:
        """The exact checks, the engine's judgement and the suspicions of both texts, in this order."""
        for side, text in self._written.items():
            sources = [*self._stated[side], self._query]
            self.checks.append(
                controls.check_text_numbers(side.value, text, sources, self._round)
            )
        if not all(c.passed for c in self.checks):
            return  # certain errors go back before anything is paid
        doubted = self._compare(await self._judge(judge))
        if doubted:
            sources_of = {side.value: "\n".join(self._stated[side]) for side in doubted}
            statements = [
                Statement(s.value, self._written[s], "", s.value, found)
                for s, found in doubted.items()
            ]
            for subject, difference in (
                await _ask_doubt(sources_of, statements, doubter)
            ).items():
                self._note(Check.SUPPORTED_AGAIN, subject, difference)

    def _compare(self, reply: TextReply) -> dict[Side, tuple[str, ...]]:
        """Note what the engine and the suspicions say; the texts that only code suspects."""
        doubted: dict[Side, tuple[str, ...]] = {}
        for side, text in self._written.items():
            problems = [
                f"{p.words!r}: {p.problem}"
                for p in reply.problems
                if p.text == side.value
            ]
            problems += [
                f"leaves out: {e.statement}"
                for e in self._sides[side]
                if e.id in reply.missing
            ]
            self._note(Check.SUPPORTED, side.value, "; ".join(problems))
            if found := controls.find_text_suspicions(text, self._stated[side]):
                self._note(Check.SUSPICION, side.value, "; ".join(found))
                if not problems:
                    doubted[side] = found
        return doubted

    async def _judge(self, judge: Agent) -> TextReply:
        known = {e.id for elements in self._sides.values() for e in elements}

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

    def _note(self, check: Check, subject: str, problem: str) -> None:
        self.checks.append(
            ControllerCheck(check, subject, not problem, problem[:2000], self._round)
        )
