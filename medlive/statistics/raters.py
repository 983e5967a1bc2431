"""Agreement of a grader with people, and of people with each other: by pair of raters, pooled, by case.

`reliability` computes every figure, `agree` those of two raters, `equal_and_ac1` those of any number of raters. An
item counts for two raters if both decided. A grader's reply without a verdict is invalid: wrong for macro-F1, and
not counted for AC1, kappa and rates (docs/method.md §3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, starmap
from typing import Unpack

import numpy as np

from .agreement import (
    ac1_of_sums,
    ac1_of_tables,
    equal_of_tables,
    kappa_of_tables,
    macro_f1_of_tables,
    rater_sums,
)
from .bootstrap import Draws
from .estimate import Estimate, estimate, ratio_of
from .intervals import Floats, Places, quotient

MET = 0

NOT_MET = 1

INVALID = 2
"""The grader's reply had no verdict."""

ABSENT = -1  # no rating, or no decision

LEAST_ITEMS = 5
"""Two raters need this many common items for a figure."""

POOR = 0.6
"""Cases with a lower macro-F1 agree poorly (ClinConsensus, appendix I.5)."""

Codes = Places


def code_of(met: bool | None) -> int:
    """The code of a verdict; ABSENT for no decision."""
    return ABSENT if met is None else MET if met else NOT_MET


@dataclass(frozen=True)
class Confusion:
    """Counts of items by two raters' verdicts; only the second rater's can be invalid.

    `first_only`: only the first rater said met. `invalid_met`: the first said met, the second's reply is invalid.
    """

    both_met: int
    first_only: int
    second_only: int
    neither: int
    invalid_met: int = 0
    invalid_not_met: int = 0

    @property
    def differing(self) -> int:
        """Items that only one of the two raters calls met."""
        return self.first_only + self.second_only


@dataclass(frozen=True)
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
    """The share that the first rater calls met, of the items that both decided."""
    second_rate: Estimate


@dataclass(frozen=True)
class ByCase:
    """Macro-F1 by case, over the labels that occur in the case."""

    threshold: float
    mean: Estimate
    """Over cases, of the mean over people."""
    below: Estimate  # The share of cases below the threshold


@dataclass(frozen=True)
class Strictness:
    """The share met by the grader and by people on the same items (of several people, their mean)."""

    grader: Estimate
    people: Estimate
    difference: Estimate
    """Grader minus people; below 0 the grader is stricter."""


@dataclass(frozen=True)
class Reliability:
    """All agreement figures of a panel."""

    people: tuple[PairAgreement, ...]
    people_ac1: Estimate
    """AC1 of all people at once."""
    people_macro_f1: Estimate
    """The mean over pairs of people, an upper bound for the grader."""
    grader: tuple[PairAgreement, ...]
    majority: PairAgreement | None
    """The grader against the majority, or with an adjudicator against the agreed or adjudicated verdict; None with
    fewer than three raters and no adjudicator."""
    majority_ties: int
    """Rated items that have neither a majority nor an adjudicated verdict, and are left out."""
    grader_ac1: Estimate
    """The mean over people."""
    grader_macro_f1: Estimate
    """The mean over people."""
    by_case: ByCase | None
    strictness: Strictness | None


