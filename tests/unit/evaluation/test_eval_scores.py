"""Scores: equation 1 against an implementation of its own, the published table's quirks, bounds, slices, files."""

import json
import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.livemedbench import read_answers
from medlive.evaluation.cases.load import from_snapshot, load_cases
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.grading.imports import export_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import CaseState, Metric, case_score
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import (
    score_runs,
)
from medlive.grader.judge import Mode
from tests.support.published import published_table
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    import_files,
    make_cases,
    reply,
    verdict,
)

ANSWER = Answer("c", AnswerState.OK, "text", "stop", "m")
RUBRICS = st.lists(
    st.tuples(st.integers(-10, 10).filter(bool), st.sampled_from([True, False, None])),
    min_size=1,
    max_size=19,
)


def case_of(points: list[int]) -> EvaluationCase:
    criteria = tuple(
        EvaluationCriterion(f"k{i}", f"t{i}", float(p)) for i, p in enumerate(points)
    )
    return EvaluationCase("c", "en", "n", "q", "a", criteria, "", None)


@given(RUBRICS)
def test_the_paper_score_is_equation_one_and_its_bounds_hold_every_completion(
    rubric: list[tuple[int, bool | None]],
) -> None:
    points = [p for p, _ in rubric]
    met: dict[str, bool | None] = {f"k{i}": m for i, (_, m) in enumerate(rubric)}
    found = case_score(case_of(points), ANSWER, met, Metric.PAPER)
    most = sum(p for p in points if p > 0)
    if not most:
        assert found.state is CaseState.UNSCORABLE
        assert found.score is None
        return

    def equation(filled: Mapping[str, bool | None]) -> Fraction:
        total = sum(p for i, p in enumerate(points) if filled[f"k{i}"])
        return min(Fraction(1), max(Fraction(0), Fraction(total, most)))

    if None not in met.values():
        assert found.score == pytest.approx(float(equation(met)))
        assert found.low == found.high == found.score
        return
    assert found.score is None
    rng = random.Random(str(rubric))
    for _ in range(20):
        filled = {k: rng.random() < 0.5 if v is None else v for k, v in met.items()}
        assert found.low - 1e-12 <= equation(filled) <= found.high + 1e-12
    worst = {k: points[int(k[1:])] < 0 if v is None else v for k, v in met.items()}
    best = {k: points[int(k[1:])] > 0 if v is None else v for k, v in met.items()}
    assert found.low == pytest.approx(float(equation(worst)))
    assert found.high == pytest.approx(float(equation(best)))


def entry(
    case_id: object, month: object, items: list[tuple[str, Any]]
) -> dict[str, Any]:
    rubric = [{"criterion": c, "points": p} for c, p in items]
    return {"case_id": case_id, "post_time": month, "rubric_items": rubric}


def grading(case_id: object, *weighted: tuple[str, Any]) -> dict[str, Any]:
    return {
        "case_id": case_id,
        "evaluations": {
            f"rubric_{i}": {
                "criterion": c,
                "points": 0,
                "score": 1,
                "weighted_score": w,
            }
            for i, (c, w) in enumerate(weighted)
        },
    }


def test_the_published_table_has_the_published_quirks() -> None:
    benchmark = [
        entry(1, "2025-01-05T00:00:00", [("a", 10), ("b", -20)]),
        entry("2", "2025-01-09", [("a", 4), ("c", "6")]),
        entry(3, "someday", [("a", 5)]),
        entry(4, "2025-02-01Z", [("a", -5)]),
    ]
    first = [
        grading(1, ("a", 10), ("b", -20)),
        grading(2, ("a", 4), ("edited", 100), ("c", "6")),
        grading("3", ("a", 5)),
        grading(4, ("a", -5)),
        grading("", ("a", 5)),
    ]
    second = [grading(1, ("a", 10))]
    table = published_table(benchmark, {"zeta": first, "alpha": second})
    # Case 1 counts -1, unclipped: the month's mean is (-1 + 1) / 2. Case 3 has no month and counts overall.
    assert table == (
        "Date\talpha\tzeta\t# case\n"
        "2025-01\t1.0000\t0.0000\t2\n"
        "2025-02\t0.0000\t0.0000\t1\n"
        "Overall\t1.0000\t0.2500\t3\n"
    )
    other = published_table(benchmark, {"alpha": second, "zeta": first})
    assert [line.split("\t")[-1] for line in other.splitlines()[1:-1]] == ["1", "0"]
    nan = published_table(
        [entry(1, "2025-01-05", [("a", 1)])], {"m": [grading(1, ("a", float("nan")))]}
    )
    assert nan.splitlines()[-1] == "Overall\t1.0000\t1"


