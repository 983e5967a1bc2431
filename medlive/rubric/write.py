"""A case's rubric: written by one engine, linted in code, reviewed by another, revised once where it must be.

Source: LiveMedBench §3.3; docs/method.md §1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, AgentFailure, check_known
from medlive.curation.elements import element_inputs
from medlive.curation.identified import by_id, ids_of
from medlive.curation.model import (
    CaseText,
    Element,
)
from medlive.curation.tasks import ReplyModel
from medlive.rubric.lint import (
    RELEASED,
    WRITTEN,
    Bounds,
    Fault,
    Finding,
    find_light,
    lint,
    without_faulty,
)
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Criterion,
    Omission,
    OmittedFact,
    Origin,
    Rubric,
    Theme,
    numbered,
)
from medlive.rubric.proof import Proof
from medlive.rubric.review import ask_review, shown, weigh


class FactItem(ReplyModel):
    """A fact of the advice that matters for the theme."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=20)]
    fact: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    advice_id: str  # The advice element that states it


class OmittedItem(ReplyModel):
    """A fact of the advice that the question and the theme do not need, or that is not sound."""

    fact: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    advice_id: str
    reason: Annotated[Omission, Field(strict=False)]


class CriterionItem(ReplyModel):
    """A criterion as an engine proposes it."""

    criterion: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    axis: Annotated[Axis, Field(strict=False)]
    points: Annotated[int, Field(ge=-10, le=10)]
    fact_id: str  # The fact that it asks for


class RubricReply(ReplyModel):
    """The theme, the specialty, the facts that matter, and each fact's criteria.

    Inputs: query, narrative (text), advice [{id, kind, statement}], and on the revision round `earlier`, the
    criteria as they were, with `findings` [{criterion, finding}].
    """

    task: ClassVar = "rubric.write"
    theme: Annotated[Theme, Field(strict=False)]
    specialty: str
    facts: Annotated[tuple[FactItem, ...], Field(max_length=40, strict=False)]
    criteria: Annotated[tuple[CriterionItem, ...], Field(max_length=40, strict=False)]
    # Why no criterion costs points; else empty
    no_negative: Annotated[str, StringConstraints(max_length=1000)]
    left_out: Annotated[
        tuple[OmittedItem, ...], Field(max_length=40, strict=False)
    ] = ()


class MadeRubric(NamedTuple):
    """A rubric, and what still speaks against it, which holds its case for a person."""

    rubric: Rubric
    faults: tuple[Finding, ...]
    proof: Proof | None = None  # None where none was made


@dataclass(frozen=True, slots=True)
class _Draft:
    """A reply, its criteria as weighed and reviewed, and what is left without those at fault."""

    reply: RubricReply
    whole: tuple[Criterion, ...]
    findings: tuple[Finding, ...]
    light: tuple[Finding, ...]  # Not shown to the writer, who would give more points
    criteria: tuple[Criterion, ...]  # Those without a fault that are not too light
    remaining: tuple[Finding, ...]  # What is wrong with these

    def rubric(self) -> Rubric:
        """The rubric of the criteria without a fault."""
        has_penalty = any(c.points < 0 for c in self.criteria)
        no_negative = "" if has_penalty else self.reply.no_negative.strip()
        return Rubric(
            theme=self.reply.theme,
            specialty=self.reply.specialty,
            criteria=self.criteria,
            no_negative=no_negative,
            omitted=_omitted(self.reply, self),
        )

    def shown_findings(self) -> list[dict[str, str]]:
        """What the writer is shown of the findings."""
        shown_findings = []
        for finding in self.findings:
            words = f"{finding.fault.value}: {finding.detail}"
            shown_findings.append(
                {"criterion": finding.criterion or "", "finding": words}
            )
        return shown_findings

    def lost_advice(self) -> bool:
        """Whether an advice that earned points earns none any more, though it is needed and no other says the same."""
        needless = set()
        for finding in (*self.findings, *self.light):
            if finding.fault in (Fault.DUPLICATE, Fault.MINOR):
                needless.add(finding.criterion)
        needed = [c for c in self.whole if c.id not in needless]
        return not _rewarded_advice(needed) <= _rewarded_advice(self.criteria)


def _rewarded_advice(criteria: Sequence[Criterion]) -> set[str | None]:
    return {c.advice_id for c in criteria if c.points > 0}


