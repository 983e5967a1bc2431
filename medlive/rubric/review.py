"""The review of a rubric by an engine other than its writer's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, check_known
from medlive.curation.identified import ids_of
from medlive.curation.model import CaseText
from medlive.curation.tasks import ReplyModel
from medlive.rubric.lint import suspicions
from medlive.rubric.model import Criterion

LIFE: Final = 10  # The weight of what a life depends on, and of nothing else


class ProblemItem(ReplyModel):
    """What a reviewer objects to in one criterion."""

    criterion_id: str
    fault: Literal[
        "duplicate",
        "two_facts",
        "not_standalone",
        "polarity",
        "ungrounded",
        "false",
        "minor",
    ]
    detail: Annotated[str, StringConstraints(max_length=1000)]


class ReviewReply(ReplyModel):
    """What is wrong with criteria, and which of them a life depends on.

    Inputs: query, narrative, advice [{id, statement}], criteria [{id, criterion, …}], suspicions [str].
    """

    task: ClassVar = "reader.rubric"
    problems: Annotated[tuple[ProblemItem, ...], Field(max_length=40, strict=False)]
    life_critical: Annotated[tuple[str, ...], Field(max_length=40, strict=False)]


async def ask_review(
    agent: Agent,
    text: CaseText,
    advice: Sequence[dict[str, Any]],
    criteria: Sequence[Criterion],
) -> ReviewReply:
    """Have criteria reviewed.

    Args:
        agent: The reviewer.
        text: The case's texts.
        advice: What the criteria rest on, `id` and `statement`.
        criteria: The criteria.

    Raises:
        AgentFailure: If the engine gives no usable reply.
    """
    inputs = {
        "query": text.query,
        "narrative": text.narrative,
        "advice": list(advice),
        "criteria": list(map(shown, criteria)),
        "suspicions": list(suspicions(criteria)),
    }

    def check(reply: ReviewReply) -> str | None:
        named = {p.criterion_id for p in reply.problems} | set(reply.life_critical)
        return check_known(named, set(ids_of(criteria)), "a criterion")

    return await agent.ask(ReviewReply, inputs, check)


def shown(c: Criterion) -> dict[str, Any]:
    """A criterion as an engine sees it."""
    return {
        "id": c.id,
        "criterion": c.criterion,
        "axis": c.axis.value,
        "points": c.points,
        "advice_id": c.advice_id,
    }


def weigh(c: Criterion, critical: bool) -> Criterion:
    """±10 where a life depends on it by the reviewer's word, and nowhere else."""
    weight = LIFE if critical else min(abs(c.points), LIFE - 1)
    return replace(c, points=weight if c.points > 0 else -weight)
