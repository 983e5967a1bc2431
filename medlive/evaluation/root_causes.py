"""Root-cause audit: an engine says why a run's lowest-scoring answers went wrong, one primary cause each.

The seven types are those of LiveMedBench's error analysis (docs/error-analysis.md says how they are counted); each
is supported by a quote from the answer and by wrong criteria. `audit.jsonl` in the run folder is both record and
cache: a repeated audit asks only for cases that are new, were graded again, or remained unaudited.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from medlive.grader.reply import Words
from medlive.llm.ask import Loose, ReplyModel
from medlive.llm.engine import EngineIdentity
from medlive.text.quotes import quoted

from .grading.questions import Question, Source, read_findings
from .model import Answer
from .scoring.graded import GradedRun
from .scoring.metrics import CaseScore, Metric

AUDIT = "audit.jsonl"
BOTTOM = 100
"""How many of the lowest-scoring cases are audited."""


class RootCause(StrEnum):
    """Why an answer scored low: the seven types, and `unclear`."""

    CONTEXTUAL_NEGLECT = "contextual_neglect"
    GUIDELINE_OVERGENERALISATION = "guideline_overgeneralisation"
    REASONING_DEFICIT = "reasoning_and_synthesis_deficit"
    INSTRUCTION_MISINTERPRETATION = "instruction_misinterpretation"
    KNOWLEDGE_GAP = "knowledge_gap"
    EXCESSIVE_CAUTION = "excessive_caution"
    HALLUCINATION = "hallucination_or_misclassification"
    UNCLEAR = "unclear"
    """The auditor found no cause that the material shows."""

    @property
    def label(self) -> str:
        """The cause in words."""
        return self.value.replace("_", " ")


class AuditReply(ReplyModel):
    """`audit.cause`: the primary cause, with words of the answer and the errors that show it.

    Inputs: language, question, advice, answer, criteria [{id, criterion, points, met, error}].
    """

    task = "audit.cause"
    cause: Loose[RootCause]
    quote: Words
    criteria: tuple[str, ...] = Field(max_length=200, strict=False)
    reasoning: Annotated[Words, StringConstraints(min_length=1)]


@dataclass(frozen=True)
class AuditedCase:
    """A low-scoring case to audit, with its errors."""

    score: CaseScore
    answer: Answer

    @property
    def case_id(self) -> str:
        """The case."""
        return self.score.case.case_id

    @property
    def errors(self) -> frozenset[str]:
        """Criteria with positive points that are not met, and with negative points that are."""
        errors = []
        for criterion in self.score.case.criteria:
            met, points = self.score.met[criterion.id], criterion.points
            if points and met is (points < 0):
                errors.append(criterion.id)
        return frozenset(errors)

    @property
    def question(self) -> Question:
        """What the auditor is asked and shown."""
        case, errors = self.score.case, self.errors
        criteria = []
        for criterion in case.criteria:
            shown = {
                "id": criterion.id,
                "criterion": criterion.criterion,
                "points": criterion.points,
                "met": self.score.met[criterion.id],
                "error": criterion.id in errors,
            }
            criteria.append(shown)
        return Question(
            case_id=self.case_id,
            part="cause",
            inputs={
                "language": case.language,
                "question": case.question,
                "advice": case.advice,
                "answer": self.answer.response,
                "criteria": criteria,
            },
            reply=AuditReply,
            check=self.fault,
        )

    def fault(self, reply: AuditReply) -> str | None:
        """Why a reply is invalid, or None."""
        for criterion_id in reply.criteria:
            if criterion_id not in self.errors:
                return f"criterion {criterion_id[:80]!r} is not an error of this answer"
        has_quote = bool(reply.quote.strip())
        if has_quote and not quoted(reply.quote, self.answer.response):
            return "the quote is not in the answer letter for letter"
        if reply.cause is RootCause.UNCLEAR or (has_quote and reply.criteria):
            return None
        return "a cause needs words of the answer and a criterion that show it"


NamedCause = tuple[AuditedCase, AuditReply]
"""A case with what the auditor says of it."""


@dataclass(frozen=True)
class AuditTable:
    """The lowest-scoring cases of a run, and the root causes by one auditor."""

    run: GradedRun
    grader: str
    """The digest of the grader whose verdicts make the scores."""
    bottom: int
    candidates: tuple[AuditedCase, ...]
    """The cases among the `bottom` lowest with a wrong criterion, by score, ties by id."""
    scored: int
    auditor: EngineIdentity | None = None
    """None: the log holds no finding."""
    findings: tuple[NamedCause, ...] = ()
    """The candidates with a cause, which may be `unclear`, in their order."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why candidates are unaudited, the most frequent first."""
    notes: tuple[str, ...] = ()

    @property
    def questions(self) -> list[Question]:
        """One question about each candidate."""
        return [candidate.question for candidate in self.candidates]

    @property
    def clinical(self) -> bool:
        """Whether a model judged; the rules engine makes no clinical judgement."""
        return self.auditor is not None and self.auditor.engine != "rules"

    @property
    def audited(self) -> int:
        """Cases with a cause, or found unclear."""
        return len(self.findings)

    @property
    def unaudited(self) -> int:
        """Candidates without a finding."""
        return len(self.candidates) - self.audited

    def of(self, cause: RootCause) -> tuple[NamedCause, ...]:
        """The findings of one cause, the lowest score first."""
        return tuple(pair for pair in self.findings if pair[1].cause is cause)

    def as_json(self) -> dict[str, Any]:
        """The findings, and what they are based on."""
        findings = []
        for case, reply in self.findings:
            about = {"case_id": case.case_id, "score": case.score.score}
            findings.append(about | reply.model_dump())
        return {
            "model": self.run.label,
            "grader": self.grader,
            "auditor": self.auditor and self.auditor.as_json(),
            "clinical_judgement": self.clinical,
            "bottom": self.bottom,
            "scored": self.scored,
            "audited": self.audited,
            "unaudited": self.unaudited,
            "reasons": self.reasons,
            "findings": findings,
            "notes": self.notes,
        }


