"""The seeded bootstrap, with one matrix of weights for every model and slice; paired comparisons; estimates."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypedDict, Unpack

import numpy as np

from .intervals import Flags as Flags
from .intervals import Floats as Floats
from .intervals import Places as Places
from .intervals import (
    gap_bounds,
    known_means,
    mean_bounds,
    quantiles,
    quotient,
    sign_p,
    standard_error,
    too_few,
    two_sided_p,
    wilson,
)


class Draws(TypedDict, total=False):
    """How often items are drawn: 1000 times where it is not given, by the seed 0."""

    draws: int
    seed: int


class Resampling(Draws, total=False):
    """How items are drawn: the arguments that every bootstrap of one table shares."""

    clusters: Places | None
    """Each item's cluster, from 0; None: each is its own."""


_CHUNK = 16_000_000
"""Weights held at a time, so that memory stays flat however many clusters there are."""


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
    """Two-sided, of a correlation or a difference under none."""

    def clipped(self) -> "Estimate":
        """The same within [0, 1]."""
        ends = []
        for end in (self.value, self.low, self.high):
            ends.append(None if end is None else min(1.0, max(0.0, end)))
        value, low, high = ends
        return replace(self, value=value, low=low, high=high)


def weight_chunks(
    items: int,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Iterable[Floats]:
    """Rows of resampling weights, (some draws x items), `draws` rows in all: how often a draw, with replacement,
    takes each item's cluster.

    `clusters` gives each item's, from 0; None: each is its own. The rows depend on the seed alone and not on how
    they are cut.
    """
    place = np.arange(items) if clusters is None else clusters
    if len(place) * draws > _CHUNK:
        return _draw_weights(place, draws, seed)
    return _kept_weights(place.astype(np.int64).tobytes(), draws, seed)


@lru_cache(maxsize=1)
def _kept_weights(
    place: bytes,
    draws: int,
    seed: int,
) -> list[Floats]:
    """The one matrix of a table, made once for its models, slices and pairs."""
    clusters = np.frombuffer(place, dtype=np.int64)
    return list(_draw_weights(clusters, draws, seed))


def _draw_weights(
    place: Places,
    draws: int,
    seed: int,
) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    count = int(place.max(initial=-1)) + 1
    step = max(1, _CHUNK // max(1, len(place)))
    for start in range(0, draws, step):
        weights = np.empty((min(step, draws - start), count))
        for row in weights:
            drawn = rng.integers(0, count, size=count)
            row[:] = np.bincount(drawn, minlength=count)
        # An item's weights side by side: groups of items are taken out of it again and again.
        yield np.asfortranarray(weights[:, place])


def over_draws(
    figure: Callable[[Floats], Floats],
    items: int,
    **how: Unpack[Resampling],
) -> Floats:
    """A figure of weighted items in every draw; `figure` takes rows of weights, (some draws x items)."""
    return np.concatenate(list(map(figure, weight_chunks(items, **how))))


def cluster_counts(
    known: Flags,
    clusters: Places | None,
) -> Places:
    """How many clusters have a known item, by column of `known` (items x columns); None: each item is its own."""
    counts = cluster_sums(known.astype(np.float64), clusters)
    return np.asarray((counts > 0).sum(axis=0))


def cluster_sums(values: Floats, clusters: Places | None) -> Floats:
    """The sums of items by cluster: (clusters x columns); None: each item is its own."""
    if clusters is None or not len(values):
        return values
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    return np.asarray(np.add.reduceat(values[order], starts, axis=0))


def bootstrap_means(
    values: Floats,
    **how: Unpack[Resampling],
) -> Floats:
    """The mean of each column in each draw: (draws x columns).

    `values` is (items x columns), NaN where a column lacks an item; such items are left out of that column's mean.
    A draw with nothing of a column is NaN.
    """
    return bootstrap_groups(values, **how)[:, 0]


def bootstrap_groups(
    values: Floats,
    groups: Sequence[Places] | None = None,
    **how: Unpack[Resampling],
) -> Floats:
    """The mean of each column within each group in each draw: (draws x groups x columns).

    `groups` are rows of items; None: one group of all. All items are drawn, whatever their group, so that figures of
    different groups are paired. Otherwise as `bootstrap_means`.
    """
    present = ~np.isnan(values)
    return bootstrap_ratios(
        np.where(present, values, 0.0),
        present.astype(np.float64),
        groups,
        **how,
    )


def bootstrap_ratios(
    above: Floats,
    below: Floats,
    groups: Sequence[Places] | None = None,
    **how: Unpack[Resampling],
) -> Floats:
    """Σ above / Σ below over a draw's items, by group and column: (draws x groups x columns); NaN for 0 / 0.

    Both are (items x columns), without NaN. As `bootstrap_groups` otherwise.
    """
    both = np.concatenate([above, below], axis=1)
    if groups is None:
        groups = [np.arange(len(above))]

    def of_draws(weights: Floats) -> Floats:
        ratios = np.full(
            (len(weights), len(groups), above.shape[1]),
            np.nan,
        )
        for group, rows in enumerate(groups):
            if not len(rows):
                continue
            is_whole = len(rows) == len(above)
            own = weights if is_whole else weights[:, rows]
            sums = own @ both[rows]
            upper, lower = np.split(sums, 2, axis=1)
            ratios[:, group] = quotient(upper, lower)
        return ratios

    return over_draws(of_draws, len(above), **how)


def interval(drawn: Floats) -> tuple[float, float] | tuple[None, None]:
    """The 95 % percentile interval of a column of drawn means; None twice when no draw has a value."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return None, None
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)


def estimates_of(
    values: Floats,
    ends: tuple[Floats, Floats],
    counts: Places,
    reasons: Sequence[str],
) -> list[Estimate]:
    """Figures of columns with their intervals, but for those that a reason speaks against."""
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
    """The mean of each column with its interval (`mean_bounds`), but where there are `too_few_for_mean`.

    `values` is (items x columns), NaN where there is none; `drawn` is (draws x columns), their means.
    """
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    means = known_means(values)
    is_share = (values >= 0) & (values <= 1)
    ends = mean_bounds(
        means,
        spread_of(drawn),
        cluster_counts(known, clusters),
        unit=(is_share | ~known).all(axis=0),
    )
    reasons = too_few_for_mean(values, clusters)
    return estimates_of(means, ends, counts, reasons)


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
    """Why means of (items x columns) have no interval, "" where they have; NaN where a column lacks an item.

    What counts is how far values lie from the nearer end of [0, 1]. Of values beyond it, how far from 0: their
    interval is Student's.
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


@dataclass(frozen=True)
class Comparison:
    """Two models on the items that both have."""

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
    """The same, corrected for the number of comparisons."""
    why: str = ""
    """Why there is no interval; p is then by permutation of signs."""


LEAST_PAIRED = 6
"""Clusters that a few differences are read with at least."""
LEAST_PAIRS = 10
"""Clusters from which a paired difference has an interval."""


def compare(
    names: Sequence[str],
    values: Floats,
    **how: Unpack[Resampling],
) -> list[Comparison]:
    """Every pair of columns of `values` (items x columns, NaN where absent), paired on common items.

    A pair without enough differences has no interval, and p by permutation of signs (`sign_p`).

    Intervals and p are those of `compare_paired`: a percentile of 1,000 draws is too coarse
    for Holm's correction over many pairs.
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
    """The pairs with their p corrected for their number."""
    corrected = holm([pair.p for pair in pairs])
    return [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]


def known_or_none(value: float) -> float | None:
    """The value; None for NaN."""
    return None if np.isnan(value) else float(value)


def compare_paired(
    differences: Floats,
    **how: Unpack[Resampling],
) -> list[Estimate]:
    """The mean of each column of differences (items x columns, NaN for absent), with its interval and p.

    A difference is what was gained less what was lost, each with Wilson's interval, combined by MOVER; of
    differences that are not all in [-1, 1] the interval is Student's. p is that of the widest interval that leaves 0
    out, so that p < 0.05 exactly where the 95 % one does. It is never below 2^(1-k), which is all that the signs of k
    clusters can show. With too few differences `why` says so, there is no interval, and p is `sign_p`.
    """
    clusters = how.get("clusters")
    known = ~np.isnan(differences)
    sizes = np.where(
        known,
        np.abs(differences),
        0.0,
    )
    both = np.concatenate(
        [
            np.maximum(differences, 0.0),
            np.maximum(-differences, 0.0),
        ],
        axis=1,
    )
    drawn = bootstrap_means(both, **how)
    drawn = drawn.reshape(-1, 2, differences.shape[1])
    k = cluster_counts(known, clusters)
    differing = cluster_counts(sizes > 0, clusters)
    # Few differences show too little of their spread: their number less one is Student's freedom.
    counted = np.where(differing > 0, differing, k)
    counted = np.minimum(np.maximum(counted, LEAST_PAIRED), k)
    is_unit = (sizes <= 1).all(axis=0)
    with np.errstate(all="ignore"):
        totals = np.nansum(both, axis=0).reshape(2, -1)
        gains, losses = totals / known.sum(axis=0)
        gap = gains - losses
        # What an unseen difference may be: as those that were seen, 1 where none was.
        squares = (sizes**2).sum(axis=0)
        size = squares / np.maximum(sizes.sum(axis=0), 1e-300)
        size = np.where(
            sizes.any(axis=0),
            np.minimum(size, 1.0),
            1.0,
        )
        spread = spread_of(drawn)
        gain_error, loss_error = standard_error(spread, k)
        gap_spread = spread_of(drawn[:, 0] - drawn[:, 1])
        gap_error = standard_error(gap_spread, k)
        covariance = ((spread**2).sum(axis=0) - gap_spread**2) / 2
        together = np.maximum(spread[0] * spread[1], 1e-18)
        # Never above 0, so that an interval only widens with its level.
        correlation = np.minimum(covariance / together, 0.0)

        def ends(t: Floats) -> Floats:
            """The interval at a quantile."""
            by_sides = gap_bounds(
                (gains, *wilson(gains, gain_error, k, t, size)),
                (losses, *wilson(losses, loss_error, k, t, size)),
                correlation,
            )
            far = t * gap_error
            return np.where(
                is_unit,
                by_sides,
                [gap - far, gap + far],
            )

        low, high = ends(quantiles(counted))
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
    for column, figure in enumerate(estimates_of(gap, (low, high), counts, reasons)):
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


def spread_of(drawn: Floats) -> Floats:
    """The standard deviation over draws; NaN where no draw has a value."""
    with warnings.catch_warnings():
        # NumPy warns of columns that are all NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanstd(drawn, axis=0))


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
    """Holm's correction of those that are known."""
    values = list(p_values)
    corrected = iter(holm([p for p in values if p is not None]))
    return [None if p is None else next(corrected) for p in values]


@dataclass(frozen=True)
class Standing:
    """A model's place: `group` counts ties from 1, and the rank may truly be anything in [best, worst]."""

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

    Who is below whom is what their comparison says, on the cases that both have: where these are others than those
    of the scores, the scores alone may stand the other way round. rank_best is one more than the number of models
    that are significantly better, rank_worst the number of models less those significantly worse.
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


LEAST_DRAWN = 5
"""Clusters that are drawn: with fewer the draws hardly differ, and their spread says nothing."""

MOST_UNDEFINED = 0.05
"""The share of draws without a value from which on the others give no interval."""


def estimate(
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Sequence[int] | Places,
    *,
    n: int | None = None,
    **how: Unpack[Draws],
) -> Estimate:
    """The statistic of the summed cells, and its interval over draws of whole clusters.

    `cells` is (items x …): what each item adds to the counts that the statistic is made of. `statistic` takes
    counts with any leading axes and gives NaN where it is not defined. `clusters` gives each item's cluster, any
    whole numbers. `n` is the number of items to name where it is not the number of rows.
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
    return with_interval(value, drawn, items, len(names))


def with_interval(
    value: float,
    drawn: Floats,
    n: int,
    clusters: int,
) -> Estimate:
    """A value with the percentile interval of its draws, where they give one."""
    undefined = float(np.isnan(drawn).mean())
    low, high = interval(drawn)
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
