"""What people can rate of a run: each criterion of each answer.

An item's id is a digest of everything rated, so that ratings of changed texts are recognised and left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.model import Answer, EvaluationCase, EvaluationCriterion
from medlive.integrity.digest import digest_json


@dataclass(frozen=True, slots=True)
class Item:
    """One criterion of one answer."""

    case: EvaluationCase
    answer: Answer
    criterion: EvaluationCriterion

    @property
    def id(self) -> str:
        """An id that spreadsheets do not mistake for a number or a date."""
        case, criterion = self.case, self.criterion
        rated = [
            case.case_id,
            case.question,
            self.answer.digest,
            criterion.id,
            criterion.criterion,
        ]
        return "i-" + digest_json(rated).partition(":")[2][:16]


def items_of(
    cases: Iterable[EvaluationCase], answers: Mapping[str, Answer]
) -> tuple[Item, ...]:
    """Every criterion of every gradable answer."""
    items: list[Item] = []
    for case in cases:
        answer = answers.get(case.case_id)
        if answer is not None and answer.gradable:
            items += [Item(case, answer, criterion) for criterion in case.criteria]
    return tuple(items)


def places_of(items: Iterable[Item]) -> dict[str, Place]:
    """The criteria by item id."""
    return {item.id: (item.case.case_id, item.criterion.id) for item in items}
