"""Bradley and Terry's model: strengths that are planted come back, and are as uncertain as they say."""

import numpy as np
import pytest

from medlive.evaluation.protocols.pairwise import (
    Match,
    elo,
    ratings,
)


def chances(
    true: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    return 1 / (1 + 10 ** ((true[None, :] - true[:, None]) / 400))


@pytest.mark.parametrize("models", [2, 3, 7])
def test_matches_that_go_as_the_strengths_say_give_the_strengths(models: int) -> None:
    true = np.random.default_rng(models).normal(1000, 300, models)
    won = 50 * chances(true) * (1 - np.eye(models))
    assert elo(won, prior=0.0) == pytest.approx(true - true.mean() + 1000, abs=1e-6)


def test_two_models_have_the_closed_form() -> None:
    first, second = elo(np.array([[0, 30.0], [10, 0]]), prior=0.0)
    assert first - second == pytest.approx(400 * np.log10(3))
    # A model that won everything stays finite, and above.
    first, second = elo(np.array([[0, 30.0], [0, 0]]))
    assert 500 < first - second < 2000


def test_intervals_hold_the_truth_and_draw_whole_cases() -> None:
    rng = np.random.default_rng(3)
    true = np.array([1150.0, 1050, 950, 850])
    chance = chances(true)
    pairs = [(a, b) for a in range(4) for b in range(a)]
    held = []
    for _ in range(16):
        matches = [
            Match(a, b, float(rng.random() < chance[a, b]), case)
            for case in range(60)
            for a, b in pairs
        ]
        found = ratings(matches, 4, draws=200)
        held += [
            one.low is not None and one.high is not None and one.low <= t <= one.high
            for one, t in zip(found, true, strict=True)
        ]
    assert np.mean(held) > 0.88
    twice = [m for match in matches for m in (match, match)]
    single, double = ratings(matches, 4, draws=200), ratings(twice, 4, draws=200)
    for one, two in zip(single, double, strict=True):
        assert one.low is not None
        assert two.low is not None
        assert one.high is not None
        assert two.high is not None
        # The same cases twice tell nothing new.
        assert two.high - two.low == pytest.approx(one.high - one.low, rel=0.05)


def test_who_did_not_play_has_no_rating() -> None:
    found = ratings([Match(0, 2, 1.0, 1), Match(2, 0, 0.5, 1)], 3)
    assert found[1].value is None
    assert [found[0], found[2]] == ratings(
        [Match(0, 1, 1.0, 1), Match(1, 0, 0.5, 1)], 2
    )
    assert found[0].low is None