async def graded(
    run_dir: Path, quality: float, model: str, n: int = 24, **options: Any
) -> Path:
    rng = random.Random(model)
    use = ModelUse(model)
    await run_model(make_cases(n), Model(), run_dir, use=use, created_at=AT)
    points = {k.criterion: k.points for c in make_cases(n).cases for k in c.criteria}
    judge = Judge(
        lambda r: verdict(
            (rng.random() < quality) is (points[r.inputs["criterion"]] > 0)
        ),
        **options,
    )
    await grade_run(run_dir, judge, concurrency=1, mode=Mode.CRITERION)
    return run_dir


async def test_scores_carry_n_interval_bounds_slices_and_axis_errors(
    tmp_path: Path,
) -> None:
    runs = [
        load_graded(await graded(tmp_path / name, quality, name))
        for name, quality in (("good", 0.95), ("fair", 0.9), ("poor", 0.1))
    ]
    table = score_runs(runs, draws=300, seed=3)
    assert [m.label for m in table.models] in (
        ["good", "fair", "poor"],
        ["fair", "good", "poor"],
    )
    assert [m.standing.group for m in table.models if m.standing] == [1, 1, 2]
    best = table.models[0]
    assert (best.standing.rank_best, best.standing.rank_worst) == (1, 2)
    for model in table.models:
        overall = model.overall
        scores = [c.score for c in model.cases if c.score is not None]
        assert overall.n == overall.of == len(scores) == 24
        assert overall.few
        assert overall.value == pytest.approx(sum(scores) / 24)
        assert (overall.low, overall.high) == (None, None)
        assert "24 threads" in overall.why
        assert overall.least == pytest.approx(overall.most)
        kinds = set(model.slices)
        assert kinds == {
            "month",
            "theme",
            "specialty",
            "language",
            "source",
            "first release",
            "axis",
        }
        for kind in kinds - {"axis"}:
            assert sum(s.n for s in model.slices[kind].values()) == 24
        errors = model.axes
        assert set(errors) == {"Accuracy", "Safety", "Completeness"}
        assert all(a.n == 24 for a in errors.values())
        for axis in errors:
            wrong = sum(
                model.run.grades[c.case_id][k.id].met is (k.points < 0)
                for c in model.run.run.cases
                for k in c.criteria
                if k.axis == axis
            )
            assert round(errors[axis].value * 24) == wrong
    again = score_runs(runs, draws=300, seed=3)
    assert again.models[0].overall == best.overall
    assert again.tsv() == table.tsv()
    assert table.tsv().splitlines()[0] == "Date\tfair\tgood\tpoor\t# case"
    assert len(table.tsv().splitlines()) == 14
    assert all(len(cell) == 6 for cell in table.tsv().splitlines()[1].split("\t")[1:4])


