"""Estimators of how much of a score is memory: drops past a cutoff, with what else could have made them.

Everything is on (items,) or (items x models) arrays of scores, NaN where absent; a side is 0 for an item that the
model may have seen, 1 for one that it cannot have seen, -1 for one left out. docs/contamination.md defines each
estimator and says what it assumes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import (
    Floats,
    Places,
    bootstrap_groups,
    bounds_of,
    interval,
    weight_chunks,
)
from medlive.statistics.intervals import LEAST_CLUSTERS, gap_bounds

Sides = Places
PRE: Final = 0
POST: Final = 1

_BLOCK: Final = 2_000_000
"""Random numbers, or products, held at a time."""
_EPSILON: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % interval."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    def clipped(self) -> "Mean":
        """The mean and its interval within [0, 1]."""
        ends = []
        for value in (self.mean, self.low, self.high):
            ends.append(None if value is None else min(1.0, max(0.0, value)))
        return Mean(self.n, *ends)


def mean_of(values: Floats, drawn: Floats, clusters: Places | None = None) -> Mean:
    """The mean of the known values, with its interval by the draws of clusters."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Mean(0, None, None, None)
    lows, highs = bounds_of(values[:, None], drawn[:, None], clusters)
    low, high = float(lows[0]), float(highs[0])
    return Mean(
        n=len(known),
        mean=float(known.mean()),
        low=None if math.isnan(low) else low,
        high=None if math.isnan(high) else high,
    )


@dataclass(frozen=True, slots=True)
class Drop:
    """The mean of what may have been seen less that of what cannot have been."""

    n_pre: int
    n_post: int
    pre: float | None
    post: float | None
    difference: float | None
    """pre - post: positive where the model is worse on what it cannot have seen."""
    low: float | None
    high: float | None
    p: float | None
    """Two-sided, by permutation of the sides; None where it was not asked for or cannot be had."""
    exact: bool
    """Whether every permutation was tried."""


def drop(
    values: Floats,
    sides: Sides,
    *,
    draws: int = 1000,
    seed: int = 0,
    permutations: int = 0,
    clusters: Places | None = None,
) -> Drop:
    """The drop between the two sides, with its interval over draws of clusters and, for `permutations` > 0, its p.

    The interval combines those of the two means (MOVER); of values that are not all in [0, 1], differences of two
    runs say, it is the percentile of the draws.
    """
    sides = np.where(np.isnan(values), -1, sides)
    pre, post = values[sides == PRE], values[sides == POST]
    figures = Drop(
        n_pre=len(pre),
        n_post=len(post),
        pre=float(pre.mean()) if len(pre) else None,
        post=float(post.mean()) if len(post) else None,
        difference=None,
        low=None,
        high=None,
        p=None,
        exact=False,
    )
    if figures.pre is None or figures.post is None:
        return figures
    drawn = bootstrap_groups(
        values[:, None], sides, 2, draws=draws, seed=seed, clusters=clusters
    )[:, :, 0]
    means = []
    for side in (PRE, POST):
        own = np.where(sides == side, values, np.nan)
        means.append(mean_of(own, drawn[:, side], clusters))
    low = high = None
    if means[PRE].low is not None and means[POST].low is not None:
        both = np.concatenate([pre, post])
        if both.min() >= 0 and both.max() <= 1:
            parts = np.array([(mean.mean, mean.low, mean.high) for mean in means])
            low, high = (float(end) for end in gap_bounds(*parts))
        else:
            low, high = interval(drawn[:, PRE] - drawn[:, POST]) or (None, None)
    p, exact = None, False
    if permutations:
        p, exact = permutation_p(values, sides, permutations, seed, clusters)
    return replace(
        figures,
        difference=figures.pre - figures.post,
        low=low,
        high=high,
        p=p,
        exact=exact,
    )


