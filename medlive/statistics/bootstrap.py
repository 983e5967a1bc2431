"""The seeded bootstrap, with one matrix of weights for every model and slice; paired comparisons; estimates."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.intervals import Floats as Floats
from medlive.statistics.intervals import (
    gap_bounds,
    mean_bounds,
    quantiles,
    sign_p,
    standard_error,
    too_few,
    two_sided_p,
    wilson,
)

Places = NDArray[np.int_]


class Draws(TypedDict, total=False):
    """How often items are drawn: 1000 times where it is not given, by the seed 0."""

    draws: int
    seed: int


class Resampling(Draws, total=False):
    """How items are drawn: the arguments that every bootstrap of one table shares."""

    clusters: Places | None
    """Each item's cluster, from 0; None: each is its own."""


_TAILS: Final = (2.5, 97.5)
_CHUNK: Final = 16_000_000
"""Weights held at a time, so that memory stays flat however many clusters there are."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval: the one shape from the statistics to the pages."""

    value: float | None
    """None where it is not defined; `why` says so."""
    low: float | None = None
    high: float | None = None
    n: int = 0
    clusters: int | None = None
    """Of the items, where the interval is over draws of clusters."""
    why: str = ""
    """Why there is no value, or no interval."""
    p: float | None = None
    """Two-sided, of a correlation under none."""


def weight_chunks(clusters: int | Places, draws: int, seed: int) -> Iterator[Floats]:
    """Rows of resampling weights, (some draws x items), `draws` rows in all: how often a draw, with replacement,
    takes each item's cluster.

    `clusters` is the number of items that are each their own cluster, or each item's cluster, from 0. The rows
    depend on the seed alone and not on how they are cut.
    """
    place = np.arange(clusters) if isinstance(clusters, int) else clusters
    if len(place) * draws <= _CHUNK:
        yield _kept(place.astype(np.int64).tobytes(), draws, seed)
        return
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // len(place))
    for start in range(0, draws, step):
        yield _rows(rng, min(step, draws - start), place)


@lru_cache(maxsize=1)
def _kept(place: bytes, draws: int, seed: int) -> Floats:
    """The one matrix of a table, made once for its models, slices and pairs."""
    clusters = np.frombuffer(place, dtype=np.int64)
    return _rows(np.random.default_rng(seed), draws, clusters)


def _rows(rng: np.random.Generator, rows: int, place: Places) -> Floats:
    count = int(place.max(initial=-1)) + 1
    out = np.empty((rows, count))
    for row in range(rows):
        out[row] = np.bincount(rng.integers(0, count, size=count), minlength=count)
    # An item's weights side by side: groups of items are taken out of it again and again.
    return np.asfortranarray(out[:, place])


def cluster_counts(known: NDArray[np.bool_], clusters: Places | None) -> Places:
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


def bootstrap_means(values: Floats, **how: Unpack[Resampling]) -> Floats:
    """The mean of each column in each draw: (draws x columns).

    `values` is (items x columns), NaN where a column lacks an item; such items are left out of that column's mean.
    A draw with nothing of a column is NaN.
    """
    everything = np.zeros(len(values), dtype=np.int_)
    return bootstrap_groups(values, everything, 1, **how)[:, 0]


def bootstrap_groups(
    values: Floats, groups: Places, count: int, **how: Unpack[Resampling]
) -> Floats:
    """The mean of each column within each group in each draw: (draws x count x columns).

    `groups` gives each item's group, 0 to count-1, or -1 for none. All items are drawn, whatever their group, so
    that figures of different groups are paired. Otherwise as `bootstrap_means`.
    """
    present = ~np.isnan(values)
    above, below = np.where(present, values, 0.0), present.astype(np.float64)
    return bootstrap_ratios(above, below, groups, count, **how)


