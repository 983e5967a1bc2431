"""Physicians' ratings of the cases: coherence of the narrative, quality of the advice, validity of each criterion.

As LiveMedBench's Table 1, shown on a study's page. Scales: 0 to 2 for narrative with query and for the advice, 0
or 1 for a criterion; 1 or more means agreement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.agreement import ac1_of_sums, macro_f1_of_tables, rater_sums
from medlive.statistics.bootstrap import Draws, Estimate, Floats, estimate, ratio_of
from medlive.statistics.raters import LEAST_ITEMS, mean_of

Ratings = dict[str, dict[str, int]]
"""By item and rater."""

ASPECTS: Final[Mapping[str, int]] = {
    "narrative_and_query": 3,
    "advice": 3,
    "criterion": 2,
}
"""The rated aspects, with the number of values on their scales."""


class RatedItem(NamedTuple):
    """One aspect of one case."""

    id: str
    case_id: str
    aspect: str


@dataclass(frozen=True, slots=True)
class RaterShare:
    """The share of one rater's ratings that are 1 or more."""

    rater: str
    agreed: Estimate


@dataclass(frozen=True, slots=True)
class AspectQuality:
    """Figures for one aspect, with 95 % intervals over bootstrap draws of cases."""

    aspect: str
    values: int
    raters: tuple[RaterShare, ...]
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
    items: Iterable[RatedItem],
    ratings: Ratings,
    raters: Sequence[str],
    **how: Unpack[Draws],
) -> tuple[AspectQuality, ...]:
    """The figures of each aspect of cases, whatever else was rated.

    The draws depend on the order of the items, not on that of `ratings`.
    """
    rated: dict[str, list[RatedItem]] = {aspect: [] for aspect in ASPECTS}
    for item in items:
        if item.aspect in rated and item.id in ratings:
            rated[item.aspect].append(item)
    figures = []
    for aspect, own in rated.items():
        figures.append(_aspect(aspect, own, ratings, raters, **how))
    return tuple(figures)


def _aspect(
    aspect: str,
    rated: Sequence[RatedItem],
    ratings: Ratings,
    raters: Sequence[str],
    **how: Unpack[Draws],
) -> AspectQuality:
    values = ASPECTS[aspect]
    codes = np.empty((len(rated), len(raters)), dtype=np.int_)
    clusters = np.empty(len(rated), dtype=np.int_)
    cases: dict[str, int] = {}
    for row, item in enumerate(rated):
        codes[row] = [ratings[item.id].get(rater, -1) for rater in raters]
        clusters[row] = cases.setdefault(item.case_id, len(cases))
    shares = []
    for rater, column in zip(raters, codes.T, strict=True):
        kept = column >= 0
        agreed = (column[kept] >= 1).astype(np.float64)
        shares.append(RaterShare(rater, mean_of(agreed, clusters[kept], **how)))
    several = (codes >= 0).sum(axis=1) > 1
    n = int(several.sum())
    why = f"{n} items with two raters are too few"
    ac1 = equal = macro_f1 = Estimate(None, n=n, clusters=0, why=why)
    if n >= LEAST_ITEMS:
        codes, clusters = codes[several], clusters[several]
        sums, tables = rater_sums(codes, values), _pair_tables(codes, values)
        ac1 = estimate(sums, ac1_of_sums, clusters, **how)
        equal = estimate(sums[:, :2], ratio_of, clusters, **how)
        macro_f1 = estimate(tables, _mean_macro_f1, clusters, **how)
    return AspectQuality(aspect, values, tuple(shares), ac1, equal, macro_f1)


def _pair_tables(codes: NDArray[np.int_], values: int) -> Floats:
    """What each item adds to the table of each pair of raters: (items x pairs x values x values)."""
    # The last row, which -1 names, is of zeros: no rating
    rated = np.eye(values + 1)[codes][..., :values]
    first, second = np.triu_indices(codes.shape[1], 1)
    tables: Floats = rated[:, first, :, None] * rated[:, second, None, :]
    return tables


def _mean_macro_f1(tables: Floats) -> Floats:
    """The mean over the pairs that rated anything in common; NaN where none did."""
    each = macro_f1_of_tables(tables)
    n = (~np.isnan(each)).sum(axis=-1)
    return np.where(n > 0, np.nansum(each, axis=-1) / np.maximum(n, 1), np.nan)
