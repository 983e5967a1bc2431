"""The review of a rubric by an engine other than its writer's, and what engines are shown of a case and its rubric."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import StringConstraints

from medlive.curation.agent import Agent, check_known
from medlive.curation.elements import element_inputs
from medlive.curation.model import CaseText, Element
from medlive.llm.ask import AtMost20, AtMost40, ReplyModel

from .lint import Finding, Objection, suspicions
from .model import (
    LEAST_DECISIVE,
    AskedPart,
    Conflict,
    Criterion,
    OmittedFact,
    Origin,
    Rubric,
)

LIFE = 10  # The weight of what a life depends on, and of nothing else


Remark = Annotated[str, StringConstraints(max_length=1000)]


class ProblemItem(ReplyModel):
    """What a reviewer objects to in one criterion."""

    criterion_id: str
    fault: Objection
    detail: Remark


class ConflictItem(ReplyModel):
    """A criterion that contradicts an advice element or another criterion."""

    criterion_id: str
    other: str  # The id of the advice element or criterion
    detail: Remark


class ReviewReply(ReplyModel):
    """What is wrong with criteria, what they contradict, and which of them a life depends on.

    Inputs: query, narrative, advice [{id, statement}], asked [{id, text}], criteria [{id, criterion, …}], left_out
    [{point, why}], suspicions [str].
    """

    task: ClassVar = "reader.rubric"
    problems: AtMost40[ProblemItem]
    life_critical: AtMost40[str]
    conflicts: AtMost20[ConflictItem] = ()


async def review_rubric(
    agent: Agent, text: CaseText, advice: Sequence[Element], rubric: Rubric
) -> tuple[list[Finding], list[Criterion], list[Conflict]]:
    """Have a rubric's criteria reviewed.

    Args:
        agent: The reviewer.
        text: The case's texts.
        advice: What the criteria are based on.
        rubric: The criteria, the parts of the query, and what is left out.

    Returns:
        What the reviewer objects to; the criteria in their order, with the weights that the review leaves them; and
        what they contradict.

    Raises:
        AgentFailure: If the engine gives no usable reply.
    """
    inputs = case_inputs(text, advice)
    statements = {element.id: element.statement for element in advice}
    texts = {criterion.id: criterion.criterion for criterion in rubric.criteria}
    others = statements | texts
    criteria = list[Criterion]()
    for criterion in rubric.criteria:
        if criterion.origin is not Origin.ADVICE:
            # The reviewer sees the point that the advice lacks in place of an advice element.
            point = {"id": f"p-{criterion.id}", "statement": criterion.fact}
            inputs["advice"].append(point)
            others[f"p-{criterion.id}"] = criterion.criterion
            criterion = replace(criterion, advice_id=point["id"])
        criteria.append(criterion)
    inputs |= {
        "asked": shown_asked(rubric.asked),
        "criteria": list(map(shown, criteria)),
        "left_out": shown_omitted(rubric.omitted),
        "suspicions": list(suspicions(criteria)),
    }

    def check(reply: ReviewReply) -> str | None:
        named = {p.criterion_id for p in reply.problems} | set(reply.life_critical)
        named |= {c.criterion_id for c in reply.conflicts}
        return check_known(named, texts, "a criterion") or check_known(
            {c.other for c in reply.conflicts},
            others,
            "an advice element or a criterion",
        )

    reply = await agent.ask(ReviewReply, inputs, check)
    findings = []
    for problem in reply.problems:
        finding = Finding(problem.fault, problem.criterion_id, problem.detail)
        findings.append(finding)
    conflicts = []
    for item in reply.conflicts:
        conflict = Conflict(
            criterion=texts[item.criterion_id],
            other=others[item.other],
            detail=item.detail,
            advice_id=item.other if item.other in statements else "",
        )
        if conflict.criterion != conflict.other:
            conflicts.append(conflict)
    return findings, _weigh(rubric.criteria, findings, reply.life_critical), conflicts


def case_inputs(
    text: CaseText, advice: Iterable[Element], *fields: str
) -> dict[str, Any]:
    """A case as an engine sees it: query, narrative, and of its advice the id and the fields (default: statement)."""
    return {
        "query": text.query,
        "narrative": text.narrative,
        "advice": element_inputs(advice, *fields),
    }


def shown(c: Criterion) -> dict[str, Any]:
    """A criterion as an engine sees it."""
    values = {
        "id": c.id,
        "criterion": c.criterion,
        "axis": c.axis.value,
        "points": c.points,
        "advice_id": c.advice_id,
        "asked": c.asked,
    }
    return values | {"likely": c.likely} if c.points < 0 else values


def shown_asked(parts: Sequence[AskedPart]) -> list[dict[str, str]]:
    """The parts of a query as an engine sees them."""
    return [{"id": part.id, "text": part.text} for part in parts]


def shown_omitted(omitted: Sequence[OmittedFact]) -> list[dict[str, str]]:
    """What was left out, as an engine sees it."""
    return [{"point": fact.fact, "why": fact.why} for fact in omitted]


def _weigh(
    criteria: Iterable[Criterion],
    findings: Iterable[Finding],
    life_critical: Collection[str],
) -> list[Criterion]:
    """The criteria with the weights that a review leaves them.

    One that does not answer its part of the query directly loses the part. What was asked is decisive, and only where
    a life depends on a decisive criterion has it ±10.
    """
    indirect = {f.criterion for f in findings if f.fault == "not_direct"}
    weighed = []
    for criterion in criteria:
        asked = "" if criterion.id in indirect else criterion.asked
        is_reward = criterion.points > 0
        weight = min(abs(criterion.points), LIFE - 1)
        if asked and is_reward:
            weight = max(weight, LEAST_DECISIVE)
        if weight >= LEAST_DECISIVE and criterion.id in life_critical:
            weight = LIFE
        points = weight if is_reward else -weight
        weighed.append(replace(criterion, asked=asked, points=points))
    return weighed
