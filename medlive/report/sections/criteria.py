"""Which criteria are met: by axis and theme, the least met of all, and errors by axis (LiveMedBench, Table 3)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.report.html import Section, missing, soft
from medlive.report.model import Report

MOST_LISTED: Final = 10
"""Criteria that the table of each kind lists."""
_NONE: Final = "No criterion is graded: nothing is known of what is met."
_CAPTION: Final = (
    "Share of the graded positive criteria that are met, in %. No interval: errors by axis have theirs, over "
    "cases."
)


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
class Rated:
    """A criterion and how many of the models that were graded on it met it."""

    case: EvaluationCase
    criterion: EvaluationCriterion
    count: Count


def met_by_criterion(report: Report) -> list[Rated]:
    """Every criterion that any model was graded on."""
    found: dict[tuple[str, str], Rated] = {}
    for _, case, criterion, met in _verdicts(report):
        found.setdefault(
            (case.case_id, criterion.id), Rated(case, criterion, Count())
        ).count.add(met)
    return list(found.values())


def met_by_kind(report: Report) -> dict[str, dict[int, Count]]:
    """Each axis, then each theme → a model's place → its positive criteria; in the order of their names."""
    found: defaultdict[tuple[str, str], defaultdict[int, Count]] = defaultdict(
        lambda: defaultdict(Count)
    )
    for place, case, criterion, met in _verdicts(report):
        for kind, value in (("axis", criterion.axis), ("theme", case.theme)):
            if value and criterion.points > 0:
                found[kind, value][place].add(met)
    return {f"{kind}: {value}": found[kind, value] for kind, value in sorted(found)}


def _verdicts(
    report: Report,
) -> Iterator[tuple[int, EvaluationCase, EvaluationCriterion, bool]]:
    for place, model in enumerate(report.models):
        for score in model.cases:
            for criterion in score.case.criteria:
                if (met := score.met.get(criterion.id)) is not None:
                    yield place, score.case, criterion, met


def criteria(report: Report) -> Section:
    """The section."""
    rated = met_by_criterion(report)
    if not rated:
        return Section("criteria", "Criteria", [missing(_NONE)])
    lists = report.render(
        "criteria.html",
        least=_least_met(rated),
        harms=_most_met(rated),
        kinds=met_by_kind(report),
        rated=rated,
    )
    parts = [soft(_CAPTION), lists, report.render("axes.html")]
    return Section("criteria", "Criteria", parts)


def _least_met(rated: list[Rated]) -> list[Rated]:
    """The positive criteria of the lowest share, of equals those of the most points."""
    positive = [r for r in rated if r.criterion.points > 0]
    return sorted(
        positive, key=lambda r: (r.count.share, -r.criterion.points, r.case.case_id)
    )[:MOST_LISTED]


def _most_met(rated: list[Rated]) -> list[Rated]:
    """The negative criteria that any model met, of the highest share, of equals those of the worst points."""
    negative = [r for r in rated if r.criterion.points < 0 and r.count.met]
    return sorted(
        negative, key=lambda r: (-r.count.share, r.criterion.points, r.case.case_id)
    )[:MOST_LISTED]
