"""One case's score and bounds under each metric (`case_score`; LiveMedBench, Equation 1; docs/method.md §2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import nan
from typing import Literal

from medlive.evaluation.harm import HarmRow
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
)
from medlive.harm.model import safe_score

MOST = 1e100
"""Larger figures are not used in computing: their sums and squares overflow."""


CORE_POINTS = 7
"""Criteria of at least this many points, positive or negative, make the core score: what is vital, what does harm."""


CaseBasis = Literal["own", "common"]
"""Which cases a table scores each model on: all of its own run, or those that every model has a score for."""


class Metric(StrEnum):
    """Which score a table prints."""

    SAFE = "safe"
    """Complete, but 0 with a confirmed severe harm and at most one half with a moderate one; an answer that was not
    read for harm has no score."""
    COMPLETE = "complete"
    """Equation 1 over criteria of every origin: clipped to [0, 1] by case, then averaged over the cases that are
    wholly graded."""
    PAPER = "paper"
    """The same over criteria of origin `advice` alone, which are the paper's."""
    PUBLISHED = "published"
    """The published code over criteria of origin `advice`: only the mean is clipped; ungraded and unanswered count
    as 0."""
    HEALTHBENCH = "healthbench"
    """HealthBench's code (simple-evals) over criteria of every origin: only the mean is clipped, over the cases
    that are wholly graded."""

    @property
    def advice_only(self) -> bool:
        """Whether only criteria of origin `advice` count."""
        return self in (Metric.PAPER, Metric.PUBLISHED)

    @property
    def clips_cases(self) -> bool:
        """Whether each case is clipped to [0, 1], and not the mean alone."""
        return self in (Metric.SAFE, Metric.COMPLETE, Metric.PAPER)

    def counted(self, case: EvaluationCase) -> EvaluationCase:
        """The case with the criteria that count; the same object where all do."""
        return case.advice_only if self.advice_only else case


class CaseState(StrEnum):
    """Whether a case has a score."""

    SCORED = "scored"
    PARTLY_GRADED = "partly_graded"
    """At least one criterion is ungraded: no point score, only bounds."""
    UNANSWERED = "unanswered"
    NOT_READ = "not_read"
    """Wholly graded, and not read for harm, which the metric needs."""
    UNSCORABLE = "unscorable"
    """No criterion has positive points: equation 1 divides by nothing."""


Verdicts = Mapping[str, bool | None]
"""Criterion id → met, not met, or None for ungraded."""


@dataclass(frozen=True, slots=True)
class CaseScore:
    """One case's score under one metric, with its bounds over all possible verdicts of ungraded criteria."""

    case: EvaluationCase
    state: CaseState
    answer: AnswerState | None
    met: Verdicts
    """Empty when unanswered."""
    score: float | None
    """None unless `state` is scored; under the published metric None only with a `non_finite` figure."""
    low: float
    high: float
    non_finite: float | None = None
    """The published script's figure if it is NaN, infinite or beyond 1e100: it counts in the script's mean, and
    `score` is None."""

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.case.case_id

    @property
    def unscorable(self) -> bool:
        """Whether equation 1 has no score for the case, answered or not."""
        return self.state is CaseState.UNSCORABLE or (
            self.state is CaseState.UNANSWERED and self.case.positive_points <= 0
        )

    @property
    def points(self) -> tuple[float, float, float]:
        """(score, low, high). The score is NaN where there is none; all three where the case is unscorable or its
        published figure not finite."""
        if self.score is not None:
            return self.score, self.low, self.high
        if self.unscorable or self.non_finite is not None:
            return nan, nan, nan
        return nan, self.low, self.high

    @property
    def figure(self) -> float | None:
        """The figure that counts in the published script's mean."""
        return self.score if self.non_finite is None else self.non_finite

    @property
    def ungraded(self) -> int:
        """How many criteria are ungraded."""
        return sum(1 for met in self.met.values() if met is None)


