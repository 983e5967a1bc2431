"""`complete_rubric` adds criteria for what an excellent answer must say and the forum's physician did not.

Two models name points, neither seeing the other's list. A point is kept where a passage supports it as a claim, by
the path that advice takes, or where both name it. Source: docs/method.md §1, Rubric (origin).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from medlive.curation.agent import Agent, check_known, ids_of
from medlive.curation.elements import Brief
from medlive.curation.model import (
    Alignment,
    ClaimVerdict,
    Curation,
    Element,
    Side,
)
from medlive.curation.tasks import Reason, Text
from medlive.curation.validator import Library, judge_alignment, state_claims
from medlive.llm.ask import AtMost6, AtMost20, EachItem, Loose, ReplyModel

from .lint import MOST_WRITTEN, lightest
from .model import (
    Axis,
    CompletedPoint,
    Completion,
    Criterion,
    Origin,
    PointOutcome,
    Rubric,
    numbered,
)
from .review import (
    case_inputs,
    review_rubric,
    shown_asked,
    shown_omitted,
)
from .write import Drafting, Written, omit

MOST_ADDED = 6
"""Points that are added in one round."""


class PointItem(ReplyModel):
    """A point or danger that the advice lacks, with the criterion that asks for it."""

    point: Text  # The statement that is searched
    kind: Literal["assessment", "plan"]
    criterion: Written
    axis: Loose[Axis]
    points: Annotated[int, Field(ge=2, le=10)]
    asked: str = ""  # The part of the query that it answers directly; empty for none


class ConsideredItem(ReplyModel):
    """What an answer must settle, and where it is settled."""

    matter: Text
    where: Literal["advice", "criterion", "point", "not_needed"]


class CompleteReply(ReplyModel):
    """What an excellent answer says and the advice does not; often nothing.

    Inputs: query, narrative (text), advice [{id, statement}], asked [{id, text}], criteria [{criterion, points,
    asked}], left_out [{point, why}]; where a decent answer scored too high, lacks [str].
    """

    task: ClassVar = "rubric.complete"
    # Before the points, so that a model goes through the matters first; nothing else reads them
    considered: AtMost20[ConsideredItem] = ()
    points: AtMost6[PointItem]


class MatchItem(EachItem):
    """Which point of the other list says what this one says; "" for none.

    Inputs: query, points [{id, point}], others [{id, point}].
    """

    task: ClassVar = "rubric.match"
    each: ClassVar = "matches"
    most: ClassVar = 10
    other: str
    reason: Reason


async def complete_rubric(
    drafting: Drafting,
    curation: Curation,
    judge: Agent,
    library: Library,
    rubric: Rubric,
    lacks: Sequence[str] = (),
) -> Rubric:
    """A rubric with criteria for what the case's advice lacks, and the outcome of each point that was named.

    Args:
        drafting: Its reviewer names points; its writer names points without that list, and reviews what is added. The
            same model in both roles is no consensus, and is asked once.
        curation: The curated thread.
        judge: Judges claims, and which points two lists share.
        library: Where points are searched.
        rubric: What is completed.
        lacks: What an ordinary answer lacked that the rubric scores too high.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    reviewer, writer = drafting.reviewer, drafting.writer
    voices = list(dict.fromkeys((reviewer.identity.model, writer.identity.model)))
    earlier = rubric.completion or Completion()
    inputs = _inputs_of(drafting, rubric, earlier, lacks)
    items = await _points_of(reviewer, "p", inputs, rubric)
    others = {}
    if len(voices) > 1:
        others = await _points_of(writer, "o", inputs, rubric)
    shared = await _shared(judge, drafting.text.query, items, others)
    for name, item in others.items():
        if name not in shared.values():
            items[name] = item
    if not items:
        return replace(rubric, completion=earlier)
    points: dict[str, CompletedPoint] = {}
    for verdict in await _judge_points(curation, judge, library, items):
        name = verdict.element_id
        other = shared.get(name)
        words = others[other].point if other else None
        points[name] = _decide(items[name], verdict, words, voices)
    # Kept first: the only answers to what is asked; then points that both models named; then the heaviest.
    open_parts = set(ids_of(rubric.unanswered))

    def rank(name: str) -> tuple[bool, bool, int]:
        item = items[name]
        return item.asked not in open_parts, name not in shared, -item.points

    kept = [name for name, point in points.items() if point.kept]
    for name in sorted(kept, key=rank)[MOST_ADDED:]:
        points[name] = points[name].without("surplus")
    completed = await _with_criteria(drafting, rubric, items, points)
    note = earlier.note
    if any(p.outcome == "one_model" for p in points.values()):
        note = "one model has both roles, so that no second was asked"
    completion = Completion((*earlier.points, *points.values()), note)
    return replace(completed, completion=completion)


def _inputs_of(
    drafting: Drafting, rubric: Rubric, earlier: Completion, lacks: Sequence[str]
) -> dict[str, Any]:
    """What a model is shown that names points."""
    criteria = []
    for c in rubric.criteria:
        shown = {"criterion": c.criterion, "points": c.points, "asked": c.asked}
        criteria.append(shown)
    left_out = shown_omitted(rubric.omitted)
    # What one model alone named may be named again where it is what an ordinary answer lacks.
    alone = ("one_model", "not_named") if lacks else ()
    for point in earlier.points:
        if not point.kept and point.outcome not in alone:
            why = f"completion: {point.outcome}: {point.detail}"
            left_out.append({"point": point.point, "why": why})
    inputs = case_inputs(drafting.text, drafting.advice) | {
        "asked": shown_asked(rubric.asked),
        "criteria": criteria,
        "left_out": left_out,
    }
    if lacks:
        inputs["lacks"] = list(lacks)
    return inputs


