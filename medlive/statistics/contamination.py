"""Estimators of how much of a score is memory: drops past a training cutoff, and checks of other causes.

`drop` compares an item's two sides, `adjusted_drop` does so at equal strata, `seen_effect` nets out difficulty and
ability, `placebos` shows drift. Scores are (items,) or (items x models) arrays, NaN where absent. An item's side is 0
(`PRE`) if the model may have seen it, 1 (`POST`) if it cannot have, -1 if it is left out. docs/contamination.md
defines each estimator and says what it assumes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from .bootstrap import Resampling, bootstrap_groups, over_draws
from .estimate import known_or_none, mean_estimate, percentile_interval
from .intervals import LEAST_CLUSTERS, Flags, Floats, Places, gap_bounds, quotient

Sides = Places
PRE = 0
POST = 1

_BLOCK = 2_000_000
"""Random numbers, or products, in memory at a time."""
_EPSILON = 1e-12  # differences within rounding are equal


@dataclass(frozen=True)
class Drop:
    """The mean on items that may have been seen (`pre`) less the mean on those that cannot have been (`post`)."""

    n_pre: int
    n_post: int
    pre: float | None = None
    post: float | None = None
    difference: float | None = None
    """pre - post: positive where the model is worse on what it cannot have seen."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Two-sided, by `permutation_p`; None where the caller did not compute it."""


def drop(
    values: Floats,
    sides: Sides,
    **how: Unpack[Resampling],
) -> Drop:
    """The drop between the two sides, with its interval over draws of clusters.

    The interval combines those of the two means (`gap_bounds`). Where values are not all in [0, 1], such as
    differences of two runs, it is the percentile interval of the draws.
    """
    sides = np.where(
        np.isnan(values),
        -1,
        sides,
    )
    pre = mean_estimate(
        np.where(sides == PRE, values, np.nan),
        **how,
    )
    post = mean_estimate(
        np.where(sides == POST, values, np.nan),
        **how,
    )
    difference = low = high = None
    if pre.value is not None and post.value is not None:
        difference = pre.value - post.value
    if pre.low is not None and post.low is not None:
        known = values[sides >= 0]
        if known.min() >= 0 and known.max() <= 1:
            ends = gap_bounds(
                (pre.value, pre.low, pre.high),
                (post.value, post.low, post.high),
            )
            low, high = map(float, ends)
        else:
            groups = [np.flatnonzero(sides == side) for side in (PRE, POST)]
            drawn = bootstrap_groups(values[:, None], groups, **how)
            gaps = drawn[:, PRE, 0] - drawn[:, POST, 0]
            low, high = percentile_interval(gaps)
    return Drop(
        n_pre=pre.n,
        n_post=post.n,
        pre=pre.value,
        post=post.value,
        difference=difference,
        low=low,
        high=high,
    )


