"""Physicians on the cases: sheets written, filled and read back; shares and AC1 against irrCAC's and by hand."""

import asyncio
import csv
import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.case_ratings import (
    COLUMNS,
    quality,
    write_quality_sheets,
)
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.model import Answer, AnswerState
from tests.support.agreement import ac1
from tests.unit.evaluation.conftest import AT, make_cases

N = 8


@pytest.fixture
def run(run_dir: Path) -> Path:
    # Neither a grade nor an answer to most of the cases: these ratings are about the cases.
    import_answers(
        run_dir,
        make_cases(N),
        [Answer("c000", AnswerState.OK, "Drink.", "stop", "m")],
        "cand",
        AT,
    )
    return run_dir


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def fill(path: Path, ratings: dict[str, int | None]) -> dict[str, dict[str, str]]:
    rows = rows_of(path)
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        table = csv.DictWriter(handle, COLUMNS)
        table.writeheader()
        for row in rows:
            given = ratings[row["item"]]
            table.writerow(row | {"rating": "" if given is None else str(given)})
    return {row["item"]: row for row in rows}


def test_the_table_is_what_was_rated(run: Path, tmp_path: Path) -> None:
    made = write_quality_sheets(run, tmp_path / "s", ["ann", "bo"], seed=4)
    assert (made.items, made.cases, made.cut) == (N * 5, N, 0)
    ann, bo = made.files[1:]
    rows = rows_of(ann)
    assert rows[0]["question"]
    assert rows[0]["advice"] == "Rest."
    assert [row["aspect"] for row in rows[:5]] == [
        "narrative_and_query",
        "advice",
        *["criterion"] * 3,
    ]
    assert not any(row["question"] for row in rows[1:5])
    assert [row["item"] for row in rows] != [row["item"] for row in rows_of(bo)]
    draw = np.random.default_rng(3)
    said: list[dict[str, int | None]] = []
    for path in (ann, bo):
        said.append(
            {
                row["item"]: int(
                    draw.integers(3 if row["aspect"] != "criterion" else 2)
                )
                for row in rows
            }
        )
        said[-1][rows[7]["item"]] = None
        fill(path, said[-1])
    found = quality(run, [ann, bo], draws=100)
    assert (found.cases, found.n) == ("2026.W47", N)
    turned = quality(run, [bo, ann], draws=100)
    figures = [
        [(one.ac1, one.equal, one.macro_f1) for one in done.aspects]
        for done in (found, turned)
    ]
    assert figures[0] == figures[1]
    assert [one.values for one in found.aspects] == [3, 3, 2]
    assert found.notes == ("2 ratings have no decision and are left out",)
    for one in found.aspects:
        items = [
            row["item"]
            for row in rows
            if row["aspect"] == one.aspect and row["item"] != rows[7]["item"]
        ]
        first, second = ([given[item] for item in items] for given in said)
        assert one.ac1.value == pytest.approx(ac1(first, second, one.values))
        assert one.equal.value == pytest.approx(
            np.mean(np.array(first) == np.array(second))
        )
        assert (one.ac1.n, one.ac1.low is not None) == (len(items), True)
        for share, column in zip(one.raters, (first, second), strict=True):
            assert share.agreed.value == pytest.approx(np.mean(np.array(column) >= 1))
        if find_spec("sklearn") is not None:
            f1 = pytest.importorskip("sklearn.metrics").f1_score
            scikit = f1(
                first,
                second,
                labels=range(one.values),
                average="macro",
                zero_division=0,
            )
            assert one.macro_f1.value == pytest.approx(scikit)
        if find_spec("irrCAC") is not None:
            pd, raw = pytest.importorskip("pandas"), pytest.importorskip("irrCAC.raw")
            frame = pd.DataFrame({"a": first, "b": second})
            theirs = raw.CAC(
                frame, categories=list(range(one.values)), digits=12
            ).gwet()["est"]
            assert one.ac1.value == pytest.approx(theirs["coefficient_value"], abs=1e-9)


def test_what_is_no_rating_is_said(run: Path, tmp_path: Path) -> None:
    ids = [
        row["item"]
        for row in rows_of(write_quality_sheets(run, tmp_path / "s", ["ann"]).files[1])
    ]
    path = tmp_path / "q.csv"
    for text, told in (
        (
            f"{ids[0]},ann,3\n",
            "q.csv: line 2: rating must be a whole number from 0 to 2, found '3'",
        ),
        (
            f"{ids[2]},ann,2\n",
            "line 2: rating must be a whole number from 0 to 1, found '2'",
        ),
        (f"{ids[0]},ann,1\n{ids[0]},ann,2\n", "line 3: 'ann' contradicts"),
        (f"{ids[0]},,1\n", "line 2: item and rater"),
        ("q-0,ann,1\n", "found only 1 items of other cases"),
        (f"{ids[0]},ann,\n", "found no ratings"),
    ):
        path.write_text("item,rater,rating\n" + text)
        with pytest.raises(BadInput) as caught:
            quality(run, [path])
        assert told in caught.value.message
    path.write_text(
        json.dumps(
            [
                {"item": ids[0], "rater": "ann", "rating": 2.0},
                {"item": "q-1", "rater": "ann"},
            ]
        )
    )
    few = quality(run, [path])
    assert few.aspects[0].raters[0].agreed.value == 1.0
    assert few.aspects[0].ac1.value is None
    assert few.aspects[1].raters[0].agreed.value is None
    assert "1 items belong to other cases" in few.notes[0]


async def test_the_command(run: Path, tmp_path: Path) -> None:
    async def call(*words: Any) -> Any:
        line = ["eval", "meta", str(run), *map(str, words)]
        return await asyncio.to_thread(CliRunner().invoke, build(line), line)

    sheets = await call(
        "--sheet",
        tmp_path,
        "--about",
        "cases",
        "--rater",
        "ann",
        "--sample",
        6,
        "--json",
    )
    told = json.loads(sheets.stdout)
    assert (told["items"], told["cases"]) == (30, 6)
    path = Path(told["files"][1])
    fill(path, {row["item"]: 1 for row in rows_of(path)})
    shown = await call("--quality", path, "--draws", 100, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "1.000 [1.000, 1.000]" in shown.stdout
    assert (
        json.loads((tmp_path / "out" / "quality.json").read_text())["format"]
        == "medlive-quality"
    )
    for wrong in (
        ("--about", "x"),
        ("--about", "cases"),
        ("--quality", path, "--human", path),
        ("--sheet", tmp_path / "more", "--rater", "ann", "--out", tmp_path / "x"),
    ):
        assert isinstance((await call(*wrong)).exception, UsageError)
