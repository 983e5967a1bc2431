"""Estimators of how much of a score is memory: drops past a cutoff, with what else could have made them.

Everything is on (items,) or (items x models) arrays of scores, NaN where absent; a side is 0 for an item that the
model may have seen, 1 for one that it cannot have seen, -1 for one left out. docs/contamination.md defines each
estimator and says what it assumes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


def mean_of(values: Floats, drawn: Floats, clusters: Places | None = None) -> Mean:
    """The mean of the known values, with its interval by the draws of clusters."""
    known = values[~np.isnan(values)]
    ends = (
        float(end[0]) for end in bounds_of(values[:, None], drawn[:, None], clusters)
    )
    low, high = (None if math.isnan(end) else end for end in ends)
    return Mean(len(known), float(known.mean()) if len(known) else None, low, high)


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
    pre, post = values[sides == 0], values[sides == 1]
    if not len(pre) or not len(post):
        ends = [float(x.mean()) if len(x) else None for x in (pre, post)]
        return Drop(
            len(pre), len(post), ends[0], ends[1], None, None, None, None, False
        )
    drawn = bootstrap_groups(
        values[:, None], sides, 2, draws=draws, seed=seed, clusters=clusters
    )[:, :, 0]
    low, high = interval(drawn[:, 0] - drawn[:, 1]) or (None, None)
    before, after = (
        mean_of(np.where(sides == k, values, np.nan), drawn[:, k], clusters)
        for k in (0, 1)
    )
    if before.low is None or after.low is None:
        low = high = None
    elif min(pre.min(), post.min()) >= 0 and max(pre.max(), post.max()) <= 1:
        parts = [(m.mean, m.low, m.high) for m in (before, after)]
        low, high = (float(end) for end in gap_bounds(*np.array(parts)))
    p, exact = (
        permutation_p(values, sides, permutations, seed, clusters)
        if permutations
        else (None, False)
    )
    first, second = float(pre.mean()), float(post.mean())
    return Drop(len(pre), len(post), first, second, first - second, low, high, p, exact)


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
        total, count = sums[dealt].sum(axis=1), counts[dealt].sum(axis=1)
        return np.asarray(
            np.abs((sums.sum() - total) / (len(kept) - count) - total / count)
        )

    truth = apart(np.flatnonzero(parts % 2)[None])[0] - _EPSILON
    if math.comb(n, chosen) <= permutations:
        return float(
            (apart(np.array(list(combinations(range(n), chosen)))) >= truth).mean()
        ), True
    # The smaller side is dealt: the other is the rest, and the difference is the same but for its sign.
    small = min(chosen, n - chosen)
    rng = np.random.default_rng(seed)
    hits = 0
    rows = max(1, _BLOCK // n)
    for start in range(0, permutations, rows):
        random = rng.random((min(rows, permutations - start), n))
        hits += int(
            (
                apart(np.argpartition(random, small - 1, axis=1)[:, :small]) >= truth
            ).sum()
        )
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
    # Each item adds its part to the normal equations, so that a draw is a weighted sum of the parts.
    whole_gram, whole_right = np.zeros((models, models)), np.zeros(models)
    filled = np.where(present, values, 0.0)
    step = max(1, _BLOCK // (models * models))
    blocks = [slice(start, start + step) for start in range(0, len(values), step)]
    for block in blocks:
        a, b = _normal_parts(filled[block], present[block], treated[block])
        whole_gram += a.sum(axis=0)
        whole_right += b.sum(axis=0)
    drawn = []
    for weights in weight_chunks(
        len(values) if clusters is None else clusters, draws, seed
    ):
        gram, right = (
            np.zeros((len(weights), models, models)),
            np.zeros((len(weights), models)),
        )
        for block in blocks:
            a, b = _normal_parts(filled[block], present[block], treated[block])
            part = weights[:, block]
            gram += (part @ a.reshape(len(a), -1)).reshape(gram.shape)
            right += part @ b
        drawn.append(_last_coefficient(gram, right))
    effect = _last_coefficient(whole_gram[None], whole_right[None])[0]
    if np.isnan(effect):
        return None
    both = present.sum(axis=1) > 1
    mixed = (
        both & (treated.sum(axis=1) > 0) & (treated.sum(axis=1) < present.sum(axis=1))
    )
    concerned = (treated.sum(axis=0) > 0)[None, :] & present
    fresh = both & concerned.any(axis=1) & (treated.sum(axis=1) == 0)
    low = high = None
    if min(mixed.sum(), (both & ~mixed).sum()) >= LEAST_CLUSTERS:
        low, high = interval(np.concatenate(drawn)) or (None, None)
    return Effect(float(effect), low, high, int(mixed.sum()), int(fresh.sum()), models)


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
    return np.einsum("imp,imq->ipq", design, design, optimize=True), np.einsum(
        "imp,im->ip", design, level
    )


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
    n = np.bincount(cell, minlength=2 * count).astype(np.float64)
    total: Floats = np.bincount(cell, weights=values[rows], minlength=2 * count).astype(
        np.float64
    )
    pre, post = (x[0] for x in _standardised(n[None], total[None]))
    both = (n[0::2] > 0) & (n[1::2] > 0)
    order = rows[np.argsort(cell, kind="stable")]
    filled = np.flatnonzero(n)
    starts = np.concatenate([[0], np.cumsum(n[filled])[:-1]]).astype(np.int_)
    drawn = []
    if len(rows) and both.any():
        for weights in weight_chunks(
            len(values) if clusters is None else clusters, draws, seed
        ):
            taken = weights[:, order]
            counts, sums = (
                np.zeros((len(weights), 2 * count)),
                np.zeros((len(weights), 2 * count)),
            )
            counts[:, filled] = np.add.reduceat(taken, starts, axis=1)
            sums[:, filled] = np.add.reduceat(taken * values[order], starts, axis=1)
            before, after = _standardised(counts, sums)
            drawn.append(before - after)
    known = not math.isnan(pre)
    shares = n.reshape(-1, 2).astype(int)
    kept, lost = shares[both].sum(axis=0), shares[~both].sum(axis=0)
    low = high = None
    if drawn and kept.min() >= LEAST_CLUSTERS:
        low, high = interval(np.concatenate(drawn)) or (None, None)
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
        strata=tuple((int(before), int(after)) for before, after in shares),
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
    return np.where(
        np.isnan(values), -1, np.searchsorted(cuts, values, side="left")
    ).astype(np.int_)
