"""LiveMedBench's files in and out: nothing of what they hold is lost, and paid work goes on here."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import import_answers, run_model
from medlive.evaluation.cases.livemedbench import read_answers
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.grading.imports import export_run, left_out
from medlive.evaluation.model import (
    Answer,
    AnswerState,
)
from medlive.evaluation.runs.folder import ModelUse, grades_of, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.published import kept_figures
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Judge as Asking
from medlive.grader.judge import Mode
from tests.unit.evaluation.conftest import (
    AT,
    Judge,
    Model,
    down,
    import_files,
    reply,
    verdict,
)

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    [
        "ERROR: 500",
        "ERROR:x",
        " ",
        '{"met": true}',
        "\u2028",
        "a\x00b",
        "$query",
        "患者",
    ]
)
SAID = TEXT.filter(str.strip)
FINISH = st.sampled_from(["stop", "length", "content_filter", "error", "unknown"])


def count_grades(run: Path) -> int:
    return len(list(grades_of(run / "grades.jsonl", [])))


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


@st.composite
def paid_work(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any]]:
    """A benchmark, its responses and its grades, as the published scripts write them."""
    cases: list[Any] = []
    responses: list[Any] = []
    grades: list[Any] = []
    for number in range(draw(st.integers(1, 4))):
        items: list[dict[str, Any]] = [
            {"criterion": text, "points": draw(st.sampled_from([5, -4, 2.5, 10]))}
            | ({"axe": "Safety"} if draw(st.booleans()) else {})
            for text in draw(st.lists(SAID, min_size=1, max_size=4, unique=True))
        ]
        case = {
            "case_id": f"case-{number}",
            "post_time": draw(st.sampled_from(["2025-03-01T08:00:00", "", "soon"])),
            "narrative": draw(SAID),
            "core_request": draw(TEXT),
            "doctor_advice": draw(TEXT),
        }
        cases.append(case | {"rubric_items": items})
        if draw(st.integers(0, 3)) == 0:
            grades.append({"case_id": case["case_id"], "evaluations": {}})
            continue
        text = draw(TEXT | st.just(""))
        finish = draw(FINISH)
        if finish == "error":
            # The published script writes these two together.
            text = f"ERROR: {text.strip()}"
        responses.append(case | {"model_response": text, "finish_reason": finish})
        failed = text.startswith("ERROR:")
        evaluations = {}
        for place, item in enumerate(items, start=1):
            score = draw(st.sampled_from([0, 1, None]))
            if text.strip() and not failed and score is not None:
                weighted = {"score": score, "weighted_score": item["points"] * score}
                evaluations[f"rubric_{place}"] = item | weighted
        grades.append({"case_id": case["case_id"], "evaluations": evaluations})
    return cases, responses, grades


@pytest.mark.thorough
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(work=paid_work())
def test_what_goes_in_comes_out_and_goes_in_as_it_was(
    work: tuple[list[Any], list[Any], list[Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("work")
    names = ("LiveMedBench_v202601.json", "m_results.json", "evaluation_results_m.json")
    paths = [write(folder / name, part) for name, part in zip(names, work, strict=True)]
    runs = []
    for step in ("a", "b"):
        done = import_files(
            paths[0], paths[1], folder / step, model="m", created_at=AT, grades=paths[2]
        )
        assert not [note for note in done.notes if "left out" in note]
        verdicts = count_grades(folder / step)
        again = import_files(
            paths[0], paths[1], folder / step, model="m", created_at=AT, grades=paths[2]
        )
        assert again.calls == 0
        assert count_grades(folder / step) == verdicts
        out = folder / f"out-{step}"
        paths = export_run(load_graded(folder / step), out)
        runs.append([json.loads(path.read_text("utf-8")) for path in paths])
        assert [path.name for path in paths] == list(names)
    assert runs[0] == runs[1]
    cases, responses, grades = runs[0]
    assert cases == work[0]
    assert grades == work[2]
    assert [r | {"model_response": ""} for r in responses] == [
        r | {"model_response": ""} for r in work[1]
    ]
    for ours, theirs in zip(responses, work[1], strict=True):
        text = theirs["model_response"]
        # How a failure is spaced is the one thing that is written our way.
        spaced = f"ERROR: {text.removeprefix('ERROR:').strip()}"
        assert ours["model_response"] in (text, spaced)


def item(text: str, points: Any = 5) -> dict[str, Any]:
    return {"criterion": text, "points": points}


def benchmark(path: Path, n: int = 4, items: list[Any] | None = None) -> Path:
    rows = [
        {
            "case_id": f"c{i}",
            "post_time": "2025-03-01",
            "narrative": f"Narrative {i}.",
            "core_request": "Now?",
            "doctor_advice": "",
            "rubric_items": items or [item("a"), item("b", -3), item("c", 2)],
        }
        for i in range(n)
    ]
    return write(path, rows)


def scores(*values: Any) -> dict[str, Any]:
    points = (5, -3, 2)
    return {
        f"rubric_{i}": item(text, p) | {"score": v, "weighted_score": p * v}
        for i, (text, p, v) in enumerate(
            zip("abc", points, values, strict=False), start=1
        )
    }


def test_equal_gradings_in_another_order_are_no_contradiction(tmp_path: Path) -> None:
    backwards = dict(reversed(scores(1, 0, 1).items()))
    responses = [{"case_id": "c0", "model_response": "Rest."}]
    gradings = [
        {"case_id": "c0", "evaluations": own} for own in (scores(1, 0, 1), backwards)
    ]
    done = import_files(
        benchmark(tmp_path / "B.json"),
        write(tmp_path / "r.json", responses),
        tmp_path / "run",
        model="m",
        created_at=AT,
        grades=write(tmp_path / "g.json", gradings),
    )
    said = "g.json: case 'c0': graded more than once; the last one counts"
    assert said in done.notes


async def test_paid_work_goes_on_with_what_is_missing_alone(tmp_path: Path) -> None:
    cases = benchmark(tmp_path / "B.json", 5)
    responses = write(
        tmp_path / "r.json",
        [
            {
                "case_id": "c0",
                "model_response": "Drink water.",
                "finish_reason": "stop",
            },
            {
                "case_id": "c1",
                "model_response": "Drink water.",
                "finish_reason": "stop",
            },
            {"case_id": "c2", "model_response": "ERROR: 500", "finish_reason": "error"},
            {"case_id": "c3", "model_response": "", "finish_reason": "stop"},
        ],
    )
    grades = write(
        tmp_path / "evaluation_results_m.json",
        [
            {"case_id": "c0", "evaluations": scores(1, 0, 1)},
            {"case_id": "c1", "evaluations": scores(0)},
        ],
    )
    judge = Judge(lambda request: verdict(True))
    claimed = Asking(judge.identity, Mode.CRITERION)
    out = tmp_path / "run"
    sets: dict[str, Any] = {
        "model": "m",
        "created_at": AT,
        "grades": grades,
        "template": "livemedbench-v1",
        "judge": claimed,
    }
    import_files(cases, responses, out, **sets)

    model = Model()
    done = await run_model(
        load_cases(cases),
        model,
        out,
        use=ModelUse("m"),
        created_at=AT,
        template="livemedbench-v1",
    )
    assert sorted(p.split("Narrative ")[1][0] for p in model.prompts) == ["2", "3", "4"]
    assert done.states[AnswerState.OK] == 5
    # The same files once more: what was answered since is not put aside for an old failure.
    assert import_files(cases, responses, out, **sets).states[AnswerState.OK] == 5

    graded = await grade_run(out, judge, mode=Mode.CRITERION)
    assert len(judge.requests) == 3 * 3 + 2
    assert (graded.ungraded, graded.reused) == (0, 4)
    found = load_graded(out)
    assert [found.grades["c0"][f"rubric_{i}"].met for i in (1, 2, 3)] == [
        True,
        False,
        True,
    ]
    assert [g.origin for g in found.grades["c1"].values()] == [
        "import",
        "call",
        "call",
    ]
    # And a verdict that was asked for here is not overruled by a file that is imported later.
    write(grades, [{"case_id": "c1", "evaluations": scores(0, 0, 0)}])
    before = count_grades(out)
    import_files(cases, responses, out, **sets)
    assert count_grades(out) == before
    assert (await grade_run(out, judge, mode=Mode.CRITERION)).calls == 0


async def test_answers_whose_prompt_nobody_knows_are_not_gone_on_with(
    tmp_path: Path,
) -> None:
    cases = benchmark(tmp_path / "B.json")
    responses = write(
        tmp_path / "r.json", [{"case_id": "c0", "model_response": "Rest."}]
    )
    import_files(cases, responses, tmp_path / "run", model="m", created_at=AT)
    model = Model()
    with pytest.raises(UsageError, match="template") as raised:
        await run_model(
            load_cases(cases), model, tmp_path / "run", use=ModelUse("m"), created_at=AT
        )
    assert "import" in (raised.value.hint or "")
    assert model.prompts == []
    with pytest.raises(UsageError):
        import_files(
            cases,
            responses,
            tmp_path / "other",
            model="m",
            created_at=AT,
            template="none-such",
        )


def test_every_oddity_of_responses_and_grades_says_what_and_where(
    tmp_path: Path,
) -> None:
    cases = benchmark(tmp_path / "B.json")
    responses = write(
        tmp_path / "r.json",
        [
            {"case_id": "c0", "model_response": "Old."},
            {"case_id": "c0", "model_response": "Rest."},
            {"case_id": "c1", "model_response": {"text": "Rest."}},
            {"case_id": "c2", "model_response": "ERROR: x", "finish_reason": "error"},
            {"case_id": "nowhere", "model_response": "Rest."},
            {"model_response": "Rest."},
            "junk",
        ],
    )
    grades = write(
        tmp_path / "g.json",
        [
            {"case_id": "c0", "evaluations": scores(0, 0, 0)},
            {"case_id": "c0", "evaluations": scores(1, 0, 1)},
            {
                "case_id": "c1",
                "evaluations": {
                    "x": item("a") | {"score": 1},
                    "y": item("a") | {"score": 0},
                },
            },
            {"case_id": "c2", "evaluations": scores(1)},
            {"case_id": "c3", "evaluations": scores(1)},
            {"case_id": "gone", "evaluations": {}},
            {"case_id": "c1", "evaluations": [1]},
        ],
    )
    done = import_files(
        cases, responses, tmp_path / "run", model="m", created_at=AT, grades=grades
    )
    told = "\n".join(done.notes)
    for said in (
        "r.json, entry 2: case 'c0': answered more than once; the last one counts",
        "case 'nowhere' is not in the cases",
        "r.json, entry 6: a response without a case_id",
        "r.json, entry 7: expected an object, found a str; left out",
        "g.json: case 'c0': graded more than once; the last one counts",
        "g.json: case 'c1', rubric_1: graded both ways",
        "g.json: case 'c2', rubric_1: no such criterion, or no answer",
        "g.json: case 'c3', rubric_1: no such criterion, or no answer",
        "g.json: case 'gone': not in the cases, or no object of evaluations",
        "g.json: case 'c1': not in the cases, or no object of evaluations",
        "1 failed: x",
    ):
        assert said in told
    assert len(done.notes) == 11
    run = open_run(tmp_path / "run")
    assert run.answers()[0]["c0"].response == "Rest."
    assert {
        g.criterion_id: g.met
        for g in load_graded(tmp_path / "run").grades["c0"].values()
    } == {
        "rubric_1": True,
        "rubric_2": False,
        "rubric_3": True,
    }
    assert load_graded(tmp_path / "run").grades["c1"] == {}
    verdicts = count_grades(tmp_path / "run")
    twice = import_files(
        cases, responses, tmp_path / "run", model="m", created_at=AT, grades=grades
    )
    assert twice.calls == 0
    assert count_grades(tmp_path / "run") == verdicts


@pytest.mark.parametrize(
    "points", [math.nan, math.inf, "5", True, None, 10**400], ids=repr
)
def test_a_case_with_points_that_are_no_number_is_left_out(
    points: Any, tmp_path: Path
) -> None:
    file = benchmark(tmp_path / "B.json", 2, [item("b", 2)])
    first, second = json.loads(file.read_text())
    first["rubric_items"].insert(0, item("a", points))
    file.write_text(json.dumps([first, second]))
    cases = load_cases(file)
    assert [case.case_id for case in cases.cases] == ["c1"]
    (note,) = cases.notes
    assert note.startswith("B.json, entry 1: rubric_items.0.points: ")
    assert note.endswith("; left out")


def test_a_time_that_cannot_be_read_and_an_answer_to_nothing(
    tmp_path: Path,
) -> None:
    file = benchmark(tmp_path / "B.json", 3)
    first, *entries = json.loads(file.read_text())
    file.write_text(json.dumps([{**first, "post_time": "yesterday"}, *entries]))
    cases = load_cases(file)
    assert cases.cases[0].month is None
    stranger = Answer("elsewhere", AnswerState.OK, "Rest.", "stop", "m", "")
    for _ in range(2):
        done = import_answers(tmp_path / "run", cases, [stranger], "m", AT)
        assert (done.calls, sum(done.states.values())) == (0, 0)
        assert "case 'elsewhere' is not in the cases; left out" in done.notes


def test_a_rubric_of_negatives_alone_is_told(tmp_path: Path) -> None:
    cases = load_cases(
        benchmark(tmp_path / "B.json", 2, [item("a", -5), item("b", -2)])
    )
    assert cases.notes == (
        "2 of 2 cases have no positive points (c0, c1); they are asked and have no score",
    )


def test_json_lines_are_read_and_a_tail_that_is_cut_off_is_told(tmp_path: Path) -> None:
    cases = benchmark(tmp_path / "B.json")
    rows = [
        json.dumps({"case_id": f"c{i}", "model_response": f"Rest {i}."})
        for i in range(4)
    ]
    lines = tmp_path / "r.jsonl"
    lines.write_text("\n".join([rows[0], "{broken", *rows[1:]])[:-5], "utf-8")
    done = import_files(cases, lines, tmp_path / "run", model="m", created_at=AT)
    assert done.states[AnswerState.OK] == 3
    for line in (2, 5):
        start = f"r.jsonl, line {line}: not valid JSON"
        assert [note for note in done.notes if note.startswith(start)]
    grades = tmp_path / "g.jsonl"
    grades.write_text(
        json.dumps({"case_id": "c0", "evaluations": scores(1)}) + "\n{", "utf-8"
    )
    done = import_files(
        cases, lines, tmp_path / "run", model="m", created_at=AT, grades=grades
    )
    assert count_grades(tmp_path / "run") == 1
    assert [note for note in done.notes if note.startswith("g.jsonl, line 2: ")]
    # The published script has no figures of such a file, and none are made up for it.
    assert (
        kept_figures(tmp_path / "run", load_graded(tmp_path / "run").grader.judge)
        is None
    )
    cut = (
        '[{"case_id": "c0", "model_resp',
        '{\n"c0": {\n"model_resp',
        '[\n{"case_id": "c0"},',
    )
    for text in (*cut, "", "7", "\xff"):
        whole = tmp_path / "cut.json"
        whole.write_text(text, "latin-1")
        files = {"responses": lines, "grades": whole}
        for named in (
            {"responses": whole},
            {"responses": whole, "grades": lines},
            files,
        ):
            with pytest.raises(BadInput, match=whole.name):
                import_files(
                    cases, out=tmp_path / "x", model="m", created_at=AT, **named
                )
    assert not (tmp_path / "x").exists()


def test_a_benchmark_that_is_no_list_has_no_figures_of_the_published_script(
    tmp_path: Path,
) -> None:
    cases = benchmark(tmp_path / "B.json", 1)
    cases.write_text(json.dumps(json.loads(cases.read_text())[0]))
    responses = write(
        tmp_path / "r.json", [{"case_id": "c0", "model_response": "Rest."}]
    )
    gradings = [{"case_id": "c0", "evaluations": scores(1, 0, 1)}]
    grades = write(tmp_path / "g.json", gradings)
    run = tmp_path / "run"
    import_files(cases, responses, run, model="m", created_at=AT, grades=grades)
    graded = load_graded(run)
    assert kept_figures(run, graded.known_grader.judge) is None
    table = score_runs([graded], metric=Metric.PUBLISHED, draws=10)
    assert table.models[0].overall.value == pytest.approx(1.0)
    assert any("no LiveMedBench files" in said for said in table.warnings)


def test_criteria_of_the_same_text_share_a_verdict(tmp_path: Path) -> None:
    cases = benchmark(
        tmp_path / "B.json", 1, [item("a", 5), item("a", 3), item("b", 1)]
    )
    responses = write(
        tmp_path / "r.json", [{"case_id": "c0", "model_response": "Rest."}]
    )
    evaluations = {
        "rubric_1": item("a", 5) | {"score": 1, "weighted_score": 5},
        "rubric_2": item("a", 3) | {"score": 1, "weighted_score": 3},
    }
    grades = write(tmp_path / "g.json", [{"case_id": "c0", "evaluations": evaluations}])
    done = import_files(
        cases, responses, tmp_path / "run", model="m", created_at=AT, grades=grades
    )
    assert done.notes == ()
    assert {
        k: g.met for k, g in load_graded(tmp_path / "run").grades["c0"].items()
    } == {
        "rubric_1": True,
        "rubric_2": True,
    }
    assert json.loads(
        export_run(load_graded(tmp_path / "run"), tmp_path / "out")[2].read_text(
            "utf-8"
        )
    )[0]["evaluations"] == (evaluations)
    assert count_grades(tmp_path / "run") == 1


async def test_an_export_of_a_run_that_failed_goes_in_as_failed(tmp_path: Path) -> None:
    cases = load_cases(benchmark(tmp_path / "B.json"))
    model = Model(lambda prompt: down() if "Narrative 1" in prompt else reply("Fine."))
    await run_model(cases, model, tmp_path / "run", use=ModelUse("m"), created_at=AT)
    paths = export_run(load_graded(tmp_path / "run"), tmp_path / "out")
    done = import_files(paths[0], paths[1], tmp_path / "in", model="m", created_at=AT)
    assert done.states[AnswerState.FAILED] == 1
    assert (
        open_run(tmp_path / "in").answers()[0]["c1"].reason
        == "the endpoint gave status 500"
    )


def test_responses_come_by_the_ids_of_their_cases_too(tmp_path: Path) -> None:
    cases = benchmark(tmp_path / "B.json")
    rows = {
        "c0": {"model_response": "Rest."},
        "x": {"case_id": "c1", "response": "Go"},
        "c2": {"case_id": "", "response": "Wait"},
    }
    responses = write(tmp_path / "r.json", rows)
    import_files(cases, responses, tmp_path / "run", model="m", created_at=AT)
    answers, _ = open_run(tmp_path / "run").answers()
    said = {case_id: answer.response for case_id, answer in answers.items()}
    assert said == {"c0": "Rest.", "c1": "Go", "c2": "Wait"}


def test_a_criterion_of_livemedbench_without_points_has_none(tmp_path: Path) -> None:
    without = {"criterion": "a"}
    file = benchmark(tmp_path / "B.json", 1, [without, item("b", 2)])
    (case,) = load_cases(file).cases
    assert [criterion.points for criterion in case.criteria] == [0, 2]


def test_a_case_may_have_the_number_0() -> None:
    rows: list[dict[str, Any]] = [
        {"case_id": 0, "model_response": "Rest."},
        {"model_response": "Go."},
    ]
    notes: list[str] = []
    answers = read_answers(rows, "r.json", "m", notes)
    assert [answer.case_id for answer in answers] == ["0"]
    assert notes == ["r.json, entry 2: a response without a case_id; left out"]


@pytest.mark.parametrize(
    "finish", ["stop", "length", "unknown", None, "content_filter"]
)
def test_an_error_in_an_answer_s_place_is_a_failure_whatever_it_says_of_its_end(
    finish: str | None,
) -> None:
    row = {"case_id": "c0", "model_response": "ERROR: timeout", "finish_reason": finish}
    notes: list[str] = []
    (answer,) = read_answers([row], "r.json", "m", notes)
    assert (answer.state, answer.response, answer.reason) == (
        AnswerState.FAILED,
        "",
        "timeout",
    )
    assert notes == []
    row["model_response"] = "The ERROR: rest."
    (answer,) = read_answers([row], "r.json", "m", notes)
    assert answer.state is not AnswerState.FAILED


@pytest.mark.parametrize(
    "name", ["gone.json", "gone.jsonl", "folder.json", "folder.jsonl"]
)
def test_a_file_that_is_not_there_or_a_folder_is_said(
    name: str, tmp_path: Path
) -> None:
    cases = benchmark(tmp_path / "B.json")
    sound = write(tmp_path / "r.json", [{"case_id": "c0", "model_response": "Rest."}])
    place = tmp_path / name
    if name.startswith("folder"):
        place.mkdir()
    for responses, grades in ((place, None), (sound, place)):
        with pytest.raises(BadInput, match=name):
            import_files(
                cases,
                responses,
                tmp_path / "run",
                model="m",
                created_at=AT,
                grades=grades,
            )
    assert not (tmp_path / "run").exists()


def test_a_file_of_another_kind_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    cases = benchmark(tmp_path / "B.json")
    responses = write(
        tmp_path / "r.json", [{"case_id": "c0", "model_response": "Rest."}]
    )
    grades = write(tmp_path / "g.json", [{"case_id": "c0", "evaluations": scores(1)}])
    strange = write(tmp_path / "s.json", [{"case_id": "C0", "model_response": "Rest."}])
    for files, said in (
        ((cases, None), "holds no responses: no entry has a 'model_response'"),
        ((grades, None), "holds no responses"),
        ((responses, responses), "holds no gradings"),
        ((responses, cases), "holds no gradings"),
        ((strange, None), "answers none of the cases of B.json, such as 'c0'"),
        ((write(tmp_path / "e.json", []), None), "answers none of the cases"),
    ):
        with pytest.raises(BadInput, match=said):
            import_files(
                cases,
                files[0],
                tmp_path / "run",
                model="m",
                created_at=AT,
                grades=files[1],
            )
    assert not (tmp_path / "run").exists()


async def test_an_export_replaces_no_file_unless_told_and_says_what_it_leaves_out(
    tmp_path: Path,
) -> None:
    cases = load_cases(benchmark(tmp_path / "B.json"))
    await run_model(
        cases,
        Model(lambda _: reply("Fine.")),
        tmp_path / "run",
        use=ModelUse("m"),
        created_at=AT,
    )
    paid = tmp_path / "m_results.json"
    paid.write_text("paid for")
    with pytest.raises(UsageError):
        export_run(load_graded(tmp_path / "run"), tmp_path)
    assert paid.read_text() == "paid for"
    assert not (tmp_path / "LiveMedBench_B.json").exists()
    paid.unlink()
    export_run(load_graded(tmp_path / "run"), tmp_path)
    assert len(json.loads(paid.read_text("utf-8"))) == 4
    export_run(load_graded(tmp_path / "run"), tmp_path)
    with pytest.raises(BadInput):
        export_run(load_graded(tmp_path / "run"), paid / "below")
    assert left_out(load_graded(tmp_path / "run")) == [
        "12 criteria are ungraded; the published script counts them as not met"
    ]
