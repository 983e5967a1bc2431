"""A case's rubric: written by one engine, linted in code, reviewed by another, revised once where it must be.

Source: LiveMedBench §3.3; docs/method.md §1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText, Element
from medlive.rubric.lint import Fault, Finding, lint, suspicions, without_faulty
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Criterion, ReviewReply, Rubric, RubricReply

PACKAGE = "medlive.rubric"
LIFE: Final = 10
"""The weight of what a life depends on, and of nothing else."""


@dataclass(frozen=True, slots=True)
class WrittenRubric:
    """A rubric with what was found on the way."""

    rubric: Rubric
    first_findings: tuple[Finding, ...]
    """Of the first draft."""
    remaining: tuple[Finding, ...]
    """Of the rubric as it is; anything here holds the case for a person."""


async def write_rubric(
    language: str, text: CaseText, advice: Sequence[Element], *, writer: Agent, reviewer: Agent
) -> WrittenRubric:
    """The rubric of a case. Raises AgentFailure when an engine gives no usable reply.

    Criteria at fault are dropped. Where the rubric cannot do without them, it goes back once with what linter and
    reviewer found; what is then still wrong with the whole is returned.
    """
    desk = _Desk(language, text, advice, writer, reviewer)
    reply = await desk.write(())
    draft, first = await desk.checked(reply)
    criteria, remaining = desk.left(draft, first, reply.no_negative)
    if remaining or _advice_lost(draft, criteria, first):
        try:
            reply = await desk.write(first, _criteria(reply))
            draft, findings = await desk.checked(reply)
        except AgentFailure as failure:
            raise AgentFailure(failure.reason, f"revision round: {failure.detail}") from failure
        criteria, remaining = desk.left(draft, findings, reply.no_negative)
    has_negative = any(c.points < 0 for c in criteria)
    rubric = Rubric(reply.theme, reply.specialty, criteria, "" if has_negative else reply.no_negative.strip())
    return WrittenRubric(rubric, first, remaining)


def _advice_lost(draft: Sequence[Criterion], left: Sequence[Criterion], findings: Sequence[Finding]) -> bool:
    """Whether an advice that earned points earns none any more, and not because other criteria say the same."""
    repeated = {f.criterion for f in findings if f.fault is Fault.DUPLICATE}
    earned = {c.advice_id for c in draft if c.points > 0 and c.id not in repeated}
    return not earned <= {c.advice_id for c in left if c.points > 0}


class _Desk:
    """What writing and reviewing one case's rubric share."""

    def __init__(
        self, language: str, text: CaseText, advice: Sequence[Element], writer: Agent, reviewer: Agent
    ) -> None:
        self._language = language
        self._text = text
        self._advice = advice
        self._writer = writer
        self._reviewer = reviewer

    async def write(self, findings: Sequence[Finding], earlier: Sequence[Criterion] = ()) -> RubricReply:
        """A draft, or its revision."""
        inputs: dict[str, Any] = {
            "language": self._language,
            "query": self._text.query,
            "narrative": self._text.narrative,
            "advice": [{"id": e.id, "kind": e.kind.value, "statement": e.statement} for e in self._advice],
        }
        if findings:
            inputs["earlier"] = [{"id": c.id, **_shown(c)} for c in earlier]
            inputs["findings"] = [
                {"criterion": f.criterion or "", "finding": f"{f.fault.value}: {f.detail}"} for f in findings
            ]
        return await self._writer.ask(PACKAGE, "rubric.write", inputs, RubricReply, _fault_of)

    async def checked(self, reply: RubricReply) -> tuple[tuple[Criterion, ...], tuple[Finding, ...]]:
        """The criteria with the weights that the reviewer's word gives them, and every finding."""
        criteria = _criteria(reply)
        certain = self.lint(criteria, reply.no_negative)
        review = await self._review(criteria)
        critical = set(review.life_critical)
        problems = tuple(Finding(Fault(p.fault), p.criterion_id, p.detail) for p in review.problems)
        return tuple(_weighed(c, critical) for c in criteria), certain + problems

    def left(
        self, draft: Sequence[Criterion], findings: Sequence[Finding], no_negative: str
    ) -> tuple[tuple[Criterion, ...], tuple[Finding, ...]]:
        """The draft without the criteria at fault, and what is wrong with what is left."""
        criteria = without_faulty(draft, findings)
        return criteria, self.lint(criteria, no_negative)

    def lint(self, criteria: Sequence[Criterion], no_negative: str) -> tuple[Finding, ...]:
        """What code is certain of."""
        words = {e.id: f"{e.statement}\n{e.quote}" for e in self._advice}
        case = f"{self._text.narrative}\n{self._text.query}\n{self._text.advice}"
        return lint(self._language, criteria, words, case, no_negative=no_negative)

    async def _review(self, criteria: Sequence[Criterion]) -> ReviewReply:
        known = {c.id for c in criteria}

        def check(reply: ReviewReply) -> str | None:
            named = {p.criterion_id for p in reply.problems} | set(reply.life_critical)
            strangers = sorted(named - known)
            return f"{strangers[0][:20]!r} is not the id of a criterion" if strangers else None

        inputs = {
            "language": self._language,
            "query": self._text.query,
            "narrative": self._text.narrative,
            "advice": [{"id": e.id, "statement": e.statement} for e in self._advice],
            "criteria": [{"id": c.id, **_shown(c)} for c in criteria],
            "suspicions": list(suspicions(criteria)),
        }
        return await self._reviewer.ask(PACKAGE, "reader.rubric", inputs, ReviewReply, check)


def _shown(c: Criterion) -> Mapping[str, Any]:
    return {"criterion": c.criterion, "axis": c.axis.value, "points": c.points, "advice_id": c.advice_id}


def _weighed(c: Criterion, critical: set[str]) -> Criterion:
    """±10 where a life depends on it by the reviewer's word, and nowhere else."""
    weight = LIFE if c.id in critical else min(abs(c.points), LIFE - 1)
    return replace(c, points=weight if c.points > 0 else -weight)


def _fault_of(reply: RubricReply) -> str | None:
    if reply.specialty != UNKNOWN_SPECIALTY and reply.specialty not in SPECIALTIES:
        return f"specialty {reply.specialty[:60]!r} is not in the list"
    facts = [fact.id for fact in reply.facts]
    if len(set(facts)) < len(facts):
        return "two facts have one id"
    if any(item.points == 0 for item in reply.criteria):
        return "points are never 0"
    strangers = sorted({item.fact_id for item in reply.criteria}.difference(facts))
    return f"fact {strangers[0][:20]!r} is not in the list of facts" if strangers else None


def _criteria(reply: RubricReply) -> tuple[Criterion, ...]:
    facts = {fact.id: fact for fact in reply.facts}
    return tuple(
        Criterion(
            f"c{i}", i, item.criterion, item.axis, item.points, facts[item.fact_id].advice_id,
            facts[item.fact_id].fact,
        )
        for i, item in enumerate(reply.criteria, 1)
    )  # fmt: skip
