"""Slices, common cases, judges and odd logs of scoring; the vectors against the one-case definition."""

import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.cli.evaluation.tables import describe_slice
from medlive.cli.output import Result, show_result
from medlive.errors import UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCriterion,
    grade_keys,
)
from medlive.evaluation.runs.folder import RunInfo
from medlive.evaluation.scoring.companions import RATES
from medlive.evaluation.scoring.estimates import (
    AFTER,
    AXIS,
    UP_TO,
)
from medlive.evaluation.scoring.graded import (
    GradedRun,
    Grader,
    load_graded,
)
from medlive.evaluation.scoring.metrics import Metric, case_score
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.evaluation.scoring.score import (
    score_runs,
)
from medlive.grader.judge import Mode
from medlive.integrity.digest import canonical_json
from medlive.report.tables import score_rows, scores_csv, scores_json
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    down,
    make_cases,
    reply,
    verdict,
)
from tests.unit.evaluation.test_eval_contamination import CASES, registry_of, run_of

VERDICTS = st.sampled_from([True, False, None])
POINTS = st.sampled_from([-8.0, -3.0, 2.0, 5.0, 10.0])


@st.composite
def graded_runs(draw: st.DrawFn) -> list[GradedRun]:
    """Two runs of the same few cases, with rubrics, verdicts and missing answers by chance."""
    cases = []
    for place in range(draw(st.integers(1, 6))):
        rubric = draw(
            st.lists(
                st.tuples(POINTS, st.sampled_from(["A", "B", None])),
                min_size=1,
                max_size=5,
            )
        )
        criteria = tuple(
            EvaluationCriterion(f"k{i}", f"t{i}", p, axis)
            for i, (p, axis) in enumerate(rubric)
        )
        cases.append(
            replace(
                CASES[place],
                criteria=criteria,
                theme=draw(st.sampled_from(["x", "y", None])),
            )
        )
    runs = []
    for name in ("m", "n"):
        run = run_of(name, cases, [0.5] * len(cases))
        met = {c.case_id: {k.id: draw(VERDICTS) for k in c.criteria} for c in cases}
        answers = {cid: a for cid, a in run.answers.items() if draw(st.integers(0, 4))}
        runs.append(
            replace(run, answers=answers, met={cid: met[cid] for cid in answers})
        )
    return runs


@settings(max_examples=10, deadline=None)
@given(graded_runs(), st.sampled_from(list(Metric)))
def test_every_slice_is_the_mean_of_its_cases_scores_and_bounds(
    runs: list[GradedRun], metric: Metric
) -> None:
    table = score_runs(runs, metric=metric, draws=5)

    def mean(values: list[float]) -> float:
        average = sum(values) / len(values)
        return min(1.0, max(0.0, average)) if metric is not Metric.PAPER else average

    for model in table.models:
        groups: dict[tuple[str, str], list[Any]] = {("", ""): list(model.cases)}
        for score in model.cases:
            case = score.case
            groups.setdefault(("month", case.month or ""), []).append(score)
            if case.theme:
                groups.setdefault(("theme", case.theme), []).append(score)
            for axis in {c.axis for c in case.criteria if c.axis}:
                alone = replace(
                    case, criteria=tuple(c for c in case.criteria if c.axis == axis)
                )
                if alone.positive_points > 0:
                    answer = model.run.answers.get(case.case_id)
                    met = model.run.verdicts(case.case_id)
                    groups.setdefault((AXIS, axis), []).append(
                        case_score(alone, answer, met, metric)
                    )
        found = {("", ""): model.overall}
        for kind, values in model.slices.items():
            found |= {(kind, value): s for value, s in values.items()}
        for key, members in list(groups.items()):
            points = [s.score for s in members if s.score is not None]
            bounded = [
                s for s in members if not s.unscorable or metric is Metric.PUBLISHED
            ]
            if key != ("", "") and not bounded:
                del groups[key]
                continue
            estimate = found[key]
            assert (estimate.n, estimate.of) == (len(points), len(bounded))
            assert estimate.value == (pytest.approx(mean(points)) if points else None)
            if bounded:
                assert estimate.least == pytest.approx(mean([s.low for s in bounded]))
                assert estimate.most == pytest.approx(mean([s.high for s in bounded]))
        assert {key for key in found if key[0] in ("", "month", "theme", AXIS)} == set(
            groups
        )


