"""Agreement between raters: Gwet's AC1 and macro-F1 (docs/method.md §3)."""

from collections import Counter
from collections.abc import Hashable, Sequence


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