def bootstrap_ratios(
    above: Floats,
    below: Floats,
    groups: Places,
    count: int,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Floats:
    """Σ above / Σ below over a draw's items, by group and column: (draws x count x columns); NaN for 0 / 0.

    Both are (items x columns), without NaN. As `bootstrap_groups` otherwise.
    """
    both = np.concatenate([above, below], axis=1)
    members = [np.flatnonzero(groups == group) for group in range(count)]
    out = np.full((draws, count, above.shape[1]), np.nan)
    start = 0
    for weights in weight_chunks(
        len(above) if clusters is None else clusters, draws, seed
    ):
        end = start + len(weights)
        for group, rows in enumerate(members):
            if len(rows):
                own = weights if len(rows) == len(above) else weights[:, rows]
                upper, lower = np.split(own @ both[rows], 2, axis=1)
                with np.errstate(all="ignore"):
                    out[start:end, group] = upper / lower
        start = end
    return out


def interval(drawn: Floats) -> tuple[float, float] | None:
    """The 95 % percentile interval of a column of drawn means; None when no draw has a value."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return None
    low, high = np.percentile(known, _TAILS)
    return float(low), float(high)


def bounds_of(
    values: Floats, drawn: Floats, clusters: Places | None = None
) -> tuple[Floats, Floats]:
    """The 95 % interval of each column's mean (`mean_bounds`): (lows, highs), NaN where there are `too_few_for_mean`.

    `values` is (items x columns), NaN where there is none; `drawn` is (draws x columns), their means.
    """
    known = ~np.isnan(values)
    with np.errstate(all="ignore"):
        mean = np.nansum(values, axis=0) / known.sum(axis=0)
    unit = ((values >= 0) & (values <= 1) | ~known).all(axis=0)
    low, high = mean_bounds(
        mean, spread_of(drawn), cluster_counts(known, clusters), unit
    )
    few = np.array([bool(why) for why in too_few_for_mean(values, clusters)])
    return np.where(few, np.nan, low), np.where(few, np.nan, high)


def mean_estimate(values: Floats, **how: Unpack[Resampling]) -> Estimate:
    """The mean of the known values of a column, with its interval by `bounds_of`."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Estimate(None)
    column = values[:, None]
    low, high = bounds_of(column, bootstrap_means(column, **how), how.get("clusters"))
    ends = known_or_none(low[0]), known_or_none(high[0])
    return Estimate(float(known.mean()), *ends, n=len(known))


def too_few_for_mean(values: Floats, clusters: Places | None = None) -> list[str]:
    """Why means of (items x columns) have no interval, "" where they have; NaN where a column lacks an item.

    What counts is how far values lie from the nearer end of [0, 1]. Of values beyond it, how far from 0: their
    interval is Student's.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    n = np.maximum(known.sum(axis=0), 1)
    # As in `too_few`, the order of a sum must not decide.
    low_half = (filled.sum(axis=0) <= n / 2 + 1e-9) | (filled > 1).any(axis=0)
    distance = np.where(low_half, np.abs(filled), np.where(known, 1 - filled, 0.0))
    sums = cluster_sums(distance, clusters)
    return too_few(sums, cluster_counts(known, clusters))


@dataclass(frozen=True, slots=True)
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

    def turned(self) -> "Comparison":
        """The same pair, second minus first."""
        values = self.difference, self.high, self.low
        difference, low, high = (None if x is None else -x for x in values)
        turned = replace(self, first=self.second, second=self.first)
        return replace(turned, difference=difference, low=low, high=high)


LEAST_PAIRED: Final = 6
"""Clusters that a few differences are read with at least."""
LEAST_PAIRS: Final = 10
"""Clusters from which a paired difference has an interval."""


def compare(
    names: Sequence[str], values: Floats, **how: Unpack[Resampling]
) -> list[Comparison]:
    """Every pair of columns of `values` (items x columns, NaN where absent), paired on common items.

    A pair without enough differences has no interval, and p by permutation of signs (`sign_p`).

    Intervals and p are those of `medlive.statistics.intervals.paired`: a percentile of 1,000 draws is too coarse
    for Holm's correction over many pairs.
    """
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    # A block of columns at a time: 703 pairs of 38 models over 200,000 cases would not fit.
    block = max(1, 2_000_000 // max(1, len(values)))
    compared: list[Comparison] = []
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        differences = np.stack([values[:, i] - values[:, j] for i, j in part], axis=1)
        figures = compare_paired(differences, **how)
        counts = (~np.isnan(differences)).sum(axis=0)
        reasons = too_few_for_pair(differences, how.get("clusters"))
        for k, (i, j) in enumerate(part):
            mean, low, high = (known_or_none(x) for x in figures[:3, k])
            pair = Comparison(
                first=names[i],
                second=names[j],
                n=int(counts[k]),
                difference=mean,
                low=low,
                high=high,
                p=float(figures[3, k]),
                p_holm=1.0,
                why=reasons[k] if counts[k] else "",
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


def compare_paired(differences: Floats, **how: Unpack[Resampling]) -> Floats:
    """The mean, low, high and p of each column of differences (items x columns, NaN for absent): (4 x columns).

    A difference is what was gained less what was lost, each with Wilson's interval, combined by MOVER; of
    differences that are not all in [-1, 1] the interval is Student's. p is that of the widest interval that leaves 0
    out, so that p < 0.05 exactly where the 95 % one does. It is never below 2^(1-k), which is all that the signs of k
    clusters can show. With too few differences there is no interval, and p is `sign_p`.
    """
    clusters = how.get("clusters")
    known = ~np.isnan(differences)
    sizes = np.where(known, np.abs(differences), 0.0)
    sides = [np.maximum(differences, 0.0), np.maximum(-differences, 0.0)]
    both = np.concatenate(sides, axis=1)
    drawn = bootstrap_means(both, **how).reshape(-1, 2, differences.shape[1])
    k = cluster_counts(known, clusters)
    differing = cluster_counts(sizes > 0, clusters)
    # Few differences show too little of their spread: their number less one is Student's freedom.
    counted = np.minimum(np.where(differing > 0, differing, k), k)
    counted = np.minimum(np.maximum(counted, LEAST_PAIRED), k)
    unit = (sizes <= 1).all(axis=0)
    spread = spread_of(drawn)
    with np.errstate(all="ignore"):
        gains, losses = (np.nansum(both, axis=0)).reshape(2, -1) / known.sum(axis=0)
        # What an unseen difference may be: as those that were seen, 1 where none was.
        size = (sizes**2).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1e-300)
        size = np.where(sizes.any(axis=0), np.minimum(size, 1.0), 1.0)
        error = standard_error(spread, k)
        apart_by = spread_of(drawn[:, 0] - drawn[:, 1])
        whole = standard_error(apart_by, k)
        covariance = ((spread**2).sum(axis=0) - apart_by**2) / 2
        together = np.maximum(spread[0] * spread[1], 1e-18)
        # Never above 0, so that an interval only widens with its level.
        correlation = np.minimum(covariance / together, 0.0)

        def ends(t: Floats) -> Floats:
            """The interval at a quantile."""
            low, high = gap_bounds(
                (gains, *wilson(gains, error[0], k, t, size)),
                (losses, *wilson(losses, error[1], k, t, size)),
                correlation,
            )
            gap = gains - losses
            return np.where(unit, [low, high], [gap - t * whole, gap + t * whole])

        low, high = ends(quantiles(counted))
        below, above = np.zeros_like(gains), np.full_like(gains, 1e3)
        for _ in range(50):
            middle = (below + above) / 2
            inner = ends(middle)
            apart = (inner[0] > 0) | (inner[1] < 0)
            below = np.where(apart, middle, below)
            above = np.where(apart, above, middle)
    p = np.ones_like(gains)
    few = too_few_for_pair(differences, clusters)
    sums = cluster_sums(np.where(known, differences, 0.0), clusters)
    for column, count in enumerate(k.tolist()):
        if few[column]:
            low[column] = high[column] = np.nan
            p[column] = sign_p(sums[:, column], how.get("seed", 0))
        else:
            p[column] = two_sided_p(below[column], int(counted[column]) - 1)
            p[column] = max(p[column], 2.0 ** max(1 - count, -1000))
    return np.stack([gains - losses, low, high, p])


def spread_of(drawn: Floats) -> Floats:
    """The standard deviation over draws; NaN where no draw has a value."""
    with warnings.catch_warnings():
        # NumPy warns of columns that are all NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanstd(drawn, axis=0))


def too_few_for_pair(differences: Floats, clusters: Places | None) -> list[str]:
    """Why mean differences have no interval; "" where they have."""
    known = ~np.isnan(differences)
    sums = cluster_sums(np.where(known, np.abs(differences), 0.0), clusters)
    return too_few(sums, cluster_counts(known, clusters), LEAST_PAIRS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    values = np.array(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return list(map(float, corrected))


def holm_of_known(p_values: Iterable[float | None]) -> list[float | None]:
    """Holm's correction of those that are known."""
    values = list(p_values)
    corrected = iter(holm([p for p in values if p is not None]))
    return [None if p is None else next(corrected) for p in values]


@dataclass(frozen=True, slots=True)
class Standing:
    """A model's place: `group` counts ties from 1, and the rank may truly be anything in [best, worst]."""

    name: str
    group: int
    rank_best: int
    rank_worst: int


def tie_groups(
    scores: Mapping[str, float], comparisons: Sequence[Comparison]
) -> list[Standing]:
    """Models from the best score down; a group holds those not significantly below the group's first.

    Who is below whom is what their comparison says, on the cases that both have: where these are others than those
    of the scores, the scores alone may stand the other way round. rank_best is one more than the number of models
    that are significantly better, rank_worst the number of models less those significantly worse. A pair without an
    interval is a tie.
    """
    below = set()
    for pair in comparisons:
        # Signs alone show that two models differ, not which mean is higher.
        if pair.difference and pair.p_holm < 0.05 and pair.low is not None:
            worse_first = pair.difference < 0
            names = (pair.first, pair.second)
            below.add(names if worse_first else names[::-1])
    order = sorted(scores, key=lambda name: (-scores[name], name))
    standings: list[Standing] = []
    leader, group = None, 0
    for name in order:
        if leader is None or (name, leader) in below:
            leader, group = name, group + 1
        better = sum((name, other) in below for other in order)
        worse = sum((other, name) in below for other in order)
        standings.append(Standing(name, group, 1 + better, len(order) - worse))
    return standings


LEAST_CLUSTERS: Final = 5
"""With fewer the draws hardly differ, and their spread says nothing."""

MOST_UNDEFINED: Final = 0.05
"""The share of draws without a value from which on the others give no interval."""


def estimate(
    cells: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Sequence[int] | Places,
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
        return Estimate(None, why="no item")
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    flat = cluster_sums(cells.reshape(len(cells), -1), place)
    shape = cells.shape[1:]
    value = float(statistic(flat.sum(axis=0).reshape(shape)))
    if np.isnan(value):
        why = "not defined on these items"
        return Estimate(None, n=items, clusters=len(names), why=why)
    drawn = []
    for weights in weight_chunks(len(names), draws, seed):
        drawn.append(statistic((weights @ flat).reshape(-1, *shape)))
    return with_interval(value, np.concatenate(drawn), items, len(names))


def with_interval(value: float, drawn: Floats, n: int, clusters: int) -> Estimate:
    """A value with the percentile interval of its draws, where they give one."""
    undefined = float(np.isnan(drawn).mean())
    low, high = interval(drawn) or (None, None)
    why = ""
    if clusters < LEAST_CLUSTERS:
        why = f"{clusters} clusters are too few for an interval"
    elif undefined > MOST_UNDEFINED:
        why = f"not defined in {undefined:.0%} of the draws"
    elif low == high:
        why = "all draws give the same value: too few differ for an interval"
    if why:
        low = high = None
    return Estimate(value, low, high, n=n, clusters=clusters, why=why)


def ratio_of(sums: Floats) -> Floats:
    """The first of two sums by the second, along the last axis; NaN for 0 / 0."""
    with np.errstate(all="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])