@pytest.mark.thorough
@settings(max_examples=20, deadline=None)
@given(graded_runs(), st.sampled_from(list(Metric)), st.randoms(use_true_random=False))
def test_every_completion_lies_within_the_bounds(
    runs: list[GradedRun], metric: Metric, rng: random.Random
) -> None:
    """Whatever the ungraded and the unanswered turn out to be, overall and in every slice."""
    whole = []
    for run in runs:
        answers = {
            c.case_id: Answer(c.case_id, AnswerState.OK, "Rest.", "stop", "m")
            for c in run.run.cases
        }
        met = {
            c.case_id: {
                k.id: v
                if c.case_id in run.answers
                and (v := run.verdicts(c.case_id)[k.id]) is not None
                else rng.random() < 0.5
                for k in c.criteria
            }
            for c in run.run.cases
        }
        whole.append(replace(run, answers=answers, met=met))
    before, after = (score_runs(r, metric=metric, draws=2) for r in (runs, whole))
    for model in before.models:
        (truth,) = (m for m in after.models if m.label == model.label)
        for known, true in (
            (model.overall, truth.overall),
            *(
                (s, truth.slice(kind, value))
                for kind, values in model.slices.items()
                for value, s in values.items()
            ),
        ):
            if true is not None and true.value is not None:
                assert known.least - 1e-9 <= true.value <= known.most + 1e-9


def test_an_unanswered_case_that_has_no_score_is_in_no_bound() -> None:
    penalties = replace(
        CASES[1], criteria=(EvaluationCriterion("k0", "t0", -8.0, "A"),)
    )
    run = run_of("m", (CASES[0], penalties), [0.5, 0.5])
    run = replace(run, answers={CASES[0].case_id: run.answers[CASES[0].case_id]})
    model = score_runs([run], draws=2).models[0]
    assert (model.overall.least, model.overall.most, model.overall.of) == (0.5, 0.5, 1)
    assert (model.rates.unanswered, model.rates.unscorable) == (1, 1)


def test_cases_that_share_no_more_than_their_id_are_named() -> None:
    cases = CASES[:20]
    other = [
        replace(c, criteria=c.criteria[1:]) if i < 7 else c for i, c in enumerate(cases)
    ]
    runs = [run_of("a", cases, [0.5] * 20), run_of("b", other, [0.5] * 20)]
    runs[1] = replace(
        runs[1], run=replace(runs[1].run, info=_with_cases(runs[1], "sha256:2"))
    )
    said = " ".join(score_runs(runs, draws=2).warnings)
    assert (
        "different question or rubric: 7 (c0000, c0001, c0002, c0003, c0004 and 2 more)"
        in said
    )
    assert "of one id" not in " ".join(score_runs(runs[:1], draws=2).warnings)


def _with_cases(run: GradedRun, rows: str) -> RunInfo:
    info = run.run.info
    return info.model_copy(
        update={"cases": info.cases.model_copy(update={"rows": rows, "digest": rows})}
    )


def test_a_part_of_the_cases_and_a_snapshot_that_nobody_verified_are_said() -> None:
    whole, part = (
        run_of("a", CASES[:60], [0.5] * 60),
        run_of("b", CASES[:40], [0.5] * 40),
    )
    use = part.run.info.cases.model_copy(
        update={
            "rows": "sha256:2",
            "selection": {"source": ["dxy", "sdn"], "limit": 40},
            "verified": False,
        }
    )
    part = replace(
        part,
        run=replace(part.run, info=part.run.info.model_copy(update={"cases": use})),
    )
    said = score_runs([whole, part], draws=2, allow=EVERYTHING).warnings
    assert (
        "b: only on 40 cases of 2026.W47: the cases of source dxy, sdn; limit 40"
        in said
    )
    assert "b: not publishable: the snapshot 2026.W47 was not verified" in said
    assert (
        "the runs differ in their cases: their scores cannot be ranked together" in said
    )
    assert [w for w in said if w.startswith("a")] == ["a, b: nothing is graded"]


