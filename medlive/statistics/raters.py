"""Agreement of a grader with people, and of people with each other: by pair of raters, pooled, by case.

An item counts for two raters if both decided. A grader's reply without a verdict is invalid: wrong for macro-F1,
and not counted for AC1, kappa and rates (docs/method.md §3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics import agreement
from medlive.statistics.agreement import ac1_of_sums, macro_f1_of_tables, rater_sums
from medlive.statistics.bootstrap import (
    Estimate,
    Floats,
    estimate,
    no_estimate,
    ratio_of,
)

MET: Final = 0

NOT_MET: Final = 1

INVALID: Final = 2
"""The grader's reply had no verdict."""

ABSENT: Final = -1

LEAST_ITEMS: Final = 5
"""Two raters need this many common items for a figure."""

POOR: Final = 0.6
"""Cases with a lower macro-F1 agree poorly (ClinConsensus, appendix I.5)."""

Codes = NDArray[np.int_]


def code_of(met: bool | None) -> int:
    """The code of a verdict; ABSENT for no decision."""
    return ABSENT if met is None else MET if met else NOT_MET


@dataclass(frozen=True, slots=True)
class Panel:
    """Raters' codes on the same items."""

    raters: tuple[str, ...]
    people: Codes
    """(items x raters): MET, NOT_MET or ABSENT."""
    clusters: Codes
    """Each item's case, by its place in `cases`."""
    cases: tuple[str, ...]
    grader_name: str = "grader"
    agreed: Codes | None = None
    """(items): what people agreed on, else the adjudicator's decision; ABSENT: neither. Replaces the majority."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of verdict pairs; only the second rater can be invalid."""

    both_met: int
    first_only: int
    second_only: int
    neither: int
    invalid_met: int = 0
    invalid_not_met: int = 0

    @property
    def differing(self) -> int:
        """Items that only one of both calls met."""
        return self.first_only + self.second_only

    @property
    def invalid(self) -> int:
        """Items on which the second rater's reply had no verdict."""
        return self.invalid_met + self.invalid_not_met


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Agreement of two raters; the first is the reference for macro-F1."""

    first: str
    second: str
    confusion: Confusion
    equal: Estimate
    ac1: Estimate
    kappa: Estimate
    macro_f1: Estimate
    first_rate: Estimate
    """The share met, of the items that both decided."""
    second_rate: Estimate


@dataclass(frozen=True, slots=True)
class CaseAgreement:
    """The mean over people of the grader's macro-F1 on one case with n criteria."""

    case_id: str
    n: int
    macro_f1: float


@dataclass(frozen=True, slots=True)
class ByCase:
    """Macro-F1 by case, over the labels that occur in the case."""

    threshold: float
    mean: Estimate
    below: Estimate
    one_label: int
    """Cases in which people and the grader used only one label."""
    cases: tuple[CaseAgreement, ...]