def reliability(
    people: Codes,
    grader: Codes,
    *,
    raters: Sequence[str],
    cases: Sequence[str],
    clusters: Codes | None = None,
    grader_name: str = "grader",
    agreed: Codes | None = None,
    **how: Unpack[Draws],
) -> Reliability:
    """Compute every figure of people and a grader on the same items; intervals are over bootstrap draws of clusters.

    Args:
        people: (items x raters): MET, NOT_MET or ABSENT.
        grader: (items): any of the four codes.
        raters: The names of the people.
        cases: Each item's case.
        clusters: Each item's cluster, which holds whole cases; None: its case.
        grader_name: The grader's name.
        agreed: (items): what people agreed on, else the adjudicator's decision; ABSENT: neither. Replaces the
            majority.
        how: How clusters are drawn.
    """
    places: dict[str, int] = {}
    for case in cases:
        places.setdefault(case, len(places))
    numbers = np.array([places[case] for case in cases], dtype=np.int_)
    clusters = numbers if clusters is None else clusters
    columns = dict(zip(raters, people.T, strict=True))
    pairs = []
    among_people = []
    for first, second in combinations(columns, 2):
        pair = columns[first], columns[second]
        pairs.append(pair)
        among_people.append(agree(first, second, *pair, clusters, **how))

    def with_grader(rater: str, codes: Codes) -> PairAgreement:
        return agree(rater, grader_name, codes, grader, clusters, **how)

    truth = _majority(people) if agreed is None else agreed
    majority = None
    if agreed is not None:
        majority = with_grader("adjudicated", truth)
    elif len(raters) > 2:
        majority = with_grader("majority", truth)
    ratings = (people >= MET).sum(axis=1)
    is_rated = ratings > 0
    several = int((ratings > 1).sum())
    people_ac1 = _too_few(several)
    if several >= LEAST_ITEMS:
        people_ac1 = estimate(
            rater_sums(people[is_rated], 2),
            ac1_of_sums,
            clusters[is_rated],
            n=several,
            **how,
        )
    against = [(codes, grader) for codes in columns.values()]
    return Reliability(
        people=tuple(among_people),
        people_ac1=people_ac1,
        people_macro_f1=_mean_over_pairs(pairs, clusters, **how),
        grader=tuple(starmap(with_grader, columns.items())),
        majority=majority,
        majority_ties=int((is_rated & (truth == ABSENT)).sum()),
        grader_ac1=_mean_over_pairs(
            against,
            clusters,
            statistic=ac1_of_tables,
            width=2,
            **how,
        ),
        grader_macro_f1=_mean_over_pairs(against, clusters, **how),
        by_case=_by_case(people, grader, numbers, clusters, **how),
        strictness=_strictness(people, grader, clusters, **how),
    )


def _too_few(n: int) -> Estimate:
    """No value, because `n` common items are too few."""
    return Estimate(None, n=n, why=f"{n} items in common are too few")


def equal_and_ac1(
    codes: Codes,
    categories: int,
    clusters: Codes,
    **how: Unpack[Draws],
) -> tuple[Estimate, Estimate]:
    """The mean share of equal pairs of ratings, and AC1 of all raters at once, over items with two ratings.

    Args:
        codes: (items x raters), 0 to categories-1, or -1 for no rating.
        categories: The number of categories.
        clusters: Each item's cluster.
        how: How clusters are drawn.
    """
    several = (codes >= 0).sum(axis=1) > 1
    own = clusters[several]
    if len(own) < LEAST_ITEMS:
        few = _too_few(len(own))
        return few, few
    sums = rater_sums(codes[several], categories)
    return (
        estimate(sums[:, :2], ratio_of, own, **how),
        estimate(sums, ac1_of_sums, own, **how),
    )


def tables(first: Codes, second: Codes) -> Floats:
    """Confusion tables, (items x 2 x 3); zero unless the first rater decided and the second has a code."""
    counts = np.zeros((len(first), 2, 3))
    is_decided = (first >= MET) & (first <= NOT_MET)
    rows = np.flatnonzero(is_decided & (second != ABSENT))
    counts[rows, first[rows], second[rows]] = 1.0
    return counts


def agree(
    first: str,
    second: str,
    a: Codes,
    b: Codes,
    clusters: Codes,
    **how: Unpack[Draws],
) -> PairAgreement:
    """Compare two raters by their codes `a` and `b` of the same items; `clusters` gives each item's cluster."""
    cells = tables(a, b)
    total = cells.sum(axis=0).astype(int)

    def figure(
        statistic: Callable[[Floats], Floats],
        width: int = 2,
    ) -> Estimate:
        """A figure of the tables' first `width` columns; with 3, invalid replies count as items."""
        columns = cells[..., :width]
        used = columns.any(axis=(1, 2))
        own = clusters[used]
        if len(own) < LEAST_ITEMS:
            return _too_few(len(own))
        return estimate(columns[used], statistic, own, **how)

    def share_met(counts: Floats, axis: int) -> Floats:
        """The share that one rater calls met; `axis` is the other rater's."""
        marginals = counts.sum(axis=axis)
        return quotient(
            marginals[..., MET],
            marginals.sum(axis=-1),
        )

    valid = total[:, :2].ravel().tolist()
    invalid = total[:, INVALID].tolist()
    return PairAgreement(
        first=first,
        second=second,
        confusion=Confusion(*valid, *invalid),
        equal=figure(equal_of_tables),
        ac1=figure(ac1_of_tables),
        kappa=figure(kappa_of_tables),
        macro_f1=figure(macro_f1_of_tables, 3),
        first_rate=figure(lambda counts: share_met(counts, -1)),
        second_rate=figure(lambda counts: share_met(counts, -2)),
    )


