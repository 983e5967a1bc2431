"""Intervals of means of values in [0, 1], and of paired differences, that hold for low means and few items.

A percentile of draws fails there: a column of zeros gives "0 to 0". Here the draws give the variance alone. The
mean is read as a proportion of an effective number of items, a proportion's variance divided by its own (Korn and
Graubard 1998), with Wilson's interval; a difference is what was gained less what was lost, each with its interval,
combined by MOVER (Zou and Donner 2008). docs/builders/measurements/intervals.md has the coverage by simulation.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DOUBT: Final = 0.1
"""How many items' worth of the greatest possible variance, m(1 - m) for each cluster, is added to the draws'. Few
values that are not 0 show too little of their spread; with 0.03, means of 1 % of 100 scores covered .91."""

LEAST_PAIRED: Final = 6
"""Freedom that a few differences are read with at least."""

LEAST_CLUSTERS: Final = 30
"""Clusters from which a mean has an interval."""
LEAST_UNITS: Final = 10.0
"""Clusters that carry a mean, in effect: (Σs)² / Σs² over what each adds to the side nearer to 0 or 1. With fewer
the interval rests on a handful of cases."""
LEAST_POINTS: Final = 2.0
"""What they add up to, in full scores: with less, one case scored as none here would move the mean beyond any
interval that these values can give."""


class Support(NamedTuple):
    """What the intervals of means, or of mean differences, are based on; arrays with a place for each column."""

    clusters: NDArray[Any]
    units: Floats
    points: Floats

    def enough(self, least_clusters: int = LEAST_CLUSTERS) -> NDArray[np.bool_]:
        """Which columns have an interval; docs/builders/measurements/intervals.md has the simulations."""
        return np.asarray(
            (self.clusters >= least_clusters)
            & (self.units >= LEAST_UNITS)
            & (self.points >= LEAST_POINTS)
        )

    def reasons(self, least_clusters: int = LEAST_CLUSTERS) -> list[str]:
        """Why each column has no interval; "" where it has one."""
        return [
            _reason(int(k), float(units), float(points), least_clusters)
            for k, units, points in zip(*self, strict=True)
        ]


def _reason(clusters: int, units: float, points: float, least_clusters: int) -> str:
    if clusters < least_clusters:
        return f"{TOO_FEW}: {clusters} threads, an interval needs {least_clusters}"
    if points < LEAST_POINTS:
        return (
            f"{TOO_FEW}: all that differs adds up to {points:.2g} full scores, "
            f"an interval needs {LEAST_POINTS:g}"
        )
    if units < LEAST_UNITS:
        return (
            f"{TOO_FEW}: {units:.1f} threads in effect make the figure, "
            f"an interval needs {LEAST_UNITS:g}"
        )
    return ""


TOO_FEW: Final = "too few to say"


def support_of(sums: Floats, known: NDArray[Any]) -> Support:
    """The support of columns by what each cluster adds, (clusters x columns), from 0 up; `known` counts clusters."""
    total, squares = sums.sum(axis=0), (sums**2).sum(axis=0)
    units = np.where(squares > 0, total**2 / np.maximum(squares, 1e-300), 0.0)
    # Rounded, so that the order of a sum does not decide at a limit: the site's pages add up as well.
    return Support(known, units.round(9), total.round(9))


def sign_p(sums: Floats, seed: int = 0) -> float:
    """The two-sided p of a sum of differences by permutation of their signs.

    Args:
        sums: What each cluster adds; a cluster's differences keep their signs together.
        seed: Of random signs, where there are too many to try all.

    Under the hypothesis that the two models are alike, so that each cluster's difference could as well have the
    other sign. Up to `EXACT_SIGNS` differences every sign is tried; else p is (1 + hits) / (1 + draws).
    """
    differing = sums[np.abs(sums) > 1e-12]
    n = len(differing)
    if not n:
        return 1.0
    observed = abs(differing.sum()) - 1e-9 * np.abs(differing).max()
    if n <= EXACT_SIGNS:
        # The first sign is fixed: turning all of them gives the same size.
        bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1
        return float((np.abs((1 - 2 * bits) @ differing) >= observed).mean())
    signs = np.random.default_rng(seed).integers(0, 2, (RANDOM_SIGNS, n)) * 2 - 1
    hits = int((np.abs(signs @ differing) >= observed).sum())
    return (1 + hits) / (1 + RANDOM_SIGNS)


EXACT_SIGNS: Final = 16
"""Differences up to which every sign is tried."""
RANDOM_SIGNS: Final = 4999
"""Draws of signs where there are too many differences to try all."""


def mean_bounds(
    mean: Floats, spread: Floats, clusters: NDArray[Any], unit: Any = True
) -> tuple[Floats, Floats]:
    """The 95 % interval of means, each of the given number of independent clusters; all arrays of one shape.

    Args:
        mean: The means.
        spread: Their standard deviations over the bootstrap's draws of clusters.
        clusters: The clusters that hold an item; NaN comes out of fewer than two.
        unit: Whether all values of a mean are in [0, 1]; where they are not, Student's interval is given.

    A column that is 0 throughout is bounded by t²/(k + t²). That exceeds 1 - 0.025^(1/k), which is exact for any
    distribution on [0, 1], because P(X = 0) ≤ 1 - mean.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        error = _standard_error(spread, clusters)
        t = quantiles(clusters)
        low, high = _wilson(mean, error, clusters, t)
        return np.where(unit, low, mean - t * error), np.where(
            unit, high, mean + t * error
        )


