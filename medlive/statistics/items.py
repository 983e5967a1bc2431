"""Item analysis of cases and criteria: difficulty, correlation, suspects (`analyse_items`), and the hardest third."""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from .intervals import Floats, Places, quotient

LEAST_MODELS = 5
"""The least number of models with a score on an item for its correlation to be computed."""
FALSE_ALARMS = 0.01
"""About the share of sound items that are called suspects by chance."""


@dataclass(frozen=True)
class Item:
    """One case, or one criterion turned so that 1 is good."""

    models: int
    """The number of models with a score on it."""
    mean: float | None
    deciding: int
    """Models in the smaller of two groups, below the middle of the scores and above; 0: it tells no models apart."""
    correlation: float | None
    """Of its scores with models' scores on other items; None for fewer than `LEAST_MODELS` models, or equal scores."""
    p: float | None
    """One-sided: how often an item with the median correlation shows one as low as this by chance."""

    @property
    def suspect(self) -> bool:
        """Better models miss it more often than worse ones: a wrong key, or a trap."""
        if self.p is None or self.correlation is None:
            return False
        return self.correlation < 0 and self.p < FALSE_ALARMS


def analyse_items(
    scores: Floats,
    abilities: Floats,
    own_share: Floats | None = None,
) -> list[Item]:
    """Each item's figures.

    Args:
        scores: (items x models) in [0, 1], 1 is good; NaN where there is none.
        abilities: Each model's, as a mean score; NaN for a model that is left out.
        own_share: Each item's weight in a model's ability, which is taken out of it; None: 1 / its number of items.
    """
    known = ~np.isnan(scores) & ~np.isnan(abilities)
    shares = np.broadcast_to(
        1 / np.maximum(known.sum(axis=0), 2),
        scores.shape,
    )
    if own_share is not None:
        shares = np.broadcast_to(own_share[:, None], scores.shape)
    items = []
    for row, at in enumerate(known):
        own = scores[row, at]
        share = shares[row, at]
        # A model that answered nothing else has no rest.
        others = np.where(
            share < 1,
            1 - share,
            np.nan,
        )
        rest = (abilities[at] - share * own) / others
        items.append(_item(own, rest))
    correlations = [item.correlation for item in items if item.correlation is not None]
    if not correlations:
        return items
    # Each against the median item: most items are sound.
    usual = _fisher_z(float(np.median(correlations)))
    for row, item in enumerate(items):
        if item.correlation is not None:
            below = _fisher_z(item.correlation) - usual
            size = (item.models - 3) ** 0.5
            p = NormalDist().cdf(below * size)
            items[row] = replace(item, p=p)
    return items


def _fisher_z(correlation: float) -> float:
    return float(np.arctanh(np.clip(correlation, -0.999, 0.999)))


def _item(own: Floats, rest: Floats) -> Item:
    """An item's figures but p: `own` are models' scores on it, `rest` their abilities without it."""
    models = len(own)
    mean = correlation = None
    deciding = 0
    if models:
        mean = float(own.mean())
        is_low = own < (own.min() + own.max()) / 2
        below = int(is_low.sum())
        deciding = min(below, models - below)
    compared = ~np.isnan(rest)
    first = own[compared]
    second = rest[compared]
    if len(first) >= LEAST_MODELS and first.std() > 1e-9 and second.std() > 1e-9:
        correlation = float(np.corrcoef(first, second)[0, 1])
    return Item(models, mean, deciding, correlation, p=None)


def easiness(
    scores: Floats,
    abilities: Floats,
) -> Floats:
    """By how much models score above their abilities on each case, on average; NaN where no model has a score.

    Args:
        scores: (cases x models) in [0, 1], NaN where there is none.
        abilities: Each model's, as a mean score, so that it does not matter which models answered a case.
    """
    known = ~np.isnan(scores) & ~np.isnan(abilities)
    above = np.where(
        known,
        scores - abilities,
        0.0,
    )
    return quotient(above.sum(axis=1), known.sum(axis=1))


def hardest(
    scores: Floats,
    abilities: Floats,
) -> Places:
    """The places of the hardest third of the cases that any model has a score on, by their `easiness`."""
    easy = easiness(scores, abilities)
    order = np.argsort(easy, kind="stable")
    return order[: round((~np.isnan(easy)).sum() / 3)]
