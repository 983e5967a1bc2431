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
class Count:
    """How many of the graded were met."""

    met: int = 0
    graded: int = 0

    def add(self, met: bool) -> None:
        """Count a verdict."""
        self.met += met
        self.graded += 1

    @property
    def share(self) -> float:
        """met / graded."""
        return self.met / self.graded


@dataclass(frozen=True, slots=True)
class CriterionCount:
    """A criterion and how many of the models that were graded on it met it."""

    case: EvaluationCase
    criterion: EvaluationCriterion
    count: Count


def met_by_criterion(report: Report) -> list[CriterionCount]:
    """Every criterion that any model was graded on."""
    rated: dict[tuple[str, str], CriterionCount] = {}
    for model in report.models:
        for score in model.cases:
            for criterion in score.case.criteria:
                met = score.met.get(criterion.id)
                if met is not None:
                    key = (score.case.case_id, criterion.id)
                    fresh = CriterionCount(score.case, criterion, Count())
                    rated.setdefault(key, fresh).count.add(met)
    return list(rated.values())


def criteria(report: Report) -> Section:
    """The section."""
    rated = met_by_criterion(report)
    if not rated:
        return Section("criteria", "Criteria", [missing(_NONE)])
    lists = report.render(
        "criteria.html",
        least=_least_met(rated),
        harms=_most_met(rated),
        rated=rated,
    )
    return Section("criteria", "Criteria", [lists, report.render("axes.html")])


def _least_met(rated: list[CriterionCount]) -> list[CriterionCount]:
    """The positive criteria of the lowest share, of equals those of the most points."""
    positive = [r for r in rated if r.criterion.points > 0]
    return sorted(
        positive, key=lambda r: (r.count.share, -r.criterion.points, r.case.case_id)
    )[:MOST_LISTED]


def _most_met(rated: list[CriterionCount]) -> list[CriterionCount]:
    """The negative criteria that any model met, of the highest share, of equals those of the worst points."""
    negative = [r for r in rated if r.criterion.points < 0 and r.count.met]
    return sorted(
        negative, key=lambda r: (-r.count.share, r.criterion.points, r.case.case_id)
    )[:MOST_LISTED]