def test_what_holds_of_many_models_is_said_once_and_what_is_tied_only_where_it_stands() -> (
    None
):
    rules = Grader("rules", "rules-1", (), "criterion", "", "sha256:1")
    runs = [
        replace(run_of(name, CASES[:4], [0.5] * 4), grader=rules) for name in "abcdefg"
    ]
    table = score_runs(runs, draws=2, allow=EVERYTHING)
    said = [w for w in table.warnings if "publishable" in w]
    assert said == [
        "a, b, c, d, e and 2 more: not publishable: graded by the rules engine"
    ]
    apart = [
        run_of("a", CASES[:40], [0.5] * 40),
        run_of("b", CASES[40:80], [0.5] * 40),
    ]
    warnings = score_runs(apart, draws=20).warnings
    alone = "pairs without a common scored case: a and b; not compared"
    assert [w for w in warnings if "common scored case" in w] == [alone]


def test_intervals_of_error_rates_are_a_bootstrap_over_cases() -> None:
    rng = np.random.default_rng(1)
    runs = [run_of("m", CASES[:120], rng.random(120).tolist())]
    (axis,) = score_runs(runs, draws=400, seed=5).models[0].axes.values()
    wrong = np.array(
        [
            20 - round(20 * (c.score or 0))
            for c in score_runs(runs, draws=1).models[0].cases
        ]
    )
    assert (axis.n, axis.value) == (2400, pytest.approx(wrong.sum() / 2400))
    picks = rng.integers(0, 120, (2000, 120))
    low, high = np.percentile(wrong[picks].sum(axis=1) / 2400, [2.5, 97.5])
    assert (axis.low, axis.high) == (
        pytest.approx(low, abs=0.008),
        pytest.approx(high, abs=0.008),
    )


@pytest.mark.thorough
def test_common_cases_are_named_and_scored_alone() -> None:
    some = [0.5 if i < 200 else None for i in range(360)]
    runs = [
        run_of("a", CASES, [i / 360 for i in range(360)]),
        run_of("b", CASES[:250], some[:250]),
    ]
    own, common = (
        score_runs(runs, draws=20),
        score_runs(runs, draws=20, basis="common"),
    )
    assert {m.label: m.overall.n for m in own.models} == {"a": 360, "b": 200}
    assert {m.label: m.overall.n for m in common.models} == {"a": 200, "b": 200}
    assert {m.overall.of for m in common.models} == {200}
    assert own.coverage == common.coverage
    first, second = own.coverage
    assert (first.label, first.cases, first.scored, first.missing) == (
        "a",
        360,
        360,
        (),
    )
    assert (second.label, second.cases, second.scored) == ("b", 250, 200)
    assert second.missing == tuple(c.case_id for c in CASES[200:])
    assert {c.n for c in own.comparisons} == {c.n for c in common.comparisons} == {200}
    none = run_of("c", CASES[300:], [0.5] * 60)
    with pytest.raises(UsageError):
        score_runs([*runs, none], basis="common")
    blank = run_of("d", CASES, [None] * 360)
    with pytest.raises(UsageError):
        score_runs([*runs, blank], basis="common")


async def test_which_of_two_judges_is_scored_is_said_and_can_be_chosen(
    run_dir: Path,
) -> None:
    await run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    await grade_run(run_dir, Judge(lambda r: verdict(True)), mode=Mode.CRITERION)
    kind = load_graded(run_dir)
    assert kind.grader is not None
    assert not any("judges" in note for note in kind.notes)
    await grade_run(
        run_dir, Judge(lambda r: verdict(False), engine="other"), mode=Mode.CRITERION
    )
    harsh = load_graded(run_dir)
    assert harsh.grader.engine == "other"
    (said,) = harsh.rivals
    assert kind.grader.judge.removeprefix("sha256:")[:8] in said
    for asked in (kind.grader.judge, kind.grader.judge.removeprefix("sha256:")[:12]):
        again = load_graded(run_dir, judge=asked)
        assert again.met == kind.met
        assert again.grader == kind.grader
    for asked in ("sha256:", "nobody", "judge-1"):
        with pytest.raises(UsageError):
            load_graded(run_dir, judge=asked)
    # A name that was mistyped takes nothing away.
    assert (
        await grade_run(
            run_dir, Judge(lambda r: down(), engine="mistyped"), mode=Mode.CRITERION
        )
    ).ungraded == 12
    assert load_graded(run_dir).grader == harsh.grader


