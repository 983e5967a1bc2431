"""What people can rate of a run: each criterion of each answer."""

from collections.abc import Iterable, Mapping

from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.model import Answer, EvaluationCase, gradable
from medlive.grader.rated import verdict_id


def items_of(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
) -> dict[str, Place]:
    """Every criterion of every gradable answer, by the item id that `medlive.grader.rated` makes."""
    items: dict[str, Place] = {}
    for case, answer in gradable(cases, answers):
        for criterion in case.criteria:
            item = verdict_id(
                case.case_id,
                case.question,
                answer.digest,
                criterion.id,
                criterion.criterion,
            )
            items[item] = case.case_id, criterion.id
    return items
