"""AC1, kappa, macro-F1 and correlations against irrCAC, scikit-learn and scipy; intervals against resampling."""

import math
import warnings
from collections.abc import Hashable
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from medlive.statistics.agreement import (
    ac1_of_sums,
    ac1_of_tables,
    equal_of_tables,
    kappa_of_tables,
    macro_f1_of_tables,
    rater_sums,
)
from medlive.statistics.bootstrap import weight_chunks
from medlive.statistics.correlation import (
    correlate,
    kendall,
    pearson,
    pearson_p,
    spearman,
)
from medlive.statistics.estimate import LEAST_DRAWN, estimate, ratio_of
from medlive.statistics.intervals import incomplete_beta
from tests.support.agreement import ac1, ac1_raters, kappa, macro_f1
from tests.support.oracles import oracle

stats = oracle("scipy.stats")
special = oracle("scipy.special")
sklearn = oracle("sklearn.metrics")
pd = oracle("pandas")
needs_irrcac = pytest.mark.skipif(
    find_spec("irrCAC") is None, reason="irrCAC is not installed"
)

LABELS = ("met", "unmet", "unclear")
label = st.sampled_from(LABELS)
pairs = st.lists(st.tuples(label, label), min_size=2, max_size=40)
few = settings(max_examples=12, deadline=None)


def oracle_ac1(ratings: list[list[str | None]]) -> float:
    irrcac = import_module("irrCAC.raw")
    with warnings.catch_warnings():
        # It divides by the variance of what does not vary; only its estimate is used.
        warnings.simplefilter("ignore")
        raters = irrcac.CAC(pd.DataFrame(ratings), categories=list(LABELS), digits=12)
        return float(raters.gwet()["est"]["coefficient_value"])


def defined_ac1(ratings: list[list[str | None]]) -> Fraction | None:
    """Gwet's definition in whole numbers, pair by pair, so that it can be read beside the formula."""
    rated = [[r for r in item if r is not None] for item in ratings]
    agreed = [
        Fraction(
            sum(a == b for a, b in combinations(item, 2)),
            len(item) * (len(item) - 1) // 2,
        )
        for item in rated
        if len(item) > 1
    ]
    if not agreed:
        return None
    some = [item for item in rated if item]
    shares = [
        sum((Fraction(item.count(q), len(item)) for item in some), Fraction())
        / len(some)
        for q in LABELS
    ]
    chance = sum((share * (1 - share) for share in shares), Fraction()) / (
        len(LABELS) - 1
    )
    return (sum(agreed, Fraction()) / len(agreed) - chance) / (1 - chance)


@few
@given(
    st.lists(
        st.lists(st.none() | label, min_size=4, max_size=4), min_size=1, max_size=25
    )
)
def test_ac1_is_its_definition(ratings: list[list[str | None]]) -> None:
    expected, found = defined_ac1(ratings), ac1_raters(ratings, 3)
    assert found == (
        None if expected is None else pytest.approx(float(expected), abs=1e-12)
    )


@needs_irrcac
@few
@given(pairs)
@pytest.mark.thorough
def test_two_raters_as_irrcac(rated: list[tuple[str, str]]) -> None:
    first, second = [a for a, _ in rated], [b for _, b in rated]
    assert ac1(first, second, 3) == pytest.approx(
        oracle_ac1([list(pair) for pair in rated]), abs=1e-9
    )


@few
@given(pairs)
@pytest.mark.thorough
def test_kappa_as_scikit_learn(rated: list[tuple[str, str]]) -> None:
    first, second = [a for a, _ in rated], [b for _, b in rated]
    found = kappa(first, second)
    if len({*first, *second}) == 1:
        assert found is None
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert found == pytest.approx(
                sklearn.cohen_kappa_score(first, second), abs=1e-9
            )


@pytest.mark.thorough
@needs_irrcac
@few
@given(
    st.lists(
        st.lists(st.none() | label, min_size=4, max_size=4), min_size=2, max_size=25
    )
)
def test_several_raters_with_gaps_as_irrcac(ratings: list[list[str | None]]) -> None:
    # irrCAC divides by the rated items less one for its variance, which is not compared.
    assume(sum(any(r is not None for r in item) for item in ratings) > 1)
    found = ac1_raters(ratings, 3)
    if not any(sum(r is not None for r in item) > 1 for item in ratings):
        assert found is None
    else:
        assert found == pytest.approx(oracle_ac1(ratings), abs=1e-9)


@pytest.mark.thorough
@few
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([True, False, None])),
        min_size=1,
        max_size=40,
    )
)
def test_macro_f1_as_scikit_learn(rated: list[tuple[bool, bool | None]]) -> None:
    code = {True: 0, False: 1, None: 2}
    truth, said = [code[t] for t, _ in rated], [code[s] for _, s in rated]
    expected = sklearn.f1_score(
        truth, said, labels=[0, 1], average="macro", zero_division=0
    )
    assert macro_f1(
        [t for t, _ in rated], [s for _, s in rated], [True, False]
    ) == pytest.approx(expected)


