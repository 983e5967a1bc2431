"""What an excellent answer must say and the forum's physician did not: named by a model, and proved before it counts.

Two models name points, neither seeing the other's list. A point is kept where a passage supports it as a claim, by
the path that advice takes, or where both name it. Source: docs/method.md §1, Rubric (origin).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, check_ids, check_known
from medlive.curation.elements import element_inputs
from medlive.curation.identified import ids_of
from medlive.curation.model import (
    Alignment,
    CaseText,
    ClaimVerdict,
    Curation,
    Element,
    Kind,
    Side,
)
from medlive.curation.tasks import Reason, ReplyModel, Text
from medlive.curation.validator import (
    Brief,
    EvidenceLimits,
    judge_alignment,
    state_claims,
)
from medlive.evidence.passage import Retriever
from medlive.rubric.lint import LIGHT, WRITTEN
from medlive.rubric.model import (
    Axis,
    CompletedPoint,
    Completion,
    Criterion,
    Omission,
    OmittedFact,
    Origin,
    PointOutcome,
    Rubric,
    numbered,
)
from medlive.rubric.review import ask_review, weigh

MOST_POINTS: Final = 4


@dataclass(frozen=True, slots=True)
class Library:
    """Where claims are searched."""

    retriever: Retriever
    limits: EvidenceLimits
    not_after: date  # Nothing published later is cited


class PointItem(ReplyModel):
    """A decisive point or danger that the advice lacks, with the criterion that asks for it."""

    point: Text  # The statement that is searched
    kind: Literal["assessment", "plan"]
    criterion: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    axis: Annotated[Axis, Field(strict=False)]
    points: Annotated[int, Field(ge=4, le=10)]


class ConsideredItem(ReplyModel):
    """What an answer must settle, and where it is settled."""

    matter: Text
    where: Literal["advice", "criterion", "point", "not_needed"]


class CompleteReply(ReplyModel):
    """What an excellent answer must say and the advice does not; often nothing.

    Inputs: query, narrative (text), advice [{id, statement}], criteria [str].
    """

    task: ClassVar = "rubric.complete"
    # Before the points, so that a model goes through the matters first; nothing else reads them
    considered: Annotated[
        tuple[ConsideredItem, ...], Field(max_length=20, strict=False)
    ] = ()
    points: Annotated[
        tuple[PointItem, ...], Field(max_length=MOST_POINTS, strict=False)
    ]


class MatchItem(ReplyModel):
    """Which point of the other list says what this one says; "" for none."""

    id: str
    other: str
    reason: Reason


class MatchReply(ReplyModel):
    """Which points two lists share. Inputs: query, points [{id, point}], others [{id, point}]."""

    task: ClassVar = "rubric.match"
    matches: Annotated[tuple[MatchItem, ...], Field(max_length=10, strict=False)]


@dataclass(frozen=True, slots=True)
class Completing:
    """A rubric of a case's advice, to which the criteria are added that the advice lacks."""

    text: CaseText
    curation: Curation
    rubric: Rubric
    first: Agent  # Names points
    second: Agent  # Names points without the first's list, reviews what is added
    judge: Agent  # Of claims, and of what two lists share
    library: Library

    @property
    def has_two_voices(self) -> bool:
        """Whether first and second are two models; the same one twice is no consensus."""
        return self.first.identity.model != self.second.identity.model

    async def run(self) -> Rubric:
        """The rubric with what was added, and what became of each point that was named.

        Raises:
            AgentFailure: If an engine gives no usable reply.
        """
        named = _numbered("p", await self._ask(self.first))
        others = {}
        if self.has_two_voices:
            others = _numbered("o", await self._ask(self.second))
        shared = await self._shared(named, others)
        items = dict(named)
        for name, item in others.items():
            if name not in shared.values():
                items[name] = item
        if not items:
            return replace(self.rubric, completion=Completion())
        judged = await self._judge(items)
        points: dict[str, CompletedPoint] = {}
        for name, item in items.items():
            other = shared.get(name)
            words = others[other].point if other else None
            points[name] = self._decide(item, judged[name], words)
        note = ""
        if any(p.outcome is PointOutcome.ONE_MODEL for p in points.values()):
            note = "one model has both roles, so that no second was asked"
        return await self._with_criteria(items, _gravest(items, points, shared), note)

    async def _ask(self, agent: Agent) -> tuple[PointItem, ...]:
        inputs = {
            "query": self.text.query,
            "narrative": self.text.narrative,
            "advice": element_inputs(self.curation.side(Side.ADVICE)),
            "criteria": [c.criterion for c in self.rubric.criteria],
        }
        return (await agent.ask(CompleteReply, inputs)).points

    async def _judge(self, items: Mapping[str, PointItem]) -> dict[str, ClaimVerdict]:
        """Judge the points as claims, by passages found as for advice."""
        (query,) = self.curation.side(Side.QUERY)
        elements = list(map(_element, items.keys(), items.values()))
        brief = Brief(query, self.curation.side(Side.NARRATIVE), elements)
        claims = await state_claims(brief, self.judge)
        limits = self.library.limits
        hits = await self.library.retriever.search(
            [claim.query for claim in claims],
            k=limits.searched,
            not_after=self.library.not_after,
        )
        _, verdicts = await judge_alignment(
            brief, claims, hits, self.judge, limits=limits, confirm_veto=False
        )
        return {verdict.element_id: verdict for verdict in verdicts}

    async def _shared(
        self, named: Mapping[str, PointItem], others: Mapping[str, PointItem]
    ) -> dict[str, str]:
        """Return which points of the first list the second names too, each with its id there."""
        if not named or not others:
            return {}
        inputs = {
            "query": self.text.query,
            "points": _listed(named),
            "others": _listed(others),
        }

        def check(reply: MatchReply) -> str | None:
            known = set(_pairs(reply).values())
            return check_ids(ids_of(reply.matches), list(named)) or check_known(
                known, set(others), "a point of the other list"
            )

        return _pairs(await self.judge.ask(MatchReply, inputs, check))

    def _decide(
        self, item: PointItem, verdict: ClaimVerdict, shared: str | None
    ) -> CompletedPoint:
        """What becomes of a point."""
        outcome, source, detail = PointOutcome.NOT_NAMED, "", verdict.reason
        if verdict.verdict in (Alignment.CONTRADICTED, Alignment.NOT_STANDARD):
            outcome = PointOutcome(verdict.verdict.value)
        elif verdict.verdict is Alignment.SUPPORTED:
            outcome, citation = PointOutcome.EVIDENCE, verdict.citations[0]
            source, detail = citation.passage_id, citation.quote
        elif shared is not None:
            first, second = self.first.identity, self.second.identity
            outcome = PointOutcome.CONSENSUS
            source, detail = f"{first.model}, {second.model}", shared
        elif not self.has_two_voices:
            outcome = PointOutcome.ONE_MODEL
        return CompletedPoint(
            point=item.point,
            criterion=item.criterion,
            outcome=outcome,
            source=source,
            detail=detail,
        )

    async def _with_criteria(
        self,
        items: Mapping[str, PointItem],
        points: Mapping[str, CompletedPoint],
        note: str,
    ) -> Rubric:
        """The rubric with the criteria of the kept points, reviewed by the second model, also those of its own."""
        added: dict[str, Criterion] = {}
        for name, point in points.items():
            if point.outcome.kept:
                number = len(self.rubric.criteria) + len(added) + 1
                added[name] = _criterion(number, items[name], point)
        problems: dict[str, str] = {}
        critical: set[str] = set()
        if added:
            problems, critical = await self._review(added, items)
        decided = dict(points)
        criteria = list(self.rubric.criteria)
        for name, criterion in added.items():
            if (problem := problems.get(criterion.id)) is not None:
                refused = PointOutcome.FAULTY
                decided[name] = replace(
                    points[name], outcome=refused, source="", detail=problem
                )
            else:
                criteria.append(weigh(criterion, criterion.id in critical))
        criteria, cut = _cut(criteria)
        return replace(
            self.rubric,
            criteria=numbered(criteria),
            omitted=(*self.rubric.omitted, *cut),
            completion=Completion(points=tuple(decided.values()), note=note),
        )

    async def _review(
        self, added: Mapping[str, Criterion], items: Mapping[str, PointItem]
    ) -> tuple[dict[str, str], set[str]]:
        """Review the rubric with the points as further advice; return problems and life-critical ids."""
        advice = element_inputs(self.curation.side(Side.ADVICE))
        shown = []
        for name, criterion in added.items():
            advice.append({"id": name, "statement": items[name].point})
            # The reviewer sees the point where a criterion of the advice has its element.
            shown.append(replace(criterion, advice_id=name))
        review = await ask_review(
            self.second, self.text, advice, [*self.rubric.criteria, *shown]
        )
        ids = set(ids_of(shown))
        problems = {}
        for problem in review.problems:
            if problem.criterion_id in ids:
                problems[problem.criterion_id] = f"{problem.fault}: {problem.detail}"
        return problems, ids & set(review.life_critical)


