"""How far a grader and people agree on criteria: pairs of raters, the pooled figures, case by case, strictness.

Missing is kept apart: an item counts for two raters where both decided. A grader's reply that held no verdict is
invalid: wrong for macro-F1, and left out of AC1, kappa and rates, whose n is what remains (docs/method.md §3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.agreement import (
    ac1_of_sums,
    ac1_of_tables,
    equal_of_tables,
    kappa_of_tables,
    macro_f1_of_tables,
    rater_sums,
)
from medlive.statistics.bootstrap import Floats
from medlive.statistics.estimate import Estimate, estimate, no_estimate, ratio_of

MET: Final = 0
NOT_MET: Final = 1
INVALID: Final = 2
"""A grader replied, and the reply held no verdict."""
ABSENT: Final = -1

LEAST_ITEMS: Final = 5
"""Two raters with fewer items in common get no figure."""
POOR: Final = 0.6
"""A case whose macro-F1 is below agrees poorly (ClinConsensus, appendix I.5)."""

Codes = NDArray[np.int_]


@dataclass(frozen=True, slots=True)
class Panel:
    """Raters' codes on the same items."""

    raters: tuple[str, ...]
    people: Codes
    """(items x raters): MET, NOT_MET or ABSENT."""
    clusters: Codes
    """Each item's case, by its place in `cases`."""
    cases: tuple[str, ...]
    grader: Codes | None = None
    """(items): any of the four codes; None: there is none."""
    grader_name: str = "grader"
    agreed: Codes | None = None
    """(items): what people agreed on, and where they did not, what their adjudicator said; ABSENT: neither. It
    stands in for the majority."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often the two said what; invalid is the second's alone."""

    both_met: int
    first_only: int
    """Met for the first, not for the second."""
    second_only: int
    neither: int
    invalid_met: int = 0
    """Met for the first, invalid of the second."""
    invalid_not_met: int = 0


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two raters; the first is the truth where the figure has one."""

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
    """A case: the mean over people of the grader's macro-F1 on it, over n criteria."""

    case_id: str
    n: int
    macro_f1: float


@dataclass(frozen=True, slots=True)
class ByCase:
    """The same case by case; in a case the mean is over the labels that occur in it."""

    threshold: float
    mean: Estimate
    below: Estimate
    """The share of cases under the threshold."""
    one_label: int
    """Cases in which people and grader used one label only."""
    cases: tuple[CaseAgreement, ...]


