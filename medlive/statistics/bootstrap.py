"""The seeded bootstrap, with one matrix of weights for every model and slice; paired comparisons; estimates."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.intervals import Floats as Floats
from medlive.statistics.intervals import (
    Support,
    mean_bounds,
    paired,
    sign_p,
    support_of,
)

Places = NDArray[np.int_]


class Resampling(TypedDict):
    """How items are drawn: the arguments that every bootstrap of one table shares."""

    draws: int
    seed: int
    clusters: Places | None
    """Each item's cluster, from 0; None: each item is its own."""


_TAILS: Final = ((1 - 0.95) / 2 * 100, 100 - (1 - 0.95) / 2 * 100)
_CHUNK: Final = 16_000_000
"""Weights held at a time, so that memory stays flat however many clusters there are."""


def weight_chunks(clusters: int | Places, draws: int, seed: int) -> Iterator[Floats]:
    """Rows of resampling weights, (some draws x items), `draws` rows in all: how often a draw, with replacement,
    takes each item's cluster.

    `clusters` is the number of items that are each their own cluster, or each item's cluster, from 0. The rows
    depend on the seed alone and not on how they are cut.
    """
    place = None if isinstance(clusters, int) else clusters
    count = clusters if isinstance(clusters, int) else int(clusters.max(initial=-1)) + 1
    items = count if place is None else len(place)
    if items * draws <= _CHUNK:
        yield _kept(
            count,
            draws,
            seed,
            None if place is None else place.astype(np.int64).tobytes(),
        )
        return
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // max(1, items))
    for start in range(0, draws, step):
        yield _rows(rng, min(step, draws - start), count, place)


@lru_cache(maxsize=1)
def _kept(count: int, draws: int, seed: int, place: bytes | None) -> Floats:
    """The one matrix of a table, made once for its models, slices and pairs."""
    rng = np.random.default_rng(seed)
    return _rows(
        rng,
        draws,
        count,
        None if place is None else np.frombuffer(place, dtype=np.int64),
    )


def _rows(
    rng: np.random.Generator, rows: int, count: int, place: Places | None
) -> Floats:
    out = np.empty((rows, count))
    for row in range(rows):
        out[row] = np.bincount(rng.integers(0, count, size=count), minlength=count)
    # An item's weights side by side: groups of items are taken out of it again and again.
    return np.asfortranarray(out if place is None else out[:, place])


def cluster_counts(known: NDArray[np.bool_], clusters: Places | None) -> Places:
    """How many clusters have a known item, by column of `known` (items x columns); None: each item is its own."""
    return np.asarray(_by_cluster(np.logical_or, known, clusters).sum(axis=0))


def cluster_sums(values: Floats, clusters: Places | None) -> Floats:
    """The sums of items by cluster: (clusters x columns); None: each item is its own."""
    return np.asarray(_by_cluster(np.add, values, clusters))


def _by_cluster(combine: np.ufunc, values: Any, clusters: Places | None) -> Any:
    """The items of each cluster combined: (clusters x columns)."""
    if clusters is None or not len(values):
        return values
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    return combine.reduceat(values[order], starts, axis=0)


def bootstrap_means(
    values: Floats, *, draws: int = 1000, seed: int = 0, clusters: Places | None = None
) -> Floats:
    """The mean of each column in each draw: (draws x columns).

    `values` is (items x columns), NaN where a column lacks an item; such items are left out of that column's mean.
    A draw with nothing of a column is NaN. `clusters` gives each item's cluster; None: each item is its own.
    """
    everything = np.zeros(len(values), dtype=np.int_)
    return bootstrap_groups(
        values, everything, 1, draws=draws, seed=seed, clusters=clusters
    )[:, 0]