async def test_the_judge_with_the_most_verdicts_on_what_is_there_now_is_scored(
    run_dir: Path,
) -> None:
    await run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    await grade_run(
        run_dir, Judge(lambda r: verdict(True), model="whole"), mode=Mode.CRITERION
    )
    half = Judge(
        lambda r: (
            verdict(False)
            if r.inputs["criterion"].startswith("criterion 0")
            else down()
        ),
        model="half",
    )
    await grade_run(run_dir, half, mode=Mode.CRITERION)
    found = load_graded(run_dir)
    assert found.grader.model == "whole"
    (said,) = found.rivals
    assert "half (criterion, " in said
    named = load_graded(run_dir, judge="half").grader
    assert named.model == "half"
    # Verdicts about answers that were given anew do not count.
    await grade_run(
        run_dir, Judge(lambda r: verdict(True), model="other"), mode=Mode.CRITERION
    )
    log = run_dir / "responses.jsonl"
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    log.write_text(
        "".join(json.dumps(row | {"response": "Rest more."}) + "\n" for row in rows),
        "utf-8",
    )
    await grade_run(run_dir, half, mode=Mode.CRITERION)
    now = load_graded(run_dir).grader
    assert now.model == "half"


async def test_verdicts_match_the_grades_and_notes_name_damaged_rows(
    run_dir: Path,
) -> None:
    await run_model(
        make_cases(6),
        Model(lambda p: reply("Trink \ud83d mehr Wasser", model="m")),
        run_dir,
        use=USE,
        created_at=AT,
    )
    await grade_run(
        run_dir,
        Judge(lambda r: verdict(True, quote="mehr Wasser")),
        mode=Mode.CRITERION,
    )
    log = run_dir / "grades.jsonl"
    rows = [json.loads(line) for line in log.read_bytes().decode("utf-8").splitlines()]
    first, second = rows[0], rows[1]
    odd = [
        canonical_json(first | {"met": False}),
        canonical_json(second | {"met": None, "reason": "no reply"}),
        canonical_json(second),
        canonical_json(rows[2] | {"met": "true"}),
        canonical_json(rows[2] | {"mode": "guess"}),
        canonical_json(rows[2] | {"quote": 7}),
        canonical_json({k: v for k, v in rows[2].items() if k != "key"}),
        canonical_json(rows[3] | {"key": "sha256:of another answer"}),
        "null",
        "[1]",
        "{torn",
        json.dumps(rows[4] | {"reasoning": "\ud800"}),
    ]
    with log.open("ab") as handle:
        handle.write(
            "\n".join([*odd, '{"case_id": "cut off']).encode(
                "utf-8", "backslashreplace"
            )
        )
    run = load_graded(run_dir)
    expected = {
        cid: {k: g.met for k, g in grades.items()} for cid, grades in run.grades.items()
    }
    assert run.met == expected
    assert run.verdicts(first["case_id"])[first["criterion_id"]] is False
    assert run.verdicts(second["case_id"])[second["criterion_id"]] is True
    assert sum(len(v) for v in expected.values()) == 18
    notes = "\n".join(run.notes)
    assert "grades.jsonl:22: not a valid row: met: Input should be" in notes
    assert "grades.jsonl:23: not a valid row: mode: Input should be" in notes
    assert (
        "grades.jsonl:24: not a valid row: quote: Input should be a valid string"
        in notes
    )
    assert "and 2 more of this kind" in notes
    for case in run.run.cases:
        answer = run.answers[case.case_id]
        assert run.grader is not None
        keys = {g.key for g in run.grades[case.case_id].values()}
        assert keys == set(grade_keys(case, answer, run.grader.judge).values())