def permutation_p(
    values: Floats,
    sides: Sides,
    permutations: int,
    seed: int = 0,
    clusters: Places | None = None,
) -> tuple[float, bool]:
    """The two-sided p-value of the difference of means when sides are dealt out anew, and whether it is exact.

    Whole clusters are dealt, and of a cluster on both sides each part; None: each item is its own. With no more
    than `permutations` ways to deal, all are tried and p is the share at least as far apart. Else p is
    (1 + hits) / (1 + permutations) over random ones, which is never 0. Raises ValueError without an item on both
    sides.
    """
    kept, side = values[sides >= 0], sides[sides >= 0]
    cluster_of = np.arange(len(kept)) if clusters is None else clusters[sides >= 0]
    parts, unit = np.unique(2 * cluster_of + side, return_inverse=True)
    n, chosen = len(parts), int((parts % 2).sum())
    if not 0 < chosen < n:
        raise ValueError("a permutation needs items on both sides")
    sums, counts = np.bincount(unit, weights=kept), np.bincount(unit)

    def apart(dealt: NDArray[Any]) -> Floats:
        """How far apart the means are in each deal, (deals x parts of one side)."""
        total, count = sums[dealt].sum(axis=1), counts[dealt].sum(axis=1)
        others = (sums.sum() - total) / (len(kept) - count)
        return np.asarray(np.abs(others - total / count))

    truth = apart(np.flatnonzero(parts % 2)[None])[0] - _EPSILON
    if math.comb(n, chosen) <= permutations:
        deals = np.array(list(combinations(range(n), chosen)))
        return float((apart(deals) >= truth).mean()), True
    # The smaller side is dealt: the other is the rest, and the difference is the same but for its sign.
    small = min(chosen, n - chosen)
    rng = np.random.default_rng(seed)
    hits = 0
    rows = max(1, _BLOCK // n)
    for start in range(0, permutations, rows):
        random = rng.random((min(rows, permutations - start), n))
        deals = np.argpartition(random, small - 1, axis=1)[:, :small]
        hits += int((apart(deals) >= truth).sum())
    return (1 + hits) / (1 + permutations), False


@dataclass(frozen=True, slots=True)
class Effect:
    """What having seen an item adds to a score, net of each item's difficulty and each model's ability."""

    effect: float
    low: float | None
    high: float | None
    n_pre: int
    """Items that a model of interest may have seen and another model, which cannot have, was scored on too."""
    n_post: int
    """Items that no model of interest can have seen, scored for it and another."""
    models: int
    """Models whose scores enter, those of interest included."""


def seen_effect(
    values: Floats,
    seen: NDArray[np.bool_],
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Effect | None:
    """δ of y(item, model) = ability(model) + difficulty(item) + δ · seen(item, model), by least squares.

    `values` is (items x models), NaN for a cell that is left out, and `seen` of the same shape. The interval is by
    a bootstrap over clusters. None where the cells do not tell δ from abilities and difficulties.
    """
    present = ~np.isnan(values)
    kept = present.any(axis=0)
    values, present, seen = values[:, kept], present[:, kept], seen[:, kept]
    treated = (seen & present).astype(np.float64)
    models = values.shape[1]
    if models < 2:
        return None
    filled = np.where(present, values, 0.0)
    step = max(1, _BLOCK // (models * models))

    def solve(weights: Floats) -> Floats:
        """δ with the items weighted so: each adds its part to the normal equations; a row a draw."""
        gram = np.zeros((len(weights), models, models))
        right = np.zeros((len(weights), models))
        for start in range(0, len(values), step):
            block = slice(start, start + step)
            products, levels = _normal_parts(
                filled[block], present[block], treated[block]
            )
            own = weights[:, block]
            gram += (own @ products.reshape(len(products), -1)).reshape(gram.shape)
            right += own @ levels
        return _last_coefficient(gram, right)

    effect = solve(np.ones((1, len(values))))[0]
    if np.isnan(effect):
        return None
    scored, treatments = present.sum(axis=1), treated.sum(axis=1)
    both = scored > 1
    mixed = both & (treatments > 0) & (treatments < scored)
    of_interest = present[:, treated.any(axis=0)].any(axis=1)
    fresh = both & of_interest & (treatments == 0)
    low = high = None
    if min(mixed.sum(), (both & ~mixed).sum()) >= LEAST_CLUSTERS:
        drawn = []
        drawn_from = len(values) if clusters is None else clusters
        for weights in weight_chunks(drawn_from, draws, seed):
            drawn.append(solve(weights))
        low, high = interval(np.concatenate(drawn)) or (None, None)
    return Effect(
        effect=float(effect),
        low=low,
        high=high,
        n_pre=int(mixed.sum()),
        n_post=int(fresh.sum()),
        models=models,
    )


def _normal_parts(
    values: Floats, present: NDArray[np.bool_], treated: Floats
) -> tuple[Floats, Floats]:
    """Each item's part of the normal equations once its own mean is taken out: (items x q x q) and (items x q).

    The q unknowns are the abilities of all models but the first, whose ability is the items' level, then δ.
    """
    here = present.astype(np.float64)
    design = np.zeros((*values.shape, values.shape[1]))
    for model in range(1, values.shape[1]):
        design[:, model, model - 1] = here[:, model]
    design[:, :, -1] = treated
    n = np.maximum(here.sum(axis=1), 1.0)
    design -= here[:, :, None] * (design.sum(axis=1) / n[:, None])[:, None, :]
    level = values - here * (values.sum(axis=1) / n)[:, None]
    products = np.einsum("imp,imq->ipq", design, design, optimize=True)
    return products, np.einsum("imp,im->ip", design, level)


def _last_coefficient(gram: Floats, right: Floats) -> Floats:
    """The last unknown of each system; NaN where the system does not determine it."""
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    solved = np.einsum("bq,bq->b", inverse[:, -1], right)
    # The last row of inverse · gram is a unit vector exactly where the coefficient is determined.
    unit = np.einsum("bq,bqp->bp", inverse[:, -1], gram)
    unit[:, -1] -= 1.0
    return np.where(np.abs(unit).max(axis=1) < 1e-6, solved, np.nan)


@dataclass(frozen=True, slots=True)
class Placebo:
    """The drop at a date that is not the cutoff, among items of one side of the cutoff alone."""

    day: int
    """The proleptic ordinal of the last day that counts as before."""
    side: int
    """0: among items that may all have been seen; 1: among items that all cannot."""
    n_pre: int
    n_post: int
    difference: float


def placebos(
    values: Floats,
    sides: Sides,
    days: NDArray[np.int_],
    dates: Sequence[int],
    *,
    least: int = 30,
) -> list[Placebo]:
    """The drops at each of `dates` that leaves at least `least` items of one side before and after it.

    No item changes its standing at a placebo date: what drops there is drift, and no memory.
    """
    placebo_drops = []
    for side in (0, 1):
        rows = (sides == side) & ~np.isnan(values)
        own, when = values[rows], days[rows]
        for day in dates:
            before = when <= day
            n = int(before.sum())
            if n >= least and len(own) - n >= least:
                gap = float(own[before].mean() - own[~before].mean())
                placebo_drops.append(Placebo(day, side, n, len(own) - n, gap))
    return placebo_drops


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The drop after the fresh items' strata were weighted as the others'."""

    n_pre: int
    """Items in strata that both sides have."""
    n_post: int
    lost_pre: int
    """Items in strata that the other side lacks: left out of both means."""
    lost_post: int
    pre: float | None
    post: float | None
    difference: float | None
    low: float | None
    high: float | None
    strata: tuple[tuple[int, int], ...]
    """(n_pre, n_post) of every stratum, those left out included."""


def adjusted_drop(
    values: Floats,
    sides: Sides,
    strata: NDArray[np.int_],
    count: int,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Adjusted:
    """The drop when side 1 is re-weighted to side 0's shares of `strata` (each item's, 0 to count - 1).

    A stratum that one side lacks is left out; in a draw, one that the draw lacks is.
    """
    rows = np.flatnonzero((sides >= 0) & ~np.isnan(values) & (strata >= 0))
    cell = strata[rows] * 2 + sides[rows]
    rows = rows[np.argsort(cell, kind="stable")]
    sizes = np.bincount(cell, minlength=2 * count)
    filled = np.flatnonzero(sizes)
    starts = np.cumsum(sizes[filled]) - sizes[filled]

    def means(weights: Floats) -> tuple[Floats, Floats]:
        """The means of both sides with the items weighted so; a row a draw."""
        counts = np.zeros((len(weights), 2 * count))
        sums = np.zeros((len(weights), 2 * count))
        if len(rows):
            own = weights[:, rows]
            counts[:, filled] = np.add.reduceat(own, starts, axis=1)
            sums[:, filled] = np.add.reduceat(own * values[rows], starts, axis=1)
        return _standardised(counts, sums)

    (pre,), (post,) = means(np.ones((1, len(values))))
    by_stratum = sizes.reshape(-1, 2)
    shared = (by_stratum > 0).all(axis=1)
    kept = by_stratum[shared].sum(axis=0)
    lost = by_stratum[~shared].sum(axis=0)
    low = high = None
    if kept.min() >= LEAST_CLUSTERS:
        drawn = []
        drawn_from = len(values) if clusters is None else clusters
        for weights in weight_chunks(drawn_from, draws, seed):
            before, after = means(weights)
            drawn.append(before - after)
        low, high = interval(np.concatenate(drawn)) or (None, None)
    known = not math.isnan(pre)
    return Adjusted(
        n_pre=int(kept[0]),
        n_post=int(kept[1]),
        lost_pre=int(lost[0]),
        lost_post=int(lost[1]),
        pre=float(pre) if known else None,
        post=float(post) if known else None,
        difference=float(pre - post) if known else None,
        low=low,
        high=high,
        strata=tuple((int(before), int(after)) for before, after in by_stratum),
    )


def _standardised(n: Floats, total: Floats) -> tuple[Floats, Floats]:
    """Means of both sides over shared strata, side 1 at side 0's shares; a row a draw, columns stratum by side."""
    n_pre, n_post = n[:, 0::2], n[:, 1::2]
    both = (n_pre > 0) & (n_post > 0)
    share = np.where(both, n_pre, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        pre = np.where(both, total[:, 0::2], 0.0).sum(axis=1) / share.sum(axis=1)
        within = np.where(both, total[:, 1::2] / n_post, 0.0)
        post = (share * within).sum(axis=1) / share.sum(axis=1)
    return pre, post


def terciles(values: Floats) -> NDArray[np.int_]:
    """0, 1 or 2 by the thirds of the known values, -1 for NaN; equal values are in one third."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(values), -1, dtype=np.int_)
    cuts = np.percentile(known, [100 / 3, 200 / 3])
    thirds = np.searchsorted(cuts, values, side="left")
    return np.where(np.isnan(values), -1, thirds).astype(np.int_)
