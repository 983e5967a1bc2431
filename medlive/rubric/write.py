"""`Drafting.write`: one engine writes a case's rubric, code lints it, another engine reviews it; if need be it is
revised once.

Source: LiveMedBench §3.3; docs/method.md §1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints

from medlive.curation.agent import Agent, AgentFailure, by_id, check_known, ids_of
from medlive.curation.model import CaseText, Element
from medlive.llm.ask import AtMost40, Loose, ReplyModel

from .lint import (
    Finding,
    find_faulty,
    lint,
)
from .model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    AskedPart,
    Axis,
    Conflict,
    Criterion,
    Omission,
    OmittedFact,
    Origin,
    Rubric,
    Step,
    Theme,
    numbered,
)
from .review import (
    Remark,
    case_inputs,
    review_rubric,
    shown,
    shown_asked,
    shown_omitted,
)

Name = Annotated[str, StringConstraints(min_length=1, max_length=20)]
Written = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
]


class FactItem(ReplyModel):
    """A fact of the advice that matters for the theme."""

    id: Name
    fact: Written
    advice_id: str  # The advice element that states it


class OmittedItem(ReplyModel):
    """A fact of the advice that the question and the theme do not need, or that is not sound."""

    fact: Written
    advice_id: str
    reason: Loose[Omission]


class AskedItem(ReplyModel):
    """A thing that the query expressly asks."""

    id: Name
    text: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)
    ]


class CriterionItem(ReplyModel):
    """A criterion as an engine proposes it."""

    criterion: Written
    axis: Loose[Axis]
    points: Annotated[int, Field(ge=-10, le=10)]
    fact_id: str  # The fact that it asks for
    asked: str = ""  # The part of the query that it answers directly; empty for none
    likely: Remark = ""
    """Of a penalty: the id of the error that it was drawn from, or why answers commit it."""


class RubricReply(ReplyModel):
    """What is asked, the theme, the specialty, the facts that matter, and each fact's criteria.

    Inputs: query, narrative (text), advice [{id, kind, statement}], errors [{id, error}]. On a revision also asked
    [{id, text}], earlier (the criteria as they were), findings [{criterion, finding}], kept [{criterion, points}],
    left_out [{point, why}] and answers [{probe, answer, note, meets [id]}].
    """

    task: ClassVar = "rubric.write"
    asked: Annotated[tuple[AskedItem, ...], Field(max_length=8, strict=False)]
    theme: Loose[Theme]
    specialty: str
    facts: AtMost40[FactItem]
    left_out: AtMost40[OmittedItem] = ()
    criteria: AtMost40[CriterionItem]
    # Why no criterion costs points; else empty
    no_negative: Remark


@dataclass(frozen=True)
class Drafting:
    """One case's rubric while it is written: by one engine, reviewed by another."""

    text: CaseText
    advice: Sequence[Element]
    writer: Agent
    reviewer: Agent
    errors: Sequence[str] = ()
    """Mistakes that answers to the question made, from which penalties are drawn."""

    def lint(self, rubric: Rubric) -> tuple[Finding, ...]:
        """The certain faults of a rubric of this case, a part of the query that nothing answers included."""
        language = self.writer.language
        return lint_case(language, rubric, self.text, self.advice, is_written=True)

    async def write(
        self,
        earlier: Rubric | None = None,
        findings: Sequence[Mapping[str, str]] = (),
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> Rubric:
        """Write the rubric, or have the writer revise an earlier one.

        Criteria at fault are dropped. Where a new rubric cannot do without them, it goes back once with what linter
        and reviewer found. What completion added to an earlier one stays unless the reviewer objects to it.

        Args:
            earlier: What is revised; None: there is none yet.
            findings: What speaks against it: {criterion (an id, or "" for the whole), finding}.
            answers: The answers that it scores wrongly: {probe, answer, note, meets}.

        Raises:
            AgentFailure: If an engine gives no usable reply.
        """
        errors = {f"e{place}": error for place, error in enumerate(self.errors, 1)}
        inputs = case_inputs(self.text, self.advice, "kind", "statement")
        inputs["errors"] = [{"id": name, "error": errors[name]} for name in errors]
        if earlier is not None:
            inputs |= _revision_inputs(earlier, findings, answers)

        def check(reply: RubricReply) -> str | None:
            named = {item.advice_id for item in reply.left_out}
            asked = ids_of(earlier.asked if earlier else reply.asked)
            return _fault_of(reply, asked) or check_known(
                named, ids_of(self.advice), "an advice element"
            )

        reply = await self.writer.ask(RubricReply, inputs, check)
        asked = tuple(AskedPart(**item.model_dump()) for item in reply.asked)
        omitted = tuple(OmittedFact(**item.model_dump()) for item in reply.left_out)
        facts = by_id(reply.facts)
        criteria = []
        for item in reply.criteria:
            fact = facts[item.fact_id]
            likely = item.likely.strip() if item.points < 0 else ""
            criterion = Criterion(
                id="",
                position=0,
                criterion=item.criterion,
                axis=item.axis,
                points=item.points,
                advice_id=fact.advice_id,
                fact=fact.fact,
                asked=item.asked,
                likely=errors.get(likely, likely),
            )
            criteria.append(criterion)
        if earlier:
            criteria += [c for c in earlier.criteria if c.origin is not Origin.ADVICE]
        rubric = Rubric(
            theme=reply.theme,
            specialty=reply.specialty,
            criteria=numbered(criteria),
            asked=earlier.asked if earlier else asked,
            no_negative=reply.no_negative.strip(),
            omitted=omitted,
            completion=earlier.completion if earlier else None,
        )
        return await self._review(rubric, earlier)

    async def _review(self, rubric: Rubric, earlier: Rubric | None) -> Rubric:
        """The rubric without criteria that linter or reviewer object to; a new one that cannot do without them is
        revised."""
        # `whole` are all criteria, with the weights that the review leaves them.
        objections, whole, conflicts = await review_rubric(
            self.reviewer, self.text, self.advice, rubric
        )
        # Without the unanswered parts of the query, which `_loses` looks for.
        findings = [*self.lint(replace(rubric, asked=())), *objections]
        dropped = find_faulty(whole, findings)
        kept = [c for c in whole if c.id not in dropped]
        omitted = list(rubric.omitted)
        for criterion in whole:
            if finding := dropped.get(criterion.id):
                omitted.append(omit(criterion, finding.words, "writing"))
        if earlier is not None:
            conflicts += _added_conflicts(earlier, whole, conflicts)
            omitted += _gone(earlier, kept, omitted)
        has_penalty = any(c.points < 0 for c in kept)
        reviewed = replace(
            rubric,
            criteria=numbered(kept),
            no_negative="" if has_penalty else rubric.no_negative,
            omitted=tuple(omitted),
            conflicts=tuple(conflicts),
        )
        faults = self.lint(replace(reviewed, asked=()))
        is_fine = not (faults or conflicts or _loses(whole, kept, dropped))
        if is_fine or earlier is not None:
            return reviewed
        faulty = replace(reviewed, criteria=tuple(whole))
        try:
            return await self.write(faulty, _shown_findings(findings, conflicts, whole))
        except AgentFailure as failure:
            detail = f"revision round: {failure.detail}"
            raise AgentFailure(failure.reason, detail) from failure


def _shown_findings(
    findings: Sequence[Finding],
    conflicts: Sequence[Conflict],
    criteria: Sequence[Criterion],
) -> list[dict[str, str]]:
    """Findings and conflicts as the writer sees them: {criterion (an id or ""), finding}."""
    words = [(finding.criterion or "", finding.words) for finding in findings]
    ids = {c.criterion: c.id for c in criteria}
    for conflict in conflicts:
        against = f"contradicts “{conflict.other}”: {conflict.detail}"
        words.append((ids[conflict.criterion], against))
    return [{"criterion": name, "finding": finding} for name, finding in words]


def _loses(
    whole: Sequence[Criterion],
    kept: Sequence[Criterion],
    dropped: Mapping[str, Finding],
) -> bool:
    """Whether dropping criteria loses what is needed: a part of the query that no kept criterion answers, a needed
    advice that earns no points any more, or a penalty that is right but joins two errors."""
    needed: set[str | None] = set()
    for criterion in whole:
        finding = dropped.get(criterion.id)
        fault = finding.fault if finding else None
        if fault == "two_facts" and criterion.points < 0:
            return True
        if criterion.points > 0 and fault not in ("duplicate", "minor"):
            needed.add(criterion.advice_id)
    rewarded = {c.advice_id for c in kept if c.points > 0}
    answered = {c.asked for c in kept} | {""}
    return not (needed <= rewarded and {c.asked for c in whole} <= answered)


def _revision_inputs(
    earlier: Rubric,
    findings: Sequence[Mapping[str, str]],
    answers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What the writer is shown besides the case when it revises."""
    written = []
    kept = []
    for criterion in earlier.criteria:
        values = shown(criterion)
        if criterion.origin is Origin.ADVICE:
            written.append(values)
        else:
            kept.append({name: values[name] for name in ("id", "criterion", "points")})
    return {
        "asked": shown_asked(earlier.asked),
        "earlier": written,
        "findings": list(findings),
        "kept": kept,
        "left_out": shown_omitted(earlier.omitted),
        "answers": list(answers),
    }


def omit(criterion: Criterion, why: str, step: Step) -> OmittedFact:
    """The record of a criterion that the rubric leaves out, with the reason and the step."""
    return OmittedFact(
        fact=criterion.fact or criterion.criterion,
        advice_id=criterion.advice_id or "",
        reason=Omission.DROPPED,
        detail=why,
        step=step,
        criterion=criterion.criterion,
    )


def _added_conflicts(
    earlier: Rubric, whole: Sequence[Criterion], conflicts: Sequence[Conflict]
) -> list[Conflict]:
    """Earlier conflicts of criteria that completion added and that remain, except those among `conflicts`."""
    added = {c.criterion for c in whole if c.origin is not Origin.ADVICE}
    known = {(conflict.criterion, conflict.other) for conflict in conflicts}
    kept = []
    for conflict in earlier.conflicts:
        sides = (conflict.criterion, conflict.other)
        if added.intersection(sides) and sides not in known:
            kept.append(conflict)
    return kept


def _gone(
    earlier: Rubric, criteria: Sequence[Criterion], omitted: Sequence[OmittedFact]
) -> list[OmittedFact]:
    """The earlier rubric's omissions and criteria that are in neither `criteria` nor `omitted`, as omissions."""
    known = {fact.fact for fact in omitted} | {c.fact for c in criteria}
    gone = [fact for fact in earlier.omitted if fact.fact not in known]
    texts = {fact.criterion for fact in (*omitted, *gone)}
    texts |= {c.criterion for c in criteria}
    for criterion in earlier.criteria:
        if criterion.criterion not in texts:
            why = "the revision words it otherwise or leaves it out"
            gone.append(omit(criterion, why, "revision"))
    return gone


def _fault_of(reply: RubricReply, asked: Sequence[str]) -> str | None:
    """What is wrong with the writer's reply; None: nothing. `asked` are the ids of the query's parts."""
    if reply.specialty != UNKNOWN_SPECIALTY and reply.specialty not in SPECIALTIES:
        return f"specialty {reply.specialty[:60]!r} is not in the list"
    if not asked:
        return "`asked` is empty: name what the query asks"
    facts = set(ids_of(reply.facts))
    for ids, what in ((asked, "parts of the query"), (ids_of(reply.facts), "facts")):
        if len(set(ids)) < len(ids):
            return f"two {what} have one id"
    for item in reply.criteria:
        words = item.criterion[:100]
        if item.points == 0:
            return "points are never 0"
        if item.points < 0 and not item.likely.strip():
            return f"`likely` does not say why answers commit this: {words}"
        if item.points < 0 and item.asked:
            return f"a penalty answers nothing that was asked: {words}"
    named_facts = {item.fact_id for item in reply.criteria}
    named_parts = {item.asked for item in reply.criteria}
    return check_known(named_facts, facts, "a fact") or check_known(
        named_parts, {"", *asked}, "a part of what is asked"
    )


def lint_case(
    language: str,
    rubric: Rubric,
    text: CaseText,
    advice: Sequence[Element],
    *,
    is_written: bool = False,
) -> tuple[Finding, ...]:
    """The faults that the linter finds in the rubric of a case with these texts and advice elements.

    Args:
        language: "en" or "zh".
        rubric: Its criteria, each part of the query that one must answer, and why no criterion costs points.
        text: The case's texts.
        advice: The advice elements, whose numbers a criterion may ask for.
        is_written: Whether the stricter limits for newly written rubrics apply.
    """
    words = {}
    for element in advice:
        words[element.id] = f"{element.statement}\n{element.quote}"
    case = f"{text.narrative}\n{text.query}\n{text.advice}"
    findings = lint(
        language,
        rubric.criteria,
        words,
        case,
        no_negative=rubric.no_negative,
        is_written=is_written,
    )
    unanswered = []
    for part in rubric.unanswered:
        detail = f"no criterion answers {part.id} directly: {part.text}"
        unanswered.append(Finding("unanswered", None, detail))
    return (*findings, *unanswered)
