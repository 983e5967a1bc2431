"""How many cases show a difference: sizes for a paired comparison of two models and for a drop past a cutoff."""

import math
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from medlive.statistics.bootstrap import Floats, Places

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations σ by case: the mean of n cases, in clusters as they are here, has σ / √n."""

    difference: float
    """Of two models' scores of one case."""
    score: float
    """Of a model's scores."""


def spread_of(
    values: Floats,
    clusters: Places | None = None,
) -> Spread | None:
    """The median spread over the models of (items x models), and over their pairs; None for fewer than two items.

    Cases of a cluster repeat one another: theirs is the spread of the sums. With one model, another of
    the same spread and a correlation of 0.5 is assumed.
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
    """The median of the columns' spreads, without those of fewer than two clusters; None where that is all."""
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
    if not (0 < alpha < 1 and alpha < power < 1):
        raise ValueError(
            f"expected 0 < alpha < power < 1, found alpha {alpha} and power {power}"
        )
    return _NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)


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
    for_student = _NORMAL.inv_cdf(1 - alpha / 2) ** 2 / 2
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
    """Cases after the cutoff that show a drop of this size against `before` cases up to it; None: as many of each.

    The smallest n with σ² / before + σ² / n <= d² / (z_{1-α/2} + z_power)², and half of what `cases_for_pair` adds
    for Student's quantile. None where no n would do, because those before are too few. Raises ValueError as it does.
    """
    z = _standard_normals(power, alpha)
    for_student = _NORMAL.inv_cdf(1 - alpha / 2) ** 2 / 4
    # What 1 / before + 1 / n may be at most.
    most = (difference / (z * spread)) ** 2 if spread else math.inf
    if before is None:
        return max(2, math.ceil(2 / most + for_student))
    left = most - 1 / before
    if left <= 0:
        return None
    return max(2, math.ceil(1 / left + for_student))
