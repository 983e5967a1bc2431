"""Other people's benchmarks: read whole, asked as they stand, scored as their own scripts score them."""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.benchmarks import (
    answer_rows,
    format_of,
    read_benchmark,
)
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion, Turn
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.runs.templates import default_template, load_template
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.engine import Reply
from tests.support.foreign import example, item, lines, medlive, said
from tests.unit.evaluation.conftest import AT, USE, make_cases, reply


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
    assert (format_of(single), format_of(own)) == ("livemedbench", "jsonl")
    assert default_template(load_cases(single)) == "livemedbench-v1"
    assert default_template(make_cases(1)) == "clinical"
    (case,) = load_cases(own).cases
    assert load_template(default_template(load_cases(own))).messages(case) == [
        said("I $ache.\n\nWhy?")
    ]


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
]


def test_each_bad_row_is_left_out_whole_with_its_line_and_the_cause(
    tmp_path: Path,
) -> None:
    path = lines(
        tmp_path / "hb.jsonl",
        [example("a", item(1)), *(row for row, _ in BAD), example("z", item(1))],
    )
    found = read_benchmark(path, "healthbench")
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
    found = read_benchmark(lines(tmp_path / "hb.jsonl", rows), "healthbench")
    assert [case.cluster for case in found.cases] == ["k", None, None, "k", "k"]
    assert found.notes == (
        "2 of 5 cases have no positive points (c, e); they are asked and have no score",
    )
    with pytest.raises(BadInput, match="entry 1: prompt_id"):
        read_benchmark(lines(tmp_path / "none.jsonl", [{"prompt": []}]), "healthbench")


WRONG = [
    (b"", "is empty"),
    (b"\n \n", "is empty"),
    (gzip.compress(b"{}", mtime=0), "is not text in UTF-8"),
    (b"PK\x03\x04", "expected JSON"),
    (
        b"version https://git-lfs.github.com/spec/v1\n",
        "expected JSON",
    ),
    # Bytes that GB18030 would read as Chinese.
    (
        '{"prompt_id": "a"}\n{"prompt_id": "\u00e9tat"}'.encode("latin-1"),
        "is not text in UTF-8",
    ),
    (b"<html><body>404</body></html>", "expected JSON"),
]


@pytest.mark.parametrize(("data", "cause"), WRONG)
def test_a_file_of_another_kind_is_refused_with_what_it_is(
    tmp_path: Path, data: bytes, cause: str
) -> None:
    (path := tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(BadInput, match=cause):
        load_cases(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
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
    results.write_text("[1]")
    with pytest.raises(BadInput, match="expected an object"):
        answer_rows(results, "healthbench", [])


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
    assert "p.jsonl: case 'a', k: no such criterion, or no answer; left out" in err
    assert (
        "p.jsonl: case 'z', rubric_1: no such criterion, or no answer; left out" in err
    )
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
    assert format_of(cases) == "jsonl"
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
    for judge, verdict in {"A": True, "B": False, "C": True}.items():
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
