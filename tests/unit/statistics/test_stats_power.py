"""So many cases as are said to be needed do find the difference as often as said, by simulation."""

import numpy as np
import pytest

from medlive.statistics.comparison import compare_paired
from medlive.statistics.contamination import permutation_p
from medlive.statistics.intervals import Floats
from medlive.statistics.planning import cases_for_drop, cases_for_pair, spread_of


def models(
    rng: np.random.Generator, n: int, columns: int, gap: float
) -> tuple[Floats, Floats]:
    """Scores of two models in [0, 1], with the cases' difficulty in common, `gap` apart in the mean."""
    ease = rng.beta(3, 3, (n, columns))
    return tuple(
        0.15 + 0.7 * ease + rng.uniform(-0.15, 0.15, ease.shape) + s
        for s in (gap / 2, -gap / 2)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("gap", [0.03, 0.015])
@pytest.mark.thorough
def test_the_cases_for_a_pair_find_it_as_often_as_said(
    power: float, gap: float
) -> None:
    rng = np.random.default_rng(1)
    first, second = models(rng, 20_000, 1, gap)
    spread = spread_of(np.concatenate([first, second], axis=1))
    assert spread is not None
    n = cases_for_pair(gap, spread.difference, power=power)
    first, second = models(rng, n, 1500, gap)
    figures = compare_paired(first - second, draws=500)
    p = np.array([figure.p for figure in figures])
    assert (p < 0.05).mean() == pytest.approx(power, abs=0.045)


@pytest.mark.thorough
@pytest.mark.parametrize("before", [None, 150])
def test_the_cases_for_a_drop_find_it_as_often_as_said(before: int | None) -> None:
    n = cases_for_drop(0.1, 0.2, before=before)
    assert n is not None
    first = before or n
    rng, hits = np.random.default_rng(2), 0
    sides = np.repeat([0, 1], [first, n])
    for seed in range(400):
        values = rng.normal(np.where(sides == 0, 0.6, 0.5), 0.2)
        hits += permutation_p(values, sides, 199, seed=seed) < 0.05
    assert hits / 400 == pytest.approx(0.8, abs=0.06)


def test_few_cases_before_a_cutoff_show_no_small_drop_ever() -> None:
    assert cases_for_drop(0.02, 0.3, before=100) is None
    assert cases_for_drop(0.2, 0.3, before=100) is not None


def test_cases_of_a_cluster_count_less() -> None:
    values = np.repeat(np.random.default_rng(3).random((50, 2)), 4, axis=0)
    alone, together = spread_of(values), spread_of(values, np.repeat(np.arange(50), 4))
    assert alone is not None
    assert together is not None
    assert together.score == pytest.approx(2 * alone.score, rel=0.02)
    assert together.difference == pytest.approx(2 * alone.difference, rel=0.02)
    one = spread_of(values[:, :1])
    assert one is not None
    assert one.difference == one.score
    assert spread_of(values[:1]) is None


def test_power_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha"):
        cases_for_pair(0.1, 0.2, power=0.04)
