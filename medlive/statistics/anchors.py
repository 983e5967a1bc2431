"""Which models to ask again, so that a new week comes onto the scale of those before.

A model whose ability is known and that answers the new cases says how hard they are: its mean there, against what is
expected of it. The variances are those of a mean of scores around their
expectations; docs/method.md §2, One scale.
"""

import math
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


def rank_anchors(scale: Scale, scores: Floats, cases: int) -> list[Anchor]:
    """Models on the scale, from the one that tells most of a new week's difficulty down.

    Args:
        scale: Of the weeks before.
        scores: What it was made of, (cases x models).
        cases: Of the new week, all of which each model would answer.
    """
    columns = [at for at, a in enumerate(scale.abilities) if a.value is not None]
    spread = np.nanstd(scale.expected[:, columns], axis=0)
    # A model near the ceiling tells little: it moves less with difficulty than others do
    follows = np.maximum(spread / spread.mean(), 1e-6)
    known = []
    for column, share in zip(columns, follows, strict=True):
        ability = scale.abilities[column]
        assert ability.low is not None
        assert ability.high is not None
        link = (ability.high - ability.low) / (2 * _NORMAL)
        # The mean variance of its scores around their expectations
        noise = float(np.nanmean(scale.variance[~np.isnan(scores[:, column]), column]))
        own = noise * ability.n / len(scores) ** 2  # Other answers of it differ too
        variance = (noise / cases + own + link**2) / share**2
        known.append((float(variance), column, ability.name))
    anchors, weight = [], 0.0
    for variance, column, name in sorted(known):
        weight += 1 / max(variance, 1e-12)
        anchors.append(
            Anchor(
                name=name,
                column=column,
                error=math.sqrt(variance),
                together=math.sqrt(1 / weight),
            )
        )
    return anchors
