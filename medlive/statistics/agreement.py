"""Agreement between raters: Gwet's AC1, Cohen's kappa and macro-F1 (docs/method.md §3).

Each is computed from counts along the last axes. Counts add up over cases, so that one product of weights and
counts gives every draw of a bootstrap.
"""

import numpy as np

from .intervals import Floats, Places, quotient


def rater_sums(
    codes: Places,
    categories: int,
) -> Floats:
    """What `ac1_of_sums` needs of each item, to be summed over items: (items x 3 + categories).

    `codes` is (items x raters), 0 to categories-1, or -1 for no rating. The columns are: the share of equal pairs,
    whether there is a pair, whether there is a rating, and the share of the ratings that are each category.
    """
    counts = np.zeros((len(codes), categories))
    for category in range(categories):
        counts[:, category] = (codes == category).sum(axis=1)
    rated = counts.sum(axis=1)
    paired = rated >= 2
    pairs = np.where(
        paired,
        rated * (rated - 1),
        1.0,
    )
    equal_pairs = (counts * (counts - 1)).sum(axis=1)
    return np.column_stack(
        [
            np.where(paired, equal_pairs / pairs, 0.0),
            paired,
            rated >= 1,
            counts / np.maximum(rated, 1.0)[:, None],
        ]
    )


def ac1_of_sums(sums: Floats) -> Floats:
    """AC1 of several raters from sums of `rater_sums` along the last axis; NaN where no item has a pair."""
    return _ac1(
        equal=quotient(sums[..., 0], sums[..., 1]),
        shares=quotient(sums[..., 3:], sums[..., 2:3]),
    )


def _ac1(equal: Floats, shares: Floats) -> Floats:
    """AC1 from the share of equal pairs and each category's share of the ratings; 1 with one category."""
    categories = shares.shape[-1]
    if categories < 2:
        return np.where(
            np.isnan(equal),
            np.nan,
            1.0,
        )
    by_category = shares * (1 - shares)
    chance = by_category.sum(axis=-1) / (categories - 1)
    return quotient(equal - chance, 1 - chance)


def equal_of_tables(tables: Floats) -> Floats:
    """The share of equal ratings in tables (… x Q x Q) of two raters, Q categories each; NaN for an empty table."""
    equal = np.trace(tables, axis1=-2, axis2=-1)
    return quotient(
        equal,
        tables.sum(axis=(-2, -1)),
    )


def ac1_of_tables(tables: Floats) -> Floats:
    """AC1 of tables (… x Q x Q) of at least two categories; NaN for an empty table."""
    ratings = tables.sum(axis=-1) + tables.sum(axis=-2)
    return _ac1(
        equal=equal_of_tables(tables),
        shares=quotient(ratings, ratings.sum(axis=-1, keepdims=True)),
    )


def kappa_of_tables(tables: Floats) -> Floats:
    """Cohen's kappa of tables (… x Q x Q); NaN for an empty table and where both raters use one category alone."""
    n = tables.sum(axis=(-2, -1))
    by_first = tables.sum(axis=-1)
    by_second = tables.sum(axis=-2)
    expected = (by_first * by_second).sum(axis=-1)
    chance = quotient(expected, n**2)
    is_certain = np.isclose(
        chance,
        1.0,
        rtol=0,
        atol=1e-12,
    )
    kappa = quotient(equal_of_tables(tables) - chance, 1 - chance)
    return np.where(is_certain, np.nan, kappa)


def macro_f1_of_tables(
    tables: Floats,
    *,
    occurring: bool = False,
) -> Floats:
    """Macro-F1, the mean of the labels' F1, of tables (… x true labels x ratings); NaN for an empty table.

    Columns beyond the labels are invalid ratings, which are wrong and no rating of a label. A label that occurs
    neither as true nor as a rating counts as 0. `occurring` leaves such labels out, so that full agreement on a
    single label is 1 and not 1/2: for tables as small as a case's.
    """
    labels = tables.shape[-2]
    valid = tables[..., :labels]
    hits = np.diagonal(valid, axis1=-2, axis2=-1)
    uses = tables.sum(axis=-1) + valid.sum(axis=-2)
    is_used = uses > 0
    of_label = np.where(
        is_used,
        quotient(2 * hits, uses),
        0.0,
    )
    counted = is_used.sum(axis=-1) if occurring else labels
    mean = quotient(of_label.sum(axis=-1), counted)
    is_empty = tables.sum(axis=(-2, -1)) <= 0
    return np.where(is_empty, np.nan, mean)
