"""Profiles and worst cases of made-up models whose likeness is known."""

from collections.abc import Sequence

import numpy as np
import pytest

from medlive.evaluation.scoring.overlap import profiles, worst_cases
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from tests.unit.evaluation.test_eval_contamination import CASES, run_of


def table_of(**scores: Sequence[float | None]) -> ScoreTable:
    runs = [run_of(name, CASES[: len(own)], own) for name, own in scores.items()]
    return score_runs(runs, draws=50)


def test_worst_cases_are_those_of_the_lowest_common_scores() -> None:
    rng = np.random.default_rng(1)
    base = rng.permutation(210) / 210
    other = base[::-1]
    # Ties are many in twentieths: the digest of a whole order is checked against a sort by (score, id).
    table = table_of(a=base.tolist(), b=base.tolist(), c=other.tolist())
    found = worst_cases(table)
    assert (found.k, found.common) == (100, 210)
    place = {label: i for i, label in enumerate(table.scored)}
    ids = [case.case_id for case in table.grid.cases]
    worst = {}
    for label, column in zip(table.scored, table.grid.score.T, strict=True):
        lowest = sorted(zip(column.tolist(), ids, strict=True))[:100]
        worst[label] = {case_id for _, case_id in lowest}
    assert found.jaccard[place["a"]][place["b"]] == 1
    shared = len(worst["a"] & worst["c"])
    assert found.jaccard[place["a"]][place["c"]] == pytest.approx(
        shared / (200 - shared)
    )
    assert found.by_chance == pytest.approx(100 / 320)


def test_fewer_common_cases_give_fewer_worst_ones() -> None:
    half = [0.5 if i < 40 else None for i in range(60)]
    found = worst_cases(table_of(a=[i / 60 for i in range(60)], b=half))
    assert (found.k, found.common) == (20, 40)
    nothing = worst_cases(table_of(a=[None] * 60, b=half))
    assert nothing.k == 0
    assert np.isnan(nothing.jaccard).all()


@pytest.mark.thorough
def test_profiles_are_the_slices_means_and_numpys_correlation() -> None:
    rng = np.random.default_rng(2)
    month = np.array([int((c.month or "")[-2:]) for c in CASES])
    seasonal = 0.5 + 0.3 * np.sin(month)
    table = table_of(
        a=(seasonal + rng.normal(0, 0.05, 360)).tolist(),
        b=(seasonal + rng.normal(0, 0.05, 360)).tolist(),
        c=(1 - seasonal + rng.normal(0, 0.05, 360)).tolist(),
    )
    found = profiles(table, "month")
    assert len(found.values) == 24
    columns = []
    for model in table.models:
        columns.append([s.value for s in model.slices["month"].values()])
    expected = np.corrcoef(np.array(columns).T)
    np.testing.assert_allclose(found.between_values, expected)
    # Two models are too few for a correlation over them.
    pair = table_of(a=seasonal.tolist(), b=(1 - seasonal).tolist())
    assert profiles(pair, "month").between_values.size
    assert np.isnan(profiles(pair, "month").between_values).all()
