"""Reciprocal rank fusion: several orders of passages made into one, by ranks alone.

An order is what one side found for one phrase of a query.

Cormack, Clarke and Büttcher, SIGIR 2009: a passage's score is the sum over sides of 1 / (60 + its rank there).
Scores of different sides cannot be compared, their ranks can; what stands high on two sides beats what stands
highest on one.
"""

from collections.abc import Mapping, Sequence

from medlive.evidence.passage import Side, SideHit

RRF_K = 60
"""The paper's constant: how little the first ranks differ from the next."""
DEPTH = 100
"""Passages that each side contributes; k of them where more than so many are asked for."""
SCORE_DIGITS = 10
"""Fused scores are rounded so: what is left beyond is the order of float additions."""

Found = Sequence[tuple[int, float]]
"""What one side found: (ordinal, that side's score), best first."""


Orders = Mapping[tuple[Side, int], Found]
"""(side, place of the phrase in the query) → what was found there."""


def fused(orders: Orders) -> list[tuple[int, float]]:
    """(ordinal, fused score) of everything that is in any order, in no order."""
    total: dict[int, float] = {}
    for found in orders.values():
        for rank, (ordinal, _) in enumerate(found, start=1):
            total[ordinal] = total.get(ordinal, 0.0) + 1 / (RRF_K + rank)
    return [(ordinal, round(score, SCORE_DIGITS)) for ordinal, score in total.items()]


def by_ordinal(orders: Orders) -> dict[int, list[SideHit]]:
    """Ordinal → where each order that holds it put it, by side and phrase."""
    places: dict[int, list[SideHit]] = {}
    sides = list(Side)
    for side, phrase in sorted(orders, key=lambda key: (sides.index(key[0]), key[1])):
        for rank, (ordinal, score) in enumerate(orders[side, phrase], start=1):
            places.setdefault(ordinal, []).append(SideHit(side, rank, score, phrase))
    return places
