"""The contamination estimators find what was planted, cover it as they say, and find nothing in nothing."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from medlive.statistics.contamination import (
    adjusted_drop,
    drop,
    permutation_p,
    placebos,
    seen_effect,
    terciles,
)
from medlive.statistics.intervals import Floats
from tests.support.oracles import oracle

stats = oracle("scipy.stats")


def test_permutation_p_is_scipys() -> None:
    rng = np.random.default_rng(3)
    values = rng.random(40)
    values[:15] += 0.2
    sides = np.array([0] * 15 + [1] * 25)
    found = permutation_p(values, sides, 9999, seed=1)
    theirs = stats.permutation_test(
        (values[:15], values[15:]),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True,
        n_resamples=9999,
        rng=np.random.default_rng(2),
    )
    assert found == pytest.approx(theirs.pvalue, abs=0.012)
    assert permutation_p(values, 1 - sides, 9999, seed=1) == pytest.approx(
        found, abs=0.012
    )


def test_p_values_of_nothing_are_spread_evenly_and_of_something_are_small() -> None:
    rng = np.random.default_rng(7)
    sides = np.array([0] * 60 + [1] * 30)
    nothing, something = [], []
    for seed in range(100):
        values = rng.beta(2, 2, 90)
        nothing.append(permutation_p(values, sides, 199, seed=seed))
        something.append(permutation_p(values - 0.25 * sides, sides, 199, seed=seed))
    assert stats.kstest(nothing, "uniform").pvalue > 0.01
    assert np.mean([p < 0.05 for p in nothing]) < 0.1
    assert np.mean([p < 0.05 for p in something]) > 0.95


@pytest.mark.thorough
def test_clusters_are_dealt_whole() -> None:
    """Clusters of five near-equal scores show as much as their means would."""
    rng = np.random.default_rng(8)
    place = np.repeat(np.arange(30), 5)
    sides = (place % 2).astype(np.int_)
    found = []
    for seed in range(200):
        means = rng.beta(2, 2, 30)
        values = means[place] + 0.01 * rng.random(150)
        found.append(permutation_p(values, sides, 199, seed=seed, clusters=place))
        alone = permutation_p(means, np.arange(30) % 2, 199, seed=seed)
        assert found[-1] == pytest.approx(alone, abs=0.15)
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean([p < 0.05 for p in found]) < 0.1


def test_a_cluster_on_both_sides_is_dealt_in_its_parts() -> None:
    values, place = np.array([0.0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 2])
    sides = np.array([0, 0, 1, 1, 1, 0])
    parts = [[0, 1], [2], [3, 4], [5]]
    apart = [
        abs(
            values[[*parts[i], *parts[j]]].mean()
            - values[[x for k in {0, 1, 2, 3} - {i, j} for x in parts[k]]].mean()
        )
        for i, j in combinations(range(4), 2)
    ]
    truth = abs(values[sides == 1].mean() - values[sides == 0].mean())
    expected = float(np.mean([one >= truth - 1e-12 for one in apart]))
    found = permutation_p(values, sides, 4999, clusters=place)
    assert found == pytest.approx(expected, abs=0.02)


def test_the_interval_of_a_drop_covers_it_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    sides = np.array([0] * 70 + [1] * 40)
    covered = 0
    for _ in range(120):
        values = np.clip(rng.normal(np.where(sides == 0, 0.6, 0.5), 0.15), 0, 1)
        found = drop(values, sides, draws=250)
        covered += (found.low or 0) <= 0.1 <= (found.high or 0)
    assert 0.9 <= covered / 120 <= 0.985


def test_a_drop_of_one_side_alone_is_none() -> None:
    values = np.array([0.5, np.nan, 0.7])
    found = drop(values, np.array([0, 1, 0]))
    assert (found.n_pre, found.n_post, found.pre, found.post) == (
        2,
        0,
        pytest.approx(0.6),
        None,
    )
    assert (found.difference, found.low, found.p) == (None, None, None)


def panel(
    rng: np.random.Generator, effect: float, items: int = 120, models: int = 5
) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores with abilities, difficulties that drift with time, and an effect of having seen; later models saw
    more."""
    drift = np.linspace(0.0, -0.3, items)
    difficulty = rng.normal(0, 0.15, items) + drift
    ability = np.linspace(0.4, 0.6, models)
    seen = np.arange(items)[:, None] < np.linspace(0.2, 0.8, models)[None, :] * items
    return difficulty[:, None] + ability + effect * seen + rng.normal(
        0, 0.1, (items, models)
    ), seen


def test_the_effect_of_having_seen_is_least_squares_with_dummies() -> None:
    rng = np.random.default_rng(1)
    values, seen = panel(rng, 0.1, items=25, models=4)
    values[rng.random(values.shape) < 0.2] = np.nan
    rows = [(i, m) for i in range(25) for m in range(4) if not np.isnan(values[i, m])]
    design = np.zeros((len(rows), 25 + 4 + 1))
    for place, (i, m) in enumerate(rows):
        design[place, i] = design[place, 25 + m] = 1
        design[place, -1] = seen[i, m]
    target = np.array([values[row] for row in rows])
    expected = np.linalg.lstsq(design, target, rcond=None)[0][-1]
    found = seen_effect(values, seen, draws=20)
    assert found.effect == pytest.approx(expected)
    assert found.models == 4