def _pairs(reply: MatchReply) -> dict[str, str]:
    """Point → the point of the other list that says the same, of those that have one."""
    return {match.id: match.other for match in reply.matches if match.other}


def _element(name: str, item: PointItem) -> Element:
    """A point as an element, so that it is stated and judged as advice is."""
    return Element(
        id=name,
        side=Side.ADVICE,
        kind=Kind(item.kind),
        message_id="",
        quote="",
        statement=item.point,
    )


def _criterion(number: int, item: PointItem, point: CompletedPoint) -> Criterion:
    return Criterion(
        id=f"c{number}",
        position=number,
        criterion=item.criterion,
        axis=item.axis,
        points=item.points,
        advice_id=None,
        fact=item.point,
        origin=Origin(point.outcome.value),
        source=point.source,
    )


def _cut(criteria: list[Criterion]) -> tuple[list[Criterion], list[OmittedFact]]:
    """Make room for what was added: the lightest criteria of advice that earn points go."""
    surplus = len(criteria) - WRITTEN.most
    if surplus <= 0:
        return criteria, []
    of_advice = [c for c in criteria if c.origin is Origin.ADVICE and c.points > 0]
    lightest = sorted(of_advice, key=lambda c: (c.points, -c.position))[:surplus]
    kept, omitted = list(criteria), []
    for criterion in lightest:
        kept.remove(criterion)
        fact = OmittedFact(
            fact=criterion.fact or criterion.criterion,
            advice_id=criterion.advice_id or "",
            reason=Omission.TRIVIAL,
            detail="the lightest, made room for what the advice lacks",
        )
        omitted.append(fact)
    return kept, omitted


def _numbered(letter: str, items: Sequence[PointItem]) -> dict[str, PointItem]:
    names = {}
    for number, item in enumerate(items, start=1):
        names[f"{letter}{number}"] = item
    return names


def _listed(items: Mapping[str, PointItem]) -> list[dict[str, str]]:
    return [{"id": name, "point": item.point} for name, item in items.items()]


def _gravest(
    items: Mapping[str, PointItem],
    points: Mapping[str, CompletedPoint],
    shared: Mapping[str, str],
) -> dict[str, CompletedPoint]:
    """The points, at most `MOST_POINTS` of them kept: those that both models named, then the heaviest; none light."""
    kept = [name for name, point in points.items() if point.outcome.kept]
    kept.sort(key=lambda name: (name not in shared, -items[name].points))
    heavy = [name for name in kept if items[name].points > LIGHT]
    decided = dict(points)
    for name in set(kept) - set(heavy[:MOST_POINTS]):
        decided[name] = replace(
            points[name], outcome=PointOutcome.SURPLUS, source="", detail=""
        )
    return decided
