"""How alike models are: profiles over specialties and themes, and shared worst cases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from medlive.evaluation.scoring.score import SLICES, ScoreTable, score_matrix
from medlive.statistics.correlation import jaccard, pearson_matrix

WORST: Final = 100
"""How many of its lowest cases a model's worst are."""
LEAST: Final = 5
"""Profiles leave out slices in which any model has fewer scores."""

Matrix = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Profiles:
    """Models' mean scores over a kind of slice, and how alike its values are."""

    kind: str
    values: tuple[str, ...]
    """The slices that count: every model has `LEAST` scores there."""
    left_out: tuple[str, ...]
    labels: tuple[str, ...]
    """The models, in the table's order."""
    means: Matrix
    between_values: Matrix
    """Pearson's r over the models; None for fewer than three of them, or where a value's means are all alike."""


@dataclass(frozen=True, slots=True)
class WorstCases:
    """The lowest cases of each model, of those that every model has a score for, and how far they are shared."""

    labels: tuple[str, ...]
    k: int
    """How many were taken of each: `WORST`, or half of the common cases where that is fewer."""
    common: int
    cases: Mapping[str, tuple[str, ...]]
    """Label → case ids, the lowest first, equal scores by id."""
    tied: Mapping[str, int]
    """Label → how many of the k were chosen by id alone, of equals with some left outside; 0 where none is."""
    jaccard: Matrix
    by_chance: float | None
    """What two sets of k drawn at random from the common cases would share, about: k / (2·common - k)."""


def profiles(table: ScoreTable, kind: str = "specialty") -> Profiles:
    """The models' profiles over a kind of slice of `SLICES`. Raises KeyError for another kind."""
    cases, scores = score_matrix(table)
    rows: dict[str, list[int]] = {}
    for row, case in enumerate(cases):
        if (value := SLICES[kind](case)) is not None:
            rows.setdefault(value, []).append(row)
    kept: list[str] = []
    left_out: list[str] = []
    for value in sorted(rows):
        scored = (~np.isnan(scores[rows[value]])).sum(axis=0)
        (kept if (scored >= LEAST).all() else left_out).append(value)
    means = np.array(
        [np.nanmean(scores[rows[value]], axis=0) for value in kept]
    ).reshape(len(kept), scores.shape[1])
    labels = tuple(model.label for model in table.models)
    shown = tuple(tuple(float(x) for x in row) for row in means)
    return Profiles(
        kind, tuple(kept), tuple(left_out), labels, shown, pearson_matrix(means.T)
    )


def worst_cases(table: ScoreTable) -> WorstCases:
    """Each model's `WORST` lowest of the common cases and their Jaccard overlap.

    Where the models have fewer than twice as many cases in common, half of these are taken: otherwise the sets
    would overlap by being all of them.
    """
    cases, scores = score_matrix(table)
    common = np.flatnonzero(~np.isnan(scores).any(axis=1))
    k = min(WORST, len(common) // 2)
    found: dict[str, tuple[str, ...]] = {}
    tied: dict[str, int] = {}
    for label, column in zip(
        (model.label for model in table.models), scores.T, strict=True
    ):
        order = sorted(common, key=lambda row: (column[row], cases[row].case_id))
        found[label] = tuple(cases[row].case_id for row in order[:k])
        edges = [row for row in order if k and column[row] == column[order[k - 1]]]
        inside = sum(1 for row in edges if row in order[:k])
        tied[label] = inside if inside < len(edges) else 0
    sets = [frozenset(ids) for ids in found.values()]
    shared = tuple(tuple(jaccard(a, b) for b in sets) for a in sets)
    return WorstCases(
        tuple(found),
        k,
        len(common),
        found,
        tied,
        shared,
        k / (2 * len(common) - k) if k else None,
    )
