"""A case's rubric: written by one engine, linted in code, reviewed by another, revised once where it must be.

`complete_case` makes a curated case one that can be released: its rubric with its proof, the last look for
identifiers, and what kind of case it is.

Source: LiveMedBench §3.3; docs/method.md §1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, AgentFailure, check_known
from medlive.curation.chain import with_holds
from medlive.curation.elements import element_inputs
from medlive.curation.model import (
    CaseText,
    Curation,
    Element,
    Hold,
    Outcome,
    Reason,
    Side,
    Stage,
)
from medlive.curation.second_reader import Redacted, redact_texts
from medlive.curation.tasks import ReplyModel
from medlive.llm.engine import Engine
from medlive.rubric.classify import classify
from medlive.rubric.defend import cited_passages
from medlive.rubric.lint import Fault, Finding, lint, suspicions, without_faulty
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Criterion,
    Rubric,
    Theme,
)
from medlive.rubric.proof import Proof
from medlive.rubric.prove import GradeProbe, Proving, Revision

LIFE: Final = 10  # The weight of what a life depends on, and of nothing else


class FactItem(ReplyModel):
    """A fact of the advice that matters for the theme."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=20)]
    fact: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    advice_id: str  # The advice element that states it


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
    no_negative: Annotated[
        str, StringConstraints(max_length=1000)
    ]  # Why no criterion costs points; else empty


class ProblemItem(ReplyModel):
    """What a reviewer objects to in one criterion."""

    criterion_id: str
    fault: Literal[
        "duplicate", "two_facts", "not_standalone", "polarity", "ungrounded", "false"
    ]
    detail: Annotated[str, StringConstraints(max_length=1000)]


class ReviewReply(ReplyModel):
    """What is wrong with criteria, and which of them a life depends on.

    Inputs: query, narrative, advice [{id, statement}], criteria [{id, criterion, …}], suspicions [str].
    """

    task: ClassVar = "reader.rubric"
    problems: Annotated[tuple[ProblemItem, ...], Field(max_length=40, strict=False)]
    life_critical: Annotated[tuple[str, ...], Field(max_length=40, strict=False)]


async def write_rubric(
    text: CaseText, advice: Sequence[Element], *, writer: Agent, reviewer: Agent
) -> tuple[Rubric, tuple[Finding, ...]]:
    """The rubric of a case, and what is still wrong with it, which holds the case for a person.

    Criteria at fault are dropped. Where the rubric cannot do without them, it goes back once with what linter and
    reviewer found. Raises AgentFailure when an engine gives no usable reply.
    """
    drafting = _Drafting(text, advice, writer, reviewer)
    draft = await drafting.draft()
    if draft.remaining or draft.lost_advice():
        try:
            draft = await drafting.draft(_criteria(draft.reply), draft.shown_findings())
        except AgentFailure as failure:
            raise AgentFailure(
                failure.reason, f"revision round: {failure.detail}"
            ) from failure
    return draft.rubric(), draft.remaining