def test_drift_fools_the_drop_and_not_the_effect_of_having_seen() -> None:
    rng = np.random.default_rng(2)
    covered, raw = 0, []
    for _ in range(50):
        values, seen = panel(rng, 0.08)
        found = seen_effect(values, seen, draws=120)
        assert found is not None
        covered += (found.low or 0) <= 0.08 <= (found.high or 0)
        raw.append(values[seen[:, 2], 2].mean() - values[~seen[:, 2], 2].mean())
    assert 0.88 <= covered / 50 <= 0.99
    assert np.mean(raw) > 0.15
    nothing = [seen_effect(*panel(rng, 0.0), draws=120) for _ in range(30)]
    assert sum(1 for e in nothing if e and not (e.low or 0) <= 0 <= (e.high or 0)) <= 4


def test_an_effect_that_nothing_tells_from_ability_or_difficulty_is_none() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((30, 3))
    everything, one_model = np.ones((30, 3), dtype=bool), np.zeros((30, 3), dtype=bool)
    one_model[:, 0] = True
    same_days = np.repeat(np.arange(30)[:, None] < 15, 3, axis=1)
    for seen in (everything, one_model, same_days, np.zeros((30, 3), dtype=bool)):
        assert seen_effect(values, seen, draws=10) is None
    assert seen_effect(values[:, :1], everything[:, :1], draws=10) is None


def test_a_pure_shift_of_the_mix_is_found_by_the_drop_and_taken_out_by_the_adjustment() -> (
    None
):
    rng = np.random.default_rng(4)
    covered, raw, left = 0, [], []
    for _ in range(60):
        sides = np.array([0] * 90 + [1] * 60)
        hard = rng.random(150) < np.where(sides == 0, 0.3, 0.7)
        values = np.where(hard, 0.3, 0.7) + rng.normal(0, 0.1, 150)
        found = adjusted_drop(values, sides, hard.astype(str).tolist(), draws=200)
        raw.append(values[sides == 0].mean() - values[sides == 1].mean())
        left.append(found.difference or 0)
        covered += (found.low or 0) <= 0 <= (found.high or 0)
    assert np.mean(raw) > 0.12
    assert abs(np.mean(left)) < 0.01
    assert 0.9 <= covered / 60 <= 0.99


@pytest.mark.parametrize(("items", "given"), [(58, False), (60, True)])
def test_an_interval_needs_thirty_on_each_side(items: int, given: bool) -> None:
    rng = np.random.default_rng(5)
    values, sides = rng.random((items, 2)), np.arange(items) % 2
    adjusted = adjusted_drop(values[:, 0], sides, ["all"] * items, draws=50)
    seen = np.stack([sides == 0, np.zeros(items, dtype=bool)], axis=1)
    effect = seen_effect(values, seen, draws=50)
    assert effect is not None
    for found in (adjusted, effect):
        assert (found.low is not None, found.high is not None) == (given, given)


def test_as_many_strata_as_items_fit_in_memory() -> None:
    items = 2_000
    strata = [f"specialty {item // 2}" for item in range(items)]
    values, sides = np.linspace(0, 1, items), np.arange(items) % 2
    tracemalloc.start()
    found = adjusted_drop(values, sides, strata, draws=20)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.n_pre, found.n_post) == (1_000, 1_000)
    assert found.low is not None
    assert most_bytes < 10_000_000


def test_strata_that_a_side_lacks_are_left_out_and_counted() -> None:
    values = np.array([1.0, 0.8, 0.5, 0.4, 0.2, 0.9])
    sides = np.array([0, 0, 0, 1, 1, 1])
    found = adjusted_drop(values, sides, list("aabaac"), draws=50)
    assert (found.n_pre, found.n_post, found.lost_pre, found.lost_post) == (2, 2, 1, 1)
    assert found.difference == pytest.approx(0.9 - 0.3)
    alone = adjusted_drop(values, sides, list("abcdef"), draws=50)
    assert (alone.difference, alone.low, alone.lost_pre, alone.lost_post) == (
        None,
        None,
        3,
        3,
    )


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_an_adjustment_by_one_stratum_is_the_drop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Beyond [0, 1] both intervals are percentiles of the same draws.
    values, sides = 10 * rng.random(120), np.where(rng.random(120) < 0.5, 0, 1)
    sides[:2] = 0, 1
    plain = drop(values, sides, draws=40, seed=seed)
    same = adjusted_drop(values, sides, ["all"] * 120, draws=40, seed=seed)
    assert same.difference == pytest.approx(plain.difference)
    assert (same.low, same.high) == (
        pytest.approx(plain.low),
        pytest.approx(plain.high),
    )


def test_placebo_dates_stay_on_their_side_of_the_cutoff() -> None:
    days = np.arange(100)
    sides = np.where(days < 60, 0, 1)
    values = np.where(sides == 0, 0.8, 0.4)
    found = list(placebos(values, sides, days, [5, 20, 40, 59, 75, 95], least=15))
    assert found == pytest.approx([0, 0, 0])


def test_terciles_part_known_values_and_keep_equals_together() -> None:
    assert terciles(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, np.nan])).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        -1,
    ]
    assert len(set(terciles(np.full(9, 0.5)).tolist())) == 1
