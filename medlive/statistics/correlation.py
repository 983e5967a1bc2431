"""Correlations (Pearson, Spearman, Kendall's tau-b) with p-values and bootstrap intervals.

The p-values take items for independent, as the usual tests do; the intervals draw whole clusters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Unpack

import numpy as np

from .bootstrap import Draws, over_draws
from .estimate import Estimate, percentile_estimate
from .intervals import Floats, Places, incomplete_beta, quotient

LEAST = 3
"""The least number of items for a correlation: two points always lie on a line."""

_SWEEPS = 1_000  # most rounds of `residuals`
_FLAT = 1e-12
"""The least geometric mean of two columns' sums of squared deviations; with less, one counts as constant."""


Kind = Literal["pearson", "spearman"]


def correlate(
    kind: Kind,
    first: Floats,
    second: Floats,
    *,
    clusters: Sequence[int] | Places | None = None,
    **how: Unpack[Draws],
) -> Estimate:
    """The correlation of two columns over the items that both have (NaN: absent), with its p.

    `clusters` gives each item's cluster, any whole numbers; None takes every item for its own.
    """
    both = ~(np.isnan(first) | np.isnan(second))
    a = first[both]
    b = second[both]
    n = len(a)
    names = np.arange(len(first)) if clusters is None else np.asarray(clusters)
    groups, place = np.unique(names[both], return_inverse=True)
    k = len(groups)
    of_draws = _DRAWN[kind]
    value = _value(of_draws, a, b)
    if value is None:
        why = "one side is the same for every item"
        if n < LEAST:
            why = f"{n} items are too few"
        return Estimate(None, n=n, why=why)
    drawn = over_draws(
        lambda weights: of_draws(a, b, weights[:, place]),
        k,
        **how,
    )
    figure = percentile_estimate(value, drawn, n, k)
    return replace(figure, p=pearson_p(value, n))


def pearson_p(r: float, n: int) -> float:
    """The two-sided p of Pearson's r (or Spearman's rho) of n items under no correlation: Student's t with n - 2
    degrees of freedom, which for r is exact under normality. 1 below three items."""
    if n < LEAST:
        return 1.0
    return incomplete_beta(
        (n - 2) / 2,
        0.5,
        (1 - r) * (1 + r),
    )


def residuals(
    columns: Floats,
    *groups: Sequence[str],
) -> Floats:
    """What is left of `columns` (n x k) without the means of the groups; each of `groups` names n rows' groups.

    Subtracts the means of one grouping after the other until nothing changes. That is least squares on the
    groupings' indicators, and right for a table with missing cells too. A column of which only rounding is left is 0.
    """
    left = columns
    largest = np.abs(columns).max(axis=0, initial=0.0)
    least = 1e-9 * np.maximum(1.0, largest)
    places = []
    for group in groups:
        _, place = np.unique(
            np.asarray(group),
            return_inverse=True,
        )
        places.append(place)
    for _ in range(_SWEEPS):
        before = left
        for place in places:
            sums = [np.bincount(place, weights=column) for column in left.T]
            counts = np.bincount(place)
            means = np.stack(sums, axis=1) / counts[:, None]
            left = left - means[place]
        change = np.abs(left - before)
        if (change <= least * 1e-3).all():
            break
    largest = np.abs(left).max(axis=0, initial=0.0)
    return np.where(largest <= least, 0.0, left)


def partial(
    first: Floats,
    second: Floats,
    *groups: Sequence[str],
) -> float | None:
    """Pearson's r of the `residuals` of both columns; None where one of them has no spread left."""
    left = residuals(
        np.column_stack([first, second]),
        *groups,
    )
    return pearson(left[:, 0], left[:, 1])


def pearson(first: Floats, second: Floats) -> float | None:
    """Pearson's r over the places where neither is NaN; None with fewer than three, or where one is constant."""
    return _value(_pearson_drawn, first, second)


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rho: Pearson's r of the ranks, over the places where neither is NaN; None as for `pearson`."""
    return _value(_spearman_drawn, first, second)


