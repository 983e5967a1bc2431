"""A figure with what it rests on: how many items, how many clusters, and its bootstrap interval."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import Floats, interval, weight_chunks

LEAST_CLUSTERS: Final = 5
"""With fewer the draws hardly differ, and their spread says nothing."""

MOST_UNDEFINED: Final = 0.05
"""The share of draws without a value from which on the others give no interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over n items of so many clusters, with the 95 % percentile interval over draws of clusters."""

    value: float | None
    """None where it is not defined; `why` says so."""
    low: float | None
    high: float | None
    n: int
    clusters: int
    why: str = ""
    """Why there is no value, or no interval."""


def no_estimate(why: str, n: int = 0, clusters: int = 0) -> Estimate:
    """No figure, and the reason."""
    return Estimate(None, None, None, n, clusters, why)


def estimate(
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Sequence[int] | NDArray[np.int_],
    *,
    n: int | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Estimate:
    """The statistic of the summed cells, and its interval over draws of whole clusters.

    `cells` is (items x …): what each item adds to the counts that the statistic is made of. `statistic` takes
    counts with any leading axes and gives NaN where it is not defined. `clusters` gives each item's cluster, any
    whole numbers. `n` is the number of items to name where it is not the number of rows.
    """
    items = len(cells) if n is None else n
    if not len(cells):
        return no_estimate("no item")
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    k = len(names)
    gathered = np.zeros((k, *cells.shape[1:]))
    np.add.at(gathered, place, cells)
    value = float(statistic(gathered.sum(axis=0)))
    if np.isnan(value):
        return no_estimate("not defined on these items", items, k)
    flat = gathered.reshape(k, -1)
    drawn = np.concatenate(
        [statistic((w @ flat).reshape(len(w), *cells.shape[1:])) for w in weight_chunks(k, draws, seed)]
    )
    return with_interval(value, drawn, items, k)


def with_interval(value: float, drawn: Floats, n: int, clusters: int) -> Estimate:
    """A value with the interval of its draws, where they give one."""
    if clusters < LEAST_CLUSTERS:
        return Estimate(value, None, None, n, clusters, f"{clusters} clusters are too few for an interval")
    bounds = interval(drawn)
    undefined = float(np.isnan(drawn).mean()) if len(drawn) else 1.0
    if bounds is None or undefined > MOST_UNDEFINED:
        return Estimate(value, None, None, n, clusters, f"not defined in {undefined:.0%} of the draws")
    return Estimate(value, *bounds, n, clusters)


def ratio_of(sums: Floats) -> Floats:
    """The first of two sums by the second, along the last axis; NaN for 0 / 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])
