"""Which models link a new week: the error that is said is the error that comes, on worlds made by chance."""

import numpy as np
import pytest

from medlive.statistics.intervals import Floats
from medlive.statistics.planning import kept_cases_needed, rank_anchors
from medlive.statistics.scale import Scale, scale

OLD, NEW, MODELS = 120, 40, 12
SPREAD = 0.15


def world(random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """(what models are truly expected to score, their scores), of old and new cases; half of the old are answered."""
    levels = random.normal(0.5, 0.08, MODELS)
    cases = random.normal(0, 0.1, OLD + NEW)
    truth = levels + cases[:, None]
    scores = truth + random.normal(0, SPREAD, truth.shape)
    old = scores[:OLD].copy()
    old[random.random(old.shape) < 0.5] = np.nan
    return truth, old, scores[OLD:]


def scale_of(scores: Floats) -> Scale:
    names = [f"m{number}" for number in range(scores.shape[1])]
    return scale(names, scores, draws=200)


@pytest.mark.thorough
@pytest.mark.parametrize("asked", [1, 3])
def test_the_error_that_is_said_comes(asked: int) -> None:
    misses, said = [], []
    random = np.random.default_rng(5)
    for _ in range(60):
        truth, old, new = world(random)
        on_scale = scale_of(old)
        anchors = rank_anchors(on_scale, old, NEW)[:asked]
        weights = np.array([1 / anchor.error**2 for anchor in anchors])
        gaps = []
        for anchor in anchors:
            ability = on_scale.abilities[anchor.column]
            assert ability.value is not None
            gaps.append(new[:, anchor.column].mean() - ability.value)
        true_gap = truth[OLD:].mean() - truth[:OLD].mean()
        misses.append(np.average(gaps, weights=weights) - true_gap)
        said.append(anchors[-1].together)
    ratio = np.sqrt(np.mean(np.square(misses))) / np.mean(said)
    assert 0.7 < ratio < 1.5


def test_more_models_never_tell_less_and_precision_has_its_price() -> None:
    _, old, _ = world(np.random.default_rng(6))
    on_scale = scale_of(old)
    together = [anchor.together for anchor in rank_anchors(on_scale, old, NEW)]
    assert len(together) == MODELS
    assert together == sorted(together, reverse=True)
    needed = [
        kept_cases_needed(on_scale, old, NEW, models=4, error=error)
        for error in (0.05, 0.02, 0.001)
    ]
    assert needed[0]
    assert needed[1]
    assert needed[0] < needed[1]
    assert needed[2] is None  # The new answers alone are less sure
