"""The bootstrap covers what it should, comparisons find what is there, Holm is Holm."""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.statistics import bootstrap
from medlive.statistics.bootstrap import bootstrap_means, weight_chunks
from medlive.statistics.comparison import (
    Comparison,
    compare,
    holm,
    tie_groups,
)
from medlive.statistics.estimate import percentile_interval
from tests.support.oracles import oracle

stats = oracle("scipy.stats")


def test_draws_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(weight_chunks(17, 50, 9)))
    assert whole.shape == (50, 17)
    assert (whole.sum(axis=1) == 17).all()
    monkeypatch.setattr(bootstrap, "_CHUNK", 40)
    assert (np.concatenate(list(weight_chunks(17, 50, 9))) == whole).all()
    assert not (np.concatenate(list(weight_chunks(17, 50, 10))) == whole).all()


def test_absent_items_are_left_out_of_a_column() -> None:
    values = np.array([[1.0, np.nan], [1.0, 0.5], [1.0, 0.5], [1.0, np.nan]])
    drawn = bootstrap_means(values, draws=200, seed=0)
    assert (drawn[:, 0] == 1.0).all()
    known = drawn[~np.isnan(drawn[:, 1]), 1]
    assert (known == 0.5).all()
    assert 0 < len(known) < 200
    assert percentile_interval(np.array([np.nan])) == (None, None)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_against_its_definition(p_values: list[float]) -> None:
    corrected = holm(p_values)
    m = len(p_values)
    ranked = sorted(p_values)
    for p, c in zip(p_values, corrected, strict=True):
        assert c == pytest.approx(
            min(1.0, max((m - k) * q for k, q in enumerate(ranked) if q <= p))
        )


def test_a_real_difference_is_found_and_none_is_not() -> None:
    rng = np.random.default_rng(5)
    ease = rng.random(400)
    values = np.column_stack(
        [ease, ease + rng.normal(0, 0.05, 400), ease - 0.1 + rng.normal(0, 0.05, 400)]
    )
    pairs = {
        (c.first, c.second): c for c in compare(["a", "b", "c"], values, draws=500)
    }
    assert pairs["a", "b"].p_holm > 0.05
    assert pairs["a", "c"].p_holm < 0.001
    assert pairs["a", "c"].low is not None
    assert pairs["a", "c"].low > 0
    groups = {
        s.name: (s.group, s.rank_best, s.rank_worst)
        for s in tie_groups(
            {"a": 0.5, "b": 0.49, "c": 0.4}, list(pairs.values())
        ).values()
    }
    assert groups == {"a": (1, 1, 2), "b": (1, 1, 2), "c": (2, 3, 3)}


def test_a_handful_of_cases_proves_nothing() -> None:
    values = np.array([[0.9, 0.1]] * 5)
    (pair,) = compare(["a", "b"], values)
    assert pair.difference == pytest.approx(0.8)
    assert pair.p == 2.0**-4
    (lonely,) = compare(["a", "b"], np.array([[0.9, np.nan], [np.nan, 0.1]]))
    assert (lonely.n, lonely.difference, lonely.p_holm) == (0, None, 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [40, 400])
def test_p_of_a_pair_is_the_paired_t_tests_down_to_what_signs_can_show(n: int) -> None:
    rng = np.random.default_rng(n)
    # Beyond [0, 1] the interval is Student's; within, it comes to the same for many items.
    values = 10 * (rng.random((n, 8)) + np.linspace(0, 0.3, 8)) / (1 if n < 400 else 20)
    for pair in compare(list("abcdefgh"), values, draws=3000):
        first, second = (
            values[:, "abcdefgh".index(name)] for name in (pair.first, pair.second)
        )
        asked = abs(stats.ttest_rel(first, second).statistic)
        freedom = n - 1
        given_ = stats.t.isf(pair.p / 2, freedom)
        assert pair.p >= 2.0**-freedom
        if 2.0**-freedom < pair.p < 1:
            assert given_ == pytest.approx(asked, rel=0.06)


def test_a_place_is_what_the_pairs_say_and_not_the_order_of_means_over_other_cases() -> (
    None
):
    """b is below a by its mean, on cases of its own; on those that both have it is above."""
    pairs = [
        Comparison("a", "b", 200, -0.2, -0.3, -0.1, 0.001, 0.003),
        Comparison("c", "a", 200, 0.0, -0.1, 0.1, 0.9, 0.9),
    ]
    found = {
        s.name: (s.group, s.rank_best, s.rank_worst)
        for s in tie_groups({"a": 0.6, "b": 0.5}, pairs).values()
    }
    assert found == {"a": (1, 2, 2), "b": (1, 1, 1)}


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.sampled_from([-0.1, 0.0, 0.1, None]), st.sampled_from([0.01, 0.5])
        ),
        min_size=15,
        max_size=15,
    ),
    st.randoms(),
)
def test_standings_do_not_depend_on_any_order(
    means: list[float], told: list[tuple[float | None, float]], rng: random.Random
) -> None:
    names = "abcdef"[: len(means)]
    pairs = [
        Comparison(a, b, 9, difference, None, None, p, p)
        for (a, b), (difference, p) in zip(combinations(names, 2), told, strict=False)
    ]
    scores = dict(zip(names, means, strict=True))
    found = list(tie_groups(scores, pairs).values())
    mixed = [
        c
        if rng.random() < 0.5
        else replace(
            c, first=c.second, second=c.first, difference=c.difference and -c.difference
        )
        for c in rng.sample(pairs, len(pairs))
    ]
    shuffled = dict(rng.sample(list(scores.items()), len(scores)))
    assert list(tie_groups(shuffled, mixed).values()) == found
    assert [s.group for s in found] == sorted(s.group for s in found)
    assert all(1 <= s.rank_best <= s.rank_worst <= len(means) for s in found)


@pytest.mark.thorough
def test_false_findings_stay_rare() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for seed in range(60):
        values = rng.random((120, 4))
        hits += any(
            c.p_holm < 0.05 for c in compare(list("abcd"), values, draws=200, seed=seed)
        )
    assert hits <= 9
