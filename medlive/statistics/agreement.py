"""Agreement between raters: Gwet's AC1, Cohen's kappa and macro-F1 (docs/method.md §3).

Each comes for labels, and as a function of counts over the last axes (`…_of_tables`, `…_of_sums`): counts add up
over cases, so that one product of weights and counts gives every draw of a bootstrap.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import Floats


def ac1(first: Sequence[Hashable], second: Sequence[Hashable], categories: int | None = None) -> float | None:
    """Gwet's AC1 of two raters over the same items.

    `categories` is Q, by default the number of labels that occur; with one category there is nothing to agree
    about and the result is 1. None without an item. AC1 = (p_a - p_e) / (1 - p_e) with p_a the share of equal
    ratings, π_q the mean of the two marginals, and p_e = Σ π_q (1 - π_q) / (Q - 1). Raises ValueError for
    sequences of different lengths or for fewer categories than labels.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} ratings")
    n = len(first)
    if not n:
        return None
    marginals = Counter(first) + Counter(second)
    q = len(marginals) if categories is None else categories
    if q < len(marginals):
        raise ValueError(f"{len(marginals)} labels occur, {q} categories were named")
    if q < 2:
        return 1.0
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    chance = sum((c / (2 * n)) * (1 - c / (2 * n)) for c in marginals.values()) / (q - 1)
    return (agreed - chance) / (1 - chance)


def macro_f1(
    truth: Sequence[Hashable], said: Sequence[Hashable | None], labels: Sequence[Hashable]
) -> float | None:
    """The unweighted mean over `labels` of F1 = 2TP / (2TP + FP + FN); None without an item.

    None in `said` is an invalid rating: it is wrong for the true label and is no rating of another. A label that
    neither side used has F1 0, as scikit-learn counts it for labels that are named.
    """
    if len(truth) != len(said):
        raise ValueError(f"{len(truth)} and {len(said)} ratings")
    if not truth:
        return None
    total = 0.0
    for label in labels:
        hits = sum(1 for t, s in zip(truth, said, strict=True) if t == label == s)
        misses = sum(1 for t in truth if t == label) + sum(1 for s in said if s == label) - 2 * hits
        total += 2 * hits / (2 * hits + misses) if hits else 0.0
    return total / len(labels)


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two raters over the same items; None without an item, or where chance alone makes them
    agree always. Raises ValueError for sequences of different lengths."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} ratings")
    names = {label: place for place, label in enumerate(dict.fromkeys([*first, *second]))}
    table = np.zeros((len(names), len(names)))
    for a, b in zip(first, second, strict=True):
        table[names[a], names[b]] += 1
    value = float(kappa_of_tables(table)) if len(first) else float("nan")
    return None if np.isnan(value) else value


def ac1_raters(ratings: Sequence[Sequence[Hashable | None]], categories: int | None = None) -> float | None:
    """Gwet's AC1 of any number of raters: items x raters, None where a rater did not rate.

    p_a is the mean over items with two ratings or more of the share of equal pairs; π_q the mean over rated items
    of the share of ratings that are q (Gwet 2008). None where no item has two ratings. `categories` as in `ac1`.
    """
    seen = {
        label: place for place, label in enumerate(dict.fromkeys(r for i in ratings for r in i if r is not None))
    }
    q = len(seen) if categories is None else categories
    if q < len(seen):
        raise ValueError(f"{len(seen)} labels occur, {q} categories were named")
    codes = np.array([[-1 if r is None else seen[r] for r in item] for item in ratings], dtype=np.int_)
    if not codes.size:
        return None
    value = float(ac1_of_sums(rater_sums(codes, q).sum(axis=0)))
    return None if np.isnan(value) else value


def rater_sums(codes: NDArray[np.int_], categories: int) -> Floats:
    """What AC1 of several raters adds up over items: (items x 3 + categories).

    `codes` is (items x raters), 0 to categories-1, or -1 for no rating. The columns are: the share of equal pairs,
    whether there is a pair, whether there is a rating, and the share of the ratings that are each category.
    """
    counts = np.stack([(codes == q).sum(axis=1) for q in range(categories)], axis=1).astype(np.float64)
    rated = counts.sum(axis=1)
    paired = rated >= 2
    pairs = np.where(paired, rated * (rated - 1), 1.0)
    equal = np.where(paired, (counts * (counts - 1)).sum(axis=1) / pairs, 0.0)
    shares = counts / np.maximum(rated, 1.0)[:, None]
    return np.column_stack([equal, paired, rated >= 1, shares])


def ac1_of_sums(sums: Floats) -> Floats:
    """AC1 of several raters from sums of `rater_sums` along the last axis; NaN where no item has a pair."""
    q = sums.shape[-1] - 3
    with np.errstate(invalid="ignore", divide="ignore"):
        agreed = sums[..., 0] / sums[..., 1]
        if q < 2:
            return np.where(np.isnan(agreed), np.nan, 1.0)
        shares = sums[..., 3:] / sums[..., 2:3]
        chance = (shares * (1 - shares)).sum(axis=-1) / (q - 1)
        return np.asarray((agreed - chance) / (1 - chance))


def equal_of_tables(tables: Floats) -> Floats:
    """The share of equal ratings of tables (… x Q x Q), first rater by second; NaN for an empty one."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.trace(tables, axis1=-2, axis2=-1) / tables.sum(axis=(-2, -1)))


def ac1_of_tables(tables: Floats) -> Floats:
    """AC1 of tables (… x Q x Q) of at least two categories; NaN for an empty one."""
    q = tables.shape[-1]
    n = tables.sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (tables.sum(axis=-1) + tables.sum(axis=-2)) / (2 * n[..., None])
        chance = (shares * (1 - shares)).sum(axis=-1) / (q - 1)
        return np.asarray((equal_of_tables(tables) - chance) / (1 - chance))


def kappa_of_tables(tables: Floats) -> Floats:
    """Cohen's kappa of tables (… x Q x Q); NaN for an empty one and where both use one category alone."""
    n = tables.sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1) / n**2
        value = (equal_of_tables(tables) - chance) / (1 - chance)
    return np.where(np.isclose(chance, 1.0, rtol=0, atol=1e-12), np.nan, value)


def macro_f1_of_tables(tables: Floats, *, occurring: bool = False) -> Floats:
    """Macro-F1 of tables (… x labels x said): row the true label, column what was said of it.

    Columns beyond the labels are invalid ratings, which are wrong and no rating of a label. As `macro_f1`; NaN for
    an empty table. `occurring` takes the mean over those labels alone that one side used, so that full agreement
    on a single label is 1 and not 1/2: for tables as small as a case's.
    """
    labels = tables.shape[-2]
    hits = np.diagonal(tables[..., :labels], axis1=-2, axis2=-1)
    used = tables.sum(axis=-1) + tables[..., :labels].sum(axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(used > 0, 2 * hits / used, 0.0)
        mean = each.sum(axis=-1) / (used > 0).sum(axis=-1) if occurring else each.mean(axis=-1)
        return np.where(tables.sum(axis=(-2, -1)) > 0, mean, np.nan)
