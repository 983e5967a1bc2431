"""ClinConsensus' failure types: why the criteria that an answer failed were failed, by a judge.

A criterion failed where it has positive points and is not met, or negative points and is met. The seven types are
those of seed 001, Table 13: a diagnosis of what is missing, not how frequent it is in care.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medlive.evaluation.grading.questions import Findings, Question
from medlive.evaluation.model import Answer, EvaluationCase, EvaluationCriterion
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Subject,
    Table,
)

TASK: Final = "protocol.failures"


class FailureType(StrEnum):
    """Why a criterion was failed."""

    EMERGENCY = "missing_emergency_trigger"
    MEDICATION = "medication_boundary_omission"
    FOLLOW_UP = "follow_up_incompleteness"
    LOCALIZATION = "localization_mismatch"
    EXTRACTION = "structured_extraction_loss"
    PLAN = "non_operational_plan"
    REASONING = "unverifiable_reasoning"
    NONE = "none_fits"


class _Typed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str
    reason: Annotated[str, StringConstraints(max_length=600)]
    type: Annotated[FailureType, Field(strict=False)]


class FailuresReply(BaseModel):
    """`protocol.failures`: a type for each failed criterion.

    Inputs: language, question, answer, failed [{id, criterion, points}].
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    failed: Annotated[tuple[_Typed, ...], Field(max_length=200, strict=False)]


def failed_criteria(run: Subject, case: EvaluationCase) -> list[EvaluationCriterion]:
    """The criteria that an answer failed, in the rubric's order; a missing verdict is not a failure."""
    met = run.verdicts(case.case_id)
    return [c for c in case.criteria if c.points and met.get(c.id) is (c.points < 0)]


class Failures(Protocol):
    """See the module. It explains what coverage measures: a portfolio would count that twice and pay for it."""

    name: ClassVar[str] = "failures"
    about: ClassVar[str] = (
        "why criteria were failed: seven failure types (ClinConsensus)"
    )
    figure: ClassVar[str] = "share of graded criteria not failed, 0 to 1"

    def questions(self, material: Material, found: Findings) -> Iterator[Question]:
        """One for each answer that failed a criterion."""
        for run in material:
            for case, answer in run.answered():
                if failed := failed_criteria(run, case):
                    yield _question(case, answer, failed)

    def results(self, material: Material, found: Findings) -> Results:
        """How many criteria failed and have a type, and each type's share."""
        counts: list[list[Cell]] = []
        figures: dict[str, float | None] = {}
        types: dict[str, Counter[FailureType]] = {}
        for run in material:
            known = types[run.label] = Counter()
            answered = criteria = graded = failures = 0
            for case, answer in run.answered():
                answered += 1
                criteria += len(case.criteria)
                verdicts = list(run.verdicts(case.case_id).values())
                graded += len(verdicts) - verdicts.count(None)
                failed = failed_criteria(run, case)
                failures += len(failed)
                known.update(_types(case, answer, failed, found))
            figures[run.label] = 1 - failures / graded if graded else None
            counts.append(
                [
                    run.label,
                    graded,
                    failures,
                    known.total(),
                    failures - known.total(),
                    criteria - graded,
                    len(run.cases) - answered,
                ]
            )
        titles = (
            "model",
            "graded",
            "failed",
            "typed",
            "ungraded",
            "no verdict",
            "unanswered",
        )
        about = "Criteria, but for unanswered: cases. Ungraded: failed, and the judge gave no usable reply."
        shares: list[list[Cell]] = []
        for kind in FailureType:
            row: list[Cell] = [kind.replace("_", " ")]
            for known in types.values():
                row.append(known[kind] / known.total() if known else None)
            shares.append(row)
        note = "Shares of typed criteria. A diagnosis, not how frequent it is in care (seed 001, Table 13)."
        tables = [
            Table("Failed criteria", titles, counts, about),
            Table("Failure types", ("type", *types), shares, note),
        ]
        return Results(tables, figures)


def _types(
    case: EvaluationCase,
    answer: Answer,
    failed: Sequence[EvaluationCriterion],
    found: Findings,
) -> list[FailureType]:
    """The types that the judge gave an answer's failed criteria."""
    if not failed:
        return []
    reply = found.get(_question(case, answer, failed), FailuresReply)
    return [one.type for one in reply.failed] if reply else []


def _question(
    case: EvaluationCase, answer: Answer, failed: Sequence[EvaluationCriterion]
) -> Question:
    ids = sorted(c.id for c in failed)

    def check(reply: FailuresReply) -> str | None:
        same = sorted(one.id for one in reply.failed) == ids
        return None if same else "one item for each failed criterion, no more, no fewer"

    inputs = {
        "language": case.language,
        "question": case.question,
        "answer": answer.response,
        "failed": [
            {"id": c.id, "criterion": c.criterion, "points": c.points} for c in failed
        ],
    }
    return Question(
        case_id=case.case_id,
        part="failures",
        task=TASK,
        inputs=inputs,
        reply=FailuresReply,
        check=check,
    )