async def revise_rubric(
    text: CaseText,
    advice: Sequence[Element],
    rubric: Rubric,
    findings: Sequence[Mapping[str, str]],
    *,
    writer: Agent,
    reviewer: Agent,
) -> tuple[Rubric, tuple[Finding, ...]]:
    """A rubric as the writer revised it, and what is still wrong with it.

    Args:
        text: The case.
        advice: Its advice elements.
        rubric: What is revised.
        findings: What speaks against it: {criterion (an id, or "" for the whole), finding}.
        writer: Revises it.
        reviewer: Reviews the revision.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    drafting = _Drafting(text, advice, writer, reviewer)
    draft = await drafting.draft(rubric.criteria, findings)
    return draft.rubric(), draft.remaining


@dataclass(frozen=True, slots=True)
class _Draft:
    """A reply, its criteria as weighed and reviewed, and what is left without those at fault."""

    reply: RubricReply
    whole: tuple[Criterion, ...]
    findings: tuple[Finding, ...]
    criteria: tuple[Criterion, ...]  # Those without a fault
    remaining: tuple[Finding, ...]  # What is wrong with these

    def rubric(self) -> Rubric:
        """The rubric of the criteria without a fault."""
        has_penalty = any(c.points < 0 for c in self.criteria)
        no_negative = "" if has_penalty else self.reply.no_negative.strip()
        return Rubric(
            self.reply.theme, self.reply.specialty, self.criteria, no_negative
        )

    def shown_findings(self) -> list[dict[str, str]]:
        """What the writer is shown of the findings."""
        return [
            {"criterion": f.criterion or "", "finding": f"{f.fault.value}: {f.detail}"}
            for f in self.findings
        ]

    def lost_advice(self) -> bool:
        """Whether an advice that earned points earns none any more, and not because others say the same."""
        repeated = {f.criterion for f in self.findings if f.fault is Fault.DUPLICATE}
        earned = {
            c.advice_id for c in self.whole if c.points > 0 and c.id not in repeated
        }
        return not earned <= {c.advice_id for c in self.criteria if c.points > 0}


@dataclass(frozen=True, slots=True)
class _Drafting:
    """What writing and reviewing one case's rubric share."""

    text: CaseText
    advice: Sequence[Element]
    writer: Agent
    reviewer: Agent

    async def draft(
        self,
        earlier: Sequence[Criterion] = (),
        findings: Sequence[Mapping[str, str]] = (),
    ) -> _Draft:
        """A draft, or the revision of an earlier one."""
        inputs = self._inputs("kind", "statement")
        if earlier:
            inputs["earlier"] = [_shown(c) for c in earlier]
            inputs["findings"] = list(findings)
        reply = await self.writer.ask(RubricReply, inputs, _fault_of)
        criteria = _criteria(reply)
        certain = self._lint(criteria, reply)
        review = await self._review(criteria)
        whole = tuple(_weigh(c, c.id in review.life_critical) for c in criteria)
        problems = tuple(
            Finding(Fault(p.fault), p.criterion_id, p.detail) for p in review.problems
        )
        kept = without_faulty(whole, certain + problems)
        return _Draft(reply, whole, certain + problems, kept, self._lint(kept, reply))

    def _inputs(self, *fields: str) -> dict[str, Any]:
        text = {"query": self.text.query, "narrative": self.text.narrative}
        return {**text, "advice": element_inputs(self.advice, *fields)}

    def _lint(
        self, criteria: Sequence[Criterion], reply: RubricReply
    ) -> tuple[Finding, ...]:
        return lint_case(
            self.writer.language, criteria, self.text, self.advice, reply.no_negative
        )

    async def _review(self, criteria: Sequence[Criterion]) -> ReviewReply:
        shown = [_shown(c) for c in criteria]
        inputs = self._inputs() | {
            "criteria": shown,
            "suspicions": list(suspicions(criteria)),
        }

        def check(reply: ReviewReply) -> str | None:
            named = {p.criterion_id for p in reply.problems} | set(reply.life_critical)
            return check_known(named, {c.id for c in criteria}, "a criterion")

        return await self.reviewer.ask(ReviewReply, inputs, check)


def _shown(c: Criterion) -> dict[str, Any]:
    return {
        "id": c.id,
        "criterion": c.criterion,
        "axis": c.axis.value,
        "points": c.points,
        "advice_id": c.advice_id,
    }


def _weigh(c: Criterion, critical: bool) -> Criterion:
    """±10 where a life depends on it by the reviewer's word, and nowhere else."""
    weight = LIFE if critical else min(abs(c.points), LIFE - 1)
    return replace(c, points=weight if c.points > 0 else -weight)


def _fault_of(reply: RubricReply) -> str | None:
    if reply.specialty != UNKNOWN_SPECIALTY and reply.specialty not in SPECIALTIES:
        return f"specialty {reply.specialty[:60]!r} is not in the list"
    facts = {fact.id for fact in reply.facts}
    if len(facts) < len(reply.facts):
        return "two facts have one id"
    if any(item.points == 0 for item in reply.criteria):
        return "points are never 0"
    return check_known({item.fact_id for item in reply.criteria}, facts, "a fact")


def _criteria(reply: RubricReply) -> tuple[Criterion, ...]:
    facts = {fact.id: fact for fact in reply.facts}
    return tuple(
        Criterion(
            f"c{i}",
            i,
            item.criterion,
            item.axis,
            item.points,
            fact.advice_id,
            fact.fact,
        )
        for i, item in enumerate(reply.criteria, 1)
        for fact in (facts[item.fact_id],)
    )


class CompletedCase(NamedTuple):
    """A curation whose case can be released, or what keeps it from that."""

    curation: Curation
    rubric: Rubric | None  # None where an engine gave no usable reply
    proof: Proof | None = None  # None where none was made


