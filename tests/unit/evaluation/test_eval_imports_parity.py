"""The published metric, quirk by quirk (docs/builders/measurements/metric-parity.md), against a second implementation
written from the list alone: on raw files, and on run folders that were imported from them."""

import csv
import io
import json
import math
from collections import defaultdict
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataUse,
    RunErrata,
)
from medlive.evaluation.scoring.fresh import Window
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.report.tables import WRITERS
from tests.support.published import published_table
from tests.unit.evaluation.conftest import AT, import_files

CRITERIA = ("rest", "water", "fever", "")
POINTS = st.sampled_from([5, -4, 2.5, 10, 0, -10, "5", None, True, math.nan])
TIMES = st.sampled_from(
    [
        "2025-03-01T08:00:00Z",
        "2025-03-09",
        "2024-12-31T23:59:59",
        "",
        "soon",
        20250301,
        None,
    ]
)
IDS = st.sampled_from(["a", "b", "1", 1, "unknown", 0, "", None])


@st.composite
def benchmarks(draw: st.DrawFn) -> list[Any]:
    return [
        {
            "case_id": case_id,
            "post_time": draw(TIMES),
            "narrative": "It hurts.",
            "core_request": "What now?",
            "doctor_advice": "",
            "rubric_items": [
                {"criterion": text, "points": draw(POINTS)}
                for text in draw(st.lists(st.sampled_from(CRITERIA), max_size=4))
            ],
        }
        for case_id in ("a", "b", "1")
    ]


@st.composite
def gradings(draw: st.DrawFn) -> list[dict[str, Any]]:
    entries = []
    for case_id in draw(st.lists(IDS, max_size=5)):
        evaluations: Any = {
            f"rubric_{place}": {
                "criterion": draw(st.sampled_from((*CRITERIA, "edited since"))),
                "score": draw(st.sampled_from([0, 1])),
                "weighted_score": draw(
                    st.sampled_from([5, -4, 0, 2.5, -10, "5", None, True, math.nan])
                ),
            }
            for place in range(draw(st.integers(0, 4)))
        }
        entries.append(
            {
                "case_id": case_id,
                "evaluations": draw(st.sampled_from([evaluations, evaluations, []])),
            }
        )
    return entries


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def second_opinion(
    benchmark: list[Any], by_model: dict[str, list[dict[str, Any]]]
) -> str:
    """The table, made case by case from the list of quirks."""
    cases = {str(entry["case_id"]): entry for entry in benchmark}
    overall: dict[str, dict[Any, float]] = defaultdict(dict)
    months: dict[Any, str | None] = {}
    for model, entries in by_model.items():
        overall[model] = {}
        for entry in entries:
            if not entry["case_id"] or not isinstance(entry["evaluations"], dict):
                continue  # 7
            case = cases.get(
                str(entry["case_id"]), {"post_time": "", "rubric_items": []}
            )  # 7, 8
            rubric = case["rubric_items"]
            texts = [i["criterion"] for i in rubric if i["criterion"]]
            denominator = sum(
                i["points"]
                for i in rubric
                if is_number(i["points"]) and i["points"] > 0
            )  # 5
            numerator = 0.0
            for given_ in entry["evaluations"].values():
                if given_["criterion"] in texts and is_number(
                    given_["weighted_score"]
                ):  # 3, 4
                    numerator += given_["weighted_score"]
            overall[model][entry["case_id"]] = (
                numerator / denominator if denominator > 0 else 0.0
            )  # 1, 2
            try:
                moment = datetime.fromisoformat(
                    case["post_time"].replace("Z", "+00:00")
                )
                months[entry["case_id"]] = f"{moment.year:04d}-{moment.month:02d}"
            except (AttributeError, ValueError):
                months[entry["case_id"]] = None  # 9

    def cell(values: list[float]) -> str:
        if not values:
            return "0.0000"  # 10
        mean = sum(values) / len(values)
        if math.isnan(mean):
            return "1.0000"  # 6
        return f"{0.0 if mean <= 0 else 1.0 if mean > 1 else mean:.4f}"  # 1

    names, first = sorted(by_model), next(iter(by_model))  # 14, 11
    lines, counted = ["\t".join(["Date", *names, "# case"])], 0
    for month in sorted({m for c in overall.values() for k in c if (m := months[k])}):
        n = sum(1 for k in overall[first] if months[k] == month)
        counted += n  # 12
        row = [
            cell([s for k, s in overall[name].items() if months[k] == month])
            for name in names
        ]
        lines.append("\t".join([month, *row, str(n)]))
    row = [cell(list(overall[name].values())) for name in names]
    lines.append("\t".join(["Overall", *row, str(counted)]))
    return "\n".join(lines) + "\n"