def _standard_error(spread: Floats, clusters: NDArray[Any]) -> Floats:
    k = np.where(clusters > 1, clusters, np.nan)
    return np.asarray(spread * np.sqrt(k / (k - 1)))


def _wilson(
    mean: Floats, error: Floats, clusters: NDArray[Any], z: Any, size: Any = 1.0
) -> tuple[Floats, Floats]:
    """Wilson's interval on the effective number of items; `size`: of a value that is not 0, as doubt takes it."""
    mean = np.clip(mean, 0.0, 1.0)
    most = mean * (1 - mean)
    # Constant columns have their clusters alone to go by.
    n = np.where(error**2 > 1e-18, most / np.maximum(error**2, 1e-18), 0.0 * error)
    count = np.minimum(mean, 1 - mean) * n
    n = (count + DOUBT) / (
        np.where(n > 0, count / np.maximum(n, 1e-18), 0.0) + DOUBT * size / clusters
    )
    centre = (mean * n + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(n * most + z * z / 4)
    return np.clip(centre - half, 0.0, mean), np.clip(centre + half, mean, 1.0)


def gap_bounds(
    first: Sequence[Floats] | Floats,
    second: Sequence[Floats] | Floats,
    correlation: Any = 0.0,
) -> tuple[Floats, Floats]:
    """The interval of first less second by MOVER, of (mean, low, high) each and the correlation of the means."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    down, up = (a - a_low, b_high - b), (a_high - a, b - b_low)
    low, high = (
        np.sqrt(np.maximum(x * x + y * y - 2 * correlation * x * y, 0.0))
        for x, y in (down, up)
    )
    return a - b - low, a - b + high


def paired(
    gains: Floats,
    losses: Floats,
    size: Floats,
    drawn: Floats,
    clusters: NDArray[Any],
    differing: NDArray[Any],
    unit: Any,
) -> Floats:
    """The interval and p of mean differences, gains less losses: (3 x columns), low, high and p.

    Args:
        gains: The mean of what each difference is above 0; `losses`: of what it is below 0.
        losses: As `gains`.
        size: Of a difference that is not 0, Σd² / Σ|d|, as an unseen one would be; 1 where none is seen.
        drawn: Both in each draw, (draws x 2 x columns).
        clusters: The clusters that hold an item of each column.
        differing: Those of them with a difference that is not 0, whose number less one is Student's freedom: few
            differences show too little of their spread. At least `LEAST_PAIRED` are assumed, and without any, all.
        unit: Whether a column's differences are all in [-1, 1]; where they are not, the interval is Student's.

    p is that of the widest interval that leaves 0 out, so that p < 0.05 exactly where the 95 % one does. It is
    never below 2^(1-k), which is all that k signs can show.
    """
    counted = np.where(
        differing > 0,
        np.minimum(np.maximum(differing, LEAST_PAIRED), clusters),
        clusters,
    )
    spread = np.nanstd(drawn, axis=0)
    centred = drawn - np.nanmean(drawn, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = np.nanmean(centred[:, 0] * centred[:, 1], axis=0)
        error = _standard_error(spread, clusters)
        whole = _standard_error(np.nanstd(drawn[:, 0] - drawn[:, 1], axis=0), clusters)
        together = spread[0] * spread[1]
        # Never above 0, so that an interval only widens with its level.
        correlation = np.where(
            together > 1e-18,
            np.minimum(covariance / np.maximum(together, 1e-18), 0.0),
            0.0,
        )

        def ends(t: Floats) -> tuple[Floats, Floats]:
            parts = [
                (m, *_wilson(m, e, clusters, t, size))
                for m, e in zip((gains, losses), error, strict=True)
            ]
            low, high = gap_bounds(parts[0], parts[1], correlation)
            student = (gains - losses - t * whole, gains - losses + t * whole)
            return np.where(unit, low, student[0]), np.where(unit, high, student[1])

        low, high = ends(quantiles(counted))
        below, above = np.zeros_like(gains), np.full_like(gains, 1e3)
        for _ in range(50):
            middle = (below + above) / 2
            inner = ends(middle)
            apart = (inner[0] > 0) | (inner[1] < 0)
            below, above = (
                np.where(apart, middle, below),
                np.where(apart, above, middle),
            )
    known = ~np.isnan(low)
    p = np.ones_like(gains)
    for place, k in enumerate(map(int, clusters)):
        if k > 1:
            least = 2.0 ** max(1 - k, -1000)
            freedom = int(counted[place]) - 1
            p[place] = max(least, two_sided_p(below[place], freedom))
    return np.stack([np.where(known, low, np.nan), np.where(known, high, np.nan), p])


def two_sided_p(t: float, freedom: int) -> float:
    """Student's p of a statistic, two-sided."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) if t else 1.0


def quantiles(clusters: NDArray[Any]) -> Floats:
    """Student's 97.5 % quantile with one degree of freedom less than clusters; NaN for fewer than two clusters."""
    values, place = np.unique(clusters, return_inverse=True)
    return np.array([quantile(int(k) - 1) for k in values], dtype=np.float64)[
        place
    ].reshape(clusters.shape)


@cache
def quantile(freedom: int) -> float:
    """The t that Student's statistic exceeds, either way, with p = 0.05; NaN without a degree of freedom."""
    if freedom < 1:
        return math.nan
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if two_sided_p(middle, freedom) > 0.05 else (low, middle)
        )
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method; it converges in O(√max(a, b)) steps."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd_term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd_term):
            d = 1.0 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
