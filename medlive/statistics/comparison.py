"""Paired comparisons of models on common items (`compare`), Holm's correction (`holm`), and ranks (`tie_groups`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Unpack

import numpy as np

from .bootstrap import (
    Resampling,
    bootstrap_means,
    cluster_counts,
    cluster_sums,
    spread_over_draws,
)
from .estimate import Estimate, column_estimates
from .intervals import (
    Floats,
    gap_bounds,
    quantiles,
    sign_p,
    standard_error,
    too_few,
    two_sided_p,
    wilson,
)


@dataclass(frozen=True)
class Comparison:
    """Two models compared on the `n` items that both have."""

    first: str
    second: str
    n: int
    difference: float | None
    """Mean of first minus second; None without a common item."""
    low: float | None
    high: float | None
    p: float
    """Two-sided, for no difference."""
    p_holm: float
    """`p` by Holm's correction for the number of comparisons."""
    why: str = ""
    """Why there is no interval; p is then by permutation of signs."""


LEAST_PAIRED = 6
"""The least number of clusters counted when few differ; Student's freedom is that number less one."""

LEAST_PAIRS = 10
"""A paired difference needs at least this many clusters for an interval."""


def compare(
    names: Sequence[str],
    values: Floats,
    **how: Unpack[Resampling],
) -> list[Comparison]:
    """Compare every pair of columns of `values` (items x columns, NaN where absent) on the pair's common items.

    Intervals and p are those of `compare_paired`: a percentile of 1,000 draws is too coarse for Holm's correction
    over many pairs. A pair without enough differences has no interval, and its p is by permutation of signs.
    """
    pairs = list(combinations(range(len(names)), 2))
    # A block of columns at a time: 703 pairs of 38 models over 200,000 cases would not fit.
    block = max(1, 2_000_000 // max(1, len(values)))
    figures: list[Estimate] = []
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        gaps = [values[:, first] - values[:, second] for first, second in part]
        figures += compare_paired(np.stack(gaps, axis=1), **how)
    compared: list[Comparison] = []
    for (first, second), figure in zip(pairs, figures, strict=True):
        p = 1.0 if figure.p is None else figure.p
        pair = Comparison(
            first=names[first],
            second=names[second],
            n=figure.n,
            difference=figure.value,
            low=figure.low,
            high=figure.high,
            p=p,
            p_holm=p,
            why=figure.why,
        )
        compared.append(pair)
    return with_holm(compared)


def with_holm(pairs: Sequence[Comparison]) -> list[Comparison]:
    """The pairs with `p_holm` set, corrected for their number."""
    corrected = holm([pair.p for pair in pairs])
    return [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]


def compare_paired(
    differences: Floats,
    **how: Unpack[Resampling],
) -> list[Estimate]:
    """The mean of each column of differences (items x columns, NaN for absent), with its interval and p.

    The interval is from `gap_bounds`: the mean gain less the mean loss, each with Wilson's interval. Where a
    column's differences are not all in [-1, 1] it is Student's. p is found by bisection for the level whose interval
    just touches 0, so that p < 0.05 exactly where the 95 % interval leaves 0 out. It is never below 2^(1-k), the
    least that the signs of k clusters can show. With too few differences `why` says so, there is no interval, and p
    is `sign_p`.
    """
    clusters = how.get("clusters")
    known = ~np.isnan(differences)
    sizes = np.where(
        known,
        np.abs(differences),
        0.0,
    )
    parts = np.concatenate(  # gains, then losses
        [
            np.maximum(differences, 0.0),
            np.maximum(-differences, 0.0),
        ],
        axis=1,
    )
    drawn = bootstrap_means(parts, **how)
    drawn = drawn.reshape(-1, 2, differences.shape[1])
    k = cluster_counts(known, clusters)
    differing = cluster_counts(sizes > 0, clusters)
    # Few differences show too little of their spread, so Student's freedom is their number less one.
    counted = np.where(differing > 0, differing, k)
    counted = np.minimum(np.maximum(counted, LEAST_PAIRED), k)
    is_unit = (sizes <= 1).all(axis=0)
    with np.errstate(all="ignore"):
        totals = np.nansum(parts, axis=0).reshape(2, -1)
        gains, losses = totals / known.sum(axis=0)
        gap = gains - losses
        # The assumed size of an unseen difference: that of the seen ones, or 1 where none was seen.
        squares = (sizes**2).sum(axis=0)
        size = squares / np.maximum(sizes.sum(axis=0), 1e-300)
        size = np.where(
            sizes.any(axis=0),
            np.minimum(size, 1.0),
            1.0,
        )
        spread = spread_over_draws(drawn)
        gain_error, loss_error = standard_error(spread, k)
        gap_spread = spread_over_draws(drawn[:, 0] - drawn[:, 1])
        gap_error = standard_error(gap_spread, k)
        covariance = ((spread**2).sum(axis=0) - gap_spread**2) / 2
        product = np.maximum(spread[0] * spread[1], 1e-18)
        # Never above 0, so that an interval only widens with its level.
        correlation = np.minimum(covariance / product, 0.0)

        def ends(t: Floats) -> Floats:
            """The interval at Student's quantile `t`."""
            in_unit = gap_bounds(
                (gains, *wilson(gains, gain_error, k, t, size)),
                (losses, *wilson(losses, loss_error, k, t, size)),
                correlation,
            )
            far = t * gap_error
            return np.where(
                is_unit,
                in_unit,
                [gap - far, gap + far],
            )

        low, high = ends(quantiles(counted))
        # Bisection: 0 is outside the interval at `below`, inside it at `above`.
        below = np.zeros_like(gains)
        above = np.full_like(gains, 1e3)
        for _ in range(50):
            middle = (below + above) / 2
            inner_low, inner_high = ends(middle)
            is_apart = (inner_low > 0) | (inner_high < 0)
            below = np.where(is_apart, middle, below)
            above = np.where(is_apart, above, middle)
    reasons = too_few(
        cluster_sums(sizes, clusters),
        k,
        LEAST_PAIRS,
    )
    signed = np.where(known, differences, 0.0)
    sums = cluster_sums(signed, clusters)
    figures = []
    counts = known.sum(axis=0)
    for column, figure in enumerate(
        column_estimates(gap, (low, high), counts, reasons)
    ):
        if reasons[column]:
            p = sign_p(
                sums[:, column],
                how.get("seed", 0),
            )
        else:
            freedom = int(counted[column]) - 1
            least = 2.0 ** max(1 - int(k[column]), -1000)
            p = max(two_sided_p(below[column], freedom), least)
        figures.append(replace(figure, p=float(p)))
    return figures


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    values = np.array(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    rising = np.maximum.accumulate(stepped)
    corrected[order] = np.minimum(rising, 1.0)
    return list(map(float, corrected))


def holm_of_known(p_values: Iterable[float | None]) -> list[float | None]:
    """Holm's correction of the p that are known; None remains None and does not count."""
    values = list(p_values)
    corrected = iter(holm([p for p in values if p is not None]))
    return [None if p is None else next(corrected) for p in values]


@dataclass(frozen=True)
class Standing:
    """A model's place: its tie group, from 1 for the best, and the range that its true rank may be in."""

    name: str
    group: int
    rank_best: int
    rank_worst: int


def pairs_below(comparisons: Iterable[Comparison]) -> set[tuple[str, str]]:
    """(worse, better) of the pairs that differ significantly; a pair without an interval is a tie."""
    below = set()
    for pair in comparisons:
        # Signs alone show that two models differ, not which mean is higher.
        if not pair.difference or pair.p_holm >= 0.05 or pair.low is None:
            continue
        if pair.difference < 0:
            below.add((pair.first, pair.second))
        else:
            below.add((pair.second, pair.first))
    return below


def tie_groups(
    scores: Mapping[str, float],
    comparisons: Sequence[Comparison],
) -> dict[str, Standing]:
    """Models by name, from the best score down; a group holds those not significantly below the group's first.

    Their comparison decides which of two models is below, on the cases that both have; scores that are over other
    cases may have the opposite order. rank_best is one more than the number of models that are significantly better,
    rank_worst the number of models less those significantly worse.
    """
    below = pairs_below(comparisons)
    order = sorted(
        scores,
        key=lambda name: (-scores[name], name),
    )
    standings = {}
    leader = None
    group = 0
    for name in order:
        if leader is None or (name, leader) in below:
            leader = name
            group += 1
        better = sum((name, other) in below for other in order)
        worse = sum((other, name) in below for other in order)
        standings[name] = Standing(
            name=name,
            group=group,
            rank_best=1 + better,
            rank_worst=len(order) - worse,
        )
    return standings
