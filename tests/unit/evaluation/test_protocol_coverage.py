"""Thresholded coverage: the paper's own figures, the veto, what is missing, and the length control."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.evaluation.protocols.coverage import (
    Coverage,
    Hits,
    cacs,
    calibrate,
    hits_of,
    threshold,
)
from medlive.evaluation.protocols.model import (
    Material,
)
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.engine import EngineIdentity
from medlive.statistics.correlation import partial
from tests.support.runs import made_cases, made_run, made_runs

NOBODY = JudgeReplies(EngineIdentity("", ""))


def test_the_papers_table_9() -> None:
    assert [round(100 * cacs(k, 30, 10), 1) for k in (9, 10, 15, 30)] == [
        0,
        4.8,
        28.6,
        100,
    ]


def test_cacs_is_the_mean_of_passing_every_threshold_from_t_on() -> None:
    for n in range(1, 13):
        for t in range(1, n + 1):
            for k in range(n + 1):
                assert cacs(k, n, t) == pytest.approx(
                    np.mean([k >= j for j in range(t, n + 1)])
                )


def test_a_share_is_rounded_up_to_a_whole_criterion() -> None:
    assert [threshold(1 / 3, n) for n in (1, 2, 3, 4, 6, 7, 30)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        10,
    ]
    assert threshold(0.01, 5) == 1


def test_the_papers_threshold_comes_of_its_own_counts() -> None:
    # Seed 001 §4.3: 285 answers by physicians meet 2,904 of 8,550 criteria, 10.19 of 30 a case.
    case = made_cases(1).cases[0]
    k = [10] * 231 + [11] * 54
    people = [Hits(case, hits, 30, False, 100) for hits in k]
    assert sum(k) == 2904
    share, note = calibrate(people)
    assert share == pytest.approx(1 / 3)
    assert "2904 of 8550 criteria met, so t = 10" in note
    with pytest.raises(UsageError):
        calibrate([])


def graded(
    tmp_path: Path,
    change: Callable[[int, EvaluationCase], EvaluationCase],
    skill: float = 0.6,
) -> Material:
    cases = made_cases(30, criteria=8, change=change)
    return [load_graded(made_run(cases, tmp_path / "run", "m", skill, missing=False))]


def with_error(points: float) -> Callable[[int, EvaluationCase], EvaluationCase]:
    def change(_: int, case: EvaluationCase) -> EvaluationCase:
        error = EvaluationCriterion("error", "Recommends another dose", points)
        return replace(case, criteria=(*case.criteria, error))

    return change


def test_a_grave_error_leaves_nothing_and_a_small_one_does(tmp_path: Path) -> None:
    grave = graded(tmp_path / "grave", with_error(-9))
    small = graded(tmp_path / "small", with_error(-7))
    vetoed = [h for h in hits_of(grave[0]).values() if h and h.vetoed]
    assert 0 < len(vetoed) < 30
    assert {h.covered(1 / 3) for h in vetoed} == {0.0}
    assert not any(h and h.vetoed for h in hits_of(small[0]).values())
    strict, mild = (
        Coverage().results(runs, NOBODY).figures["m"] for runs in (grave, small)
    )
    assert strict is not None
    assert mild is not None
    assert strict < mild


def test_what_is_missing_is_counted_and_never_a_zero(tmp_path: Path) -> None:
    cases = made_cases(150)
    run = load_graded(made_run(cases, tmp_path / "run", "m", 0.6, seed=2))
    table = Coverage().results([run], NOBODY).tables[0]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["ungraded"]
    assert row["unanswered"]
    assert int(row["cases"] or 0) + int(row["ungraded"]) + int(row["unanswered"]) == 150
    bare = replace(cases.cases[0], criteria=())
    less = replace(run, run=replace(run.run, cases=(bare, *cases.cases[1:])))
    assert run.answers[bare.case_id].gradable
    again = Coverage().results([less], NOBODY).tables[0]
    assert again.rows[0][-1] == row["unanswered"]  # it is answered, and scores nothing
    whole = [
        c.case_id
        for c in cases.cases
        if None not in run.verdicts(c.case_id).values() and run.verdicts(c.case_id)
    ]
    means = []
    for case in cases.cases:
        met = run.verdicts(case.case_id)
        positive = [c for c in case.criteria if c.points > 0]
        if case.case_id in whole or (
            met and all(met[c.id] is not None for c in positive)
        ):
            means.append(sum(bool(met[c.id]) for c in positive) / len(positive))
    assert row["accuracy"] == pytest.approx(np.mean(means))
    assert row["low"] < row["CACS@t"] < row["high"]  # type: ignore[operator]


@pytest.mark.thorough
def test_models_rank_by_skill_and_no_run_is_na(tmp_path: Path) -> None:
    paths = made_runs(tmp_path, models=6, n=120)
    runs = [load_graded(path) for path in paths]
    found = Coverage().results(runs, NOBODY)
    figures = [found.figures[f"model-{n}"] for n in range(6)]
    assert figures == sorted(figures, key=lambda f: -(f or 0))
    near = next(table for table in found.tables if table.title == "Other thresholds")
    assert all(isinstance(row[1], float) and row[1] > 0.8 for row in near.rows)
    people = Coverage(people=("model-0",)).results(runs, NOBODY)
    assert "model-0" not in people.figures
    assert "calibrated on" in people.notes[0]
    with pytest.raises(UsageError):
        Coverage(people=("nobody",)).results(runs, NOBODY)
    ungraded = replace(runs[0], label="new", met={})
    assert Coverage.fits([*runs, ungraded])
    assert Coverage().results([*runs, ungraded], NOBODY).figures == {
        **found.figures,
        "new": None,
    }


def test_partial_correlation_is_that_of_least_squares_residuals() -> None:
    rng = random.Random(4)
    models, cases = list("abcd"), [str(n) for n in range(30)]
    rows = [(m, c) for m in models for c in cases if rng.random() < 0.8]
    noise = np.array([rng.gauss(0, 1) for _ in rows])
    level = {name: rng.gauss(0, 5) for name in (*models, *cases)}
    x = np.array([level[m] + level[c] for m, c in rows]) + noise
    y = (
        np.array([2 * level[m] - level[c] for m, c in rows])
        + noise * 0.5
        + np.array([rng.gauss(0, 1) for _ in rows])
    )
    design = np.array(
        [[m == one for one in models] + [c == one for one in cases] for m, c in rows],
        dtype=float,
    )
    left = [v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x, y)]
    expected = np.corrcoef(*left)[0, 1]
    assert partial(x, y, [m for m, _ in rows], [c for _, c in rows]) == pytest.approx(
        expected, abs=1e-6
    )
    assert (
        partial(np.array([level[m] for m, _ in rows]), y, [m for m, _ in rows]) is None
    )
    assert partial(np.array([]), np.array([]), []) is None