async def test_the_published_metric_of_a_run_is_that_of_its_exported_files(
    tmp_path: Path,
) -> None:
    run = await graded(tmp_path / "run", 0.3, "cand-1")
    table = score_runs([load_graded(run)], metric=Metric.PUBLISHED, draws=50)
    files = export_run(load_graded(run), tmp_path / "out")
    assert [f.name for f in files] == [
        "LiveMedBench_2026.W47.json",
        "cand-1_results.json",
        "evaluation_results_cand-1.json",
    ]
    benchmark, _, grades = (json.loads(f.read_text("utf-8")) for f in files)
    assert published_table(benchmark, {"cand-1": grades}) == table.tsv()
    overall = table.tsv().splitlines()[-1].split("\t")[1]
    assert table.models[0].overall.value == pytest.approx(float(overall), abs=6e-5)
    paper = score_runs([load_graded(run)], draws=50).models[0].overall.value
    assert paper is not None
    assert paper > (table.models[0].overall.value or 0)


async def test_work_already_paid_for_goes_on(tmp_path: Path) -> None:
    run = await graded(tmp_path / "run", 0.6, "cand-1")
    benchmark, responses, grades = export_run(load_graded(run), tmp_path / "out")
    rows = json.loads(grades.read_text("utf-8"))
    rows[0]["evaluations"].pop("rubric_1")
    rows[1]["evaluations"]["rubric_1"]["score"] = "1"
    rows[2]["evaluations"]["again"] = rows[2]["evaluations"]["rubric_1"] | {
        "score": 1 - rows[2]["evaluations"]["rubric_1"]["score"]
    }
    rows.append({"case_id": "unknown", "evaluations": {}})
    grades.write_text(json.dumps(rows))
    imported = import_files(
        benchmark,
        responses,
        tmp_path / "in",
        model="cand-1",
        created_at=AT,
        grades=grades,
    )
    assert imported.states[AnswerState.OK] == 24
    verdicts = (tmp_path / "in" / "grades.jsonl").read_bytes()
    assert verdicts.count(b"\n") == 24 * 3 - 3
    assert len(imported.notes) == 3
    twice = import_files(
        benchmark,
        responses,
        tmp_path / "in",
        model="cand-1",
        created_at=AT,
        grades=grades,
    )
    assert twice.calls == 0
    assert (tmp_path / "in" / "grades.jsonl").read_bytes() == verdicts
    ours, theirs = load_graded(run), load_graded(tmp_path / "in")
    for case in ours.run.cases[3:]:
        before = [ours.grades[case.case_id][k.id].met for k in case.criteria]
        after = [theirs.grades[case.case_id][f"rubric_{i}"].met for i in (1, 2, 3)]
        assert before == after
    assert score_runs([theirs], draws=10).models[0].rates.partly_graded == 3


def test_odd_benchmark_files_are_read_and_each_oddity_is_told(tmp_path: Path) -> None:
    file = tmp_path / "LiveMedBench_v202601.json"
    good = {
        "case_id": 7,
        "post_time": "2025-04-08T00:00:00",
        "narrative": "我疼",
        "core_request": "?",
    }
    items = [
        {"criterion": "a", "points": 5, "axe": "Safety"},
        {"criterion": "d", "points": -2.5, "weight": 1},
    ]
    mute = {"case_id": 9, "post_time": "2025-04-08", "rubric_items": items[:1]}
    file.write_text(
        json.dumps(
            [
                good | {"rubric_items": items},
                "x",
                {},
                good | {"case_id": 8, "mood": 1},
                mute,
                good | {"rubric_items": [7]},
                good | {"narrative": "again"},
            ]
        )
    )
    cases = load_cases(file)
    assert [c.case_id for c in cases.cases] == ["7", "8"]
    first = cases.cases[0]
    assert (first.language, first.month) == ("zh", "2025-04")
    assert [(c.id, c.points, c.axis) for c in first.criteria] == [
        ("rubric_1", 5.0, "Safety"),
        ("rubric_2", -2.5, None),
    ]
    left_out = [note for note in cases.notes if note.endswith("; left out")]
    assert [note.split(":")[0] for note in left_out] == [
        f"{file.name}, entry {place}" for place in (2, 3, 5, 6, 7)
    ]
    assert [note for note in cases.notes if note not in left_out] == [
        "1 of 2 cases have no positive points (8); they are asked and have no score",
    ]
    for text in ("{}", "[]", "[1", "", "\ufeff[]"):
        file.write_text(text, "utf-8")
        with pytest.raises(BadInput):
            load_cases(file)
    with pytest.raises(BadInput):
        load_cases(tmp_path / "nowhere")