@pytest.mark.thorough
def test_tables_say_the_same_in_every_format(tmp_path: Path) -> None:
    pytest.importorskip(
        "pyarrow", exc_type=ImportError, reason="Parquet is written with pyarrow"
    )
    runs = [
        run_of("=cmd|' /C calc'!A0", CASES, [0.5] * 300 + [None] * 60),
        run_of("b", CASES, [0.4] * 360),
    ]
    table = score_runs(runs, draws=30, seed=4)
    rows = score_rows(table)
    read = list(csv.DictReader(io.StringIO(scores_csv(table))))
    assert len(read) == len(rows)
    assert {r["model"] for r in read} == {"'=cmd|' /C calc'!A0", "b"}
    assert {
        (r["slice"], r["few"])
        for r in read
        if r["slice"] in ("overall", "month", "errors by axis")
    } == {
        ("overall", "False"),
        ("month", "True"),
        ("errors by axis", ""),
    }
    plain = json.loads(json.dumps(scores_json(table), allow_nan=False))
    by_json = {
        (m["model"], s["kind"], s["value"]): s["mean"]
        for m in plain["models"]
        for s in m["slices"]
    }
    of_model = {m["model"]: m for m in plain["models"]}
    harm = {title: name for name, title in RATES.items()}
    for row in rows:
        if row["slice"] in ("overall", "core"):
            assert of_model[row["model"]][row["slice"]]["mean"] == row["mean"]
        elif row["slice"] in harm:
            rate = of_model[row["model"]]["harm"][harm[row["slice"]]]
            assert rate["mean"] == row["mean"]
        elif row["slice"] != "errors by axis":
            assert by_json[row["model"], row["slice"], row["value"]] == row["mean"]
    rates = plain["models"][0]["rates"]
    assert rates["ungraded"] / rates["criteria"] == pytest.approx(60 / 360)
    assert plain["coverage"][1]["scored"] == 360


def test_a_slice_for_people_stands_in_order_and_marks_what_is_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cutoffs = registry_of({"a": "2024-01", "b": "2025-11"})
    cases = CASES[::6]
    values = [None if i < 4 else i / 60 for i in range(60)]
    runs = [run_of("a", cases[2:], values[2:]), run_of("b", cases, values)]
    table = score_runs(runs, draws=20, registry=cutoffs)
    show_result(Result(None, describe_slice(table, "cutoff")))
    rows = [
        line.split("│")
        for line in capsys.readouterr().out.splitlines()
        if "the cutoff │" in line
    ]
    parts = [row[0].strip() for row in rows]
    assert parts == sorted(parts, reverse=True)
    assert set(parts) == {UP_TO, AFTER}
    assert [
        row[2].strip()
        for row in rows
        if row[1].strip() == "a" and row[0].strip() == UP_TO
    ] == ["–"]


def test_who_graded_imported_verdicts_is_unknown_and_not_another_for_each_file() -> (
    None
):
    by_file = Grader(
        "import", "unknown", ("unknown",), "criterion", "unknown", "sha256:a"
    )
    runs = [
        replace(
            run_of(name, CASES[:40], [0.5] * 40),
            grader=replace(by_file, judge=f"sha256:{name}"),
        )
        for name in ("a", "b")
    ]
    said = " ".join(score_runs(runs, draws=10).warnings)
    assert "graded by 2 graders" not in said
    assert "a, b: the grader is unknown" in said
    known = replace(runs[1], grader=replace(by_file, engine="openai"))
    assert "graded by 2 graders" in " ".join(
        score_runs([runs[0], known], draws=10, allow=EVERYTHING).warnings
    )


@pytest.mark.matrix
@pytest.mark.parametrize("metric", [m for m in Metric if m is not Metric.SAFE])
def test_a_slice_that_no_draw_holds_has_no_interval(metric: Metric) -> None:
    cases = [replace(c, theme=f"theme {i // 2}") for i, c in enumerate(CASES[:30])]
    table = score_runs([run_of("m", cases, [0.5] * 30)], metric=metric, draws=1)
    themes = list(table.models[0].slices["theme"].values())
    assert {e.n for e in themes} == {2}
    assert None in {e.low for e in themes}
    json.dumps(scores_json(table), allow_nan=False)
