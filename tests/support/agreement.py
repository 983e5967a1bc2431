"""Agreement of raters from their labels, as a reference for the functions of counts that the program uses."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from medlive.statistics.agreement import ac1_of_sums, kappa_of_tables, rater_sums


def ac1(
    first: Sequence[Hashable], second: Sequence[Hashable], categories: int | None = None
) -> float | None:
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
    chance = sum((c / (2 * n)) * (1 - c / (2 * n)) for c in marginals.values()) / (
        q - 1
    )
    return (agreed - chance) / (1 - chance)


def macro_f1(
    truth: Sequence[Hashable],
    said: Sequence[Hashable | None],
    labels: Sequence[Hashable],
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
        misses = (
            sum(1 for t in truth if t == label)
            + sum(1 for s in said if s == label)
            - 2 * hits
        )
        total += 2 * hits / (2 * hits + misses) if hits else 0.0
    return total / len(labels)


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two raters over the same items; None without an item, or where chance alone makes them
    agree always. Raises ValueError for sequences of different lengths."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} ratings")
    names = {
        label: place for place, label in enumerate(dict.fromkeys([*first, *second]))
    }
    table = np.zeros((len(names), len(names)))
    for a, b in zip(first, second, strict=True):
        table[names[a], names[b]] += 1
    value = float(kappa_of_tables(table)) if len(first) else float("nan")
    return None if np.isnan(value) else value


def ac1_raters(
    ratings: Sequence[Sequence[Hashable | None]], categories: int | None = None
) -> float | None:
    """Gwet's AC1 of any number of raters: items x raters, None where a rater did not rate.

    p_a is the mean over items with two ratings or more of the share of equal pairs; π_q the mean over rated items
    of the share of ratings that are q (Gwet 2008). None where no item has two ratings. `categories` as in `ac1`.
    """
    seen = {
        label: place
        for place, label in enumerate(
            dict.fromkeys(r for i in ratings for r in i if r is not None)
        )
    }
    q = len(seen) if categories is None else categories
    if q < len(seen):
        raise ValueError(f"{len(seen)} labels occur, {q} categories were named")
    codes = np.array(
        [[-1 if r is None else seen[r] for r in item] for item in ratings],
        dtype=np.int_,
    )
    if not codes.size:
        return None
    value = float(ac1_of_sums(rater_sums(codes, q).sum(axis=0)))
    return None if np.isnan(value) else value
