"""A case's score and its bounds (LiveMedBench, Equation 1; docs/method.md §2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from medlive.evaluation.model import Answer, AnswerState, EvaluationCase

MOST: Final = 1e100
"""Larger figures are not computed with: their sums and squares overflow."""


class Metric(StrEnum):
    """Which score a table prints."""

    PAPER = "paper"
    """Equation 1: clipped to [0, 1] by case, then averaged over the cases that are wholly graded."""
    PUBLISHED = "published"
    """The published code: only the mean is clipped; ungraded and unanswered count as 0."""


class CaseState(StrEnum):
    """Whether a case has a score."""

    SCORED = "scored"
    PARTLY_GRADED = "partly_graded"
    """At least one criterion is ungraded: no point score, only bounds."""
    UNANSWERED = "unanswered"
    UNSCORABLE = "unscorable"
    """No criterion has positive points: equation 1 divides by nothing."""


@dataclass(frozen=True, slots=True)
class CaseScore:
    """One case's score under one metric, with its bounds over all possible verdicts of ungraded criteria."""

    case: EvaluationCase
    state: CaseState
    answer: AnswerState | None
    """None without an answer."""
    met: Mapping[str, bool | None]
    """Criterion id → met, not met, or None for ungraded; empty when unanswered."""
    score: float | None
    """None unless scored (paper)."""
    low: float
    high: float
    non_finite: float | None = None
    """The published script's figure if it is NaN, infinite or beyond 1e100: it counts in the script's mean, and
    `score` is None."""

    @property
    def unscorable(self) -> bool:
        """Whether equation 1 has no score for the case, answered or not."""
        return self.state is CaseState.UNSCORABLE or (
            self.state is CaseState.UNANSWERED and self.case.positive_points <= 0
        )

    @property
    def figure(self) -> float | None:
        """The figure that counts in the published script's mean."""
        return self.score if self.non_finite is None else self.non_finite

    @property
    def ungraded(self) -> int:
        """How many criteria are ungraded."""
        return sum(1 for met in self.met.values() if met is None)


def case_score(
    case: EvaluationCase, answer: Answer | None, met: Mapping[str, bool | None], metric: Metric
) -> CaseScore:
    """Score a case from its verdicts; criteria missing in `met` are ungraded."""
    state = answer.state if answer else None
    clip = _clip if metric is Metric.PAPER else _keep
    known: dict[str, bool | None] = {}
    # Points of met criteria, points that ungraded criteria may add or take, and the sums of either sign.
    sure = gain = loss = most = worst = 0.0
    for criterion in case.criteria:
        points, verdict = criterion.points, met.get(criterion.id)
        known[criterion.id] = verdict
        if points > 0:
            most += points
            gain += points if verdict is None else 0.0
        else:
            worst += points
            loss += points if verdict is None else 0.0
        if verdict:
            sure += points
    if answer is None or not answer.gradable:
        least = clip(worst / most) if most > 0 else 0.0
        best = 1.0 if most > 0 else 0.0
        point = None if metric is Metric.PAPER else 0.0
        return CaseScore(case, CaseState.UNANSWERED, state, {}, point, least, best)
    if most <= 0:
        point = None if metric is Metric.PAPER else 0.0
        return CaseScore(case, CaseState.UNSCORABLE, state, known, point, 0.0, 0.0)
    if None in known.values():
        low, high = clip((sure + loss) / most), clip((sure + gain) / most)
        found = CaseScore(case, CaseState.PARTLY_GRADED, state, known, None, low, high)
        return found if metric is Metric.PAPER else with_figure(found, sure / most)
    score = clip(sure / most)
    found = CaseScore(case, CaseState.SCORED, state, known, score, score, score)
    # Not computed with: NaN, and figures that `_keep` had to cut.
    return found if metric is Metric.PAPER or score == sure / most else with_figure(found, sure / most)


def with_figure(found: CaseScore, figure: float) -> CaseScore:
    """Return the case with the published script's figure; bounds are widened to include it."""
    if not abs(figure) <= MOST:
        return replace(found, score=None, non_finite=figure)
    if found.state in (CaseState.SCORED, CaseState.UNSCORABLE):
        return replace(found, score=figure, low=figure, high=figure, non_finite=None)
    low, high = min(found.low, figure), max(found.high, figure)
    return replace(found, score=figure, low=low, high=high, non_finite=None)


def _clip(score: float) -> float:
    return max(0.0, min(1.0, score))


def _keep(score: float) -> float:
    return max(-MOST, min(MOST, score))
