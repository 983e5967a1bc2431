"""Physicians' ratings of the cases: shares and AC1 against irrCAC's and by hand."""

import asyncio
import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.case_ratings import (
    ASPECTS,
    Item,
    aspect_figures,
    case_items,
    quality,
)
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.model import Answer, AnswerState
from medlive.evaluation.runs.folder import open_run
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


def rated_items(run: Path) -> list[Item]:
    """What can be rated of the run's cases."""
    return [item for case in open_run(run).cases for item in case_items(case)]


def write(path: Path, rater: str, ratings: Mapping[str, int | None]) -> Path:
    """Ratings as a study exports them."""
    with path.open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["item", "rater", "rating"])
        for item, rating in ratings.items():
            table.writerow([item, rater, "" if rating is None else rating])
    return path


def test_the_table_is_what_was_rated(run: Path, tmp_path: Path) -> None:
    items = rated_items(run)
    draw = np.random.default_rng(3)
    said: list[dict[str, int | None]] = []
    for _ in range(2):
        said.append(
            {item.id: int(draw.integers(ASPECTS[item.aspect])) for item in items}
        )
        said[-1][items[7].id] = None
    ann = write(tmp_path / "ann.csv", "ann", said[0])
    bo = write(tmp_path / "bo.csv", "bo", said[1])
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
        rated = [i.id for i in items if i.aspect == one.aspect and i.id != items[7].id]
        first, second = ([given[item] for item in rated] for given in said)
        assert one.ac1.value == pytest.approx(ac1(first, second, one.values))
        assert one.equal.value == pytest.approx(
            np.mean(np.array(first) == np.array(second))
        )
        assert (one.ac1.n, one.ac1.low is not None) == (len(rated), True)
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
    ids = [item.id for item in rated_items(run)]
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

    ratings = {item.id: 1 for item in rated_items(run)}
    path = write(tmp_path / "ann.csv", "ann", ratings)
    shown = await call("--quality", path, "--draws", 100, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "1.000 [1.000, 1.000]" in shown.stdout
    assert (
        json.loads((tmp_path / "out" / "quality.json").read_text())["format"]
        == "medlive-quality"
    )
    wrong = await call("--quality", path, "--human", path)
    assert isinstance(wrong.exception, UsageError)


def test_what_is_rated_beside_cases_is_passed_over(run: Path) -> None:
    item = rated_items(run)[0]
    verdict = replace(item, id="i-1", aspect="verdict")
    ratings = {item.id: {"ann": 1}, verdict.id: {"ann": 1}}
    figures = aspect_figures([item, verdict], ratings, ["ann"], draws=100)
    assert [one.raters[0].agreed.n for one in figures] == [1, 0, 0]