@dataclass(frozen=True, slots=True)
class Strictness:
    """The share met by the grader and by people on the same items (of several people, their mean)."""

    grader: Estimate
    people: Estimate
    difference: Estimate
    """Grader less people: below 0 is stricter than they are."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """All of it."""

    people: tuple[PairAgreement, ...]
    people_ac1: Estimate
    """Of all raters at once."""
    people_macro_f1: Estimate
    """The mean over pairs: what a grader could reach."""
    grader: tuple[PairAgreement, ...]
    """Against each rater."""
    majority: PairAgreement | None
    """Against what most raters said, or with an adjudicator ("adjudicated") what two agreed on or that one said;
    None without a grader, and without an adjudicator below three raters."""
    majority_ties: int
    """Rated items on which nothing such stands: left out of it."""
    grader_ac1: Estimate
    """The mean over people."""
    grader_macro_f1: Estimate
    """The mean over people."""
    by_case: ByCase | None
    strictness: Strictness | None


def reliability(panel: Panel, *, draws: int = 1000, seed: int = 0) -> Reliability:
    """Every figure of a panel; intervals are over draws of cases."""
    made = partial(estimate, draws=draws, seed=seed)
    several = range(len(panel.raters))
    columns = panel.people.T
    people = tuple(
        _pair(panel, panel.raters[i], panel.raters[j], columns[i], columns[j], made)
        for i, j in combinations(several, 2)
    )
    pairs = [(columns[i], columns[j]) for i, j in combinations(several, 2)]
    no_grader = no_estimate("there is no grader")
    if panel.grader is None:
        return Reliability(
            people,
            _of_all(panel, made),
            _mean_f1(panel, pairs, made),
            (),
            None,
            0,
            no_grader,
            no_grader,
            None,
            None,
        )
    against = [(column, panel.grader) for column in columns]
    truth, ties = _majority(panel.people)
    if panel.agreed is not None:
        truth, ties = panel.agreed, int(((panel.people >= MET).any(axis=1) & (panel.agreed == ABSENT)).sum())
    return Reliability(
        people=people,
        people_ac1=_of_all(panel, made),
        people_macro_f1=_mean_f1(panel, pairs, made),
        grader=tuple(
            _pair(panel, name, panel.grader_name, column, panel.grader, made)
            for name, column in zip(panel.raters, columns, strict=True)
        ),
        majority=_pair(
            panel,
            "majority" if panel.agreed is None else "adjudicated",
            panel.grader_name,
            truth,
            panel.grader,
            made,
        )
        if len(panel.raters) > 2 or panel.agreed is not None
        else None,
        majority_ties=ties,
        grader_ac1=_mean_of(panel, against, _mean_ac1, made, 2),
        grader_macro_f1=_mean_f1(panel, against, made),
        by_case=_by_case(panel, panel.grader, made),
        strictness=_strictness(panel, panel.grader, made),
    )


def pair_of(panel: Panel, first: int, second: int, *, draws: int = 1000, seed: int = 0) -> PairAgreement:
    """Two raters of a panel, by their places."""
    names, columns = panel.raters, panel.people.T
    made = partial(estimate, draws=draws, seed=seed)
    return _pair(panel, names[first], names[second], columns[first], columns[second], made)


Made = Callable[..., Estimate]


def tables(first: Codes, second: Codes) -> Floats:
    """One count in a table (2 x 3) for each item that the first decided and the second rated: (items x 2 x 3)."""
    out = np.zeros((len(first), 2, 3))
    rows = np.flatnonzero((first >= MET) & (first <= NOT_MET) & (second != ABSENT))
    out[rows, first[rows], second[rows]] = 1.0
    return out


def _pair(panel: Panel, first: str, second: str, a: Codes, b: Codes, made: Made) -> PairAgreement:
    cells = tables(a, b)
    total = cells.sum(axis=0)
    counts = Confusion(*(int(x) for x in (*total[:, :2].ravel(), *total[:, 2])))
    rated = np.asarray(cells.any(axis=(1, 2)))
    decided = np.asarray(cells[..., :2].any(axis=(1, 2)))

    def of(which: NDArray[np.bool_], statistic: Callable[[Floats], Floats], width: int = 2) -> Estimate:
        n = int(which.sum())
        if n < LEAST_ITEMS:
            return no_estimate(f"{n} common items are too few", n, len(set(panel.clusters[which])))
        return made(cells[which][..., :width], statistic, panel.clusters[which])

    return PairAgreement(
        first, second, counts,
        equal=of(decided, equal_of_tables),
        ac1=of(decided, ac1_of_tables),
        kappa=of(decided, kappa_of_tables),
        macro_f1=of(rated, macro_f1_of_tables, 3),
        first_rate=of(decided, lambda t: _share(t.sum(axis=-1), t)),
        second_rate=of(decided, lambda t: _share(t.sum(axis=-2), t)),
    )  # fmt: skip


def _share(marginal: Floats, counts: Floats) -> Floats:
    return ratio_of(np.stack([marginal[..., MET], counts.sum(axis=(-2, -1))], axis=-1))


def _mean_of(
    panel: Panel,
    pairs: Sequence[tuple[Codes, Codes]],
    statistic: Callable[[Floats], Floats],
    made: Made,
    width: int,
) -> Estimate:
    """The mean of a figure over pairs that share enough items; `width` 3 counts invalid replies for items, 2 does
    not."""
    cells = [tables(a, b)[..., :width] for a, b in pairs]
    kept = [one for one in cells if one.sum() >= LEAST_ITEMS]
    if not kept:
        return no_estimate(f"no two raters have {LEAST_ITEMS} items in common")
    stacked = np.stack(kept, axis=1)
    used = stacked.any(axis=(1, 2, 3))
    return made(stacked[used], statistic, panel.clusters[used])


def _mean_ac1(stacked: Floats) -> Floats:
    return np.asarray(ac1_of_tables(stacked).mean(axis=-1))


def _mean_f1(panel: Panel, pairs: Sequence[tuple[Codes, Codes]], made: Made) -> Estimate:
    return _mean_of(panel, pairs, lambda t: np.asarray(macro_f1_of_tables(t).mean(axis=-1)), made, 3)


def _of_all(panel: Panel, made: Made) -> Estimate:
    rated = (panel.people >= MET).sum(axis=1)
    n = int((rated >= 2).sum())
    if n < LEAST_ITEMS:
        return no_estimate(f"{n} items with two raters are too few", n)
    some = rated >= 1
    return made(rater_sums(panel.people[some], 2), ac1_of_sums, panel.clusters[some], n=n)


def _majority(people: Codes) -> tuple[Codes, int]:
    met, not_met = (people == MET).sum(axis=1), (people == NOT_MET).sum(axis=1)
    out = np.where(met > not_met, MET, np.where(not_met > met, NOT_MET, ABSENT))
    return out, int(((met == not_met) & (met > 0)).sum())


def _by_case(panel: Panel, grader: Codes, made: Made) -> ByCase:
    cells = np.stack([tables(column, grader) for column in panel.people.T], axis=1)
    sums = np.zeros((len(panel.cases), *cells.shape[1:]))
    np.add.at(sums, panel.clusters, cells)
    each = macro_f1_of_tables(sums, occurring=True)
    rated = ~np.isnan(each).all(axis=1)
    items = np.bincount(panel.clusters[cells.any(axis=(1, 2, 3))], minlength=len(panel.cases))
    places = np.flatnonzero(rated)
    values = np.array([float(np.nanmean(each[place])) for place in places])
    labels = (sums.sum(axis=(1, 3)) + sums[..., :2].sum(axis=(1, 2)) > 0).sum(axis=1)
    ones = np.ones(len(values))
    return ByCase(
        POOR,
        made(np.column_stack([values, ones]), ratio_of, places),
        made(np.column_stack([values < POOR, ones]).astype(np.float64), ratio_of, places),
        int((labels[places] == 1).sum()),
        tuple(
            CaseAgreement(panel.cases[place], int(items[place]), float(value))
            for place, value in zip(places, values, strict=True)
        ),
    )


def _strictness(panel: Panel, grader: Codes, made: Made) -> Strictness:
    given = (panel.people >= MET).sum(axis=1)
    both = (grader >= MET) & (grader <= NOT_MET) & (given > 0)
    n = int(both.sum())
    if n < LEAST_ITEMS:
        none = no_estimate(f"{n} common items are too few", n)
        return Strictness(none, none, none)
    ours = (grader[both] == MET).astype(np.float64)
    theirs = (panel.people[both] == MET).sum(axis=1) / given[both]
    clusters = panel.clusters[both]

    def mean(column: Floats) -> Estimate:
        return made(np.column_stack([column, np.ones(n)]), ratio_of, clusters)

    return Strictness(mean(ours), mean(theirs), mean(ours - theirs))
