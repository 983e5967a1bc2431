"""Correlations in pairs, and means of groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.statistics.bootstrap import bootstrap_groups, bootstrap_means
from medlive.statistics.correlation import pearson


def test_absent_values_are_left_out_in_pairs() -> None:
    values = np.array([[1, 2, np.nan], [2, 4, 1], [3, 5, 2], [4, 9, np.nan]])
    first, second, sparse = values.T
    assert pearson(first, second) == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert pearson(first, sparse) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_a_group_is_a_column_with_the_rest_absent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((25, 3)) < 0.2, np.nan, rng.random((25, 3)))
    groups = rng.integers(-1, 3, 25)
    rows = [np.flatnonzero(groups == group) for group in range(3)]
    found = bootstrap_groups(values, rows, draws=30, seed=seed)
    for group in range(3):
        alone = np.where((groups == group)[:, None], values, np.nan)
        expected = bootstrap_means(alone, draws=30, seed=seed)
        np.testing.assert_allclose(found[:, group], expected)
