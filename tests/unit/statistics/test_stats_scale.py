"""The scale finds what full answers would give, says when it cannot, and depends on nothing that does not matter."""

import numpy as np
import pytest

from medlive.statistics.intervals import Floats
from medlive.statistics.scale import linked_groups, normal_scores, scale


def planted(seed: int, models: int = 12, slopes: float = 0.0) -> tuple[Floats, Floats]:
    """(full, answered): eight weeks of 30 cases, very unequal; each model answers three weeks in a row.

    `slopes` is how much models differ in following the difficulty.
    """
    rng = np.random.default_rng(seed)
    week = np.repeat(np.arange(8), 30)
    easiness = np.linspace(-1.5, 1.5, 8)[week] + rng.normal(0, 0.8, len(week))
    ability = np.linspace(-0.6, 0.6, models)
    slope = 1 + slopes * rng.uniform(-1, 1, models)
    place = (
        ability + slope * easiness[:, None] + rng.normal(0, 0.4, (len(week), models))
    )
    full = np.round(20 / (1 + np.exp(-place))) / 20
    first = np.arange(models) % 6
    asked = (week[:, None] >= first) & (week[:, None] < first + 3)
    return full, np.where(asked, full, np.nan)


def names(scores: Floats) -> list[str]:
    return [f"m{model}" for model in range(scores.shape[1])]


def values(scores: Floats) -> Floats:
    result = scale(names(scores), scores, draws=50)
    return np.array([ability.value for ability in result.abilities], dtype=np.float64)


def test_unequal_weeks_cost_the_scale_far_less_than_plain_means() -> None:
    plain, scaled = [], []
    for seed in range(5):
        full, scores = planted(seed)
        truth = full.mean(axis=0)
        plain.append(np.abs(np.nanmean(scores, axis=0) - truth).mean())
        scaled.append(np.abs(values(scores) - truth).mean())
    assert np.mean(scaled) < np.mean(plain) / 4


@pytest.mark.parametrize("slopes", [0.0, pytest.param(0.9, marks=pytest.mark.thorough)])
def test_the_intervals_hold_the_full_means(slopes: float) -> None:
    held = []
    for seed in range(5):
        full, scores = planted(seed, models=20, slopes=slopes)
        for ability, truth in zip(
            scale(names(scores), scores).abilities, full.mean(axis=0), strict=True
        ):
            assert ability.low is not None
            assert ability.high is not None
            held.append(ability.low <= truth <= ability.high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_who_answered_everything_has_its_own_mean_and_no_doubt_on_these_cases() -> None:
    full, scores = planted(0)
    scores[:, 3] = full[:, 3]
    ability = scale(names(scores), scores).abilities[3]
    mean = full[:, 3].mean()
    assert [ability.value, ability.low, ability.high] == pytest.approx([mean] * 3)
    assert ability.wide_low is not None
    assert ability.wide_high is not None
    assert ability.wide_low < mean < ability.wide_high


def test_the_order_of_cases_and_models_does_not_matter() -> None:
    _, scores = planted(1)
    rng = np.random.default_rng(0)
    cases, models = rng.permutation(len(scores)), rng.permutation(scores.shape[1])
    moved = values(scores[np.ix_(cases, models)])
    # Equal places may fall into other bins of the curve.
    assert moved == pytest.approx(values(scores)[models], abs=1e-3)


def test_cases_of_one_cluster_are_drawn_together() -> None:
    _, scores = planted(2)
    doubled = np.repeat(scores, 2, axis=0)
    pairs = np.repeat(np.arange(len(scores)), 2)
    apart = scale(names(scores), doubled).abilities[0]
    together = scale(names(scores), doubled, clusters=pairs).abilities[0]
    assert apart.wide_low is not None
    assert together.wide_low is not None
    assert together.wide_low < apart.wide_low


def test_models_that_share_no_cases_are_never_on_one_scale() -> None:
    _, scores = planted(3)
    cases, models = scores.shape
    both = np.full((2 * cases, models + 2), np.nan)
    both[:cases, :models] = scores
    both[cases:, models:] = scores[:, :2]
    result = scale(names(both), both)
    assert not result.why
    for ability in result.abilities[models:]:
        assert ability.value is None
        assert "not linked" in ability.why
    assert set(result.standings) == set(names(scores))
    assert np.isnan(result.expected[cases:]).all()
    on_scale = [ability.value for ability in result.abilities[:models]]
    assert on_scale == pytest.approx(list(values(scores)))


def test_four_common_cases_are_no_link() -> None:
    known = np.zeros((30, 2), dtype=bool)
    known[:14, 0] = known[10:, 1] = True
    assert linked_groups(known) == [[1], [0]]
    known[14, 0] = True
    assert linked_groups(known) == [[0, 1]]


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (np.linspace(0, 1, 30)[:, None], "no two models"),
        (np.full((0, 3), np.nan), "no two models"),
        (np.array([[0.2, 0.4]]), "no two models"),
        (np.random.default_rng(0).random((8, 3)), "8 cases"),
        (np.ones((30, 3)), "the same"),
        (np.full((30, 3), np.nan), "no two models"),
    ],
)
def test_what_gives_no_scale_gets_a_word_and_no_number(
    scores: Floats, why: str
) -> None:
    result = scale(names(scores), scores)
    assert why in result.why
    for ability in result.abilities:
        assert ability.value is None
        assert ability.low is None
        assert why in ability.why


def test_one_model_of_all_ones_does_not_break_the_others() -> None:
    full, scores = planted(4)
    scores[~np.isnan(scores[:, 0]), 0] = 1.0
    found = values(scores)
    assert found[0] == found.max() <= 1
    assert np.abs(found[1:] - full.mean(axis=0)[1:]).mean() < 0.05


def test_holes_of_ungraded_cases_change_little() -> None:
    full, scores = planted(5)
    scores[np.random.default_rng(1).random(scores.shape) < 0.1] = np.nan
    assert np.abs(values(scores) - full.mean(axis=0)).mean() < 0.04


def test_equal_scores_have_one_normal_score() -> None:
    found = normal_scores(np.array([[0.0, 1.0], [0.0, np.nan], [0.5, 1.0]]))
    assert found[0, 0] == found[1, 0] == pytest.approx(-found[0, 1])
    assert found[0, 1] == found[2, 1]
    assert found[2, 0] == found[1, 1] == 0


@pytest.mark.parametrize("models", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_few_models_of_equal_ability_are_seldom_ranked_apart(models: int) -> None:
    apart = held = 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        easiness = np.sort(rng.normal(size=60))
        place = easiness[:, None] + rng.normal(0, 0.8, (60, models))
        full = 1 / (1 + np.exp(-place))
        scores = full.copy()
        scores[40:, 0] = np.nan
        scores[:20, 1] = np.nan
        result = scale(names(scores), scores, draws=200)
        apart += len({standing.group for standing in result.standings.values()}) > 1
        for ability in result.abilities:
            assert ability.wide_low is not None
            assert ability.wide_high is not None
            held += ability.wide_low <= 0.5 <= ability.wide_high
            # Other cases are in more doubt than these.
            assert ability.low is not None
            assert ability.high is not None
            assert ability.wide_low <= ability.low
            assert ability.high <= ability.wide_high
    assert apart <= 2
    assert held >= 0.85 * 16 * models
