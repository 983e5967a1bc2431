"""Planning: how many cases show a difference, and what puts a new week onto the scale of earlier weeks.

`cases_for_pair` is for a paired comparison of two models, `cases_for_drop` for a drop past a cutoff.

`rank_anchors` is for models of known ability that are asked again: an anchor's mean on the new cases, against the
mean expected of it, says how hard they are. `kept_cases_needed` is for the other way round: old cases of known
difficulty that new models answer. The variances are those of a mean of scores around their expectations;
docs/method.md §2, One scale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from .intervals import Floats, Places
from .scale import Scale


@dataclass(frozen=True)
class Spread:
    """Standard deviations σ by case: the mean of n cases, clustered as here, has the standard error σ / √n."""

    difference: float
    """Of two models' scores of one case."""
    score: float
    """Of a model's scores."""


def spread_of(
    values: Floats,
    clusters: Places | None = None,
) -> Spread | None:
    """The median spread over models, and over pairs of models; None for fewer than two items.

    `values` is (items x models). Cases of a cluster repeat one another, so the spread is that of the clusters' sums.
    With one model, another of the same spread and a correlation of 0.5 is assumed.
    """
    columns = list(values.T)
    gaps = [first - second for first, second in combinations(columns, 2)]
    score = _median_spread(columns, clusters)
    if score is None:
        return None
    difference = _median_spread(gaps, clusters)
    return Spread(
        difference=score if difference is None else difference,
        score=score,
    )


def _median_spread(
    columns: list[Floats],
    clusters: Places | None,
) -> float | None:
    """The median of the columns' spreads; columns of fewer than two clusters do not count, None if none does."""
    spreads = []
    for column in columns:
        rows = np.flatnonzero(~np.isnan(column))
        values = column[rows]
        places = rows if clusters is None else clusters[rows]
        used, place = np.unique(places, return_inverse=True)
        k = len(used)
        if k > 1:
            sums = np.bincount(place, weights=values - values.mean())
            variance = (sums**2).sum() / len(rows) * k / (k - 1)
            spreads.append(math.sqrt(variance))
    return float(np.median(spreads)) if spreads else None


def _standard_normals(power: float, alpha: float) -> float:
    """z_{1-α/2} + z_power, of the standard normal distribution."""
    if not (0 < alpha < 1 and alpha < power < 1):
        raise ValueError(
            f"expected 0 < alpha < power < 1, found alpha {alpha} and power {power}"
        )
    return NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)


def cases_for_pair(
    difference: float,
    spread: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int:
    """Cases on which a paired comparison finds a true difference with this probability.

    (z_{1-α/2} + z_power)² σ² / d², and z²_{1-α/2} / 2 more for Student's quantile (Guenther 1981). `spread` is the
    standard deviation of the difference by case, in the scores' unit; `alpha` is two-sided, that of Holm's first
    step being alpha over the number of pairs.

    Raises:
        ValueError: If alpha and power are not in (0, 1), or power is not above alpha.
    """
    z = _standard_normals(power, alpha)
    for_student = NormalDist().inv_cdf(1 - alpha / 2) ** 2 / 2
    cases = (z * spread / difference) ** 2
    return max(2, math.ceil(cases + for_student))


def cases_for_drop(
    difference: float,
    spread: float,
    *,
    before: int | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int | None:
    """Cases after the cutoff that show a drop of this size against `before` cases up to it.

    With `before` None, it is the number of cases on each side. The result is the smallest n with
    σ² / before + σ² / n <= d² / (z_{1-α/2} + z_power)², and half of what `cases_for_pair` adds for Student's
    quantile; None where `before` is too small for any n. Raises ValueError as `cases_for_pair`.
    """
    z = _standard_normals(power, alpha)
    for_student = NormalDist().inv_cdf(1 - alpha / 2) ** 2 / 4
    # The most that 1 / before + 1 / n may be
    most = (difference / (z * spread)) ** 2 if spread else math.inf
    if before is None:
        return max(2, math.ceil(2 / most + for_student))
    left = most - 1 / before
    if left <= 0:
        return None
    return max(2, math.ceil(1 / left + for_student))


@dataclass(frozen=True)
class Anchor:
    """A model that could be asked again."""

    name: str
    column: int
    error: float
    """Standard error of the new week's difficulty if this model alone is asked, on the scale of scores."""
    together: float
    """The same if this model and all before it in the list are asked."""


def rank_anchors(
    scale: Scale,
    scores: Floats,
    cases: int,
) -> list[Anchor]:
    """The models on the scale as anchors, the one with the smallest `error` first.

    Args:
        scale: The scale of the weeks before.
        scores: The scores that it was made of, (cases x models).
        cases: The number of the new week's cases; an anchor answers all of them.
    """
    columns = _columns_of(scale)
    spread = np.nanstd(
        scale.expected[:, columns],
        axis=0,
    )
    # A model near the ceiling tells little: it moves less with difficulty than others do
    follows = np.maximum(spread / spread.mean(), 1e-6)
    variances = {}
    for column, share in zip(columns, follows, strict=True):
        ability = scale.abilities[column]
        assert ability.low is not None
        assert ability.high is not None
        # The standard error of its ability
        link = (ability.high - ability.low) / (2 * 1.96)
        noise = _variance_of(scale, scores, [column])
        # Other answers to its old cases would differ, too
        own = noise * ability.n / len(scores) ** 2
        variance = (noise / cases + own + link**2) / share**2
        variances[column] = float(variance)
    anchors = []
    weight = 0.0
    for column in sorted(columns, key=variances.__getitem__):
        weight += 1 / max(variances[column], 1e-12)
        anchor = Anchor(
            name=scale.abilities[column].name,
            column=column,
            error=math.sqrt(variances[column]),
            together=math.sqrt(1 / weight),
        )
        anchors.append(anchor)
    return anchors


def kept_cases_needed(
    scale: Scale,
    scores: Floats,
    cases: int,
    *,
    models: int,
    error: float,
) -> int | None:
    """How many old cases the models of a new week have to answer beside the new ones, if there are no anchors.

    Args:
        scale: The scale of the weeks before.
        scores: The scores that it was made of, (cases x models).
        cases: The number of the new week's cases.
        models: The number of models that answer them.
        error: Wanted standard error of the new week's difficulty, on the scale of scores.

    Returns:
        None where no number of old cases is enough, or fewer exist.
    """
    columns = _columns_of(scale)
    variance = _variance_of(scale, scores, columns)
    answered = (~np.isnan(scores[:, columns])).sum(axis=1)
    answers = float(answered[answered > 0].mean())
    left = error**2 - variance / (models * cases)
    if left <= 0:
        return None
    needed = math.ceil(variance * (1 / models + 1 / answers) / left)
    existing = int((answered > 0).sum())
    return needed if needed <= existing else None


def _columns_of(scale: Scale) -> list[int]:
    """The columns of the models that are on the scale."""
    columns = []
    for column, ability in enumerate(scale.abilities):
        if ability.value is not None:
            columns.append(column)
    return columns


def _variance_of(
    scale: Scale,
    scores: Floats,
    columns: Sequence[int],
) -> float:
    """The mean variance, around what is expected, of the scores that these models have."""
    known = ~np.isnan(scores[:, columns])
    variances = scale.variance[:, columns]
    return float(np.nanmean(variances[known]))