@dataclass(frozen=True, slots=True)
class Strictness:
    """The share met by the grader and by people on the same items (of several people, their mean)."""

    grader: Estimate
    people: Estimate
    difference: Estimate
    """Grader minus people; below 0 the grader is stricter."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """All agreement figures of a panel."""

    people: tuple[PairAgreement, ...]
    people_ac1: Estimate
    """Of all raters at once."""
    people_macro_f1: Estimate
    """The mean over pairs, an upper bound for the grader."""
    grader: tuple[PairAgreement, ...]
    majority: PairAgreement | None
    """Against the majority, or with an adjudicator against the agreed or adjudicated verdict; None with fewer than
    three raters and no adjudicator."""
    majority_ties: int
    """Rated items without a majority or an adjudicated verdict, left out."""
    grader_ac1: Estimate
    """The mean over people."""
    grader_macro_f1: Estimate
    """The mean over people."""
    by_case: ByCase | None
    strictness: Strictness | None


def reliability(
    panel: Panel, grader: Codes, *, draws: int = 1000, seed: int = 0
) -> Reliability:
    """Compute every figure of a panel and a grader.

    `grader` has any of the four codes for each item. Intervals are over bootstrap draws of cases.
    """
    estimate_fn = partial(estimate, draws=draws, seed=seed)
    name, clusters = panel.grader_name, panel.clusters
    columns = dict(zip(panel.raters, panel.people.T, strict=True))
    people = []
    for first, second in combinations(columns, 2):
        a, b = columns[first], columns[second]
        people.append(agree(first, second, a, b, clusters, estimate_fn))
    with_grader = []
    for rater, codes in columns.items():
        with_grader.append(agree(rater, name, codes, grader, clusters, estimate_fn))
    label, truth = "adjudicated", panel.agreed
    if truth is None:
        label, truth = "majority", _majority(panel.people)
    majority = None
    if len(panel.raters) > 2 or panel.agreed is not None:
        majority = agree(label, name, truth, grader, clusters, estimate_fn)
    rated = (panel.people >= MET).any(axis=1)
    against = [(codes, grader) for codes in columns.values()]
    pairs = list(combinations(columns.values(), 2))
    return Reliability(
        people=tuple(people),
        people_ac1=_of_all(panel, estimate_fn),
        people_macro_f1=_mean_of(panel, pairs, estimate_fn),
        grader=tuple(with_grader),
        majority=majority,
        majority_ties=int((rated & (truth == ABSENT)).sum()),
        grader_ac1=_mean_of(panel, against, estimate_fn, agreement.ac1_of_tables, 2),
        grader_macro_f1=_mean_of(panel, against, estimate_fn),
        by_case=_by_case(panel, grader, estimate_fn),
        strictness=_strictness(panel, grader, estimate_fn),
    )


EstimateFn = Callable[..., Estimate]


def tables(first: Codes, second: Codes) -> Floats:
    """Make a confusion table for each item, (items x 2 x 3); zero where either rater has no code."""
    out = np.zeros((len(first), 2, 3))
    rows = np.flatnonzero((first >= MET) & (first <= NOT_MET) & (second != ABSENT))
    out[rows, first[rows], second[rows]] = 1.0
    return out


def agree(
    first: str,
    second: str,
    a: Codes,
    b: Codes,
    clusters: Codes,
    estimate_fn: EstimateFn,
) -> PairAgreement:
    """Compare two raters' codes (items) of so many cases (items)."""
    cells = tables(a, b)
    total = cells.sum(axis=0)
    counts = Confusion(*(int(x) for x in (*total[:, :2].ravel(), *total[:, 2])))
    rated = np.asarray(cells.any(axis=(1, 2)))
    decided = np.asarray(cells[..., :2].any(axis=(1, 2)))

    def of(
        which: NDArray[np.bool_], statistic: Callable[[Floats], Floats], width: int = 2
    ) -> Estimate:
        n = int(which.sum())
        if n < LEAST_ITEMS:
            return no_estimate(
                f"{n} common items are too few", n, len(set(clusters[which]))
            )
        return estimate_fn(cells[which][..., :width], statistic, clusters[which])

    return PairAgreement(
        first,
        second,
        counts,
        equal=of(decided, agreement.equal_of_tables),
        ac1=of(decided, agreement.ac1_of_tables),
        kappa=of(decided, agreement.kappa_of_tables),
        macro_f1=of(rated, macro_f1_of_tables, 3),
        first_rate=of(decided, lambda t: _share(t.sum(axis=-1), t)),
        second_rate=of(decided, lambda t: _share(t.sum(axis=-2), t)),
    )


def _share(marginal: Floats, counts: Floats) -> Floats:
    return ratio_of(np.stack([marginal[..., MET], counts.sum(axis=(-2, -1))], axis=-1))


def _mean_of(
    panel: Panel,
    pairs: Sequence[tuple[Codes, Codes]],
    estimate_fn: EstimateFn,
    statistic: Callable[[Floats], Floats] = macro_f1_of_tables,
    width: int = 3,
) -> Estimate:
    """The mean of a figure over pairs with enough common items; with `width` 3 invalid replies count as items."""
    cells = [tables(a, b)[..., :width] for a, b in pairs]
    kept = [cell for cell in cells if cell.sum() >= LEAST_ITEMS]
    if not kept:
        return no_estimate(f"no two raters have {LEAST_ITEMS} items in common")
    stacked = np.stack(kept, axis=1)
    used = stacked.any(axis=(1, 2, 3))
    return estimate_fn(
        stacked[used],
        lambda t: np.asarray(statistic(t).mean(axis=-1)),
        panel.clusters[used],
    )