ODD = [
    {
        "case_id": "a",
        "evaluations": {"x": {"criterion": "rest", "score": 1, "weighted_score": 99}},
    },
    {"case_id": "unknown", "evaluations": {}},
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(benchmark=benchmarks(), one=gradings(), two=gradings())
@example(benchmark=[], one=[], two=[])
@pytest.mark.thorough
def test_raw_files_give_the_published_table(
    benchmark: list[Any], one: list[dict[str, Any]], two: list[dict[str, Any]]
) -> None:
    by_model = {"zeta": one, "alpha": two}
    assert published_table(benchmark, by_model) == second_opinion(benchmark, by_model)


@pytest.mark.thorough
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    benchmark=benchmarks(),
    more=st.lists(gradings(), min_size=2, max_size=2),
    failed=st.booleans(),
)
def test_runs_that_were_imported_give_the_published_table_of_their_files(
    benchmark: list[Any],
    more: list[Any],
    failed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever the run folder makes of verdicts on answers that failed, on cases nobody knows, of odd weights."""
    folder: Path = tmp_path_factory.mktemp("parity")
    benchmark[0]["rubric_items"] = [{"criterion": "rest", "points": 5}]
    file = folder / "LiveMedBench_v202601.json"
    file.write_text(json.dumps(benchmark))
    answers = answers_to("a", "b")
    if failed:
        answers[1] |= {"model_response": "ERROR: 500", "finish_reason": "error"}
    (folder / "r.json").write_text(json.dumps(answers))
    runs, by_model = [], {}
    for model, entries in zip(("zeta", "alpha"), more, strict=True):
        by_model[model] = [*ODD, *entries]
        grades = folder / f"evaluation_results_{model}.json"
        grades.write_text(json.dumps(by_model[model]))
        runs.append(folder / model)
        import_files(
            file, folder / "r.json", runs[-1], model=model, created_at=AT, grades=grades
        )
    table = score_runs(
        [load_graded(run) for run in runs], metric=Metric.PUBLISHED, draws=10
    )
    assert table.tsv() == second_opinion(benchmark, by_model)
    every_format_agrees(table)


def answers_to(*case_ids: str) -> list[dict[str, str]]:
    """The same answer to each case, as LiveMedBench's responses."""
    return [{"case_id": name, "model_response": "Rest."} for name in case_ids]


def every_format_agrees(table: ScoreTable) -> None:
    """JSON, CSV and Parquet say what the TSV says, to its digit."""
    lines = [line.split("\t") for line in table.tsv().splitlines()]
    of_tsv = {
        (label, line[0]): cell
        for line in lines[1:]
        for label, cell in zip(lines[0][1:-1], line[1:-1], strict=True)
    }
    document = json.loads(WRITERS["json"](table))
    rows = list(csv.DictReader(io.StringIO(WRITERS["csv"](table).decode())))
    for model in document["models"]:
        label, overall = model["model"], model["overall"]
        found = {
            (label, s["value"]): s["mean"]
            for s in model["slices"]
            if s["kind"] == "month"
        }
        found[label, "Overall"] = overall["mean"]
        for row in rows:
            if row["model"] == label and row["slice"] in ("overall", "month"):
                assert float(row["mean"] or 0.0) == (
                    found[label, row["value"] or "Overall"] or 0.0
                )
        has_odd = "without a finite figure" in " ".join(table.warnings)
        for key, cell in of_tsv.items():
            if key[0] == label and (key[1] == "Overall" or not has_odd):
                assert f"{found.get(key) or 0.0:.4f}" == cell
        if overall["mean"] is not None:
            assert overall["least"] <= overall["mean"] <= overall["most"]


def imported(
    folder: Path,
    benchmark: list[Any],
    answers: Any,
    entries: list[Any],
    model: str = "m",
) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in (
        ("b", benchmark),
        ("r", answers),
        (f"evaluation_results_{model}", entries),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    grades = folder / f"evaluation_results_{model}.json"
    import_files(
        folder / "b.json",
        folder / "r.json",
        folder / model,
        model=model,
        created_at=AT,
        grades=grades,
    )
    return folder / model


def case(
    case_id: Any, *items: tuple[Any, Any], at: str = "2025-03-01"
) -> dict[str, Any]:
    rubric = [{"criterion": text, "points": points} for text, points in items]
    return {
        "case_id": case_id,
        "post_time": at,
        "narrative": f"{case_id}",
        "rubric_items": rubric,
    }


def graded(case_id: Any, *weighted: tuple[Any, Any]) -> dict[str, Any]:
    evaluations = {
        f"rubric_{place}": {
            "criterion": text,
            "score": int(bool(w)),
            "weighted_score": w,
        }
        for place, (text, w) in enumerate(weighted)
    }
    return {"case_id": case_id, "evaluations": evaluations}


@pytest.mark.parametrize(
    ("benchmark", "entries", "overall", "said"),
    [
        # No answer, so no verdict in the run folder: the script has never heard of answers.
        ([case("failed", ("rest", 5))], [graded("failed", ("rest", 5))], "1.0000", ""),
        # Of two cases one was graded: the other is in no mean.
        (
            [case("a", ("rest", 4)), case("b", ("rest", 4))],
            [graded("a", ("rest", 1))],
            "0.2500",
            "grading: 1;",
        ),
        # 1.0 is 1: one case, at its first place, with the later entry's rubric.
        (
            [case(1, ("rest", 4)), case("1.0", ("rest", 8))],
            [graded(1, ("rest", 4)), graded(1.0, ("rest", 2))],
            "0.2500",
            "",
        ),
        (
            [case("a", ("rest", 1e-9))],
            [graded("a", ("rest", 1e308))],
            "1.0000",
            "without a finite figure: 1 (a)",
        ),
        (
            [case("a", ("rest", 5))],
            [graded("a", ("rest", math.nan)), graded("x")],
            "1.0000",
            "benchmark: 1 (x",
        ),
    ],
)
def test_odd_files_have_one_figure_in_every_format(
    benchmark: list[Any], entries: list[Any], overall: str, said: str, tmp_path: Path
) -> None:
    answers = answers_to("a", "1")
    run = load_graded(imported(tmp_path, benchmark, answers, entries))
    table = score_runs([run], metric=Metric.PUBLISHED, draws=10)
    assert table.tsv().splitlines()[-1].split("\t")[1] == overall
    assert table.tsv() == published_table(benchmark, {"m": entries})
    assert said in " ".join(table.warnings)
    every_format_agrees(table)
    paper = score_runs([run], draws=10).models[0]
    assert paper.overall.value is None or 0 <= paper.overall.value <= 1


def test_a_row_of_imported_runs_is_each_of_its_own_files(tmp_path: Path) -> None:
    """A run that was graded here, or of another benchmark, does not change what the imported one's files say."""
    answers = answers_to("a")
    odd = imported(
        tmp_path / "one",
        [case("a", ("rest", 4))],
        answers,
        [graded("a", ("rest", 1))],
        "odd",
    )
    other = imported(
        tmp_path / "two",
        [case("a", ("rest", 5))],
        answers,
        [graded("a", ("rest", 5))],
        "other",
    )
    (here,) = (other / "livemedbench").iterdir()
    here.unlink()
    table = score_runs(
        [load_graded(run) for run in (odd, other)], metric=Metric.PUBLISHED, draws=10
    )
    assert table.tsv().splitlines()[-1] == "Overall\t0.2500\t1.0000\t1"
    assert [w for w in table.warnings if "has no LiveMedBench files" in w]
    every_format_agrees(table)


def test_what_was_withdrawn_is_in_no_published_figure(tmp_path: Path) -> None:
    benchmark = [case("a", ("rest", 4), ("water", 4)), case("b", ("rest", 4))]
    entries = [graded("a", ("rest", 4), ("water", 0)), graded("b", ("rest", 0))]
    answers = answers_to("a", "b")
    run = load_graded(imported(tmp_path, benchmark, answers, entries))
    gone = RunErrata("v", cases=("b",), criteria=(("a", "rubric_2"),))
    table = score_runs(
        [run],
        metric=Metric.PUBLISHED,
        draws=10,
        errata=ErrataUse(ErrataMode.APPLY, (gone,)),
    )
    assert table.tsv().splitlines()[-1] == "Overall\t1.0000\t1"
    assert [w for w in table.warnings if "some of their cases are left out" in w]
    every_format_agrees(table)


def test_a_window_of_days_is_not_called_a_withdrawal(tmp_path: Path) -> None:
    benchmark = [case("a", ("rest", 4)), case("b", ("rest", 4), at="2024-03-01")]
    entries = [graded("a", ("rest", 4)), graded("b", ("rest", 0))]
    answers = answers_to("a", "b")
    run = load_graded(imported(tmp_path, benchmark, answers, entries))
    late = Window(since=date(2025, 1, 1))
    table = score_runs([run], metric=Metric.PUBLISHED, draws=10, window=late)
    assert table.tsv().splitlines()[-1] == "Overall\t1.0000\t1"
    assert [w for w in table.warnings if "some of their cases are left out" in w]
    assert not [w for w in table.warnings if "withdrawn" in w]


def test_one_case_that_is_graded_under_two_types_is_two_with_names_of_their_own(
    tmp_path: Path,
) -> None:
    entries = [
        graded(1, ("rest", 4)),
        graded("1", ("rest", 0)),
        graded("2", ("rest", 2)),
    ]
    answers = answers_to("1")
    run = load_graded(
        imported(
            tmp_path, [case(1, ("rest", 4)), case(2, ("rest", 4))], answers, entries
        )
    )
    (model,) = score_runs([run], metric=Metric.PUBLISHED, draws=30).models
    assert [(c.case.case_id, c.score) for c in model.cases] == [
        ("1", 1.0),
        ("1′", 0.0),
        ("2", 0.5),
    ]
    assert (model.overall.n, model.overall.value) == (3, 0.5)
    assert "3 threads" in model.overall.why
