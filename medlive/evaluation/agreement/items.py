"""What people can rate of a run: each criterion of each answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.model import Answer, EvaluationCase, EvaluationCriterion
from medlive.grader.rated import verdict_id


@dataclass(frozen=True, slots=True)
class AnswerItem:
    """One criterion of one answer."""

    case: EvaluationCase
    answer: Answer
    criterion: EvaluationCriterion

    @property
    def id(self) -> str:
        """As `medlive.grader.rated` makes it."""
        return verdict_id(
            self.case.case_id,
            self.case.question,
            self.answer.digest,
            self.criterion.id,
            self.criterion.criterion,
        )


def items_of(
    cases: Iterable[EvaluationCase], answers: Mapping[str, Answer]
) -> tuple[AnswerItem, ...]:
    """Every criterion of every gradable answer."""
    items: list[AnswerItem] = []
    for case in cases:
        answer = answers.get(case.case_id)
        if answer is not None and answer.gradable:
            items += [
                AnswerItem(case, answer, criterion) for criterion in case.criteria
            ]
    return tuple(items)


def places_of(items: Iterable[AnswerItem]) -> dict[str, Place]:
    """The criteria by item id."""
    return {item.id: (item.case.case_id, item.criterion.id) for item in items}
