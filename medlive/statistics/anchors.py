"""Which models to ask again, so that a new week comes onto the scale of those before.

A model whose ability is known and that answers the new cases says how hard they are: its mean there, against what is
expected of it. Kept cases do the same the other way round. The variances are those of a mean of scores around their
expectations; docs/method.md §2, One scale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medlive.statistics.bootstrap import Floats
from medlive.statistics.scale import Scale

_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Anchor:
    """A model that could be asked again."""

    name: str
    column: int
    error: float
    """Standard error of the new week's difficulty by this model alone, on the scale of scores."""
    together: float
    """The same by this model and all before it in the list."""


def rank_anchors(
    scale: Scale,
    scores: Floats,
    cases: int,
) -> list[Anchor]:
    """Models on the scale, from the one that tells most of a new week's difficulty down.

    Args:
        scale: Of the weeks before.
        scores: What it was made of, (cases x models).
        cases: Of the new week, all of which each model would answer.
    """
    columns = _columns_of(scale)
    spread = np.nanstd(
        scale.expected[:, columns],
        axis=0,
    )
    # A model near the ceiling tells little: it moves less with difficulty than others do
    follows = np.maximum(spread / spread.mean(), 1e-6)
    variances = {}
    for column, share in zip(columns, follows, strict=True):
        ability = scale.abilities[column]
        assert ability.low is not None
        assert ability.high is not None
        link = (ability.high - ability.low) / (2 * _NORMAL)
        noise = _variance_of(scale, scores, [column])
        own = noise * ability.n / len(scores) ** 2  # Other answers of it differ too
        variance = (noise / cases + own + link**2) / share**2
        variances[column] = float(variance)
    anchors = []
    weight = 0.0
    for column in sorted(columns, key=variances.__getitem__):
        weight += 1 / max(variances[column], 1e-12)
        anchor = Anchor(
            name=scale.abilities[column].name,
            column=column,
            error=math.sqrt(variances[column]),
            together=math.sqrt(1 / weight),
        )
        anchors.append(anchor)
    return anchors


def kept_cases_needed(
    scale: Scale,
    scores: Floats,
    cases: int,
    *,
    models: int,
    error: float,
) -> int | None:
    """How many old cases the models of a new week have to answer beside the new ones, if none is asked again.

    Args:
        scale: Of the weeks before.
        scores: What it was made of, (cases x models).
        cases: Of the new week.
        models: That answer the new week.
        error: Wanted standard error of the new week's difficulty, on the scale of scores.

    Returns:
        None where no number of old cases is enough, or there are not so many.
    """
    columns = _columns_of(scale)
    variance = _variance_of(scale, scores, columns)
    answered = (~np.isnan(scores[:, columns])).sum(axis=1)
    answers = float(answered[answered > 0].mean())
    room = error**2 - variance / (models * cases)
    if room <= 0:
        return None
    needed = math.ceil(variance * (1 / models + 1 / answers) / room)
    existing = int((answered > 0).sum())
    return needed if needed <= existing else None


def _columns_of(scale: Scale) -> list[int]:
    """The models that are on the scale."""
    columns = []
    for column, ability in enumerate(scale.abilities):
        if ability.value is not None:
            columns.append(column)
    return columns


def _variance_of(
    scale: Scale,
    scores: Floats,
    columns: Sequence[int],
) -> float:
    """Mean variance of the scores that these models have, around their expectations."""
    known = ~np.isnan(scores[:, columns])
    variances = scale.variance[:, columns]
    return float(np.nanmean(variances[known]))
