"""Figures with 95 % intervals by bootstrap draws of clusters.

`mean_estimate` makes one for a mean, `mean_estimates` for the means of columns, `estimate` for a statistic of sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from .bootstrap import (
    Draws,
    Resampling,
    bootstrap_means,
    cluster_counts,
    cluster_sums,
    over_draws,
    spread_over_draws,
)
from .intervals import (
    Floats,
    Places,
    known_means,
    mean_bounds,
    quotient,
    too_few,
)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval: the one shape from the statistics to the pages."""

    value: float | None
    """None where it is not defined; `why` says so."""
    low: float | None = None
    high: float | None = None
    n: int = 0
    why: str = ""
    """Why there is no value, or no interval."""
    p: float | None = None
    """Of a correlation or a difference: two-sided p of the hypothesis that there is none; None for other figures."""

    def clipped(self) -> "Estimate":
        """The same estimate, its value and interval cut to [0, 1]."""
        ends = []
        for end in (self.value, self.low, self.high):
            ends.append(None if end is None else min(1.0, max(0.0, end)))
        value, low, high = ends
        return replace(self, value=value, low=low, high=high)


def percentile_interval(drawn: Floats) -> tuple[float, float] | tuple[None, None]:
    """The 95 % percentile interval of a column of drawn figures; None twice when no draw has a value."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return None, None
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)


def column_estimates(
    values: Floats,
    ends: tuple[Floats, Floats],
    counts: Places,
    reasons: Sequence[str],
) -> list[Estimate]:
    """An Estimate for each column, without an interval where `reasons` has a text; `ends` are the intervals' ends."""
    estimates = []
    for column, why in enumerate(reasons):
        n = int(counts[column])
        low, high = (None if why else known_or_none(end[column]) for end in ends)
        estimate = Estimate(
            value=known_or_none(values[column]),
            low=low,
            high=high,
            n=n,
            why=why if n else "",
        )
        estimates.append(estimate)
    return estimates


def mean_estimates(
    values: Floats,
    drawn: Floats,
    clusters: Places | None = None,
) -> list[Estimate]:
    """The mean of each column with its interval (`mean_bounds`), unless `too_few_for_mean` says why not.

    `values` is (items x columns), NaN for an absent item; `drawn` is (draws x columns), the columns' drawn means.
    """
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    means = known_means(values)
    is_share = (values >= 0) & (values <= 1)
    ends = mean_bounds(
        means,
        spread_over_draws(drawn),
        cluster_counts(known, clusters),
        unit=(is_share | ~known).all(axis=0),
    )
    reasons = too_few_for_mean(values, clusters)
    return column_estimates(means, ends, counts, reasons)


def mean_estimate(
    values: Floats,
    **how: Unpack[Resampling],
) -> Estimate:
    """The mean of the known values of a column, with its interval."""
    if np.isnan(values).all():
        return Estimate(None)
    column = values[:, None]
    drawn = bootstrap_means(column, **how)
    (estimate,) = mean_estimates(
        column,
        drawn,
        how.get("clusters"),
    )
    return estimate


def too_few_for_mean(
    values: Floats,
    clusters: Places | None = None,
) -> list[str]:
    """Why the mean of each column has no interval, "" where it has one; `values` is (items x columns), NaN if absent.

    It depends on the values' distances from the end of [0, 1] that the mean is nearer to (from 0 in a column with
    values above 1, whose interval is Student's).
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    half = np.maximum(known.sum(axis=0), 1) / 2
    # As in `too_few`, the order of a sum must not decide.
    is_low = filled.sum(axis=0) <= half + 1e-9
    is_beyond = (filled > 1).any(axis=0)
    distance = np.where(
        is_low | is_beyond,
        np.abs(filled),
        np.where(known, 1 - filled, 0.0),
    )
    sums = cluster_sums(distance, clusters)
    return too_few(sums, cluster_counts(known, clusters))


def known_or_none(value: float) -> float | None:
    """The value; None for NaN."""
    return None if np.isnan(value) else float(value)


LEAST_DRAWN = 5
"""With fewer clusters there is no percentile interval: the draws hardly differ, and their spread says nothing."""

MOST_UNDEFINED = 0.05
"""There is no interval if more than this share of draws has no value."""


def estimate(
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Sequence[int] | Places,
    *,
    n: int | None = None,
    **how: Unpack[Draws],
) -> Estimate:
    """The statistic of the summed cells, and its percentile interval over draws of whole clusters.

    `cells` is (items x …): what each item adds to the sums that the statistic is computed from. `statistic` takes
    sums with any leading axes and gives NaN where it is not defined. `clusters` gives each item's cluster, any
    whole numbers. `n` is the number of items to report if it is not the number of rows.
    """
    items = len(cells) if n is None else n
    if not len(cells):
        return Estimate(None, why="no item")
    names, place = np.unique(
        np.asarray(clusters),
        return_inverse=True,
    )
    shape = cells.shape[1:]
    flat = cluster_sums(
        cells.reshape(len(cells), -1),
        place,
    )
    total = flat.sum(axis=0).reshape(shape)
    value = float(statistic(total))
    if np.isnan(value):
        return Estimate(None, n=items, why="not defined on these items")

    def of_draws(weights: Floats) -> Floats:
        return statistic((weights @ flat).reshape(-1, *shape))

    drawn = over_draws(of_draws, len(names), **how)
    return percentile_estimate(value, drawn, items, len(names))


def percentile_estimate(
    value: float,
    drawn: Floats,
    n: int,
    clusters: int,
) -> Estimate:
    """An Estimate of a value with the percentile interval of its draws, or why there is none."""
    undefined = float(np.isnan(drawn).mean())
    low, high = percentile_interval(drawn)
    why = ""
    if clusters < LEAST_DRAWN:
        why = f"{clusters} clusters are too few for an interval"
    elif undefined > MOST_UNDEFINED:
        why = f"not defined in {undefined:.0%} of the draws"
    elif low == high:
        why = "all draws give the same value: too few differ for an interval"
    return Estimate(
        value=value,
        low=None if why else low,
        high=None if why else high,
        n=n,
        why=why,
    )


def ratio_of(sums: Floats) -> Floats:
    """The first of two sums by the second, along the last axis; NaN for 0 / 0."""
    return quotient(sums[..., 0], sums[..., 1])
