"""Which criteria are met least and most, and errors by axis (LiveMedBench, Table 3)."""

from dataclasses import dataclass
from typing import Final

from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.report.html import Section, missing
from medlive.report.model import Report

MOST_LISTED: Final = 10
"""Criteria that the table of each kind lists."""
_NONE: Final = "No criterion is graded: nothing is known of what is met."


@dataclass(slots=True)
class CriterionCount:
    """A criterion and how many of the models that were graded on it met it."""

    case: EvaluationCase
    criterion: EvaluationCriterion
    met: int = 0
    graded: int = 0

    @property
    def share(self) -> float:
        """met / graded."""
        return self.met / self.graded


def met_by_criterion(report: Report) -> list[CriterionCount]:
    """Every criterion that any model was graded on."""
    rated: dict[tuple[str, str], CriterionCount] = {}
    for model in report.models:
        for score in model.cases:
            for criterion in score.case.criteria:
                met = score.met.get(criterion.id)
                if met is not None:
                    key = (score.case_id, criterion.id)
                    fresh = CriterionCount(score.case, criterion)
                    count = rated.setdefault(key, fresh)
                    count.met += met
                    count.graded += 1
    return list(rated.values())


def criteria(report: Report) -> Section:
    """The section: the positive criteria of the lowest share, and the negative ones of the highest that any met."""
    rated = met_by_criterion(report)
    if not rated:
        return Section("criteria", "Criteria", [missing(_NONE)])
    # Of equals, those of the most points.
    rated.sort(key=lambda row: (-abs(row.criterion.points), row.case.case_id))
    positive = [row for row in rated if row.criterion.points > 0]
    harms = [row for row in rated if row.criterion.points < 0 and row.met]
    positive.sort(key=lambda row: row.share)
    harms.sort(key=lambda row: -row.share)
    lists = report.render(
        "criteria.html",
        least=positive[:MOST_LISTED],
        harms=harms[:MOST_LISTED],
        rated=rated,
    )
    return Section("criteria", "Criteria", [lists, report.render("axes.html")])
