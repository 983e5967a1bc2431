"""Physicians' ratings of the cases: coherence of the narrative, quality of the advice, validity of each criterion.

As LiveMedBench's Table 1, shown on a study's page. Scales: 0 to 2 for narrative with query and for the advice, 0
or 1 for a criterion; 1 or more means agreement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from .agreement import macro_f1_of_tables
from .bootstrap import Draws
from .estimate import Estimate, estimate
from .intervals import Floats
from .raters import LEAST_ITEMS, equal_and_ac1, mean_of

ASPECTS: Mapping[str, int] = {
    "narrative_and_query": 3,
    "advice": 3,
    "criterion": 2,
}
"""The rated aspects, with the number of values on their scales."""


@dataclass(frozen=True)
class AspectQuality:
    """Figures for one aspect, with 95 % intervals over bootstrap draws of cases."""

    aspect: str
    values: int  # How many the aspect's scale has
    raters: Mapping[str, Estimate]
    """The share of each rater's ratings that are 1 or more."""
    ac1: Estimate
    """Over all raters at once, on the original values."""
    equal: Estimate
    macro_f1: Estimate
    """The mean over pairs of raters, over the values of the scale; either may be the reference."""

    @property
    def name(self) -> str:
        """The aspect in words."""
        return self.aspect.replace("_", " ")


def aspect_figures(
    aspect: str,
    cases: Mapping[str, str],
    ratings: Mapping[str, Mapping[str, int]],
    raters: Sequence[str],
    **how: Unpack[Draws],
) -> AspectQuality:
    """The figures of an aspect.

    Args:
        aspect: One of `ASPECTS`.
        cases: Item → its case. The draws depend on the order of the items.
        ratings: Item → rater → value; items that nobody rated are passed over.
        raters: The raters whose ratings count.
        how: How cases are drawn.
    """
    values = ASPECTS[aspect]
    rated = [item for item in cases if item in ratings]
    codes = np.empty(
        (len(rated), len(raters)),
        dtype=np.int_,
    )
    clusters = np.empty(len(rated), dtype=np.int_)
    places: dict[str, int] = {}
    for row, item in enumerate(rated):
        codes[row] = [ratings[item].get(rater, -1) for rater in raters]
        clusters[row] = places.setdefault(
            cases[item],
            len(places),
        )
    shares = {}
    for rater, column in zip(raters, codes.T, strict=True):
        kept = column >= 0
        agreed = (column[kept] >= 1).astype(np.float64)
        shares[rater] = mean_of(
            agreed,
            clusters[kept],
            **how,
        )
    equal, ac1 = equal_and_ac1(
        codes,
        values,
        clusters,
        **how,
    )
    macro_f1 = equal
    several = (codes >= 0).sum(axis=1) > 1
    if several.sum() >= LEAST_ITEMS:
        # -1 (no rating) takes the last row, which is all zeros without its last column.
        rated_as = np.eye(values + 1)[codes[several]][..., :values]
        first, second = np.triu_indices(len(raters), 1)
        # (items x pairs of raters x values x values)
        tables = rated_as[:, first, :, None] * rated_as[:, second, None, :]
        macro_f1 = estimate(
            tables,
            _mean_macro_f1,
            clusters[several],
            **how,
        )
    return AspectQuality(
        aspect=aspect,
        values=values,
        raters=shares,
        ac1=ac1,
        equal=equal,
        macro_f1=macro_f1,
    )


def _mean_macro_f1(tables: Floats) -> Floats:
    """The mean over the pairs that rated anything in common; NaN where none did."""
    of_pairs = macro_f1_of_tables(tables)
    n = (~np.isnan(of_pairs)).sum(axis=-1)
    mean = np.nansum(of_pairs, axis=-1) / np.maximum(n, 1)
    return np.where(n > 0, mean, np.nan)