@dataclass(frozen=True, slots=True)
class Drafting:
    """One case's rubric while it is written: by one engine, reviewed by another."""

    text: CaseText
    advice: Sequence[Element]
    writer: Agent
    reviewer: Agent

    async def write(self) -> MadeRubric:
        """Write the rubric.

        Criteria at fault are dropped. Where the rubric cannot do without them, it goes back once with what linter and
        reviewer found. Raises AgentFailure when an engine gives no usable reply.
        """
        draft = await self._draft()
        if draft.remaining or draft.lost_advice():
            try:
                draft = await self._draft(
                    _criteria(draft.reply), draft.shown_findings()
                )
            except AgentFailure as failure:
                raise AgentFailure(
                    failure.reason, f"revision round: {failure.detail}"
                ) from failure
        return MadeRubric(draft.rubric(), draft.remaining)

    async def revise(
        self, rubric: Rubric, findings: Sequence[Mapping[str, str]]
    ) -> MadeRubric:
        """Have the writer revise a rubric.

        Args:
            rubric: What is revised.
            findings: What speaks against it: {criterion (an id, or "" for the whole), finding}.

        Raises:
            AgentFailure: If an engine gives no usable reply.
        """
        written: list[Criterion] = []
        added: list[Criterion] = []
        for criterion in rubric.criteria:
            of_advice = criterion.origin is Origin.ADVICE
            (written if of_advice else added).append(criterion)
        ids = {"", *ids_of(written)}
        shown_findings = [f for f in findings if f["criterion"] in ids]
        draft = await self._draft(written, shown_findings)
        revised = draft.rubric()
        # What completion added does not rest on the advice, which is all that the writer has.
        criteria = numbered((*revised.criteria, *added))
        revised = replace(revised, criteria=criteria, completion=rubric.completion)
        return MadeRubric(revised, draft.remaining)

    def lint(self, rubric: Rubric) -> tuple[Finding, ...]:
        """The certain faults of a rubric of this case that is to be released."""
        return lint_case(
            self.writer.language,
            rubric.criteria,
            self.text,
            self.advice,
            rubric.no_negative,
        )

    async def _draft(
        self,
        earlier: Sequence[Criterion] = (),
        findings: Sequence[Mapping[str, str]] = (),
    ) -> _Draft:
        """A draft, or the revision of an earlier one."""
        inputs: dict[str, Any] = {
            "query": self.text.query,
            "narrative": self.text.narrative,
            "advice": element_inputs(self.advice, "kind", "statement"),
        }
        if earlier:
            inputs["earlier"] = list(map(shown, earlier))
            inputs["findings"] = list(findings)
        known = set(ids_of(self.advice))

        def check(reply: RubricReply) -> str | None:
            named = {item.advice_id for item in reply.left_out}
            return _fault_of(reply) or check_known(named, known, "an advice element")

        reply = await self.writer.ask(RubricReply, inputs, check)
        criteria = _criteria(reply)
        faults = list(self._lint(criteria, reply))
        review = await ask_review(
            self.reviewer, self.text, element_inputs(self.advice), criteria
        )
        whole = []
        for criterion in criteria:
            whole.append(weigh(criterion, criterion.id in review.life_critical))
        for problem in review.problems:
            fault = Fault(problem.fault)
            faults.append(Finding(fault, problem.criterion_id, problem.detail))
        light = tuple(find_light(whole, faults))
        kept = without_faulty(whole, [*faults, *light])
        return _Draft(
            reply=reply,
            whole=tuple(whole),
            findings=tuple(faults),
            light=light,
            criteria=kept,
            remaining=self._lint(kept, reply),
        )

    def _lint(
        self, criteria: Sequence[Criterion], reply: RubricReply
    ) -> tuple[Finding, ...]:
        return lint_case(
            self.writer.language,
            criteria,
            self.text,
            self.advice,
            reply.no_negative,
            bounds=WRITTEN,
        )


def _omitted(reply: RubricReply, draft: _Draft) -> tuple[OmittedFact, ...]:
    """What the writer left out, and the facts whose criteria were all dropped."""
    facts = []
    for item in reply.left_out:
        facts.append(OmittedFact(item.fact, item.advice_id, item.reason))
    kept = {c.fact for c in draft.criteria}
    faults = {f.criterion: f.fault for f in (*draft.findings, *draft.light)}
    for criterion in draft.whole:
        if criterion.fact in kept or criterion.fact is None:
            continue
        kept.add(criterion.fact)
        fault = faults.get(criterion.id)
        refuted = fault in (Fault.FALSE, Fault.UNGROUNDED)
        facts.append(
            OmittedFact(
                fact=criterion.fact,
                advice_id=criterion.advice_id or "",
                reason=Omission.REFUTED if refuted else Omission.TRIVIAL,
                detail=f"its criterion was dropped: {fault.value if fault else 'the lightest of too many'}",
            )
        )
    return tuple(facts)


def _fault_of(reply: RubricReply) -> str | None:
    if reply.specialty != UNKNOWN_SPECIALTY and reply.specialty not in SPECIALTIES:
        return f"specialty {reply.specialty[:60]!r} is not in the list"
    facts = set(ids_of(reply.facts))
    if len(facts) < len(reply.facts):
        return "two facts have one id"
    asked = set()
    for item in reply.criteria:
        if item.points == 0:
            return "points are never 0"
        asked.add(item.fact_id)
    return check_known(asked, facts, "a fact")


def _criteria(reply: RubricReply) -> tuple[Criterion, ...]:
    facts = by_id(reply.facts)
    criteria = []
    for place, item in enumerate(reply.criteria, start=1):
        fact = facts[item.fact_id]
        criterion = Criterion(
            id=f"c{place}",
            position=place,
            criterion=item.criterion,
            axis=item.axis,
            points=item.points,
            advice_id=fact.advice_id,
            fact=fact.fact,
        )
        criteria.append(criterion)
    return tuple(criteria)


def lint_case(
    language: str,
    criteria: Sequence[Criterion],
    text: CaseText,
    advice: Sequence[Element],
    no_negative: str,
    *,
    bounds: Bounds = RELEASED,
) -> tuple[Finding, ...]:
    """The faults that the linter finds in the rubric of a case with these texts and advice elements."""
    words = {}
    for element in advice:
        words[element.id] = f"{element.statement}\n{element.quote}"
    case = f"{text.narrative}\n{text.query}\n{text.advice}"
    return lint(language, criteria, words, case, no_negative=no_negative, bounds=bounds)
