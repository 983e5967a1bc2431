"""The Controller: checks that the thread supports every element, and the elements support N and A.

Source: LiveMedBench §3.2.3; docs/method.md §1. Code finds exact errors and flags suspicions; an engine judges.
A failed element goes back to the Screener, a failed text to its writer, with the finding, at most twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from medlive.curation import controls
from medlive.curation.agent import Agent, check_ids
from medlive.curation.model import CaseText, Check, ControllerCheck, Element, ElementStatus, Kind, Side
from medlive.curation.revise import revise
from medlive.curation.tasks import PACKAGE, DoubtReply, SupportReply, TextReply, WriteReply
from medlive.curation.visible import TITLE, element_inputs, thread_inputs, visible_messages
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread

MAX_REVISIONS = 2
"""How often an element or text is revised before a finding is final."""


class ElementControl:
    """The checks and revisions of one thread's elements."""

    def __init__(
        self, thread: Thread, language: str, elements: Sequence[Element], *, screener: Agent, judge: Agent
    ) -> None:
        """`screener` revises the elements that fail the exact checks or `judge`."""
        self._thread = thread
        self._language = language
        self._screener = screener
        self._judge = judge
        self._elements = {element.id: element for element in elements}
        self._revisions: Counter[str] = Counter()
        self._checked: set[tuple[str, int]] = set()
        self.checks: list[ControllerCheck] = []
        """Every check of every round, in order."""

    @property
    def elements(self) -> tuple[Element, ...]:
        """The elements with their current text and status."""
        return tuple(self._elements.values())

    async def check_exactly(self) -> None:
        """Run the exact checks, with revisions, and mark what still fails. Raises AgentFailure."""
        await self._run(judged=False)

    async def judge(self) -> None:
        """Have the engine judge the kept elements, with revisions. Raises AgentFailure."""
        await self._run(judged=True)

    async def _run(self, *, judged: bool) -> None:
        open_ = [e.id for e in self._elements.values() if e.status is ElementStatus.KEPT]
        while open_:
            findings = self._check_exactly(open_)
            if judged:
                findings |= await self._check_by_judgement([i for i in open_ if i not in findings])
            for identity in [i for i in findings if self._revisions[i] >= MAX_REVISIONS]:
                self._fail(identity)
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
            checks = controls.exact_checks(self._thread, self._elements[identity], round_)
            self.checks += checks
            if failed := [c.detail for c in checks if not c.passed]:
                findings[identity] = "; ".join(failed)
        return findings

    async def _check_by_judgement(self, ids: Sequence[str]) -> dict[str, str]:
        """Element → why the engine finds it unsupported; an element under suspicion is judged twice."""
        if not ids:
            return {}
        elements = [self._elements[i] for i in ids]
        verdicts = await self._ask_support(elements)
        findings = {i: reason for i, (supported, reason) in verdicts.items() if not supported}
        doubted: dict[str, tuple[str, ...]] = {}
        for element in elements:
            self._note(Check.SUPPORTED, element.id, element.id not in findings, verdicts[element.id][1])
            if element.kind is Kind.QUESTION:
                continue  # the question may combine all that the patient wrote
            message = controls.message_text(self._thread, element.message_id)
            found = controls.find_suspicions(element.statement, element.quote, message)
            if found:
                self._note(Check.SUSPICION, element.id, False, "; ".join(found))
                if element.id not in findings:
                    doubted[element.id] = found
        if doubted:
            for identity, difference in (await self._ask_doubt(doubted)).items():
                self._note(Check.SUPPORTED_AGAIN, identity, not difference, difference)
                if difference:
                    findings[identity] = difference
        return findings

    async def _ask_support(self, elements: Sequence[Element]) -> dict[str, tuple[bool, str]]:
        wanted = [e.id for e in elements]
        reply = await self._judge.ask(
            PACKAGE,
            "controller.support",
            {
                **thread_inputs(self._thread, self._language),
                "elements": element_inputs(elements, "message_id", "quote", "statement"),
            },
            SupportReply,
            lambda reply: check_ids([v.id for v in reply.verdicts], wanted),
        )
        return {v.id: (v.supported, v.reason) for v in reply.verdicts}

    async def _ask_doubt(self, doubted: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        elements = [self._elements[i] for i in doubted]
        shown = visible_messages(self._thread)
        last = max((i for i, m in enumerate(shown) for e in elements if m.id == e.message_id), default=-1)
        return await ask_doubt(
            self._language,
            [
                {"id": TITLE, "text": self._thread.title},
                *({"id": m.id, "text": m.text} for m in shown[: last + 1]),
            ],
            [
                {
                    "id": e.id,
                    "statement": e.statement,
                    "quote": e.quote,
                    "source_id": e.message_id,
                    "suspicions": list(doubted[e.id]),
                }
                for e in elements
            ],
            self._judge,
        )

    async def _revise(self, findings: Mapping[str, str]) -> list[str]:
        """Send the elements back; the ids of those that were revised and need checking."""
        revised = await revise(
            self._thread, self._language, [(self._elements[i], findings[i]) for i in findings], self._screener
        )
        revised_ids = []
        for identity, element in revised.items():
            self._revisions[identity] += 1
            if element is None:
                self._note(Check.WITHDRAWN, identity, False, findings[identity])
                self._elements[identity] = replace(self._elements[identity], status=ElementStatus.DROPPED)
            else:
                self._elements[identity] = element
                revised_ids.append(identity)
        return revised_ids

    def _fail(self, identity: str) -> None:
        """Drop a narrative element; mark any other as unsupported, for a person to review."""
        element = self._elements[identity]
        dropped = element.side is Side.NARRATIVE
        self._elements[identity] = replace(
            element, status=ElementStatus.DROPPED if dropped else ElementStatus.UNSUPPORTED
        )

    def _note(self, check: Check, subject: str, passed: bool, detail: str) -> None:
        self.checks.append(ControllerCheck(check, subject, passed, detail[:2000], self._revisions[subject]))


async def ask_doubt(
    language: str, sources: Sequence[Mapping[str, str]], statements: Sequence[Mapping[str, object]], agent: Agent
) -> dict[str, str]:
    """Statement id → what a reader of the statement alone would believe wrongly; empty if nothing.

    `sources` have `id` and `text`; `statements` have `id`, `statement`, `quote`, `source_ids` and `suspicions`.
    Raises AgentFailure.
    """
    wanted = [str(s["id"]) for s in statements]
    reply = await agent.ask(
        PACKAGE,
        "controller.doubt",
        {"language": language, "sources": list(sources), "statements": list(statements)},
        DoubtReply,
        lambda reply: check_ids([i.id for i in reply.items], wanted),
    )
    return {item.id: item.difference.strip() for item in reply.items}


async def write(
    language: str, elements: Sequence[Element], *, writer: Agent, judge: Agent, doubter: Agent
) -> tuple[CaseText, tuple[ControllerCheck, ...], str]:
    """Write N and A from the elements, with revisions; the texts, every check, and the remaining findings.

    The findings are empty when the texts are faithful. `judge` reads what `writer` wrote; `doubter` judges texts
    that `judge` passed and code suspects. Raises AgentFailure.
    """
    query = next(e for e in elements if e.side is Side.QUERY)
    sides = {side: [e for e in elements if e.side is side] for side in (Side.NARRATIVE, Side.ADVICE)}
    inputs: dict[str, object] = {
        "language": language,
        "query": query.statement,
        "narrative": element_inputs(sides[Side.NARRATIVE]),
        "advice": element_inputs(sides[Side.ADVICE], "kind", "statement"),
    }
    checks: list[ControllerCheck] = []
    findings: list[str] = []
    text = CaseText("", query.statement, "")
    for round_ in range(MAX_REVISIONS + 1):
        if findings:
            earlier = {"narrative": text.narrative, "advice": text.advice}
            asked = {**inputs, "earlier": earlier, "findings": findings}
        else:
            asked = inputs
        reply = await writer.ask(PACKAGE, "controller.write", asked, WriteReply)
        text = CaseText(reply.narrative, query.statement, reply.advice)
        found = await _check_text(language, text, sides, round_, judge, doubter)
        checks += found
        findings = [f"{c.subject}: {c.detail}" for c in found if not c.passed and c.check is not Check.SUSPICION]
        if not findings:
            break
    return text, tuple(checks), "; ".join(findings)[:2000]


async def _check_text(
    language: str,
    text: CaseText,
    sides: Mapping[Side, Sequence[Element]],
    round_: int,
    judge: Agent,
    doubter: Agent,
) -> list[ControllerCheck]:
    """The exact checks, the engine's judgement and the suspicions of both texts, in this order."""
    written = {Side.NARRATIVE: text.narrative, Side.ADVICE: text.advice}
    stated = {side: [e.statement for e in elements] for side, elements in sides.items()}
    checks = [
        controls.check_text_numbers(side.value, written[side], [*stated[side], text.query], round_)
        for side in written
    ]
    if not all(c.passed for c in checks):
        return checks  # certain errors go back before anything is paid

    def check(reply: TextReply) -> str | None:
        for problem in reply.problems:
            if not contains_quote(problem.words, written[Side(problem.text)]):
                return f"{problem.words[:60]!r} does not stand in the {problem.text}"
        known = {e.id for elements in sides.values() for e in elements}
        invalid = sorted(set(reply.missing) - known)
        return f"{invalid[0][:20]!r} is not the id of a statement" if invalid else None

    reply = await judge.ask(
        PACKAGE,
        "reader.text",
        {
            "language": language,
            "query": text.query,
            **{side.value: {"elements": element_inputs(sides[side]), "text": written[side]} for side in written},
        },
        TextReply,
        check,
    )
    doubted = []
    for side, body in written.items():
        problems = [f"{p.words!r}: {p.problem}" for p in reply.problems if p.text == side.value]
        problems += [f"leaves out: {e.statement}" for e in sides[side] if e.id in reply.missing]
        checks.append(
            ControllerCheck(Check.SUPPORTED, side.value, not problems, "; ".join(problems)[:2000], round_)
        )
        found = controls.find_text_suspicions(body, stated[side])
        if found:
            detail = "; ".join(found)[:2000]
            checks.append(ControllerCheck(Check.SUSPICION, side.value, False, detail, round_))
            if not problems:
                doubted.append((side, found))
    if doubted:
        sources = [{"id": side.value, "text": "\n".join(stated[side])} for side, _ in doubted]
        statements = [
            {
                "id": side.value,
                "statement": written[side],
                "quote": "",
                "source_id": side.value,
                "suspicions": list(found),
            }
            for side, found in doubted
        ]
        for subject, difference in (await ask_doubt(language, sources, statements, doubter)).items():
            checks.append(ControllerCheck(Check.SUPPORTED_AGAIN, subject, not difference, difference, round_))
    return checks
