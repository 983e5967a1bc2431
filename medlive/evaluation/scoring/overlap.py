"""How alike slices are by the models' means in them (`profiles`), and models by their worst cases (`worst_cases`)."""

from dataclasses import dataclass

import numpy as np

from medlive.statistics.correlation import LEAST as LEAST_MODELS
from medlive.statistics.intervals import Floats, quotient

from .estimates import SLICES, rows_by
from .score import ScoreTable

WORST = 100
"""How many lowest-scoring cases of a model are its worst cases."""
LEAST = 5
"""Profiles leave out slices in which any model has fewer scores."""
_FLAT = 1e-12
"""A value whose means spread no more than this has no correlation."""


@dataclass(frozen=True)
class Profiles:
    """The values of a kind of slice, such as specialties, and how alike they are by the models' mean scores."""

    kind: str
    values: list[str]
    """The slices that count: every model has `LEAST` scores there."""
    left_out: list[str]
    between_values: Floats
    """(values x values): Pearson's r over the models; NaN for fewer than three, or where a value's means are alike."""


@dataclass(frozen=True)
class WorstCases:
    """The lowest cases of each model, of those that every model has a score for, and how far they are shared."""

    k: int
    """How many cases were taken of each model: `WORST`, or half of the common cases where that is fewer."""
    common: int
    jaccard: Floats
    """|a ∩ b| / |a ∪ b| of the models' cases, in the table's order; NaN without any."""

    @property
    def by_chance(self) -> float:
        """What two sets of k drawn at random from the common cases would share, about."""
        return self.k / (2 * self.common - self.k)


def profiles(table: ScoreTable, kind: str = "specialty") -> Profiles:
    """Compare the values of one kind of `SLICES` by the models' means. Raises KeyError for another kind."""
    grid = table.grid
    scores = grid.score
    means: dict[str, Floats] = {}
    left_out: list[str] = []
    for value, rows in rows_by(map(SLICES[kind], grid.cases)).items():
        own = scores[rows]
        counts = (~np.isnan(own)).sum(axis=0)
        if (counts >= LEAST).all():
            means[value] = np.nanmean(own, axis=0)
        else:
            left_out.append(value)
    n, models = len(means), scores.shape[1]
    columns = np.array(list(means.values())).reshape(n, models)
    between = np.full((n, n), np.nan)
    varied = np.flatnonzero(np.ptp(columns, axis=1) > _FLAT)
    if len(varied) and models >= LEAST_MODELS:
        between[np.ix_(varied, varied)] = np.corrcoef(columns[varied])
    return Profiles(
        kind=kind,
        values=list(means),
        left_out=left_out,
        between_values=between,
    )


def worst_cases(table: ScoreTable) -> WorstCases:
    """Each model's `WORST` lowest of the common cases and their Jaccard overlap.

    Where the models have fewer than twice as many cases in common, half of these are taken: otherwise the sets
    would overlap by being all of them.
    """
    grid = table.grid
    common = ~np.isnan(grid.score).any(axis=1)
    scores = grid.score[common]
    ids = np.array([case.case_id for case in grid.cases])[common]
    k = min(WORST, len(ids) // 2)
    chosen = np.zeros(scores.T.shape)
    for place, column in enumerate(scores.T):
        # Equal scores by id.
        chosen[place, np.lexsort((ids, column))[:k]] = 1
    shared = chosen @ chosen.T
    return WorstCases(
        k=k,
        common=len(ids),
        jaccard=quotient(shared, 2 * k - shared),
    )