def kendall(first: Floats, second: Floats) -> float | None:
    """Kendall's tau-b over the places where neither is NaN; None with fewer than three, or where one is
    constant."""
    return _value(_kendall_drawn, first, second)


OfDraws = Callable[[Floats, Floats, Floats], Floats]
"""Two columns and (draws x items) weights → the correlation in each draw; NaN where a draw has no spread."""


def _value(
    of_draws: OfDraws,
    first: Floats,
    second: Floats,
) -> float | None:
    """The correlation of the items as they are, each with the weight 1; None where it is not defined."""
    both = ~(np.isnan(first) | np.isnan(second))
    n = int(both.sum())
    if n < LEAST:
        return None
    once = np.ones((1, n))
    value = float(of_draws(first[both], second[both], once)[0])
    return None if math.isnan(value) else max(-1.0, min(1.0, value))


def _pearson_drawn(
    a: Floats,
    b: Floats,
    weights: Floats,
) -> Floats:
    a = a - a.mean()
    b = b - b.mean()
    terms = np.stack(
        [a, b, a * a, b * b, a * b],
        axis=1,
    )
    return _from_moments(
        weights.sum(axis=1),
        *(weights @ terms).T,
    )


def _from_moments(
    n: Floats,
    a: Floats,
    b: Floats,
    aa: Floats,
    bb: Floats,
    ab: Floats,
) -> Floats:
    """Pearson's r in each draw from the sums of weights, of both columns, their squares and their products."""
    with np.errstate(all="ignore"):
        spread_a = aa - a * a / n
        spread_b = bb - b * b / n
        together = ab - a * b / n
        # A constant column's spread is not exactly 0, by rounding.
        is_flat = (spread_a <= 1e-12 * aa) | (spread_b <= 1e-12 * bb)
        is_flat |= spread_a * spread_b < _FLAT**2
        correlation = together / np.sqrt(spread_a * spread_b)
        return np.where(is_flat, np.nan, correlation)


def _spearman_drawn(
    a: Floats,
    b: Floats,
    weights: Floats,
) -> Floats:
    """Spearman's rho in each draw: the items are ranked again, as often as the draw repeats them."""
    n = weights.sum(axis=1)
    centre = ((n + 1) / 2)[:, None]
    x = _weighted_ranks(a, weights) - centre
    y = _weighted_ranks(b, weights) - centre
    terms = (x, y, x * x, y * y, x * y)
    return _from_moments(
        n,
        *((weights * term).sum(axis=1) for term in terms),
    )


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """(draws x items): each item's rank in a draw, the middle one of those that are tied with it."""
    place, totals = _totals(values, weights)
    mids = np.cumsum(totals, axis=1) - (totals - 1) / 2
    return np.asarray(mids[:, place])


def _totals(
    values: Floats,
    weights: Floats,
) -> tuple[Places, Floats]:
    """Each item's place among the distinct values, and the total weight of each value, (draws x values)."""
    _, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    totals = np.add.reduceat(
        weights[:, order],
        starts,
        axis=1,
    )
    return place, np.asarray(totals)


def _kendall_drawn(
    a: Floats,
    b: Floats,
    weights: Floats,
) -> Floats:
    """Kendall's tau-b in each draw."""
    order_a = np.sign(a[:, None] - a)
    order_b = np.sign(b[:, None] - b)

    def over_pairs(products: Floats) -> Floats:
        return np.asarray((weights @ products * weights).sum(axis=1))

    spread = over_pairs(order_a**2) * over_pairs(order_b**2)
    return quotient(over_pairs(order_a * order_b), np.sqrt(spread))


_DRAWN: Mapping[Kind, OfDraws] = {
    "pearson": _pearson_drawn,
    "spearman": _spearman_drawn,
}
