"""What cases and criteria tell of models: difficulty, correlation with the rest, suspects, and the hardest cases."""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import Floats

LEAST_MODELS: Final = 5
"""Models that must have a score on an item before its correlation is looked at."""
FALSE_ALARMS: Final = 0.01
"""The share of sound items that may be called suspects, about."""


@dataclass(frozen=True, slots=True)
class Item:
    """One case, or one criterion turned so that 1 is good."""

    models: int
    """That have a score on it."""
    mean: float | None
    deciding: int
    """Models in the smaller of the two camps, below and above the middle of the scores; 0: it tells nothing."""
    correlation: float | None
    """Of its scores with the models' other scores; None for fewer than `LEAST_MODELS`, or where all are the same."""
    p: float | None
    """One-sided: how often an item of the usual correlation shows so low a one by chance."""

    @property
    def suspect(self) -> bool:
        """Better models miss it more often than worse ones: a wrong key, or a trap."""
        if self.p is None or self.correlation is None:
            return False
        return self.correlation < 0 and self.p < FALSE_ALARMS


def analyse_items(
    scores: Floats, abilities: Floats, own_share: Floats | None = None
) -> list[Item]:
    """Each item's figures.

    Args:
        scores: (items x models) in [0, 1], 1 is good; NaN where there is none.
        abilities: Of each model, as a mean score; NaN for a model that is left out.
        own_share: How much of a model's ability each item is; taken out of it. None: one of all its items.
    """
    known = ~np.isnan(scores) & ~np.isnan(abilities)
    share = 1 / np.maximum(known.sum(axis=0), 2)
    if own_share is not None:
        share = own_share[:, None] * np.ones(scores.shape[1])
    items = []
    for row, at in enumerate(known):
        own = scores[row, at]
        weights = np.broadcast_to(share, scores.shape)[row, at]
        # A model that answered nothing else has no rest.
        others = np.where(weights < 1, 1 - weights, np.nan)
        rest = (abilities[at] - weights * own) / others
        items.append(_item(own, rest))
    correlations = [item.correlation for item in items if item.correlation is not None]
    if not correlations:
        return items
    # Fisher's z of each against the median item's: most items are sound.
    usual = np.arctanh(np.clip(np.median(correlations), -0.999, 0.999))
    out = []
    for item in items:
        p = None
        if item.correlation is not None:
            own_z = np.arctanh(np.clip(item.correlation, -0.999, 0.999))
            p = NormalDist().cdf(float(own_z - usual) * (item.models - 3) ** 0.5)
        out.append(replace(item, p=p))
    return out


def _item(own: Floats, rest: Floats) -> Item:
    models = len(own)
    if not models:
        return Item(0, None, 0, None, None)
    middle = (own.min() + own.max()) / 2
    deciding = 0
    if own.min() < own.max():
        deciding = int(min((own < middle).sum(), (own >= middle).sum()))
    correlation = None
    compared = ~np.isnan(rest)
    first, second = own[compared], rest[compared]
    if len(first) >= LEAST_MODELS and first.std() > 1e-9 and second.std() > 1e-9:
        correlation = float(np.corrcoef(first, second)[0, 1])
    return Item(models, float(own.mean()), deciding, correlation, None)


def hardest(
    scores: Floats, abilities: Floats, share: float = 1 / 3
) -> NDArray[np.int_]:
    """The places of the hardest `share` of the cases that any model has a score on; on equal terms.

    Args:
        scores: (cases x models) in [0, 1], NaN where there is none.
        abilities: Of each model, as a mean score: who answered a case must not decide how hard it looks.
        share: Of the cases that a model has a score on.
    """
    known = ~np.isnan(scores) & ~np.isnan(abilities)
    counts = known.sum(axis=1)
    asked = np.flatnonzero(counts)
    above = np.where(known, scores - abilities, 0.0).sum(axis=1)
    easiness = above[asked] / counts[asked]
    order = asked[np.argsort(easiness, kind="stable")]
    return order[: round(share * len(asked))]