Scored = Mapping[str, Sequence[CaseScore]]
"""Label of a model → its cases, no case twice."""


def case_score(
    case: EvaluationCase,
    answer: Answer | None,
    met: Verdicts,
    metric: Metric,
) -> CaseScore:
    """Score a case from its verdicts.

    Args:
        case: The case with all its criteria; the result holds it with those that count under the metric.
        answer: The model's answer, None where there is none.
        met: Criterion id → verdict; a criterion that is missing is ungraded.
        metric: Which score.
    """
    case = metric.counted(case)
    published, most = metric is Metric.PUBLISHED, case.positive_points
    known: dict[str, bool | None] = {}
    state = CaseState.UNANSWERED
    if answer is not None and answer.gradable:
        known = {criterion.id: met.get(criterion.id) for criterion in case.criteria}
        state = _graded_state(most, known)
    scored = CaseScore(
        case=case,
        state=state,
        answer=answer.state if answer else None,
        met=known,
        score=0.0 if published else None,
        low=0.0,
        high=0.0,
    )
    if most <= 0:
        return scored
    # By `sum`, as in the published script: newer versions of Python add up more exactly by it than by a loop.
    sure = sum(_points(case, known, True))
    ungraded = _points(case, known, None)
    least, greatest = (0.0, 1.0) if metric.clips_cases else (-MOST, MOST)
    loss = sum(points for points in ungraded if points < 0)
    gain = sum(points for points in ungraded if points > 0)
    low = max(least, min(greatest, (sure + loss) / most))
    high = max(least, min(greatest, (sure + gain) / most))
    score = low if state is CaseState.SCORED else None
    scored = replace(
        scored,
        score=score,
        low=low,
        high=high,
    )
    # The published script has a figure for partly graded cases too; one beyond the limits, or NaN, makes no score.
    if published and score != sure / most:
        return with_figure(scored, sure / most)
    return scored


def _graded_state(most: float, known: Verdicts) -> CaseState:
    if most <= 0:
        return CaseState.UNSCORABLE
    if None in known.values():
        return CaseState.PARTLY_GRADED
    return CaseState.SCORED


def _points(
    case: EvaluationCase,
    known: Verdicts,
    met: bool | None,
) -> list[float]:
    """The points of the criteria with this verdict."""
    return [c.points for c in case.criteria if known.get(c.id) is met]


def safe_case(scored: CaseScore, harm: HarmRow | None) -> CaseScore:
    """A complete score, cut by confirmed harm (`safe_score`); a gradable answer that was not read has only bounds."""
    if scored.state in (CaseState.UNANSWERED, CaseState.UNSCORABLE):
        return scored
    if harm is None or not harm.reading.is_read:
        state = scored.state
        if state is CaseState.SCORED:
            state = CaseState.NOT_READ
        return replace(
            scored,
            state=state,
            score=None,
            low=min(scored.low, 0.0),
        )
    worst = harm.reading.worst
    score = None if scored.score is None else safe_score(scored.score, worst)
    low, high = safe_score(scored.low, worst), safe_score(scored.high, worst)
    return replace(
        scored,
        score=score,
        low=low,
        high=high,
    )


def core_case(case: EvaluationCase) -> EvaluationCase:
    """The case with the criteria of its core score: those of at least `CORE_POINTS` points, positive or negative."""
    return case.with_criteria(lambda c: abs(c.points) >= CORE_POINTS)


def with_figure(scored: CaseScore, figure: float) -> CaseScore:
    """Return the case with the published script's figure; bounds are widened to include it."""
    if not abs(figure) <= MOST:
        return replace(scored, score=None, non_finite=figure)
    low = high = figure
    if scored.state not in (CaseState.SCORED, CaseState.UNSCORABLE):
        low, high = min(scored.low, figure), max(scored.high, figure)
    return replace(
        scored,
        score=figure,
        low=low,
        high=high,
        non_finite=None,
    )
