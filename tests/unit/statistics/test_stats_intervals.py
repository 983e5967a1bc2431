"""Intervals cover what they say, few and low scores included, and a pair's interval and p agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.statistics.bootstrap import bootstrap_means, cluster_counts, weight_chunks
from medlive.statistics.comparison import compare, compare_paired, tie_groups
from medlive.statistics.estimate import mean_estimates, too_few_for_mean
from medlive.statistics.intervals import DOUBT, Places, mean_bounds, quantile, sign_p
from tests.support.oracles import oracle

stats = oracle("scipy.stats")


def bounds_by_mean(
    values: np.ndarray, drawn: np.ndarray, clusters: Places | None = None
) -> np.ndarray:
    """(low and high x columns), NaN where a mean has no interval."""
    estimates = mean_estimates(values, drawn, clusters)
    return np.array([(e.low, e.high) for e in estimates], dtype=float).T


def coverage(values: np.ndarray, truth: float, clusters: Places | None = None) -> float:
    """The share of columns whose interval holds the truth; a column is an experiment."""
    drawn = bootstrap_means(values, draws=600, seed=1, clusters=clusters)
    low, high = bounds_by_mean(values, drawn, clusters)
    printed = ~np.isnan(low)
    return float(((low <= truth) & (truth <= high))[printed].mean())


@pytest.mark.parametrize(("n", "share"), [(39, 0.5), (100, 0.3), (400, 0.08)])
def test_an_interval_that_is_printed_covers(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    values = np.where(rng.random((n, 600)) < share, rng.beta(2, 6, (n, 600)), 0.0)
    assert 0.92 <= coverage(values, share * 0.25) <= 0.98


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 80), st.sampled_from([0.01, 0.2, 0.9]))
def test_an_interval_is_refused_exactly_with_a_reason(
    seed: int, n: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.random((n, 3)) < share) * rng.random((n, 3))
    clusters = np.arange(n) // 2
    for places in (None, clusters):
        low, _ = bounds_by_mean(values, bootstrap_means(values, draws=50), places)
        few = [bool(why) for why in too_few_for_mean(values, places)]
        assert few == np.isnan(low).tolist()
        # The same scores the other way round are as few.
        turned = too_few_for_mean(1 - values, places)
        assert few == [bool(why) for why in turned]


def test_one_good_answer_among_forty_is_too_few_to_say() -> None:
    values = np.full((40, 1), 0.001)
    values[0] = 0.9
    assert "full scores" in too_few_for_mean(values)[0]
    values[:4] = 1
    assert "in effect" in too_few_for_mean(values)[0]
    assert "29 threads" in too_few_for_mean(values[:29])[0]


@pytest.mark.parametrize("n", [3, 8, 10])
def test_p_of_signs_is_scipys(n: int) -> None:
    rng = np.random.default_rng(n)
    sums = rng.normal(0.3, 1, n)
    expected = stats.permutation_test(
        (sums,), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_p(sums) == pytest.approx(expected.pvalue)
    assert sign_p(np.append(sums, 0.0)) == sign_p(sums)
    assert sign_p(-sums) == sign_p(sums)


def test_p_of_random_signs_is_near_that_of_all() -> None:
    sums = np.random.default_rng(5).normal(0.4, 1, 17)
    bits = (np.arange(2**17)[:, None] >> np.arange(17)) & 1
    exact = (np.abs((1 - 2 * bits) @ sums) >= abs(sums.sum()) - 1e-9).mean()
    assert sign_p(sums, seed=1) == pytest.approx(exact, abs=0.02)
    assert sign_p(sums, seed=1) == sign_p(sums, seed=1)


def test_models_that_signs_alone_tell_apart_share_a_rank() -> None:
    values = np.repeat([[0.51, 0.5]], 15, axis=0)
    (pair,) = compare(["a", "b"], values)
    assert pair.p == 2.0**-14
    assert (pair.low, bool(pair.why)) == (None, True)
    groups = {s.group for s in tie_groups({"a": 0.51, "b": 0.5}, [pair]).values()}
    assert groups == {1}


def test_cases_of_a_cluster_are_one_observation() -> None:
    rng = np.random.default_rng(4)
    whole = np.repeat(rng.beta(1, 3, (40, 500)), 5, axis=0)
    clusters = np.repeat(np.arange(40), 5)
    assert coverage(whole, 0.25, clusters) > 0.92
    assert coverage(whole, 0.25) < 0.75
    once = np.column_stack([whole[::5, 0], whole[::5, 1]])
    each = bounds_by_mean(once, bootstrap_means(once))
    many = bounds_by_mean(
        whole[:, :2], bootstrap_means(whole[:, :2], clusters=clusters), clusters
    )
    np.testing.assert_allclose(many, each)
    some = np.arange(200)[:, None] % [[1, 7]] == 0
    assert cluster_counts(some, clusters).tolist() == [40, 29]
    (weights,) = weight_chunks(len(clusters), 3, 0, clusters)
    assert (weights[:, ::5] == weights[:, 4::5]).all()


@pytest.mark.matrix
@pytest.mark.parametrize("k", [2, 5, 10, 39, 400, 3000])
def test_a_column_of_zeros_has_more_than_the_exact_bound(k: int) -> None:
    low, high = mean_bounds(np.zeros(1), np.zeros(1), np.array([k]))
    exact = stats.binomtest(0, k).proportion_ci(method="exact").high
    assert low[0] == 0
    assert exact <= high[0] < 1
    other = mean_bounds(np.ones(1), np.zeros(1), np.array([k]))
    assert (1 - other[1][0], 1 - other[0][0]) == pytest.approx((low[0], high[0]))


@pytest.mark.parametrize(("hits", "n"), [(1, 400), (20, 400), (200, 400), (150, 3000)])
def test_of_zeros_and_ones_it_is_wilsons(hits: int, n: int) -> None:
    mean = hits / n
    spread = np.array([(mean * (1 - mean) / n) ** 0.5])
    found = mean_bounds(np.array([mean]), spread, np.array([n]))
    wilson = stats.binomtest(hits, n).proportion_ci(method="wilson")
    # Student's quantile and k / (k - 1) are a little more than Wilson's.
    np.testing.assert_allclose(
        np.concatenate(found), [wilson.low, wilson.high], rtol=0.01
    )


@pytest.mark.matrix
@pytest.mark.parametrize("freedom", [1, 4, 9, 38, 399, 20_000])
def test_students_quantile_is_scipys(freedom: int) -> None:
    assert quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-8)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(6, 60),
    st.sampled_from([0.02, 0.2, 0.9]),
    st.sampled_from([0.0, 0.1]),
)
def test_p_is_below_5_percent_exactly_where_the_interval_leaves_0_out(
    seed: int, n: int, share: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    values = np.clip(
        np.where(rng.random((n, 4)) < share, rng.random((n, 4)), 0)
        + shift * np.arange(4),
        0,
        1,
    )
    for clusters in (None, np.minimum(np.arange(n) // 2, n)):
        for pair in compare(list("abcd"), values, draws=200, clusters=clusters):
            if pair.low is None:
                assert pair.why
            elif abs(pair.p - 0.05) > 1e-6:
                assert (pair.p < 0.05) is not (pair.low <= 0 <= (pair.high or 0))


@pytest.mark.thorough
@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("shares", [(0.2, 0.1), (0.2, 0.2), (0.45, 0.3)])
def test_a_pairs_interval_covers_the_difference(
    shares: tuple[float, float], n: int
) -> None:
    rng = np.random.default_rng(7)
    same = rng.random((n, 1500))

    def scores(share: float) -> np.ndarray:
        some = same + rng.random((n, 1500)) > 2 - (2 * share) ** 0.5
        return np.where(some, rng.beta(2, 6, (n, 1500)), 0.0)

    figures = compare_paired(scores(shares[0]) - scores(shares[1]), draws=600)
    low, high = np.array([(f.low, f.high) for f in figures], dtype=float).T
    truth = (shares[0] - shares[1]) * 0.25
    printed = ~np.isnan(low)
    assert printed.mean() > 0.5
    assert ((low <= truth) & (truth <= high))[printed].mean() >= 0.92


@pytest.mark.parametrize(("n", "share"), [(40, 0.1), (100, 0.05)])
@pytest.mark.thorough
def test_two_weak_models_that_are_alike_are_seldom_told_apart(
    n: int, share: float
) -> None:
    """A few differences among many zeros are as few as they are, not as the cases."""
    rng = np.random.default_rng(11)
    first, second = (
        np.where(rng.random((n, 3000)) < share, rng.beta(0.7, 1.5, (n, 3000)), 0.0)
        for _ in "ab"
    )
    figures = compare_paired(first - second, draws=400)
    p = np.array([figure.p for figure in figures])
    assert (p < 0.05).mean() < 0.08


def test_a_gap_that_every_case_shows_is_found() -> None:
    rng = np.random.default_rng(3)
    (pair,) = compare(["a", "b"], rng.normal([0.5, 0.4], 0.02, (30, 2)))
    assert pair.low is not None
    assert pair.p < 0.001
    assert pair.low > 0.05


def test_values_beyond_the_unit_interval_have_students_interval() -> None:
    values = np.random.default_rng(2).normal(0.2, 1, (50, 1))
    low, high = bounds_by_mean(values, bootstrap_means(values, draws=5_000))
    expected = stats.t.interval(0.95, 49, values.mean(), stats.sem(values[:, 0]))
    np.testing.assert_allclose((low[0], high[0]), expected, atol=0.01)


def test_a_little_doubt_widens_what_shows_no_spread() -> None:
    """Scores that all are 5 % do not show that none is 100 %."""
    flat = mean_bounds(np.array([0.05]), np.array([0.0]), np.array([30]))
    assert flat[1][0] > 0.1
    assert 0 < DOUBT < 1
