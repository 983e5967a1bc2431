"""Strengths of models from matches between them: Bradley and Terry's model, on Elo's scale, with intervals.

P(a beats b) = s_a / (s_a + s_b); a draw is half a win for each. An Elo of 1000 + 400 log10(s / geometric mean) is
the same strength: 400 points are odds of 10 to 1 (Elo 1978; MEDIC, seed 004 §3, appendix A.3.10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from medlive.statistics.bootstrap import Estimate, Floats, interval, weight_chunks

CENTRE: Final = 1000.0
A_DECADE: Final = 400.0
PRIOR: Final = 0.1
"""Draws that every pair is given beforehand: a model that won or lost every match stays finite."""
_STEPS: Final = 10_000
_CLOSE: Final = 1e-10


@dataclass(frozen=True, slots=True)
class Match:
    """One match; places of models count from 0."""

    first: int
    second: int
    score: float
    """1: the first won, 0: the second, 0.5: a draw."""
    cluster: int
    """What was asked: matches of one cluster are drawn together."""


def points(matches: Sequence[Match], models: int) -> Floats:
    """(models x models): the points that each row's model took from each column's."""
    won = np.zeros((models, models))
    for match in matches:
        won[match.first, match.second] += match.score
        won[match.second, match.first] += 1 - match.score
    return won


def elo(won: Floats, prior: float = PRIOR) -> Floats:
    """Elo ratings of models by their points against one another, with a mean of 1000.

    `won` is (models x models), or (draws x models x models); the same without one dimension comes back. Newton's
    method on the logarithms of the strengths.
    """
    won = np.asarray(won, dtype=np.float64)
    models = won.shape[-1]
    won = won + prior / 2 * (1 - np.eye(models))
    played = won + np.swapaxes(won, -1, -2)
    taken = won.sum(axis=-1)
    theta = np.zeros(won.shape[:-1])
    for _ in range(_STEPS):
        expected = played / (1 + np.exp(theta[..., None, :] - theta[..., :, None]))
        gap = taken - expected.sum(axis=-1)
        share = expected / np.where(played > 0, played, 1)
        information = played * share * (1 - share)
        hessian = -information
        hessian[..., range(models), range(models)] = information.sum(axis=-1)
        # The sum of all strengths is free: pinned at nothing.
        step = np.linalg.solve(hessian + 1.0 / models, gap[..., None])[..., 0]
        theta = theta + np.clip(step, -2, 2)
        if np.abs(step).max(initial=0.0) < _CLOSE:
            break
    theta = theta - theta.mean(
        axis=-1,
        keepdims=True,
    )
    return np.asarray(CENTRE + A_DECADE / np.log(10) * theta)


def ratings(
    matches: Sequence[Match],
    models: int,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> list[Estimate]:
    """Each model's rating, in order; a model without a match has none, and moves no other's.

    Intervals are of draws of whole clusters, with replacement; fewer than two give none.
    """
    places: set[int] = set()
    by_cluster: dict[int, list[Match]] = {}
    for match in matches:
        places.update((match.first, match.second))
        by_cluster.setdefault(match.cluster, []).append(match)
    played = sorted(places)
    won = np.stack([points(own, models) for own in by_cluster.values() or ([],)])
    won = won[:, played][:, :, played]
    values = elo(won.sum(axis=0))
    drawn = np.full((0, len(played)), np.nan)
    if len(by_cluster) > 1 and draws:
        flat = won.reshape(len(won), -1)
        chunks = [weights @ flat for weights in weight_chunks(len(won), draws, seed)]
        drawn = elo(np.concatenate(chunks).reshape(-1, len(played), len(played)))
    by_model = [Estimate(None)] * models
    for place, model in enumerate(played):
        low, high = interval(drawn[:, place])
        by_model[model] = Estimate(float(values[place]), low, high)
    return by_model
