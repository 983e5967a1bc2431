"""Intervals that hold for low means and few items: `mean_bounds` for means of values in [0, 1], `gap_bounds` for
paired differences; `too_few` says when there is none.

A percentile of draws fails there: a column of zeros gives "0 to 0". Here draws give the variance alone. A mean has
Wilson's interval, as a proportion of an effective number of items: a proportion's variance divided by the mean's
own (Korn and Graubard 1998). A difference is the mean gain less the mean loss; their intervals are combined by
MOVER, the method of variance estimates recovery (Zou and Donner 2008). docs/builders/measurements/intervals.md has
the coverage by simulation.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int_]  # whole numbers: rows, clusters, codes
Flags = NDArray[np.bool_]

DOUBT = 0.1
"""How many items' worth of the greatest possible variance, m(1 - m) for each cluster, is added to that of draws. Few
values that are not 0 show too little of their spread; with 0.03, means of 1 % of 100 scores covered .91."""

LEAST_CLUSTERS = 30
"""The least number of clusters with which a mean has an interval."""
LEAST_UNITS = 10.0
"""The least effective number of clusters that make a mean: (Σs)² / Σs², where s is the sum of a
cluster's distances from the end of [0, 1] that the mean is nearer to. With fewer the interval depends on a handful
of cases."""
LEAST_POINTS = 2.0
"""The least that those s add up to, in full scores: with less, one case scored as none here would move the mean
beyond any interval that these values can give."""


TOO_FEW = "too few to say"


def quotient(above: Floats, below: Any) -> Floats:
    """`above` / `below`; NaN for 0 / 0."""
    with np.errstate(all="ignore"):
        return np.asarray(above / below)


def known_means(values: Floats) -> Floats:
    """The mean of each column over its known values; NaN for a column without any."""
    return quotient(
        np.nansum(values, axis=0),
        (~np.isnan(values)).sum(axis=0),
    )


def too_few(
    sums: Floats,
    known: Places,
    least_clusters: int = LEAST_CLUSTERS,
) -> list[str]:
    """Why each column's mean, or mean difference, has no interval; "" where it has one.

    `sums` is what each cluster adds, (clusters x columns), none below 0; `known` is the number of clusters by column.
    docs/builders/measurements/intervals.md has the simulations.
    """
    totals = sums.sum(axis=0)
    squares = (sums**2).sum(axis=0)
    units = np.where(
        squares > 0,
        totals**2 / np.maximum(squares, 1e-300),
        0.0,
    )
    # Rounded, so that the order of a sum does not decide at a limit: the site's pages add up as well.
    units = units.round(9)
    totals = totals.round(9)
    reasons = []
    for clusters, in_effect, points in zip(known, units, totals, strict=True):
        needed: float = least_clusters
        if clusters < least_clusters:
            seen = f"{clusters} threads"
        elif points < LEAST_POINTS:
            seen = f"all that differs adds up to {points:.2g} full scores"
            needed = LEAST_POINTS
        elif in_effect < LEAST_UNITS:
            seen = f"{in_effect:.1f} threads in effect make the figure"
            needed = LEAST_UNITS
        else:
            reasons.append("")
            continue
        reasons.append(f"{TOO_FEW}: {seen}, an interval needs {needed:g}")
    return reasons


def sign_p(sums: Floats, seed: int = 0) -> float:
    """The two-sided p of a sum of differences by permutation of their signs.

    Args:
        sums: What each cluster adds; a cluster's differences keep their signs together.
        seed: The seed of random signs, where there are too many to try all.

    The hypothesis is that the two models are alike, so that each cluster's difference could as well have the other
    sign. Up to `EXACT_SIGNS` differences every sign is tried; else p is (1 + hits) / (1 + draws).
    """
    differing = sums[np.abs(sums) > 1e-12]
    n = len(differing)
    if not n:
        return 1.0
    rounding = 1e-9 * np.abs(differing).max()
    observed = abs(differing.sum()) - rounding

    def reaching(bits: Places) -> Flags:
        """Which choices of signs, a row of `bits` each, give a sum as far from 0 as the observed one."""
        turned = (1 - 2 * bits) @ differing
        return np.asarray(np.abs(turned) >= observed)

    if n <= EXACT_SIGNS:
        # The first sign is fixed: turning all of them gives the same size.
        numbers = np.arange(2 ** (n - 1))
        return float(reaching((numbers[:, None] >> np.arange(n)) & 1).mean())
    rng = np.random.default_rng(seed)
    hits = int(reaching(rng.integers(0, 2, (RANDOM_SIGNS, n))).sum())
    return (1 + hits) / (1 + RANDOM_SIGNS)


EXACT_SIGNS = 16
"""Up to this number of differences every combination of signs is tried."""
RANDOM_SIGNS = 4999
"""Draws of signs where there are too many differences to try all."""


def mean_bounds(
    mean: Floats,
    spread: Floats,
    clusters: Places,
    unit: Any = True,
) -> tuple[Floats, Floats]:
    """The 95 % interval of means, each of the given number of independent clusters; all arrays of one shape.

    Args:
        mean: The means.
        spread: Their standard deviations over the bootstrap's draws of clusters.
        clusters: How many clusters have an item of the mean; with fewer than two the ends are NaN.
        unit: Whether all values of a mean are in [0, 1]; where they are not, Student's interval is given.

    A column that is 0 throughout is bounded by t²/(k + t²). That exceeds 1 - 0.025^(1/k), which is exact for any
    distribution on [0, 1], because P(X = 0) ≤ 1 - mean.
    """
    with np.errstate(all="ignore"):
        error = standard_error(spread, clusters)
        t = quantiles(clusters)
        low, high = wilson(mean, error, clusters, t)
        far = t * error
        return (
            np.where(unit, low, mean - far),
            np.where(unit, high, mean + far),
        )


def standard_error(spread: Floats, clusters: Places) -> Floats:
    """The standard error of a mean by the spread of its draws over `clusters` clusters; NaN for fewer than two."""
    k = np.where(
        clusters > 1,
        clusters,
        np.nan,
    )
    return np.asarray(spread * np.sqrt(k / (k - 1)))


def wilson(
    mean: Floats,
    error: Floats,
    clusters: Places,
    z: Any,
    size: Any = 1.0,
) -> tuple[Floats, Floats]:
    """Wilson's interval at quantile `z`; `size` is the assumed size of an unseen value that is not 0, for `DOUBT`."""
    mean = np.clip(mean, 0.0, 1.0)
    most = mean * (1 - mean)
    # The effective number of items; for a constant column only clusters and DOUBT give one
    n = np.where(
        error**2 > 1e-18,
        most / np.maximum(error**2, 1e-18),
        0.0 * error,
    )
    count = np.minimum(mean, 1 - mean) * n
    seen = np.where(
        n > 0,
        count / np.maximum(n, 1e-18),
        0.0,
    )
    n = (count + DOUBT) / (seen + DOUBT * size / clusters)
    total = n + z * z
    centre = (mean * n + z * z / 2) / total
    half = z / total * np.sqrt(n * most + z * z / 4)
    return (
        np.clip(centre - half, 0.0, mean),
        np.clip(centre + half, mean, 1.0),
    )


