"""Blank sheets for people, filled in, read back and adjudicated: blind, in a drawn order, safe in spreadsheets."""

import asyncio
import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.humans import read_humans
from medlive.evaluation.agreement.meta import meta_run
from medlive.evaluation.agreement.sheets import (
    COLUMNS,
    items_of,
    places_of,
    write_adjudication,
    write_sheets,
)
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import Answer, AnswerState, Mode
from tests.unit.evaluation.conftest import AT, Judge, make_cases, verdict

N = 6
HARD = '=1+1, "Drink water"; 多喝水\r\n\x00\ud83d end'


async def graded(path: Path, n: int = N, said: str = "Drink water") -> Path:
    answers = [
        Answer(f"c{i:03d}", AnswerState.OK, f"{said} {i}.", "stop", "secret-model")
        for i in range(n - 1)
    ]
    answers.append(
        Answer(f"c{n - 1:03d}", AnswerState.EMPTY, "", "stop", "secret-model")
    )
    import_answers(path, make_cases(n), answers, "secret-model", AT)
    await grade_run(
        path,
        Judge(lambda r: verdict(r.inputs["criterion"].endswith(".0"))),
        mode=Mode.CRITERION,
    )
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    text = path.read_text("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=text[4]))


def fill(
    path: Path, met: Callable[[dict[str, str]], str], encoding: str = "utf-8-sig"
) -> Path:
    """A sheet as a rater sends it back from a spreadsheet of another country."""
    rows = rows_of(path)
    with path.open("w", encoding=encoding, newline="") as handle:
        table = csv.DictWriter(handle, COLUMNS, delimiter=";")
        table.writeheader()
        table.writerows(row | {"met": met(row)} for row in rows)
    return path


async def test_a_sheet_is_blind_whole_and_in_an_order_of_its_own(
    run_dir: Path, tmp_path: Path
) -> None:
    run = await graded(run_dir)
    made = write_sheets(run, tmp_path / "a", ["Dr. Ann", "王 医生"], seed=1)
    guide, ann, wang = made.files
    assert (made.items, made.cases, made.cut) == (15, 5, 0)
    assert guide.read_text("utf-8-sig").startswith(
        "How to rate\n\nEach row is one criterion"
    )
    assert (ann.name, wang.name) == ("ratings-Dr.-Ann.csv", "ratings-王-医生.csv")
    assert ann.read_bytes().startswith(b"\xef\xbb\xbf")
    for word in ("secret-model", "because", "judge-1", "Rest.", "5.0", "-4.0"):
        assert word not in ann.read_text("utf-8-sig")
    rows = [rows_of(ann), rows_of(wang)]
    assert [{row["rater"] for row in one} for one in rows] == [{"Dr. Ann"}, {"王 医生"}]
    items = [[row["item"] for row in one] for one in rows]
    assert items[0] != items[1]
    assert set(items[0]) == set(items[1])
    for one in rows:
        assert {row["met"] + row["comment"] for row in one} == {""}
        # Question and answer stand in the first row of their case, and cases stay together.
        cases = [int(row["case"]) for row in one]
        assert cases == sorted(cases)
        assert [bool(row["question"]) for row in one] == [
            i == 0 or cases[i - 1] != cases[i] for i in range(15)
        ]
    again = write_sheets(run, tmp_path / "b", ["Dr. Ann"], seed=1)
    assert again.files[1].read_bytes() == ann.read_bytes()
    other = write_sheets(run, tmp_path / "c", ["Dr. Ann"], seed=2)
    assert [row["item"] for row in rows_of(other.files[1])] != items[0]
    few = [
        write_sheets(run, tmp_path / name, [name], sample=2, seed=5)
        for name in ("x", "y")
    ]
    assert [(one.items, one.cases) for one in few] == [(6, 2)] * 2
    drawn = [{row["item"] for row in rows_of(one.files[1])} for one in few]
    assert drawn[0] == drawn[1]


async def test_what_stands_in_a_sheet_computes_nothing_and_comes_back(
    run_dir: Path, tmp_path: Path
) -> None:
    run = await graded(run_dir, n=2, said=HARD)
    (_, path) = write_sheets(run, tmp_path, ["-ann"]).files
    rows = rows_of(path)
    assert rows[0]["answer"].startswith("'=1+1")
    assert rows[0]["answer"].endswith("多喝水\n\ufffd\ufffd end 0.")
    assert not any(row["item"][0] in "=+-@0123456789" for row in rows)


async def test_filled_sheets_are_ratings_and_what_changed_since_is_left_out(
    run_dir: Path, tmp_path: Path
) -> None:
    run = await graded(run_dir)
    ann, bo = write_sheets(run, tmp_path / "s", ["ann", "bo"]).files[1:]
    fill(
        ann,
        lambda row: "是" if row["criterion"].endswith((".0", ".1")) else "否",
        "gb18030",
    )
    fill(
        bo,
        lambda row: (
            ""
            if row["criterion"] == "criterion 2.1"
            else "yes"
            if row["criterion"].endswith(".0")
            else "no"
        ),
    )
    found = meta_run(run, human=[ann, bo], draws=100)
    assert found.criteria is not None
    assert (found.coverage.rated, found.coverage.rated_twice) == (15, 14)
    by = {pair.first: pair for pair in found.criteria.grader}
    # The grader meets the first criterion of three: as bo does; ann meets the second as well.
    assert (by["bo"].equal.value, by["bo"].equal.n, by["bo"].ac1.value) == (
        1.0,
        14,
        1.0,
    )
    assert by["ann"].equal.value == pytest.approx(10 / 15)
    assert found.criteria.grader_macro_f1.value == pytest.approx(
        ((by["ann"].macro_f1.value or 0) + (by["bo"].macro_f1.value or 0)) / 2
    )
    assert any("GB18030" in note for note in found.notes)
    items = items_of(
        make_cases(N).cases,
        {
            f"c{i:03d}": Answer(f"c{i:03d}", AnswerState.OK, "Other.", "", "m")
            for i in range(N)
        },
    )
    with pytest.raises(BadInput, match="no item matches"):
        read_humans(ann, items=places_of(items))
    case = make_cases(N).cases[0]
    answer = Answer("c000", AnswerState.OK, "Drink water 0.", "stop", "m")
    edited = replace(case.criteria[1], criterion="another wording")
    places = places_of(
        items_of([replace(case, criteria=(case.criteria[0], edited))], {"c000": answer})
    )
    some = read_humans(ann, items=places)
    assert list(some.verdicts) == [("c000", "k0")]
    assert any("14 items belong to another run" in note for note in some.notes)


async def test_an_adjudicator_decides_what_two_disagree_on_and_nothing_else(
    run_dir: Path, tmp_path: Path
) -> None:
    run = await graded(run_dir)
    ann, bo = write_sheets(run, tmp_path / "s", ["ann", "bo"]).files[1:]
    fill(ann, lambda row: "yes" if row["criterion"].endswith((".0", ".1")) else "no")
    fill(
        bo,
        lambda row: (
            ""
            if row["criterion"] == "criterion 4.2"
            else "yes"
            if row["criterion"].endswith(".0")
            else "no"
        ),
    )
    places = places_of(
        items_of(make_cases(N).cases, {a.case_id: a for a in _answers(run)})
    )
    people = read_humans(ann, bo, items=places)
    made = write_adjudication(run, tmp_path / "adj", "cy", people)
    rows = rows_of(made.files[1])
    assert {row["criterion"] for row in rows} == {
        *(f"criterion {i}.1" for i in range(5)),
        "criterion 4.2",
    }
    assert not any(row["met"] for row in rows)
    cy = fill(
        made.files[1], lambda row: "" if row["criterion"] == "criterion 0.1" else "yes"
    )
    found = meta_run(run, human=[ann, bo, cy], adjudicator="cy", draws=100)
    alone = meta_run(run, human=[ann, bo], draws=100)
    assert found.criteria is not None
    assert alone.criteria is not None
    assert found.coverage is not None
    for name in (
        "people",
        "people_ac1",
        "grader",
        "grader_macro_f1",
        "by_case",
        "strictness",
    ):
        assert getattr(found.criteria, name) == getattr(alone.criteria, name)
    assert found.cases == alone.cases
    assert (found.coverage.adjudicated, found.criteria.majority_ties) == (5, 1)
    truth = found.criteria.majority
    assert truth is not None
    # Both said met of the first criteria, as the grader; cy of four second ones and of one third; c000's is open.
    c = truth.confusion
    assert (truth.first, c.both_met, c.first_only, c.second_only, c.neither) == (
        "adjudicated",
        5,
        5,
        0,
        4,
    )
    assert found.human["adjudicator"] == "cy"
    with pytest.raises(UsageError, match="has no ratings by 'dee'"):
        meta_run(run, human=[ann, bo], adjudicator="dee")
    with pytest.raises(UsageError, match="is one of the raters"):
        write_adjudication(run, tmp_path / "x", "ann", people)
    with pytest.raises(UsageError, match="nothing to adjudicate"):
        write_adjudication(run, tmp_path / "x", "cy", read_humans(ann, items=places))


def _answers(run: Path) -> list[Answer]:
    return [
        Answer.from_row(json.loads(line))
        for line in (run / "responses.jsonl").read_text().splitlines()
    ]


async def test_the_command_writes_sheets_and_overwrites_no_ratings(
    run_dir: Path, tmp_path: Path
) -> None:
    run = await graded(run_dir, n=3)

    async def call(*words: Any) -> Any:
        line = ["eval", "meta", str(run), *map(str, words)]
        return await asyncio.to_thread(CliRunner().invoke, build(line), line)

    sheets = ("--sheet", tmp_path / "s", "--rater", "ann", "--rater", "bo")
    done = await call(*sheets, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["items"], told["cases"], len(told["files"])) == (6, 2, 3)
    ann, bo = (Path(name) for name in told["files"][1:])
    fill(ann, lambda row: "yes")
    fill(bo, lambda row: "yes")
    alike = await call("--human", ann, "--human", bo, "--draws", "100")
    assert "ann and bo used only one verdict" in " ".join(alike.stderr.split())
    assert "secret-model and" not in alike.stderr
    held = ann.read_bytes()
    again = await call(*sheets)
    assert isinstance(again.exception, BadInput)
    assert ann.read_bytes() == held
    fill(bo, lambda row: "no" if row["criterion"].endswith(".0") else "yes")
    adjudicated = await call(
        "--sheet",
        tmp_path / "adj",
        "--human",
        ann,
        "--human",
        bo,
        "--adjudicator",
        "cy",
    )
    assert "2 ratings of 2 cases" in adjudicated.stdout
    assert (tmp_path / "adj" / "ratings-cy.csv").exists()
    for wrong in (
        ("--sheet", tmp_path / "n"),
        ("--sheet", tmp_path / "n", "--rater", "a/b", "--rater", "a:b"),
        ("--sheet", tmp_path / "n", "--rater", "ann", "--adjudicator", "cy"),
        ("--rater", "ann"),
        ("--adjudicator", "cy"),
    ):
        assert isinstance((await call(*wrong)).exception, UsageError), wrong
    assert not (tmp_path / "n").exists()