async def _points_of(
    agent: Agent, letter: str, inputs: Mapping[str, Any], rubric: Rubric
) -> dict[str, PointItem]:
    """The points that a model names, by ids that begin with `letter`."""
    known = ["", *ids_of(rubric.asked)]

    def check(reply: CompleteReply) -> str | None:
        named = [point.asked for point in reply.points]
        return check_known(named, known, "a part of what is asked")

    reply = await agent.ask(CompleteReply, inputs, check)
    return {f"{letter}{n}": item for n, item in enumerate(reply.points, start=1)}


async def _judge_points(
    curation: Curation, judge: Agent, library: Library, items: Mapping[str, PointItem]
) -> Sequence[ClaimVerdict]:
    """Judge the points as claims, by passages found as for advice."""
    (query,) = curation.side(Side.QUERY)
    elements = []
    for name, item in items.items():
        # Stated and judged as advice is
        element = Element(
            id=name,
            side=Side.ADVICE,
            kind=item.kind,
            message_id="",
            quote="",
            statement=item.point,
        )
        elements.append(element)
    brief = Brief(query, curation.side(Side.NARRATIVE), elements)
    claims, _ = await state_claims(brief, judge)
    return await judge_alignment(brief, claims, library, judge, confirm_veto=False)


async def _shared(
    judge: Agent,
    query: str,
    named: Mapping[str, PointItem],
    others: Mapping[str, PointItem],
) -> dict[str, str]:
    """Id of a point in `named` → id of the point in `others` that says the same."""
    if not named or not others:
        return {}
    inputs: dict[str, Any] = {"query": query}
    for side, items in (("points", named), ("others", others)):
        inputs[side] = [{"id": i, "point": x.point} for i, x in items.items()]

    def fault_of(match: MatchItem) -> str | None:
        return check_known([match.other], ["", *others], "a point of the other list")

    matches = await judge.ask_each(MatchItem, inputs, named, fault_of)
    return {name: match.other for name, match in matches.items() if match.other}


def _decide(
    item: PointItem, verdict: ClaimVerdict, shared: str | None, voices: Sequence[str]
) -> CompletedPoint:
    """The outcome of a point, by its verdict and by `shared`, the other model's words for it. `voices`: the models."""
    source = ""
    detail = verdict.reason
    outcome: PointOutcome
    if verdict.verdict is Alignment.CONTRADICTED:
        outcome = "contradicted"
    elif verdict.verdict is Alignment.NOT_STANDARD:
        outcome = "not_standard"
    elif verdict.verdict is Alignment.SUPPORTED:
        outcome = "evidence"
        source = verdict.citations[0].passage_id
        detail = verdict.citations[0].quote
    elif shared is not None:
        outcome = "consensus"
        source = ", ".join(voices)
        detail = shared
    elif len(voices) > 1:
        outcome = "not_named"
    else:
        outcome = "one_model"
    return CompletedPoint(item.point, item.criterion, outcome, source, detail)


async def _with_criteria(
    drafting: Drafting,
    rubric: Rubric,
    items: Mapping[str, PointItem],
    points: dict[str, CompletedPoint],
) -> Rubric:
    """The rubric with the criteria of the kept points; the writer reviews all of them, also those that it named.

    In `points` those are marked whose criteria are at fault or find no room.
    """
    own = rubric.criteria
    added: dict[str, Criterion] = {}
    for name, point in points.items():
        if not point.kept:
            continue
        number = len(own) + len(added) + 1
        item = items[name]
        values = item.model_dump(include={"criterion", "axis", "points", "asked"})
        added[name] = Criterion(
            id=f"c{number}",
            position=number,
            advice_id=None,
            fact=item.point,
            origin=Origin(point.outcome),
            source=point.source,
            **values,
        )
    if not added:
        return rubric
    whole = replace(rubric, criteria=(*own, *added.values()))
    findings, weighed, contradictions = await review_rubric(
        drafting.writer, drafting.text, drafting.advice, whole
    )
    problems: dict[str | None, str] = {}
    for finding in findings:
        if finding.fault != "not_direct":
            problems[finding.criterion] = finding.words
    # The rubric's own keep their weights.
    reviewed = [*own, *(c for c in weighed[len(own) :] if c.id not in problems)]
    # Room is made by the lightest criteria that earn points and answer nothing asked.
    cut = lightest(reviewed, len(reviewed) - MOST_WRITTEN)
    gone = ids_of(cut)
    for name, criterion in added.items():
        if problem := problems.get(criterion.id):
            points[name] = points[name].without("faulty", problem)
        elif criterion.id in gone:
            points[name] = points[name].without("surplus")
    why = "the lightest, made room for what the advice lacks"
    omitted = [omit(c, why, "completion") for c in cut if c in own]
    return replace(
        rubric,
        criteria=numbered(c for c in reviewed if c not in cut),
        omitted=(*rubric.omitted, *omitted),
        conflicts=(*rubric.conflicts, *contradictions),
    )
