"""Other people's benchmarks: read whole, asked as they stand, scored as their own scripts score them."""

import csv
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.benchmarks import (
    Format,
    answer_rows,
    format_of,
    read_benchmark,
)
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion, Turn
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.runs.templates import default_template, load_template
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.engine import Reply
from tests.unit.evaluation.conftest import AT, USE, make_cases, reply

REAL = Path(__file__).parents[4] / "shared" / "realdata" / "agreement"
KQA = REAL / "kqa_NLI_medical_annotator.csv"
real = pytest.mark.skipif(
    not KQA.exists(), reason="../shared/realdata/agreement is absent"
)

Rows = list[dict[str, Any]]


def medlive(*words: object) -> Any:
    line = ["eval", *map(str, words)]
    done = CliRunner().invoke(build(line), line)
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    return done


def lines(path: Path, rows: Sequence[object]) -> Path:
    path.write_text(
        "".join(
            (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
        ),
        "utf-8",
    )
    return path


def said(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


def example(name: str, *rubrics: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    row = {
        "prompt_id": name,
        "prompt": [said(f"What of {name}?")],
        "rubrics": list(rubrics),
        "example_tags": [],
    }
    return {**row, "ideal_completions_data": None, "canary": "x", **more}


def item(points: object, text: str = "Names it.", *tags: str) -> dict[str, Any]:
    return {"criterion": text, "points": points, "tags": list(tags)}


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
    for seed in range(4):
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


async def test_a_conversation_is_sent_as_it_stands(tmp_path: Path) -> None:
    turns = [
        said("Be brief.", "system"),
        said("$query hurts"),
        said("Where?", "assistant"),
        said("Here."),
    ]
    rows = [example("a", item(3), prompt=turns), example("b", item(3))]
    cases = load_cases(lines(tmp_path / "hb.jsonl", rows))
    sent: list[list[Mapping[str, str]]] = []

    async def complete(messages: Sequence[Mapping[str, str]]) -> Reply:
        sent.append(list(messages))
        return reply("Rest.", model="cand-1")

    for _ in range(2):  # the second time there is nothing left to ask
        await run_model(
            cases,
            complete,
            tmp_path / "run",
            use=USE,
            created_at=AT,
            template="as-is",
            concurrency=1,
        )
    assert sent == [row["prompt"] for row in rows]
    (first, _), ours = open_run(tmp_path / "run").cases, cases.cases
    assert first == ours[0]
    assert (
        first.question
        == "system: Be brief.\n\nuser: $query hurts\n\nassistant: Where?\n\nuser: Here."
    )
    with pytest.raises(UsageError, match="as-is"):
        await run_model(
            cases, complete, tmp_path / "other", use=USE, created_at=AT, template="open"
        )
    assert not (tmp_path / "other").exists()


def test_other_peoples_benchmarks_are_asked_as_they_are_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    (single := tmp_path / "lmb.json").write_text(
        '[{"case_id": "1", "narrative": "N", "rubric_items": []}]'
    )
    own = lines(
        tmp_path / "own.jsonl",
        [{"case_id": "q", "narrative": "I $ache.", "query": "Why?"}],
    )
    assert (format_of(single), format_of(own)) == (Format.LIVEMEDBENCH, Format.JSONL)
    assert default_template(load_cases(single)) == "livemedbench-v1"
    assert default_template(make_cases(1)) == "clinical"
    (case,) = load_cases(own).cases
    assert load_template(default_template(load_cases(own))).messages(case) == [
        said("I $ache.\n\nWhy?")
    ]


def test_physicians_ideal_completions_are_answers_where_there_are_some(
    tmp_path: Path,
) -> None:
    ideal = {
        "ideal_completion": "Rest, and call.",
        "ideal_completions_group": "Group 1",
    }
    cases = lines(
        tmp_path / "hb.jsonl",
        [example("a", item(1), ideal_completions_data=ideal), example("b", item(1))],
    )
    files = (
        "--cases",
        cases,
        "--responses",
        cases,
        "--response-field",
        "ideal_completion",
    )
    medlive("import", *files, "--model", "physicians", "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert {name: answer.response for name, answer in run.answers()[0].items()} == {
        "a": "Rest, and call."
    }
    assert [case.advice for case in run.cases] == ["Rest, and call.", ""]


BAD = [
    (
        example("b", item(5), prompt=[said(" ")]),
        "line 2: prompt.0.content: String should match pattern",
    ),
    (
        example("c", {"criterion": "x", "tags": []}),
        "line 3: rubrics.0.points: Field required; left out",
    ),
    ("{not json", "line 4: not valid JSON: Expecting property name"),
    (example("a", item(1)), "line 5: a second case 'a'; left out"),
    (
        example("d", item(1), prompt=[said("x"), said("y", "assistant")]),
        "line 6: row: Value error, the last turn must be the user's",
    ),
    (
        example("e", item(1), prompt=[said("x", "bot")]),
        "line 7: prompt.0.role: Input should be 'system', 'user'",
    ),
    (
        example("f", item(1), prompt="What?"),
        "line 8: prompt: Input should be a valid list",
    ),
    (
        example("g", item(1), item("5")),
        "line 9: rubrics.1.points: Input should be a valid number",
    ),
    (
        example("h", item(True)),
        "line 10: rubrics.0.points: Input should be a valid number",
    ),
    (example("i", item(1, "")), "line 11: rubrics.0.criterion: String should match"),
    ("[1]", "line 12: expected an object, found a list"),
    ({"prompt": [said("x")], "rubrics": []}, "line 13: prompt_id: Field required"),
    (
        example("j", item(float("nan"))),
        "line 14: rubrics.0.points: Input should be a finite number",
    ),
    (
        example("k", item(1), prompt=[]),
        "line 15: row: Value error, expected either turns, or narrative and query",
    ),
    (
        example("l", item(1), 7),  # type: ignore[arg-type]
        "line 16: rubrics.1: Input should be a valid dictionary",
    ),
    (example("m", item(1), cluster=" "), "line 17: cluster: String should match"),
    (example(1.5, item(1)), "line 18: prompt_id: Input should be a valid string"),  # type: ignore[arg-type]
    (
        example("n", item(1), prompt=[said("\ud800")]),
        "line 19: prompt.0.content: Input should be a valid string",
    ),
    (
        example("o", {**item(1), "id": "rubric_2"}, item(2)),
        "line 20: row: Value error, two criteria have the same id",
    ),
    (
        '{"prompt_id": "p", "prompt_id": "q"}',
        "line 21: not valid JSON: the key 'prompt_id' is given twice",
    ),
]


def test_each_bad_row_is_left_out_whole_with_its_line_and_the_cause(
    tmp_path: Path,
) -> None:
    path = lines(
        tmp_path / "hb.jsonl",
        [example("a", item(1)), *(row for row, _ in BAD), example("z", item(1))],
    )
    found = read_benchmark(path, Format.HEALTHBENCH)
    assert [case.case_id for case in found.cases] == ["a", "z"]
    assert len(found.notes) == len(BAD)
    for note, (_, cause) in zip(found.notes, BAD, strict=True):
        assert note.startswith(f"hb.jsonl, {cause}")
        assert note.endswith("left out")


def test_what_is_odd_but_asked_is_said(tmp_path: Path) -> None:
    again = [said("Hm"), said("Hm?", "assistant"), said("Hm")]
    rows = [
        example("a", item(1), prompt=[said("Same?")], cluster="k"),
        example("b", item(1) | {"weight": 2}, prompt=[said("Same?")], mood="grim"),
        example("c", prompt=again, mood="glad"),
        example("d", item(1), prompt=[said("Same? ")], cluster="k"),
        example("e", item(-1), item(-2), cluster="k", post_time="yesterday"),
    ]
    found = read_benchmark(lines(tmp_path / "hb.jsonl", rows), Format.HEALTHBENCH)
    assert [case.cluster for case in found.cases] == ["k", None, None, "k", "k"]
    assert found.notes == (
        "hb.jsonl: not read: 'mood' (first: line 2)",
        "hb.jsonl: not read: 'weight' (first: line 2)",
        "2 of 5 cases have no positive points; they are asked and have no score",
    )
    with pytest.raises(BadInput, match="line 1: prompt_id"):
        read_benchmark(
            lines(tmp_path / "none.jsonl", [{"prompt": []}]), Format.HEALTHBENCH
        )


WRONG = [
    (b"", "is empty"),
    (b"\n \n", "is empty"),
    (gzip.compress(b"{}", mtime=0), "is not text in UTF-8"),
    (b"PK\x03\x04", "expected JSON"),
    (
        b"version https://git-lfs.github.com/spec/v1\n",
        "expected JSON, found 'version https://git-lfs",
    ),
    # Bytes that GB18030 would read as Chinese.
    (
        '{"prompt_id": "a"}\n{"prompt_id": "\u00e9tat"}'.encode("latin-1"),
        "is not text in UTF-8",
    ),
    (b"<html><body>404</body></html>", "expected JSON, found '<html>"),
]


@pytest.mark.parametrize(("data", "cause"), WRONG)
def test_a_file_of_another_kind_is_refused_with_what_it_is(
    tmp_path: Path, data: bytes, cause: str
) -> None:
    (path := tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(BadInput, match=cause):
        load_cases(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", ["lines", "crlf", "array"])
def test_the_same_cases_come_of_every_encoding_and_list(
    tmp_path: Path, encoding: str, form: str
) -> None:
    rows = [example("a", item(1)), example("b", item(2, "\u75bc", "axis:accuracy"))]
    whole = json.dumps(rows, ensure_ascii=False, indent=1)
    ends = {"lines": "\n", "crlf": "\r\n"}
    text = (
        whole
        if form == "array"
        else ends[form].join(json.dumps(row, ensure_ascii=False) for row in rows)
    )
    (path := tmp_path / "hb.json").write_bytes(text.encode(encoding))
    plain = load_cases(lines(tmp_path / "plain.jsonl", rows))
    assert load_cases(path).cases == plain.cases


def test_results_that_do_not_fit_the_cases_are_named(tmp_path: Path) -> None:
    cases = lines(tmp_path / "hb.jsonl", [example("a", item(5)), example("b", item(1))])
    row = {
        "prompt_id": "a",
        "prompt": [said("Another?")],
        "completion": "Rest.",
        "rubric_items": [item(7) | {"criteria_met": True}],
    }
    results = lines(tmp_path / "r.jsonl", [row])
    files = (
        "--cases",
        cases,
        "--responses",
        results,
        "--grades",
        results,
        "--model",
        "m",
    )
    err = medlive("import", *files, "--out", tmp_path / "run").stderr
    assert "r.jsonl: case 'a', rubric_1: graded at 7 points; the rubric's count" in err
    for wrong, cause in [
        ("[]", "has no answer in healthbench's format"),
        ("[1]", "expected an object"),
    ]:
        results.write_text(wrong)
        with pytest.raises(BadInput, match=cause):
            answer_rows(results, Format.HEALTHBENCH, "")


def test_peoples_verdicts_on_nothing_of_the_cases_are_named(tmp_path: Path) -> None:
    cases = lines(
        tmp_path / "own.jsonl", [{"case_id": "a", "query": "Why?", "rubric": [item(1)]}]
    )
    answers = lines(tmp_path / "a.jsonl", [{"case_id": "a", "response": "So."}])
    one = {"case_id": "a", "criterion_id": "rubric_1", "rater": "A", "met": True}
    people = lines(
        tmp_path / "p.jsonl", [one, one | {"criterion_id": "k"}, one | {"case_id": "z"}]
    )
    files = (
        "--cases",
        cases,
        "--responses",
        answers,
        "--grades",
        people,
        "--model",
        "m",
    )
    err = medlive("import", *files, "--out", tmp_path / "run").stderr
    assert "p.jsonl: case 'a', k: no criterion of the case; left out" in err
    assert "p.jsonl: case 'z' is not in the cases; left out" in err
    lines(people, [{"case_id": "a", "rater": "A", "score": 0.5}])
    with pytest.raises(AssertionError, match="no verdicts on criteria, only scores"):
        medlive("import", *files, "--out", tmp_path / "other")


def test_a_file_of_ones_own_keeps_every_documented_field_and_takes_peoples_verdicts(
    tmp_path: Path,
) -> None:
    full = {
        "case_id": 7,
        "turns": [said("哪里疼？", "assistant"), said("膝盖。")],
        "advice": "Rest.",
        "language": "zh",
        "post_time": "2026-01-05",
        "source": "clinic",
        "theme": "hedging",
        "specialty": "Cardiology",
        "cluster": 3,
        "tags": ["hard"],
        "rubric": [
            {"id": "k", "axis": "Safety", **item(2, "Says rest.", "level:example")}
        ],
    }
    cases = lines(
        tmp_path / "own.jsonl",
        [full, {"case_id": "q", "query": "Why?", "rubric": [item(1)]}],
    )
    assert format_of(cases) is Format.JSONL
    answers = lines(
        tmp_path / "a.jsonl",
        [{"case_id": "7", "response": "Rest."}, {"case_id": "q", "response": "No"}],
    )
    met = [
        {"case_id": "7", "criterion_id": "k", "rater": name, "met": name != "B"}
        for name in "ABC"
    ]
    people = lines(tmp_path / "people.jsonl", met)
    files = ("--cases", cases, "--responses", answers, "--grades", people)
    medlive("import", *files, "--model", "m", "--out", tmp_path / "run")
    first, second = open_run(tmp_path / "run").cases
    assert first == EvaluationCase(
        "7",
        "zh",
        "assistant: 哪里疼？",
        "膝盖。",
        "Rest.",
        (EvaluationCriterion("k", "Says rest.", 2.0, "Safety", ("level:example",)),),
        "2026-01-05",
        "2026-01",
        "clinic",
        "hedging",
        "Cardiology",
        None,
        "3",
        (Turn("assistant", "哪里疼？"), Turn("user", "膝盖。")),
        None,
        ("hard",),
    )
    assert (second.question, second.language, second.criteria[0].id) == (
        "Why?",
        "en",
        "rubric_1",
    )
    for judge, verdict in {"A": True, "B": False, "C": True, "majority": True}.items():
        assert load_graded(tmp_path / "run", judge=judge).verdicts("7") == {
            "k": verdict
        }


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_case_comes_back_from_its_row(seed: int) -> None:
    rng = random.Random(seed)
    case = make_cases(1).cases[0]
    assert (
        not {"cluster", "turns", "tags"} & case.row().keys()
    )  # run folders from before stay the same run
    assert not any("tags" in criterion for criterion in case.row()["criteria"])
    turns = tuple(
        Turn("user", chr(rng.randint(33, 9999))) for _ in range(rng.randint(0, 2))
    )
    more: dict[str, Any] = {
        "turns": turns,
        "tags": ("t",) * rng.randint(0, 2),
        "cluster": rng.choice([None, "k"]),
    }
    made = EvaluationCase(
        "a",
        "en",
        "n",
        "q",
        "",
        (EvaluationCriterion("k", "c", 1.0, None, ("x",)),),
        "",
        None,
        **more,
    )
    for one in (case, made):
        assert EvaluationCase.from_row(json.loads(json.dumps(one.row()))) == one


HEAD = [
    "",
    "Question",
    "llm_x",
    "answer",
    "claim",
    "category_x",
    "majority_label",
    "label_0",
    "label_1",
    "label_2",
]


def labels(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return list(csv.DictReader(handle))


def comprehensiveness(
    rows: Sequence[Mapping[str, str]], met: Mapping[str, set[str]], model: str = ""
) -> Fraction:
    """K-QA's `Comp_norm`: the share of what an answer must have that it entails, mean over answers."""
    must: dict[tuple[str, str], list[bool]] = {}
    for row in rows:
        if row["category_x"] == "Must_have" and model in ("", row["llm_x"]):
            entailed = sum(
                row[column] in words for column, words in met.items()
            ) * 2 > len(met)
            must.setdefault((row["Question"], row["llm_x"]), []).append(entailed)
    return sum(
        (Fraction(sum(one), len(one)) for one in must.values()), Fraction()
    ) / len(must)


def check_kqa(path: Path, run: Path) -> None:
    files = ("--cases", path, "--responses", path, "--grades", path)
    medlive("import", "--format", "kqa", *files, "--model", "all", "--out", run)
    rows = labels(path)
    raters = {f"label_{n}": {f"label_{n}": {"Entailment"}} for n in range(3)}
    raters["majority"] = {name: {"Entailment"} for name in raters}
    for judge, met in raters.items():
        out = medlive("score", run, "--judge", judge, "--format", "json").stdout
        (model,) = json.loads(out)["models"]
        assert model["overall"]["mean"] == pytest.approx(
            float(comprehensiveness(rows, met)), abs=1e-12
        )
        by_model = {
            s["value"]: s["mean"] for s in model["slices"] if s["kind"] == "source"
        }
        assert by_model == pytest.approx(
            {m: float(comprehensiveness(rows, met, m)) for m in by_model}, abs=1e-12
        )
        assert by_model.keys() <= {row["llm_x"] for row in rows}


def test_kqas_labelled_statements_have_its_own_scripts_comprehensiveness(
    tmp_path: Path,
) -> None:
    rng, path = random.Random(1), tmp_path / "nli.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(HEAD)
        for n in range(40):
            question, kind = (
                f"Q{n // 4}?",
                rng.choice(["Must_have", "Must_have", "Nice_to_have"]),
            )
            given_ = [
                rng.choice(["Entailment", "Neutral", "Contradiction"]) for _ in range(3)
            ]
            model = "ab"[n // 4 % 2]
            writer.writerow(
                [
                    n,
                    question,
                    model,
                    f"Answer to {question}",
                    f"S{n}",
                    kind,
                    "?",
                    *given_,
                ]
            )
    check_kqa(path, tmp_path / "run")
    cases = open_run(tmp_path / "run").cases
    assert (len(cases), len({case.cluster for case in cases})) == (10, 10)
    only = tmp_path / "only"
    medlive(
        "import",
        "--cases",
        path,
        "--responses",
        path,
        "--source",
        "a",
        "--model",
        "a",
        "--out",
        only,
    )
    assert {case.source for case in open_run(only).cases} == {"a"}


def test_kqas_questions_are_scored_on_what_an_answer_must_have(tmp_path: Path) -> None:
    row = {
        "Question": "Why?",
        "Free_form_answer": "So.",
        "Must_have": ["A", "B"],
        "Nice_to_have": ["C", " "],
        "Sources": "x",
        "ICD_10_diag": "y",
    }
    cases = lines(
        tmp_path / "kqa.jsonl", [row, {**row, "Question": "What?", "Must_have": "A"}]
    )
    answers = tmp_path / "results.json"
    answers.write_text(json.dumps([{"Question": "Why?", "result": "A and C."}]))
    found = load_cases(cases)
    assert found.notes == ("kqa.jsonl, line 2: Must_have: expected a list; left out",)
    (case,) = found.cases
    assert [(c.criterion, c.points, c.axis) for c in case.criteria] == [
        ("A", 1.0, "Must_have"),
        ("B", 1.0, "Must_have"),
        ("C", 0.0, "Nice_to_have"),
    ]
    medlive(
        "import",
        "--cases",
        cases,
        "--responses",
        answers,
        "--model",
        "m",
        "--out",
        tmp_path / "run",
    )
    answers_ = open_run(tmp_path / "run").answers()[0]
    assert {name: answer.response for name, answer in answers_.items()} == {
        case.case_id: "A and C."
    }


@real
def test_the_published_sets_come_out_to_the_last_digit(tmp_path: Path) -> None:
    check_kqa(KQA, tmp_path / "kqa")