def find_bottom(
    run: GradedRun,
    bottom: int = BOTTOM,
) -> AuditTable:
    """Find the cases of a run with the lowest complete scores; ties are broken by id.

    Args:
        run: The graded run.
        bottom: How many of the lowest.

    Raises:
        UsageError: If nothing of the run is graded.
    """
    # The auditor sees a case with the turns before it
    asked_as = {case.case_id: case for case, _ in run.answered()}
    scored: list[AuditedCase] = []
    for score in run.case_scores(Metric.COMPLETE):
        if score.score is not None:
            case_id = score.case_id
            in_context = replace(score, case=asked_as.get(case_id, score.case))
            scored.append(AuditedCase(in_context, run.answers[case_id]))
    scored.sort(key=lambda case: (case.score.score, case.case_id))
    return AuditTable(
        run=run,
        grader=run.known_grader.judge,
        bottom=bottom,
        candidates=tuple(case for case in scored[:bottom] if case.errors),
        scored=len(scored),
    )


def audit_work(
    run: GradedRun,
    *,
    bottom: int = BOTTOM,
) -> tuple[Source, Path]:
    """For `ask_questions` and `plan_questions`: questions about the `bottom` lowest-scoring cases, and the log.

    Raises UsageError if nothing is graded.
    """
    questions = find_bottom(run, bottom).questions
    return lambda _: questions, run.run.path / AUDIT


def load_audit(
    run: GradedRun,
    *,
    bottom: int = BOTTOM,
    auditor: EngineIdentity | None = None,
) -> AuditTable:
    """Load the findings on a run's lowest-scoring cases, for the current answers and grades.

    Without `auditor` the one with the most causes of these cases counts, of equals the last. A finding whose quote is
    not in the answer, or whose criteria are not errors, counts as unaudited.
    """
    who = auditor and replace(auditor, pinned=False)
    last, notes = read_findings(run.run.path / AUDIT, who)
    table = find_bottom(run, bottom)
    questions = table.questions
    record = last
    if auditor is None and last.others:
        record = last.fullest(questions)
        names = ", ".join(judge.identity.model for judge in (last, *last.others))
        notes.append(
            f"audited by {names}; shown is {record.identity.model}, with the most causes, of equals the last"
        )
    findings: list[NamedCause] = []
    answered_by: set[str] = set()
    reasons: Counter[str] = Counter()
    for candidate, question in zip(table.candidates, questions, strict=True):
        reply = record.get(question, AuditReply)
        if reply is None:
            reasons[record.why_open(question)] += 1
        else:
            findings.append((candidate, reply))
            answered_by.add(record.row(question).grader)
    who = record.identity
    if strange := sorted(answered_by - {who.model}):
        notes.append(f"audited by {', '.join(strange)}, not by the pinned model")
    return replace(
        table,
        auditor=who if who.engine else None,
        findings=tuple(findings),
        reasons=dict(reasons.most_common()),
        notes=tuple(notes),
    )
