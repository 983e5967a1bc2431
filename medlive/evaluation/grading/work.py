"""One call's criteria of one answer, and the rows of the log that its replies come to."""

from dataclasses import dataclass
from typing import Any

from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Origin,
    grade_keys,
)
from medlive.grader.judge import GradingCall, Judge, Ungraded, Verdicts
from medlive.llm.ask import MOST_RAW, Asked


@dataclass(frozen=True, slots=True)
class Work:
    """One call's criteria."""

    case: EvaluationCase
    answer: Answer
    criteria: tuple[EvaluationCriterion, ...]
    round: int = 0
    """As in `GradingCall`."""

    @property
    def call(self) -> GradingCall:
        """What is asked."""
        return GradingCall(
            self.case.language,
            self.case.question,
            self.answer.response,
            self.criteria,
            self.round,
        )


def make_grades(
    judge: Judge,
    work: Work,
    verdicts: Verdicts,
    asked: Asked[Any],
    origin: Origin = Origin.CALL,
) -> list[Grade]:
    """A call's criteria as rows of the log; the usage of all attempts stands with the first.

    A reply that several criteria share stands whole with the first of them and with those it did not grade.
    """
    keys = grade_keys(work.case, work.answer, judge.digest, work.criteria)
    faults = asked.fault.faults if isinstance(asked.fault, Ungraded) else {}
    grades: list[Grade] = []
    shown: set[int] = set()
    for criterion in work.criteria:
        default = None, asked.last
        verdict, reply = verdicts.by_criterion.get(criterion.id, default)
        raw = ""
        if reply is not None and (verdict is None or id(reply) not in shown):
            raw = reply.text[:MOST_RAW]
        shown.add(id(reply))
        grades.append(
            Grade(
                case_id=work.case.case_id,
                criterion_id=criterion.id,
                key=keys[criterion.id],
                met=verdict.met if verdict else None,
                quote=verdict.quote if verdict else "",
                reasoning=verdict.reasoning if verdict else "",
                reason="" if verdict else faults.get(criterion.id, asked.reason),
                raw=raw,
                grader=reply.model if reply else "",
                engine=judge.identity.engine,
                model=judge.identity.model,
                mode=judge.mode,
                prompt=judge.prompt.digest,
                judge=judge.digest,
                usage={} if grades else asked.usage,
                origin=origin,
                whole=bool(verdict and verdict.whole),
            )
        )
    return grades