def _of_all(panel: Panel, estimate_fn: EstimateFn) -> Estimate:
    rated = (panel.people >= MET).sum(axis=1)
    n = int((rated >= 2).sum())
    if n < LEAST_ITEMS:
        return no_estimate(f"{n} items with two raters are too few", n)
    some = rated >= 1
    return estimate_fn(
        rater_sums(panel.people[some], 2), ac1_of_sums, panel.clusters[some], n=n
    )


def _majority(people: Codes) -> Codes:
    met, not_met = (people == MET).sum(axis=1), (people == NOT_MET).sum(axis=1)
    return np.where(met > not_met, MET, np.where(not_met > met, NOT_MET, ABSENT))


def _by_case(panel: Panel, grader: Codes, estimate_fn: EstimateFn) -> ByCase:
    cells = np.stack([tables(column, grader) for column in panel.people.T], axis=1)
    sums = np.zeros((len(panel.cases), *cells.shape[1:]))
    np.add.at(sums, panel.clusters, cells)
    each = macro_f1_of_tables(sums, occurring=True)
    items = np.bincount(
        panel.clusters[cells.any(axis=(1, 2, 3))], minlength=len(panel.cases)
    )
    places = np.flatnonzero(~np.isnan(each).all(axis=1))
    values = np.nanmean(each[places], axis=1)
    labels = (sums.sum(axis=(1, 3)) + sums[..., :2].sum(axis=(1, 2)) > 0).sum(axis=1)
    ones = np.ones(len(values))
    poor = np.column_stack([values < POOR, ones]).astype(np.float64)
    cases = []
    for place, value in zip(places, values.tolist(), strict=True):
        cases.append(CaseAgreement(panel.cases[place], int(items[place]), value))
    return ByCase(
        threshold=POOR,
        mean=estimate_fn(np.column_stack([values, ones]), ratio_of, places),
        below=estimate_fn(poor, ratio_of, places),
        one_label=int((labels[places] == 1).sum()),
        cases=tuple(cases),
    )


def _strictness(panel: Panel, grader: Codes, estimate_fn: EstimateFn) -> Strictness:
    rated = (panel.people >= MET).sum(axis=1)
    both = (grader >= MET) & (grader <= NOT_MET) & (rated > 0)
    n = int(both.sum())
    if n < LEAST_ITEMS:
        none = no_estimate(f"{n} common items are too few", n)
        return Strictness(none, none, none)
    ours = (grader[both] == MET).astype(np.float64)
    theirs = (panel.people[both] == MET).sum(axis=1) / rated[both]

    def mean(values: Floats) -> Estimate:
        cells = np.column_stack([values, np.ones(n)])
        return estimate_fn(cells, ratio_of, panel.clusters[both])

    return Strictness(
        grader=mean(ours), people=mean(theirs), difference=mean(ours - theirs)
    )


def mean_of(
    values: Floats, clusters: Codes | None = None, *, draws: int = 1000, seed: int = 0
) -> Estimate:
    """The mean of one value per case; `clusters` as `cluster_numbers` gives them."""
    if not len(values):
        return no_estimate("no case")
    cells = np.column_stack([values, np.ones(len(values))])
    return estimate(
        cells,
        ratio_of,
        np.arange(len(values)) if clusters is None else clusters,
        draws=draws,
        seed=seed,
    )


def agreed_codes(codes: Codes, decisions: Codes) -> Codes:
    """The adjudicator's decision, else the unanimous verdict of two or more raters; else ABSENT (items)."""
    met, not_met = (codes == MET).sum(axis=1), (codes == NOT_MET).sum(axis=1)
    unanimous = np.where(
        (met > 1) & (not_met == 0),
        MET,
        np.where((not_met > 1) & (met == 0), NOT_MET, ABSENT),
    )
    return np.where(decisions >= MET, decisions, unanimous)
