"""HealthBench: read whole, and scored as its own script scores it."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medlive.evaluation.cases.benchmarks import healthbench_answers, read_benchmark
from medlive.evaluation.model import Turn
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import score_runs
from tests.support.foreign import Rows, example, item, lines, medlive, said


def healthbench(seed: int) -> tuple[Rows, dict[str, Any]]:
    """Examples, and the results file that simple-evals writes of them."""
    rng = random.Random(seed)
    rows, results = [], []
    for number in range(12):
        rubrics = [
            item(
                rng.choice([9, 5, 2.5, -3, -9]),
                f"Criterion {number}.{n}.",
                "level:example",
                f"axis:{axis}",
            )
            for n in range(rng.randint(1, 6))
            for axis in [rng.choice(["accuracy", "completeness"])]
        ]
        rubrics[0]["points"] = 4
        turns = [said("First."), said("Well?", "assistant")] * rng.randint(0, 1) + [
            said(f"And {number}?")
        ]
        tags = [f"theme:{rng.choice(['hedging', 'global_health'])}"]
        rows.append(example(f"p{number}", *rubrics, prompt=turns, example_tags=tags))
        graded = [
            {**one, "criteria_met": rng.random() < 0.5, "explanation": "so"}
            for one in rubrics
        ]
        results.append(
            {
                "prompt_id": f"p{number}",
                "prompt": turns,
                "completion": [said("Rest.", "assistant")],
                "rubric_items": graded,
                "score": 0,
                "usage": {},
                "completion_id": "c",
            }
        )
    return rows, {
        "score": 0,
        "metrics": {},
        "htmls": [],
        "metadata": {"example_level_metadata": results},
    }


def simple_evals(rows: Rows, results: Mapping[str, Any]) -> dict[str, float]:
    """HealthBench's own figures: `calculate_score` and `_compute_clipped_stats` of its published script."""
    values: dict[str, list[float]] = {}

    def add(name: str, items: Rows) -> None:
        if most := sum(one["points"] for one in items if one["points"] > 0):
            achieved = sum(one["points"] for one in items if one["criteria_met"])
            values.setdefault(name, []).append(achieved / most)

    for row, result in zip(
        rows, results["metadata"]["example_level_metadata"], strict=True
    ):
        items = result["rubric_items"]
        for tag in ("overall", *row["example_tags"]):
            add(tag, items)
        for tag in {tag for one in items for tag in one["tags"]}:
            add(tag, [one for one in items if tag in one["tags"]])
    return {
        name: float(np.clip(np.mean(found), 0, 1)) for name, found in values.items()
    }


def test_healthbench_goes_through_by_commands_and_has_its_own_scripts_figures(
    tmp_path: Path,
) -> None:
    for seed in range(2):
        rows, results = healthbench(seed)
        cases, answers = (
            lines(tmp_path / "hb.jsonl", rows),
            tmp_path / "hb_allresults.json",
        )
        answers.write_text(json.dumps(results))
        run = tmp_path / f"run{seed}"
        files = ("--cases", cases, "--responses", answers, "--grades", answers)
        medlive(
            "import", "--format", "healthbench", *files, "--model", "m", "--out", run
        )
        (model,) = json.loads(
            medlive("score", run, "--metric", "healthbench", "--format", "json").stdout
        )["models"]
        found = {
            f"{s['kind']}:{s['value']}": s["mean"]
            for s in model["slices"]
            if s["kind"] in ("theme", "axis")
        }
        expected = simple_evals(rows, results)
        assert found | {"overall": model["overall"]["mean"]} == pytest.approx(
            {
                name: mean
                for name, mean in expected.items()
                if not name.startswith("level:")
            },
            abs=1e-12,
        )
        assert [list(c.turns) for c in open_run(run).cases] == [
            [Turn(**t) for t in r["prompt"]] for r in rows
        ]


def test_an_ungraded_case_is_left_out_of_healthbenchs_mean_and_bounds_it(
    tmp_path: Path,
) -> None:
    rows = [
        example("a", item(4), item(-8, "Harms.")),
        example("b", item(2), item(2, "More.")),
    ]
    result = [
        {
            "prompt_id": "a",
            "completion": "Do.",
            "rubric_items": [
                item(4) | {"criteria_met": False},
                item(-8, "Harms.") | {"criteria_met": True},
            ],
        },
        {
            "prompt_id": "b",
            "completion": "Go.",
            "rubric_items": [item(2) | {"criteria_met": True}],
        },
    ]
    run, given_ = tmp_path / "run", lines(tmp_path / "r.jsonl", result)
    files = (
        "--cases",
        lines(tmp_path / "hb.jsonl", rows),
        "--responses",
        given_,
        "--grades",
        given_,
    )
    medlive("import", *files, "--model", "m", "--out", run)
    scored = load_graded(run).case_scores(Metric.HEALTHBENCH)
    assert [(case.score, case.low, case.high) for case in scored] == [
        (-2.0, -2.0, -2.0),
        (None, 0.5, 1.0),
    ]
    overall = (
        score_runs([load_graded(run)], metric=Metric.HEALTHBENCH).models[0].overall
    )
    assert (overall.n, overall.value, overall.of) == (1, 0.0, 2)


def test_fields_of_another_type_hold_no_answer_and_no_verdict() -> None:
    row = {"prompt_id": "a", "completion": "Do.", "rubric_items": 5}
    (answer,) = healthbench_answers(json.dumps(row), "r.jsonl")
    assert (answer["response"], answer["evaluations"]) == ("Do.", {})


def test_physicians_ideal_completions_are_the_advice(tmp_path: Path) -> None:
    ideal = {
        "ideal_completion": "Rest, and call.",
        "ideal_completions_group": "Group 1",
    }
    cases = lines(
        tmp_path / "hb.jsonl",
        [example("a", item(1), ideal_completions_data=ideal), example("b", item(1))],
    )
    read = read_benchmark(cases, "healthbench")
    assert [case.advice for case in read.cases] == ["Rest, and call.", ""]