@few
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)
)
def test_tables_give_what_labels_give(rated: list[tuple[int, int]]) -> None:
    table = np.zeros((3, 3))
    for a, b in rated:
        table[a, b] += 1
    first: list[Hashable] = [a for a, _ in rated]
    second: list[Hashable] = [b for _, b in rated]
    assert float(ac1_of_tables(table)) == pytest.approx(ac1(first, second, 3))
    assert float(equal_of_tables(table)) == pytest.approx(
        sum(a == b for a, b in rated) / len(rated)
    )
    assert float(
        ac1_of_sums(rater_sums(np.array(rated), 3).sum(axis=0))
    ) == pytest.approx(ac1(first, second, 3))
    expected = kappa(first, second)
    assert float(kappa_of_tables(table)) == pytest.approx(
        math.nan if expected is None else expected, nan_ok=True
    )
    labelled = [(a, b if b < 2 else None) for a, b in rated if a < 2]
    f1 = macro_f1([a for a, _ in labelled], [b for _, b in labelled], [0, 1])
    assert float(macro_f1_of_tables(table[:2])) == pytest.approx(
        math.nan if f1 is None else f1, nan_ok=True
    )


tied = st.integers(-3, 3).map(float)
smooth = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
columns = st.lists(st.tuples(tied, tied), min_size=3, max_size=45) | st.lists(
    st.tuples(smooth, smooth),
    min_size=3,
    max_size=45,
    unique_by=(lambda p: p[0], lambda p: p[1]),
)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(columns)
def test_correlations_and_their_p_as_scipy(points: list[tuple[float, float]]) -> None:
    a, b = np.array([x for x, _ in points]), np.array([y for _, y in points])
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert [f(a, b) for f in (pearson, spearman, kendall)] == [None] * 3
        assert correlate("pearson", a, b).why
        return
    for kind, f, expected in (
        ("pearson", pearson, stats.pearsonr(a, b)),
        ("spearman", spearman, stats.spearmanr(a, b)),
        ("kendall", kendall, stats.kendalltau(a, b)),
    ):
        value = f(a, b)
        assert value == pytest.approx(expected.statistic, abs=1e-9)
        assert value is not None
        if kind != "kendall":
            # Near r = 1 the p hangs on the last digits of r.
            p = pearson_p(value, len(a))
            assert p == pytest.approx(expected.pvalue, rel=1e-5, abs=1e-7)


@few
@given(st.floats(0.5, 2000), st.floats(0.5, 50), st.floats(0, 1))
def test_incomplete_beta_as_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(
        special.betainc(a, b, x), rel=1e-8, abs=1e-12
    )


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_intervals_are_those_of_scipy_on_resampled_items(
    seed: int, coarse: bool
) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=30)
    b = a + rng.normal(size=30)
    if coarse:
        a, b = np.round(a), np.round(b)
    clusters = np.repeat(np.arange(10), 3)
    (weights,) = weight_chunks(10, 40, 5)
    for kind, f in (
        ("pearson", lambda x, y: stats.pearsonr(x, y).statistic),
        ("spearman", lambda x, y: stats.spearmanr(x, y).statistic),
    ):
        found = correlate(kind, a, b, clusters=clusters, draws=40, seed=5)  # type: ignore[arg-type]
        drawn = [
            f(*(np.repeat(v, w[clusters].astype(int)) for v in (a, b))) for w in weights
        ]
        assert (found.low, found.high) == pytest.approx(
            tuple(np.percentile(drawn, [2.5, 97.5]))
        )
        assert found.n == 30


def test_an_estimate_draws_whole_clusters() -> None:
    # Ten clusters of ten equal items: as wide as ten items, not as a hundred.
    hits = np.repeat([1.0, 0.0] * 5, 10)
    cells = np.column_stack([hits, np.ones(100)])
    found = estimate(cells, ratio_of, np.repeat(np.arange(10), 10))
    alone = estimate(cells[::10], ratio_of, np.arange(10))
    assert (found.value, found.low, found.high) == (alone.value, alone.low, alone.high)
    assert (found.n, alone.n) == (100, 10)


def test_too_little_is_said_and_no_number() -> None:
    assert estimate(np.empty((0, 2)), ratio_of, []).why == "no item"
    assert estimate(np.zeros((9, 2)), ratio_of, range(9)).value is None
    few_clusters = estimate(np.ones((9, 2)), ratio_of, [1] * 5 + [2] * 4)
    assert (few_clusters.value, few_clusters.low) == (1.0, None)
    assert LEAST_DRAWN > 2
    assert "too few" in few_clusters.why
    equal = estimate(np.ones((9, 2)), ratio_of, range(9))
    assert (equal.value, equal.low, equal.high) == (1.0, None, None)
    assert "the same value" in equal.why
    gap = np.array([1.0, np.nan, 2.0, 3.0])
    found = correlate("pearson", gap, np.array([1.0, 2.0, np.nan, 3.0]))
    assert (found.n, found.value, found.why) == (2, None, "2 items are too few")