def gap_bounds(
    first: Sequence[Any],
    second: Sequence[Any],
    correlation: Any = 0.0,
) -> tuple[Floats, Floats]:
    """The interval of the first mean less the second by MOVER; each is (mean, low, high), `correlation` the means'."""
    a, a_low, a_high = first
    b, b_low, b_high = second

    def distance(x: Floats, y: Floats) -> Floats:
        squares = x * x + y * y - 2 * correlation * x * y
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    below = distance(a - a_low, b_high - b)
    above = distance(a_high - a, b - b_low)
    return a - b - below, a - b + above


def two_sided_p(t: float, freedom: int) -> float:
    """The two-sided p of Student's `t` with `freedom` degrees of freedom."""
    if not t:
        return 1.0
    return incomplete_beta(
        freedom / 2,
        0.5,
        freedom / (freedom + t * t),
    )


def quantiles(clusters: Places) -> Floats:
    """Student's 97.5 % quantile with `clusters` - 1 degrees of freedom; NaN for fewer than two clusters."""
    of_freedom = np.vectorize(quantile, otypes=[np.float64])
    return np.asarray(of_freedom(clusters - 1))


@cache
def quantile(freedom: int) -> float:
    """The t that Student's statistic exceeds, either way, with p = 0.05; NaN without a degree of freedom."""
    freedom = int(freedom)
    if freedom < 1:
        return math.nan
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        if two_sided_p(middle, freedom) > 0.05:
            low = middle
        else:
            high = middle
    return high


def incomplete_beta(
    a: float,
    b: float,
    x: float,
) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1].

    By its continued fraction, from the inside out: it converges in O(√max(a, b)) steps where x is below the mean.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    turned = x > (a + 1) / (a + b + 2)
    if turned:
        a, b, x = b, a, 1 - x
    fraction = 1.0
    for m in range(50 + 5 * math.isqrt(int(max(a, b))), 0, -1):
        middle = a + 2 * m
        even = m * (b - m) * x / ((middle - 1) * middle)
        odd_term = -(a + m) * (a + b + m) * x
        odd_term /= middle * (middle + 1)
        fraction = 1 + even / (1 + odd_term / fraction)
    constant = math.lgamma(a + b)
    constant -= math.lgamma(a)
    constant -= math.lgamma(b)
    front = math.exp(constant + a * math.log(x) + b * math.log1p(-x))
    value = front / a / (1 - (a + b) * x / (a + 1) / fraction)
    return 1 - value if turned else value