async def complete_case(
    curation: Curation,
    language: str,
    respondents: Mapping[str, Engine],
    first_rounds: Mapping[str, int] = MappingProxyType({}),
    *,
    grade: GradeProbe | None = None,
) -> CompletedCase:
    """A kept or held curation with its rubric, proof and kind, its texts without identifiers.

    The curation is held where the rubric stays faulty or unproven or a name could not be removed; it failed, and
    has no rubric, when an engine gave no usable reply.

    Args:
        curation: What the chain made of a thread.
        language: "en" or "zh".
        respondents: Has the roles "rubric" and "reader"; with `grade` also "prober" and "grader".
        first_rounds: As for `curate`.
        grade: Grades the proof's answers; None makes no proof.
    """
    text, journal = curation.text, list(curation.calls)
    assert text is not None
    roles = ("rubric", "reader", *(("prober", "grader") if grade else ()))
    agents = {}
    for role in roles:
        first = first_rounds.get(role, 0)
        agents[role] = Agent(respondents[role], journal, language, first)
    writer, reader = agents["rubric"], agents["reader"]
    engines = dict(curation.engines)
    for role in roles:
        engines[role] = agents[role].identity.as_json()
    advice = curation.side(Side.ADVICE)
    proof = None
    try:
        rubric, faults = await write_rubric(
            text, advice, writer=writer, reviewer=reader
        )
        if grade is not None:
            proving = _proving(curation, text, agents, grade)
            rubric, faults, proof = await proving.prove(rubric, faults)
        redacted = await redact_texts(texts_of(text, rubric), reader)
    except AgentFailure as exc:
        failed = replace(
            curation,
            outcome=Outcome.FAILED,
            stage=Stage.RUBRIC,
            reason=exc.reason,
            detail=exc.detail,
        )
        failed = replace(failed, holds=(), calls=tuple(journal), engines=engines)
        return CompletedCase(failed, None)
    text, rubric = with_texts(text, rubric, redacted)
    rubric = await classify(text, rubric, writer)
    done = replace(curation, text=text, calls=tuple(journal), engines=engines)
    holds = (*_fault_holds(faults), *_proof_holds(proof))
    if redacted.remaining:
        detail = "; ".join(redacted.remaining)[:2000]
        holds = (*holds, Hold(Reason.IDENTIFIER, detail))
    return CompletedCase(with_holds(done, holds), rubric, proof)


def _proving(
    curation: Curation, text: CaseText, agents: Mapping[str, Agent], grade: GradeProbe
) -> Proving:
    advice = curation.side(Side.ADVICE)
    writer, reader = agents["rubric"], agents["reader"]

    async def revise(rubric: Rubric, findings: Sequence[Mapping[str, str]]) -> Revision:
        revised = await revise_rubric(
            text, advice, rubric, findings, writer=writer, reviewer=reader
        )
        return Revision(*revised)

    def lint_rubric(rubric: Rubric) -> tuple[Finding, ...]:
        return lint_case(
            writer.language, rubric.criteria, text, advice, rubric.no_negative
        )

    return Proving(
        text=text,
        advice=advice,
        passages=cited_passages(curation.claims),
        prober=agents["prober"],
        grader=agents["grader"],
        reviewer=reader,
        grade=grade,
        revise=revise,
        lint=lint_rubric,
    )


def _fault_holds(faults: Sequence[Finding]) -> tuple[Hold, ...]:
    if not faults:
        return ()
    detail = "; ".join(
        f"{f.criterion or 'rubric'}: {f.fault.value}: {f.detail}" for f in faults
    )
    criteria = tuple(f.criterion for f in faults if f.criterion)
    return (Hold(Reason.RUBRIC_FAULTY, detail[:2000], criteria),)


def _proof_holds(proof: Proof | None) -> tuple[Hold, ...]:
    if proof is None or proof.passed:
        return ()
    detail = "; ".join(f"{f.fault.value}: {f.detail}" for f in proof.last_failures)
    return (Hold(Reason.RUBRIC_UNPROVEN, detail[:2000]),)


def lint_case(
    language: str,
    criteria: Sequence[Criterion],
    text: CaseText,
    advice: Sequence[Element],
    no_negative: str,
) -> tuple[Finding, ...]:
    """The faults that the linter finds in the rubric of a case with these texts and advice elements."""
    words = {e.id: f"{e.statement}\n{e.quote}" for e in advice}
    case = f"{text.narrative}\n{text.query}\n{text.advice}"
    return lint(language, criteria, words, case, no_negative=no_negative)


def texts_of(text: CaseText, rubric: Rubric) -> dict[str, str]:
    """What a release would hold of a case, by the names that findings use."""
    return {**asdict(text), **{c.id: c.criterion for c in rubric.criteria}}


def with_texts(
    text: CaseText, rubric: Rubric, redacted: Redacted
) -> tuple[CaseText, Rubric]:
    """The case's texts and rubric as they are after the look for identifiers."""
    criteria = tuple(
        replace(c, criterion=redacted.texts[c.id]) for c in rubric.criteria
    )
    return CaseText(**{name: redacted.texts[name] for name in asdict(text)}), replace(
        rubric, criteria=criteria
    )
