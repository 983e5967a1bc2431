"""A case's rubric, written by an engine, linted in code, revised once, and held when it still has faults.

Source: LiveMedBench §3.3; docs/method.md §1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText, Element
from medlive.rubric.lint import Finding, Grounds, lint, repair
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Criterion, Rubric, RubricReply

PACKAGE = "medlive.rubric"


@dataclass(frozen=True, slots=True)
class WrittenRubric:
    """A rubric with what the linter found on the way."""

    rubric: Rubric
    first_findings: tuple[Finding, ...]
    """Of the first draft."""
    remaining: tuple[Finding, ...]
    """Of the rubric as it is; anything here holds the case for a person."""


async def write_rubric(language: str, text: CaseText, advice: Sequence[Element], agent: Agent) -> WrittenRubric:
    """The rubric of a case. Raises AgentFailure when the engine gives no usable reply.

    A faulty draft goes back once with the linter's findings; what is still faulty is dropped where enough
    remains, and the rest of the findings are returned.
    """
    ids = frozenset(e.id for e in advice)
    grounds = Grounds(
        {e.id: f"{e.statement}\n{e.quote}" for e in advice}, f"{text.narrative}\n{text.query}\n{text.advice}"
    )
    inputs: dict[str, object] = {
        "language": language,
        "query": text.query,
        "narrative": text.narrative,
        "advice": [{"id": e.id, "kind": e.kind.value, "statement": e.statement} for e in advice],
    }

    def check(reply: RubricReply) -> str | None:
        if reply.specialty != UNKNOWN_SPECIALTY and reply.specialty not in SPECIALTIES:
            return f"specialty {reply.specialty[:60]!r} is not in the list"
        facts = [fact.id for fact in reply.facts]
        if len(set(facts)) < len(facts):
            return "two facts have one id"
        strangers = sorted({item.fact_id for item in reply.criteria}.difference(facts))
        return f"fact {strangers[0][:20]!r} is not in the list of facts" if strangers else None

    draft = await agent.ask(PACKAGE, "rubric.write", inputs, RubricReply, check)
    criteria = _criteria(draft)
    first = lint(language, criteria, ids, grounds)
    if first:
        findings = [
            {
                "criterion": next((c.criterion for c in criteria if c.id == f.criterion), ""),
                "finding": f"{f.fault.value}: {f.detail}",
            }
            for f in first
        ]
        try:
            revised = await agent.ask(
                PACKAGE, "rubric.write", {**inputs, "findings": findings}, RubricReply, check
            )
        except AgentFailure as failure:
            raise AgentFailure(failure.reason, f"revision round: {failure.detail}") from failure
        draft, criteria = revised, _criteria(revised)
    criteria, remaining = repair(language, criteria, ids, grounds)
    return WrittenRubric(Rubric(draft.theme, draft.specialty, criteria), first, remaining)


def _criteria(reply: RubricReply) -> tuple[Criterion, ...]:
    facts = {fact.id: fact for fact in reply.facts}
    return tuple(
        Criterion(
            f"c{i}", i, item.criterion, item.axis, item.points, facts[item.fact_id].advice_id,
            facts[item.fact_id].fact,
        )
        for i, item in enumerate(reply.criteria, 1)
    )  # fmt: skip
