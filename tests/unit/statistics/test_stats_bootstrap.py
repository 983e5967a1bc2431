"""The bootstrap covers what it should, comparisons find what is there, Holm is Holm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.statistics import bootstrap
from medlive.statistics.bootstrap import bootstrap_means, compare, holm, interval, tie_groups, weight_chunks


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    # 300 experiments of 80 items are 300 columns: one weight matrix serves them all.
    values = rng.beta(2, 3, size=(80, 300))
    drawn = bootstrap_means(values, draws=600, seed=1)
    bounds = [interval(drawn[:, i]) for i in range(300)]
    covered = sum(1 for b in bounds if b is not None and b[0] <= 0.4 <= b[1])
    assert 0.91 <= covered / 300 <= 0.985


def test_clusters_widen_the_interval_where_items_repeat() -> None:
    rng = np.random.default_rng(2)
    base = rng.random((40, 1))
    values, clusters = np.repeat(base, 5, axis=0), np.repeat(np.arange(40), 5)
    alone = interval(bootstrap_means(values, seed=4)[:, 0])
    together = interval(bootstrap_means(values, seed=4, clusters=list(clusters))[:, 0])
    single = interval(bootstrap_means(base, seed=4)[:, 0])
    assert alone is not None
    assert together == pytest.approx(single)
    assert together is not None
    assert together[1] - together[0] > 1.8 * (alone[1] - alone[0])


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
    assert interval(np.array([np.nan])) is None


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_against_its_definition(p_values: list[float]) -> None:
    corrected = holm(p_values)
    m = len(p_values)
    ranked = sorted(p_values)
    for p, c in zip(p_values, corrected, strict=True):
        assert c == pytest.approx(min(1.0, max((m - k) * q for k, q in enumerate(ranked) if q <= p)))


def test_a_real_difference_is_found_and_none_is_not() -> None:
    rng = np.random.default_rng(5)
    ease = rng.random(400)
    values = np.column_stack([ease, ease + rng.normal(0, 0.05, 400), ease - 0.1 + rng.normal(0, 0.05, 400)])
    pairs = {(c.first, c.second): c for c in compare(["a", "b", "c"], values, draws=500)}
    assert pairs["a", "b"].p_holm > 0.05
    assert pairs["a", "c"].p_holm < 0.001
    assert pairs["a", "c"].low is not None
    assert pairs["a", "c"].low > 0
    groups = {
        s.name: (s.group, s.rank_best, s.rank_worst)
        for s in tie_groups({"a": 0.5, "b": 0.49, "c": 0.4}, list(pairs.values()))
    }
    assert groups == {"a": (1, 1, 2), "b": (1, 1, 2), "c": (2, 3, 3)}


def test_a_handful_of_cases_proves_nothing() -> None:
    values = np.array([[0.9, 0.1]] * 5)
    (pair,) = compare(["a", "b"], values)
    assert pair.difference == pytest.approx(0.8)
    assert pair.p == 2.0**-4
    (lonely,) = compare(["a", "b"], np.array([[0.9, np.nan], [np.nan, 0.1]]))
    assert (lonely.n, lonely.difference, lonely.p_holm) == (0, None, 1.0)


def test_false_findings_stay_rare() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for seed in range(60):
        values = rng.random((120, 4))
        hits += any(c.p_holm < 0.05 for c in compare(list("abcd"), values, draws=200, seed=seed))
    assert hits <= 9
