"""The seeded bootstrap, with one matrix of weights for every model and slice; paired comparisons; estimates."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TAILS: Final = ((1 - 0.95) / 2 * 100, 100 - (1 - 0.95) / 2 * 100)
_CHUNK: Final = 16_000_000
"""Weights held at a time, so that memory stays flat however many clusters there are."""


def weight_chunks(clusters: int, draws: int, seed: int) -> Iterator[Floats]:
    """Rows of resampling weights, (some draws x clusters), `draws` rows in all: how often a draw, with
    replacement, takes each cluster. The rows depend on the seed alone and not on how they are cut."""
    if clusters * draws <= _CHUNK:
        yield _kept(clusters, draws, seed)
        return
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // max(1, clusters))
    for start in range(0, draws, step):
        yield _rows(rng, min(step, draws - start), clusters)


@lru_cache(maxsize=1)
def _kept(clusters: int, draws: int, seed: int) -> Floats:
    """The one matrix of a table, made once for its models, slices and pairs."""
    return _rows(np.random.default_rng(seed), draws, clusters)


def _rows(rng: np.random.Generator, rows: int, clusters: int) -> Floats:
    out = np.empty((rows, clusters))
    for row in range(rows):
        out[row] = np.bincount(rng.integers(0, clusters, size=clusters), minlength=clusters)
    # A cluster's weights side by side: groups of clusters are taken out of it again and again.
    return np.asfortranarray(out)


def bootstrap_means(values: Floats, *, draws: int = 1000, seed: int = 0) -> Floats:
    """The mean of each column in each draw: (draws x columns).

    `values` is (items x columns), NaN where a column lacks an item; such items are left out of that column's mean.
    A draw with nothing of a column is NaN.
    """
    present = ~np.isnan(values)
    sums, counts = np.where(present, values, 0.0), present.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([(w @ sums) / (w @ counts) for w in weight_chunks(len(values), draws, seed)])


def bootstrap_groups(
    values: Floats, groups: NDArray[np.int_], count: int, *, draws: int = 1000, seed: int = 0
) -> Floats:
    """The mean of each column within each group in each draw: (draws x count x columns).

    `groups` gives each item's group, 0 to count-1, or -1 for none. All items are drawn, whatever their group, so
    that figures of different groups are paired. Otherwise as `bootstrap_means`.
    """
    present = ~np.isnan(values)
    return bootstrap_ratios(
        np.where(present, values, 0.0), present.astype(np.float64), groups, count, draws=draws, seed=seed
    )


def bootstrap_ratios(
    above: Floats, below: Floats, groups: NDArray[np.int_], count: int, *, draws: int = 1000, seed: int = 0
) -> Floats:
    """Σ above / Σ below over a draw's items, by group and column: (draws x count x columns); NaN for 0 / 0.

    Both are (items x columns), without NaN. As `bootstrap_groups` otherwise.
    """
    both, columns = np.concatenate([above, below], axis=1), above.shape[1]
    members = [np.flatnonzero(groups == group) for group in range(count)]
    out = np.full((draws, count, columns), np.nan)
    start = 0
    for weights in weight_chunks(len(above), draws, seed):
        for group, rows in enumerate(members):
            if not len(rows):
                continue
            sums = (weights if len(rows) == len(above) else weights[:, rows]) @ both[rows]
            with np.errstate(invalid="ignore", divide="ignore"):
                out[start : start + len(weights), group] = sums[:, :columns] / sums[:, columns:]
        start += len(weights)
    return out


def interval(drawn: Floats) -> tuple[float, float] | None:
    """The 95 % percentile interval of a column of drawn means; None when no draw has a value."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return None
    low, high = np.percentile(known, _TAILS)
    return float(low), float(high)


def intervals(drawn: Floats) -> tuple[Floats, Floats]:
    """`interval` of every column at once, draws along the first axis: (lows, highs), NaN where no draw has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of columns that are all NaN
        found = np.nanpercentile(drawn, _TAILS, axis=0) if drawn.size else np.full((2, *drawn.shape[1:]), np.nan)
    return found[0], found[1]


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


def compare(names: Sequence[str], values: Floats, *, draws: int = 1000, seed: int = 0) -> list[Comparison]:
    """Every pair of columns of `values` (items x columns, NaN where absent), paired on common items.

    p is Student's, of the difference by its bootstrap standard error, for a percentile of 1,000 draws is too
    coarse for Holm's correction over many pairs. With n items it has n - 1 degrees of freedom, the error is the
    draws' times √(n / (n - 1)) (which makes it the t-test's), and p is never below 2^(1-n), which is all that n
    signs could show.
    """
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    # A block of columns at a time: 703 pairs of 38 models over 200,000 cases would not fit.
    block = max(1, 4_000_000 // max(1, len(values)))
    raw: list[Comparison] = []
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        differences = np.stack([values[:, i] - values[:, j] for i, j in part], axis=1)
        drawn = bootstrap_means(differences, draws=draws, seed=seed)
        for column, (i, j) in enumerate(part):
            raw.append(_pair(names[i], names[j], differences[:, column], drawn[:, column]))
    return [replace(c, p_holm=p) for c, p in zip(raw, holm([c.p for c in raw]), strict=True)]


def _pair(first: str, second: str, differences: Floats, drawn: Floats) -> Comparison:
    known = differences[~np.isnan(differences)]
    n, bounds = len(known), interval(drawn)
    if not n or bounds is None:
        return Comparison(first, second, n, None, None, None, 1.0, 1.0)
    mean = float(known.mean())
    return Comparison(first, second, n, mean, *bounds, _p_of(mean, float(np.nanstd(drawn)), n), 1.0)


def _p_of(difference: float, spread: float, n: int) -> float:
    if abs(difference) < 1e-12 or n < 2:
        return 1.0
    freedom = n - 1
    floor = 2.0**-freedom if freedom < 1000 else 0.0
    if spread <= 1e-12:
        return floor
    t = difference / spread * math.sqrt(freedom / n)
    return max(floor, incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = highest
    return corrected


@dataclass(frozen=True, slots=True)
class Standing:
    """A model's place: `group` counts ties from 1, and the rank may truly be anything in [best, worst]."""

    name: str
    group: int
    rank_best: int
    rank_worst: int


def tie_groups(
    scores: Mapping[str, float], comparisons: Sequence[Comparison], alpha: float = 0.05
) -> list[Standing]:
    """Models from the best score down; a group holds those not significantly below the group's first.

    Who is below whom is what their comparison says, on the cases that both have: where these are others than those
    of the scores, the scores alone may stand the other way round. rank_best is one more than the number of models
    that are significantly better, rank_worst the number of models less those significantly worse.
    """
    below = {
        (c.second, c.first) if c.difference > 0 else (c.first, c.second)
        for c in comparisons
        if c.difference and c.p_holm < alpha
    }
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


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method; it converges in O(√max(a, b)) steps."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


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
