"""Correlation between columns, sets of the lowest items, and how firm a ranking stands over bootstrap draws."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import Floats, bootstrap_means

_FLAT: Final = 1e-12
"""A column that varies less has no correlation with anything."""


def ranks(values: Floats) -> Floats:
    """Ranks from 1 along the last axis, the smallest first; equal values share their mean rank."""
    flat = values.reshape(-1, values.shape[-1])
    out = np.empty(flat.shape)
    for row, line in enumerate(flat):
        _, inverse, counts = np.unique(line, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        out[row] = (last - (counts - 1) / 2)[inverse]
    return out.reshape(values.shape)


def pearson(first: Floats, second: Floats) -> float | None:
    """Pearson's r over the places where neither is NaN; None with fewer than three, or where one is constant."""
    both = ~(np.isnan(first) | np.isnan(second))
    if both.sum() < 3:
        return None
    a, b = first[both] - first[both].mean(), second[both] - second[both].mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return None if spread < _FLAT else float(np.clip((a @ b) / spread, -1.0, 1.0))


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rho: Pearson's r of the ranks, over the places where neither is NaN; None as for `pearson`."""
    both = ~(np.isnan(first) | np.isnan(second))
    return pearson(ranks(first[both]), ranks(second[both])) if both.sum() >= 3 else None


def pearson_matrix(values: Floats) -> tuple[tuple[float | None, ...], ...]:
    """`pearson` of every pair of columns of (items x columns); 1 on the diagonal of a column that varies."""
    columns = range(values.shape[1])
    return tuple(tuple(pearson(values[:, i], values[:, j]) for j in columns) for i in columns)


def jaccard(first: AbstractSet[object], second: AbstractSet[object]) -> float | None:
    """|first ∩ second| / |first ∪ second|; None for two empty sets."""
    union = len(first | second)
    return len(first & second) / union if union else None


@dataclass(frozen=True, slots=True)
class RankStability:
    """How the order of columns by mean holds over draws."""

    names: tuple[str, ...]
    items: int
    """Items that every column has: the ranking is on these alone."""
    spearman_mean: float | None
    """Mean over draws of Spearman's rho of a draw's means with those of all items; None below three columns."""
    spearman_low: float | None
    """Its 2.5 % quantile."""
    best: tuple[int, ...]
    """For each column the 2.5 % quantile of its rank from the top, and"""
    worst: tuple[int, ...]
    """its 97.5 % quantile."""
    first_share: tuple[float, ...]
    """In which share of the draws the column is first (ties are shared)."""


def rank_stability(
    names: Sequence[str],
    values: Floats,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Sequence[int] | None = None,
) -> RankStability | None:
    """The order of columns over bootstrap draws of the items that all of them have.

    `values` is (items x columns), NaN where absent. None without a common item or without a column.
    """
    common = ~np.isnan(values).any(axis=1)
    items = int(common.sum())
    if not items or not len(names):
        return None
    kept = values[common]
    place = None if clusters is None else np.unique(np.asarray(clusters)[common], return_inverse=True)[1].tolist()
    drawn = bootstrap_means(kept, draws=draws, seed=seed, clusters=place)
    order = ranks(-drawn)
    truth = kept.mean(axis=0)
    rhos = [r for row in drawn if (r := spearman(row, truth)) is not None]
    low, high = np.percentile(order, [2.5, 97.5], axis=0, method="inverted_cdf")
    top: NDArray[np.bool_] = drawn == drawn.max(axis=1, keepdims=True)
    return RankStability(
        tuple(names),
        items,
        float(np.mean(rhos)) if rhos else None,
        float(np.percentile(rhos, 2.5)) if rhos else None,
        tuple(int(np.floor(x)) for x in low),
        tuple(int(np.ceil(x)) for x in high),
        tuple(float(x) for x in (top / top.sum(axis=1, keepdims=True)).mean(axis=0)),
    )
