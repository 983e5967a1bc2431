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
    """Standard deviations by case, each times √n less than that of a mean of n cases in their clusters."""

    difference: float
    """Of two models' scores of one case."""
    score: float
    """Of a model's scores."""


def spread_of(values: Floats, clusters: Places | None = None) -> Spread | None:
    """The median spread over the models of (items x models), and over their pairs; None for fewer than two items.

    Cases of a cluster repeat one another: theirs is the spread of the sums. With one model, another of
    the same spread and a correlation of 0.5 is assumed.
    """
    columns = list(values.T)
    scores = [_spread(column, clusters) for column in columns]
    gaps = [_spread(a - b, clusters) for a, b in combinations(columns, 2)]
    known = [spread for spread in scores if spread is not None]
    if not known:
        return None
    score = float(np.median(known))
    pairs = [spread for spread in gaps if spread is not None]
    return Spread(float(np.median(pairs)) if pairs else score, score)


def _spread(values: Floats, clusters: Places | None) -> float | None:
    known = ~np.isnan(values)
    n = int(known.sum())
    places = np.arange(len(values)) if clusters is None else clusters
    used, place = np.unique(places[known], return_inverse=True)
    if len(used) < 2:
        return None
    sums = np.bincount(place, weights=values[known] - values[known].mean())
    return float(math.sqrt((sums**2).sum() / n * len(used) / (len(used) - 1)))


def _standard_normals(power: float, alpha: float) -> float:
    if not (0 < alpha < 1 and alpha < power < 1):
        raise ValueError(
            f"expected 0 < alpha < power < 1, found alpha {alpha} and power {power}"
        )
    return _NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)


def cases_for_pair(
    difference: float, spread: float, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Cases on which a paired comparison finds a true difference with this probability.

    (z_{1-α/2} + z_power)² σ² / d², and z²_{1-α/2} / 2 more for Student's quantile (Guenther 1981). `spread` is the
    standard deviation of the difference by case, in the scores' unit; `alpha` is two-sided, that of Holm's first
    step being alpha over the number of pairs.

    Raises:
        ValueError: If alpha and power are not in (0, 1), or power is not above alpha.
    """
    z = _standard_normals(power, alpha)
    return max(
        2,
        math.ceil(
            (z * spread / difference) ** 2 + _NORMAL.inv_cdf(1 - alpha / 2) ** 2 / 2
        ),
    )


def cases_for_drop(
    difference: float,
    spread: float,
    *,
    before: int | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> int | None:
    """Cases after the cutoff that show a drop of this size against `before` cases up to it; None: as many of each.

    As `cases_for_pair`, with the variances σ² / n of both sides. None where no number of later cases would do,
    because those before are too few.
    """
    z = _standard_normals(power, alpha)
    more = _NORMAL.inv_cdf(1 - alpha / 2) ** 2 / 4
    variance = (difference / (z * spread)) ** 2 if spread else math.inf
    if before is None:
        return max(2, math.ceil(2 / variance + more))
    left = variance - 1 / before
    return max(2, math.ceil(1 / left + more)) if left > 0 else None