def test_a_failure_is_no_answer() -> None:
    rows: list[dict[str, Any]] = [
        {"case_id": 1, "model_response": "Rest.", "finish_reason": "stop"},
        {"case_id": 2, "model_response": "ERROR: 500", "finish_reason": "error"},
        {"case_id": 3, "response": "Cut", "finish_reason": "length"},
        {"case_id": 4, "model_response": None, "finish_reason": "stop"},
        {"case_id": 5, "model_response": "No.", "finish_reason": "content_filter"},
    ]
    notes: list[str] = []
    answers = read_answers(rows, "r.json", "m", notes)
    assert [a.state.value for a in answers] == [
        "ok",
        "failed",
        "truncated",
        "empty",
        "refused",
    ]
    assert notes == []


async def test_what_may_not_be_published_is_said(tmp_path: Path) -> None:
    run = await graded(tmp_path / "r", 0.5, "cand-1", n=3, engine="rules")
    with pytest.raises(CheckFailed, match="would mislead"):
        score_runs([load_graded(run)], draws=10)
    table = score_runs([load_graded(run)], draws=10, allow=[Allow.NOT_PUBLISHABLE])
    assert any("rules engine" in w for w in table.warnings)
    assert [objection.allow for objection in table.overridden] == ["not-publishable"]
    with pytest.raises(UsageError):
        score_runs([])


async def test_an_ungraded_or_unanswered_case_is_kept_out_of_the_mean_and_widens_the_bounds(
    run_dir: Path,
) -> None:
    model = Model(lambda p: reply("") if "Narrative 0" in p else reply("Drink water"))
    await run_model(make_cases(4), model, run_dir, use=USE, created_at=AT)
    judge = Judge(
        lambda r: (
            "rubbish" if r.inputs["criterion"] == "criterion 1.1" else verdict(True)
        )
    )
    await grade_run(run_dir, judge, mode=Mode.CRITERION)
    scored = score_runs([load_graded(run_dir)], draws=50).models[0]
    assert scored.overall.n == 2
    assert scored.overall.value == pytest.approx(0.5)
    assert scored.overall.least == pytest.approx((0 + 0.5 + 0.5 + 0.5) / 4)
    assert scored.overall.most == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)
    assert (
        scored.rates.unanswered,
        scored.rates.partly_graded,
        scored.rates.ungraded,
    ) == (1, 1, 1)


def test_a_snapshot_becomes_cases(tmp_path: Path) -> None:
    from datetime import UTC, date, datetime

    from medlive.snapshot.freeze import write_snapshot
    from medlive.snapshot.load import load_snapshot
    from medlive.snapshot.manifest import Provenance, SnapshotMeta
    from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
    from tests.unit.snapshot.conftest import added

    criteria = (SnapshotCriterion("c1-c1", "c1", 1, 1, "Says rest", "Accuracy", 5),)
    case = SnapshotCase(
        "c1",
        1,
        "2026.W47",
        "zh",
        "dxy",
        date(2025, 3, 4),
        "Cardiology",
        "Response Depth",
        "疼",
        "?",
        "休息",
        criteria,
    )
    blank = Provenance(
        code_version="0", engines=(), prompts={}, evidence=(), thresholds={}
    )
    meta = SnapshotMeta(
        version="2026.W47",
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
        provenance=blank,
        why_not=("a dry run",),
    )
    frozen = write_snapshot([case], meta, tmp_path, added([case]))
    cases = load_cases(frozen.path)
    assert cases == from_snapshot(load_snapshot(frozen.path))
    assert cases.publishable is False
    assert cases.cases[0].month == "2025-03"
    plain = (frozen.path / "livemedbench.json").rename(tmp_path / "plain.json")
    assert load_cases(plain).cases[0].question == cases.cases[0].question