def bootstrap_groups(
    values: Floats,
    groups: Places,
    count: int,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Floats:
    """The mean of each column within each group in each draw: (draws x count x columns).

    `groups` gives each item's group, 0 to count-1, or -1 for none. All items are drawn, whatever their group, so
    that figures of different groups are paired. Otherwise as `bootstrap_means`.
    """
    present = ~np.isnan(values)
    above, below = np.where(present, values, 0.0), present.astype(np.float64)
    return bootstrap_ratios(
        above, below, groups, count, draws=draws, seed=seed, clusters=clusters
    )


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
    both, columns = np.concatenate([above, below], axis=1), above.shape[1]
    members = [np.flatnonzero(groups == group) for group in range(count)]
    out = np.full((draws, count, columns), np.nan)
    start = 0
    for weights in weight_chunks(
        len(above) if clusters is None else clusters, draws, seed
    ):
        for group, rows in enumerate(members):
            if not len(rows):
                continue
            sums = (weights if len(rows) == len(above) else weights[:, rows]) @ both[
                rows
            ]
            with np.errstate(invalid="ignore", divide="ignore"):
                out[start : start + len(weights), group] = (
                    sums[:, :columns] / sums[:, columns:]
                )
        start += len(weights)
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
    """The 95 % interval of each column's mean (`mean_bounds`): (lows, highs), NaN where `support` is not enough.

    `values` is (items x columns), NaN where there is none; `drawn` is (draws x columns), their means.
    """
    known = ~np.isnan(values)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # NumPy warns of columns that are all NaN
        mean, spread = np.nanmean(values, axis=0), np.nanstd(drawn, axis=0)
    unit = ((values >= 0) & (values <= 1) | ~known).all(axis=0)
    ends = mean_bounds(mean, spread, cluster_counts(known, clusters), unit)
    enough = support(values, clusters).enough()
    low, high = (np.where(enough, end, np.nan) for end in ends)
    return low, high


def support(values: Floats, clusters: Places | None = None) -> Support:
    """What the intervals of means of (items x columns) are based on; NaN where a column lacks an item.

    What counts is how far values lie from the nearer end of [0, 1]. Of values beyond it, how far from 0: their
    interval is Student's.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    n = np.maximum(known.sum(axis=0), 1)
    # As in `support_of`, the order of a sum must not decide.
    low_half = (filled.sum(axis=0) <= n / 2 + 1e-9) | (filled > 1).any(axis=0)
    distance = np.where(low_half, np.abs(filled), np.where(known, 1 - filled, 0.0))
    sums = cluster_sums(distance, clusters)
    return support_of(sums, cluster_counts(known, clusters))


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
        value, low, high = (
            None if x is None else -x for x in (self.difference, self.high, self.low)
        )
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=value,
            low=low,
            high=high,
        )


LEAST_PAIRS: Final = 10
"""Clusters from which a paired difference has an interval."""


def compare(
    names: Sequence[str],
    values: Floats,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> list[Comparison]:
    """Every pair of columns of `values` (items x columns, NaN where absent), paired on common items.

    A pair without enough differences has no interval, and p by permutation of signs (`sign_p`).

    Intervals and p are those of `medlive.statistics.intervals.paired`: a percentile of 1,000 draws is too coarse
    for Holm's correction over many pairs. `clusters` as in `bootstrap_means`.
    """
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    # A block of columns at a time: 703 pairs of 38 models over 200,000 cases would not fit.
    block = max(1, 2_000_000 // max(1, len(values)))
    raw: list[Comparison] = []
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        differences = np.stack([values[:, i] - values[:, j] for i, j in part], axis=1)
        known = ~np.isnan(differences)
        compared = compare_paired(
            differences, draws=draws, seed=seed, clusters=clusters
        )
        reasons = pair_support(differences, clusters).reasons(LEAST_PAIRS)
        for k, (i, j) in enumerate(part):
            mean, low, high = (
                None if np.isnan(x) else float(x) for x in compared[:3, k]
            )
            n, p = int(known[:, k].sum()), float(compared[3, k])
            raw.append(
                Comparison(
                    first=names[i],
                    second=names[j],
                    n=n,
                    difference=mean,
                    low=low,
                    high=high,
                    p=p,
                    p_holm=1.0,
                    why=reasons[k] if n else "",
                )
            )
    corrected = holm([comparison.p for comparison in raw])
    return [
        replace(comparison, p_holm=p)
        for comparison, p in zip(raw, corrected, strict=True)
    ]


def compare_paired(
    differences: Floats,
    *,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Floats:
    """The mean, low, high and p of each column of differences (items x columns, NaN for absent): (4 x columns)."""
    sides = np.concatenate(
        [np.maximum(differences, 0.0), np.maximum(-differences, 0.0)], axis=1
    )
    drawn = bootstrap_means(sides, draws=draws, seed=seed, clusters=clusters)
    known = ~np.isnan(differences)
    unit = (np.abs(differences) <= 1).sum(axis=0) == known.sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # NumPy warns of columns that are all NaN
        gains, losses = np.nanmean(sides, axis=0).reshape(2, -1)
        counts = cluster_counts(known, clusters)
        total = np.nansum(np.abs(differences), axis=0)
        size = np.where(
            total > 0,
            np.nansum(differences**2, axis=0) / np.maximum(total, 1e-300),
            1.0,
        )
        differing = cluster_counts(known & (differences != 0), clusters)
        low, high, p = paired(
            gains,
            losses,
            np.minimum(size, 1.0),
            drawn.reshape(len(drawn), 2, -1),
            counts,
            differing,
            unit,
        )
    based_on = pair_support(differences, clusters)
    enough = based_on.enough(LEAST_PAIRS)
    sums = cluster_sums(np.where(known, differences, 0.0), clusters)
    for column in np.flatnonzero(~enough):
        p[column] = sign_p(sums[:, column], seed)
    low, high = (np.where(enough, end, np.nan) for end in (low, high))
    return np.stack([gains - losses, low, high, p])


def pair_support(differences: Floats, clusters: Places | None = None) -> Support:
    """What the intervals of mean differences are based on."""
    known = ~np.isnan(differences)
    sizes = np.where(known, np.abs(differences), 0.0)
    return support_of(cluster_sums(sizes, clusters), cluster_counts(known, clusters))


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
    corrected = list(p_values)
    known = [place for place, p in enumerate(corrected) if p is not None]
    for place, p in zip(known, holm([corrected[k] or 0.0 for k in known]), strict=True):
        corrected[place] = p
    return corrected


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
    drawn = []
    for weights in weight_chunks(k, draws, seed):
        counts = (weights @ flat).reshape(len(weights), *cells.shape[1:])
        drawn.append(statistic(counts))
    return with_interval(value, np.concatenate(drawn), items, k)


def with_interval(value: float, drawn: Floats, n: int, clusters: int) -> Estimate:
    """A value with the interval of its draws, where they give one."""
    bounds = interval(drawn)
    undefined = float(np.isnan(drawn).mean()) if len(drawn) else 1.0
    why = ""
    if clusters < LEAST_CLUSTERS:
        why = f"{clusters} clusters are too few for an interval"
    elif undefined > MOST_UNDEFINED:
        why = f"not defined in {undefined:.0%} of the draws"
    elif bounds is not None and bounds[0] == bounds[1]:
        why = "all draws give the same value: too few differ for an interval"
    low, high = (None, None) if why or bounds is None else bounds
    return Estimate(value, low, high, n, clusters, why)


def ratio_of(sums: Floats) -> Floats:
    """The first of two sums by the second, along the last axis; NaN for 0 / 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])