def _mean_over_pairs(
    pairs: Sequence[tuple[Codes, Codes]],
    clusters: Codes,
    statistic: Callable[[Floats], Floats] = macro_f1_of_tables,
    width: int = 3,
    **how: Unpack[Draws],
) -> Estimate:
    """The mean of a figure over pairs with enough common items; with `width` 3 invalid replies count as items."""
    cells = [tables(a, b)[..., :width] for a, b in pairs]
    kept = [cell for cell in cells if cell.sum() >= LEAST_ITEMS]
    if not kept:
        return Estimate(None, why=f"no two raters have {LEAST_ITEMS} items in common")
    stacked = np.stack(kept, axis=1)
    used = stacked.any(axis=(1, 2, 3))

    def mean(counts: Floats) -> Floats:
        return np.asarray(statistic(counts).mean(axis=-1))

    return estimate(
        stacked[used],
        mean,
        clusters[used],
        **how,
    )


def _majority(people: Codes) -> Codes:
    """What most people say of each item; ABSENT for a tie, or without a rating."""
    met = (people == MET).sum(axis=1)
    lead = met - (people == NOT_MET).sum(axis=1)
    return np.select(
        [lead > 0, lead < 0],
        [MET, NOT_MET],
        default=ABSENT,
    )


def _by_case(
    people: Codes,
    grader: Codes,
    numbers: Codes,
    clusters: Codes,
    **how: Unpack[Draws],
) -> ByCase:
    """The agreement within each case; `numbers` gives each item's case, from 0."""
    by_rater = [tables(column, grader) for column in people.T]
    cells = np.stack(by_rater, axis=1)
    cases, first = np.unique(numbers, return_index=True)
    sums = np.zeros((len(cases), *cells.shape[1:]))
    np.add.at(sums, numbers, cells)
    of_raters = macro_f1_of_tables(sums, occurring=True)
    rated = np.flatnonzero(~np.isnan(of_raters).all(axis=1))
    drawn = clusters[first[rated]]
    values = np.nanmean(of_raters[rated], axis=1)
    is_poor = (values < POOR).astype(np.float64)
    return ByCase(
        threshold=POOR,
        mean=mean_of(values, drawn, **how),
        below=mean_of(is_poor, drawn, **how),
    )


def _strictness(
    people: Codes,
    grader: Codes,
    clusters: Codes,
    **how: Unpack[Draws],
) -> Strictness:
    """How often grader and people say met, over the items that the grader and at least one person decided."""
    ratings = (people >= MET).sum(axis=1)
    is_graded = (grader >= MET) & (grader <= NOT_MET)
    both = np.flatnonzero(is_graded & (ratings > 0))
    if len(both) < LEAST_ITEMS:
        none = _too_few(len(both))
        return Strictness(none, none, none)
    ours = (grader[both] == MET).astype(np.float64)
    met = (people[both] == MET).sum(axis=1)
    theirs = met / ratings[both]
    cases = clusters[both]
    return Strictness(
        grader=mean_of(ours, cases, **how),
        people=mean_of(theirs, cases, **how),
        difference=mean_of(ours - theirs, cases, **how),
    )


def mean_of(
    values: Floats,
    clusters: Codes,
    **how: Unpack[Draws],
) -> Estimate:
    """The mean of one value per item; `clusters` gives each item's cluster."""
    cells = np.column_stack([values, np.ones(len(values))])
    return estimate(cells, ratio_of, clusters, **how)


def agreed_codes(codes: Codes, decisions: Codes) -> Codes:
    """The adjudicator's decision, else the unanimous verdict of two or more raters; else ABSENT (items)."""
    ratings = (codes >= MET).sum(axis=1)
    verdict = _majority(codes)
    agreeing = (codes == verdict[:, None]).sum(axis=1)
    is_unanimous = (ratings > 1) & (agreeing == ratings)
    return np.select(
        [decisions >= MET, is_unanimous],
        [decisions, verdict],
        default=ABSENT,
    )
