"""Ranks, correlations and the stability of an order, against scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.statistics.bootstrap import bootstrap_groups, bootstrap_means
from medlive.statistics.correlation import jaccard, pearson_matrix, rank_stability
from tests.support.oracles import oracle

stats = oracle("scipy.stats")


def test_absent_values_are_left_out_in_pairs() -> None:
    values = np.array([[1, 2, np.nan], [2, 4, 1], [3, 5, 2], [4, 9, np.nan]])
    matrix = pearson_matrix(values)
    assert matrix[0][1] == pytest.approx(np.corrcoef(values[:, 0], values[:, 1])[0, 1])
    assert matrix[0][0] == pytest.approx(1)
    assert matrix[0][2] is None
    assert jaccard({1, 2, 3}, {2, 3, 4}) == 0.5
    assert jaccard(set(), set()) is None


def test_an_order_that_is_clear_is_firm_and_one_that_is_not_is_not() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.1, (200, 3))
    clear = rank_stability(["a", "b", "c"], noise + np.array([0.2, 0.5, 0.8]), draws=200)
    assert (clear.best, clear.worst, clear.first_share) == ((3, 2, 1), (3, 2, 1), (0.0, 0.0, 1.0))
    assert clear.spearman_mean == clear.spearman_low == pytest.approx(1)
    even = rank_stability(["a", "b", "c"], noise, draws=200)
    assert even is not None
    assert (even.spearman_mean or 1) < 0.95
    assert max(even.worst) == 3
    assert sum(even.first_share) == pytest.approx(1)
    gap = np.where(np.arange(200)[:, None] < 50, np.nan, noise)
    partly = rank_stability(["a", "b", "c"], gap, draws=50)
    assert partly.items == 150
    assert rank_stability(["a"], np.array([[np.nan]])) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_a_group_is_a_column_with_the_rest_absent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((25, 3)) < 0.2, np.nan, rng.random((25, 3)))
    groups = rng.integers(-1, 3, 25)
    found = bootstrap_groups(values, groups, 3, draws=30, seed=seed)
    for group in range(3):
        alone = np.where((groups == group)[:, None], values, np.nan)
        expected = bootstrap_means(alone, draws=30, seed=seed)
        np.testing.assert_allclose(found[:, group], expected)
