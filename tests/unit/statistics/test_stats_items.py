"""Wrong keys are found, sound items are left alone, and hard cases are chosen without the model that is scored."""

import numpy as np

from medlive.statistics.items import FALSE_ALARMS, analyse_items, hardest


def test_a_turned_key_is_a_suspect_and_sound_ones_rarely_are() -> None:
    rng = np.random.default_rng(0)
    ability = rng.normal(0, 1, 30)
    chance = 1 / (1 + np.exp(-(ability + rng.normal(0, 1, 300)[:, None])))
    met = (rng.random(chance.shape) < chance).astype(float)
    met[:20] = 1 - met[:20]
    items = analyse_items(met, met.mean(axis=0))
    suspects = np.array([item.suspect for item in items])
    assert suspects[:20].mean() > 0.4
    assert suspects[20:].mean() <= FALSE_ALARMS


def test_what_everybody_passes_or_few_answered_tells_nothing() -> None:
    scores = np.full((3, 6), np.nan)
    scores[0] = 1.0
    scores[1, :3] = [0.0, 1.0, 0.0]
    everybody, few, nobody = analyse_items(scores, np.linspace(0.2, 0.8, 6))
    assert (everybody.mean, everybody.deciding, everybody.p) == (1.0, 0, None)
    assert (few.models, few.deciding, few.correlation) == (3, 1, None)
    assert (nobody.models, nobody.mean, nobody.suspect) == (0, None, False)


def test_the_hardest_third_is_hard_to_those_who_were_asked() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((60, 5))
    scores[:20] -= 1
    assert set(hardest(scores, scores.mean(axis=0)).tolist()) == set(range(20))