def permutation_p(
    values: Floats,
    sides: Sides,
    permutations: int,
    **how: Unpack[Resampling],
) -> float:
    """The two-sided p of the difference of means by random permutations of sides, (1 + hits) / (1 + permutations).

    A cluster's items on one side are dealt to a side together; `clusters` None: each item is a cluster. Raises
    ValueError unless both sides have an item.
    """
    rows = np.flatnonzero((sides >= 0) & ~np.isnan(values))
    clusters = how.get("clusters")
    kept = values[rows]
    cluster_of = rows if clusters is None else clusters[rows]
    parts, unit = np.unique(
        2 * cluster_of + sides[rows],
        return_inverse=True,
    )
    n = len(parts)
    chosen = np.flatnonzero(parts % 2)
    if not 0 < len(chosen) < n:
        raise ValueError("a permutation needs items on both sides")
    sums = np.bincount(unit, weights=kept)
    counts = np.bincount(unit)

    def apart(dealt: Places) -> Floats:
        """How far apart the sides' means are in each deal; `dealt` is (deals x the parts on one side)."""
        total = sums[dealt].sum(axis=1)
        count = counts[dealt].sum(axis=1)
        others = (sums.sum() - total) / (len(kept) - count)
        return np.asarray(np.abs(others - total / count))

    truth = apart(chosen[None])[0] - _EPSILON
    # The smaller side is dealt: the other is the rest, and the difference is the same but for its sign.
    small = min(len(chosen), n - len(chosen))
    rng = np.random.default_rng(how.get("seed", 0))
    hits = 0
    step = max(1, _BLOCK // n)
    for start in range(0, permutations, step):
        random = rng.random((min(step, permutations - start), n))
        order = np.argpartition(random, small - 1, axis=1)
        is_hit = apart(order[:, :small]) >= truth
        hits += int(is_hit.sum())
    return (1 + hits) / (1 + permutations)


@dataclass(frozen=True)
class Effect:
    """What having seen an item adds to a score, net of each item's difficulty and each model's ability."""

    effect: float
    low: float | None
    high: float | None
    n_pre: int
    """Items that a model of interest may have seen, with a score of another model that cannot have seen them."""
    n_post: int
    """Items that no model of interest can have seen, with scores of one of them and of another model."""
    models: int
    """The number of models whose scores enter, those of interest included."""


def seen_effect(
    values: Floats,
    seen: Flags,
    **how: Unpack[Resampling],
) -> Effect | None:
    """δ of y(item, model) = ability(model) + difficulty(item) + δ · seen(item, model), by least squares.

    `values` is (items x models), NaN for a cell that is left out, and `seen` of the same shape. The interval is by
    a bootstrap over clusters. None where the cells do not tell δ from abilities and difficulties.
    """
    kept = (~np.isnan(values)).any(axis=0)
    values = values[:, kept]
    present = ~np.isnan(values)
    seen = seen[:, kept] & present
    models = values.shape[1]
    if models < 2:
        return None
    # The unknowns are the abilities of all models but the first, whose ability is the items' level, then δ.
    abilities = np.eye(models)[:, 1:]
    step = max(1, _BLOCK // (models * models))

    def solve(weights: Floats) -> Floats:
        """δ of each draw: every item adds its weighted part to the normal equations, one row a draw."""
        gram = np.zeros((len(weights), models * models))
        right = np.zeros((len(weights), models))
        for start in range(0, len(values), step):
            block = slice(start, start + step)
            here = present[block, :, None]
            cells = np.broadcast_to(
                abilities,
                (len(here), *abilities.shape),
            )
            unknowns = np.dstack([cells, seen[block]])
            design = np.where(here, unknowns, 0.0)
            level = np.where(
                here,
                values[block, :, None],
                0.0,
            )
            n = np.maximum(
                here.sum(axis=1, keepdims=True),
                1,
            )
            # Each item's own mean is taken out, and its difficulty with it.
            design -= here * design.sum(axis=1, keepdims=True) / n
            level -= here * level.sum(axis=1, keepdims=True) / n
            across = np.swapaxes(design, 1, 2)
            squares = (across @ design).reshape(len(here), -1)
            products = (across @ level)[:, :, 0]
            gram += weights[:, block] @ squares
            right += weights[:, block] @ products
        return _last_coefficient(
            gram.reshape(-1, models, models),
            right,
        )

    effect = solve(np.ones((1, len(values))))[0]
    if np.isnan(effect):
        return None
    scored = present.sum(axis=1)
    treatments = seen.sum(axis=1)
    is_shared = scored > 1
    is_mixed = is_shared & (treatments > 0) & (treatments < scored)
    of_interest = present[:, seen.any(axis=0)].any(axis=1)
    is_fresh = is_shared & of_interest & (treatments == 0)
    low = high = None
    controls = is_shared & ~is_mixed
    if min(is_mixed.sum(), controls.sum()) >= LEAST_CLUSTERS:
        low, high = percentile_interval(over_draws(solve, len(values), **how))
    return Effect(
        effect=float(effect),
        low=low,
        high=high,
        n_pre=int(is_mixed.sum()),
        n_post=int(is_fresh.sum()),
        models=models,
    )


def _last_coefficient(gram: Floats, right: Floats) -> Floats:
    """The last unknown of each system; NaN where the system does not determine it."""
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    solved = np.einsum("bq,bq->b", inverse[:, -1], right)
    # The last row of inverse · gram is a unit vector exactly where the coefficient is determined.
    unit = np.einsum("bq,bqp->bp", inverse[:, -1], gram)
    unit[:, -1] -= 1.0
    return np.where(
        np.abs(unit).max(axis=1) < 1e-6,
        solved,
        np.nan,
    )


def placebos(
    values: Floats,
    sides: Sides,
    days: Places,
    dates: Sequence[int],
    *,
    least: int = 30,
) -> Iterator[float]:
    """The drop at each of `dates` among the items of one side of the cutoff alone, at least `least` before and after.

    `days` are the items' days and `dates` the placebo cutoffs, a cutoff's day counting as before; all are proleptic
    ordinals. No item's side changes at a placebo cutoff, so a drop there is drift, not memory.
    """
    for side in (PRE, POST):
        rows = (sides == side) & ~np.isnan(values)
        for day in dates:
            before = values[rows & (days <= day)]
            after = values[rows & (days > day)]
            if min(len(before), len(after)) >= least:
                yield float(before.mean() - after.mean())


@dataclass(frozen=True, kw_only=True)
class Adjusted(Drop):
    """A drop over the strata that both sides have, side 1 weighted to side 0's shares of them."""

    lost_pre: int
    """Items in strata that the other side lacks: left out of both means."""
    lost_post: int


def adjusted_drop(
    values: Floats,
    sides: Sides,
    strata: Sequence[str],
    **how: Unpack[Resampling],
) -> Adjusted:
    """The drop when side 1 is re-weighted to side 0's shares of the strata; `strata` has each item's, "" for none.

    A stratum that one side lacks is left out; so is, in a draw, one that a side lacks in that draw.
    """
    names, code = np.unique(
        np.array(strata, dtype=np.str_),
        return_inverse=True,
    )
    used = (sides >= 0) & ~np.isnan(values) & (names[code] != "")
    rows = np.flatnonzero(used)
    cell = 2 * code[rows] + sides[rows]
    cells = 2 * len(names)
    scores = np.where(used, values, 0.0)

    def by_cell(items: Floats) -> Floats:
        """The sums over each cell, (draws x strata x sides)."""
        sums = np.zeros((len(items), cells))
        for draw, weights in enumerate(items[:, rows]):
            sums[draw] = np.bincount(cell, weights, cells)
        return sums.reshape(len(items), -1, 2)

    def means(weights: Floats) -> Floats:
        """The means of both sides, (sides x draws), side 1 at side 0's shares; `weights` is (draws x items)."""
        n = by_cell(weights)
        of_cell = quotient(by_cell(weights * scores), n)
        is_shared = (n > 0).all(axis=2)
        share = np.where(is_shared, n[:, :, PRE], 0.0)[:, :, None]
        weighted = share * np.where(share > 0, of_cell, 0.0)
        return quotient(weighted.sum(axis=1), share.sum(axis=1)).T

    def gap(weights: Floats) -> Floats:
        before, after = means(weights)
        return np.asarray(before - after)

    by_stratum = np.bincount(cell, minlength=cells).reshape(-1, 2)
    is_shared = (by_stratum > 0).all(axis=1)
    kept = by_stratum[is_shared].sum(axis=0)
    lost = by_stratum[~is_shared].sum(axis=0)
    pre, post = means(np.ones((1, len(values))))[:, 0]
    low = high = None
    if kept.min() >= LEAST_CLUSTERS:
        low, high = percentile_interval(over_draws(gap, len(values), **how))
    return Adjusted(
        n_pre=int(kept[PRE]),
        n_post=int(kept[POST]),
        lost_pre=int(lost[PRE]),
        lost_post=int(lost[POST]),
        pre=known_or_none(pre),
        post=known_or_none(post),
        difference=known_or_none(pre - post),
        low=low,
        high=high,
    )


def terciles(values: Floats) -> Places:
    """0, 1 or 2 by the thirds of the known values, -1 for NaN; equal values are in one third."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(values), -1)
    cuts = np.percentile(known, [100 / 3, 200 / 3])
    thirds = np.searchsorted(cuts, values, side="left")
    return np.where(np.isnan(values), -1, thirds).astype(np.int_)
