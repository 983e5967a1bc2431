"""Wrong keys are found, sound items are left alone, and hard cases are chosen without the model that is scored."""

import numpy as np

from medlive.statistics.items import FALSE_ALARMS, analyse_items, hard_cases


def test_a_turned_key_is_a_suspect_and_sound_ones_rarely_are() -> None:
    rng = np.random.default_rng(0)
    ability = rng.normal(0, 1, 30)
    chance = 1 / (1 + np.exp(-(ability + rng.normal(0, 1, 1000)[:, None])))
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


def test_hard_cases_of_a_model_do_not_depend_on_its_own_scores() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((60, 5))
    abilities = scores.mean(axis=0)
    chosen = hard_cases(scores, abilities)
    moved = scores.copy()
    moved[:, 2] = rng.random(60)
    assert (hard_cases(moved, abilities)[:, 2] == chosen[:, 2]).all()
    assert chosen.sum(axis=0).tolist() == [20] * 5
    # Scores of pure chance: a subset chosen by the model's own failures would lie far below its mean.
    gap = np.where(chosen, scores, np.nan)
    assert abs(np.nanmean(gap) - scores.mean()) < 0.06
