"""Profiles, worst cases and stability of made-up models whose likeness is known."""

from collections.abc import Sequence

import numpy as np
import pytest

from medlive.evaluation.scoring.overlap import profiles, stability, worst_cases
from medlive.evaluation.scoring.score import ScoreTable, score_matrix, score_runs
from tests.unit.evaluation.test_eval_contamination import CASES, run_of


def table_of(**scores: Sequence[float | None]) -> ScoreTable:
    return score_runs([run_of(name, CASES, column) for name, column in scores.items()], draws=50)


def test_worst_cases_are_those_of_the_lowest_common_scores() -> None:
    rng = np.random.default_rng(1)
    base = rng.permutation(360) / 360
    other = base[::-1]
    # Ties are many in twentieths: the digest of a whole order is checked against a sort by (score, id).
    table = table_of(a=base.tolist(), b=base.tolist(), c=other.tolist())
    found = worst_cases(table)
    assert (found.k, found.common) == (100, 360)
    place = {label: i for i, label in enumerate(found.labels)}
    cases, scores = score_matrix(table)
    for label in found.labels:
        ids = [case.case_id for case in cases]
        worst = sorted(zip(scores[:, place[label]].tolist(), ids, strict=True))[:100]
        assert found.cases[label] == tuple(case_id for _, case_id in worst)
        assert found.tied[label] == sum(score == worst[-1][0] for score, _ in worst)
    assert found.jaccard[place["a"]][place["b"]] == 1
    shared = len(set(found.cases["a"]) & set(found.cases["c"]))
    assert found.jaccard[place["a"]][place["c"]] == pytest.approx(shared / (200 - shared))
    assert found.by_chance == pytest.approx(100 / 620)


def test_fewer_common_cases_give_fewer_worst_ones() -> None:
    half = [0.5 if i < 40 else None for i in range(360)]
    found = worst_cases(table_of(a=[i / 360 for i in range(360)], b=half))
    assert (found.k, found.common) == (20, 40)
    assert found.tied["b"] == 20
    nothing = worst_cases(table_of(a=[None] * 360, b=half))
    assert (nothing.k, nothing.jaccard[0][1], nothing.by_chance) == (0, None, None)


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
    for label, column in zip(found.labels, zip(*found.means, strict=True), strict=True):
        model = next(m for m in table.models if m.label == label)
        expected = [s.estimate.mean for s in model.slices if s.kind == "month"]
        assert column == pytest.approx(expected)
    means = np.array(found.means)
    np.testing.assert_allclose(np.array(found.between_models), np.corrcoef(means.T))
    np.testing.assert_allclose(np.array(found.between_values), np.corrcoef(means))
    a, b, c = (found.labels.index(x) for x in "abc")
    assert (found.between_models[a][b] or 0) > 0.9
    assert (found.between_models[a][c] or 0) < -0.9
    # Two specialties are too few for a correlation over them.
    assert profiles(table, "specialty").between_models[0][1] is None


def test_stability_is_over_the_common_cases_and_the_tables_draws() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 0.1, (3, 360))
    found = stability(
        table_of(a=(0.2 + noise[0]).tolist(), b=(0.5 + noise[1]).tolist(), c=(0.8 + noise[2]).tolist())
    )
    assert (found.names, found.items) == (("c", "b", "a"), 360)
    assert (found.best, found.worst, found.spearman_low) == ((1, 2, 3), (1, 2, 3), pytest.approx(1))
