"""A bundle of a run that was read for harm: verified from the judges' replies, and what a forger may try."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from medlive.evaluation.bundles import leaderboard
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import SCORES
from medlive.evaluation.bundles.leaderboard import rank_bundles
from medlive.evaluation.bundles.verify import unbundle
from medlive.evaluation.grading.harm import read_run
from medlive.evaluation.harm import READINGS
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.evaluation.scoring.score import score_runs
from tests.support.bundles import (
    DRAWS,
    Files,
    Room,
    lines_of,
    made_room,
    rescored,
    sealed,
    with_lines,
)
from tests.support.harm import HarmJudge

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """A run with one harmful answer; its other answers are not."""
    made = made_room(tmp_path_factory.mktemp("harm"))
    path = made.run.run.path
    judge = HarmJudge(severe="ml-0000000000000003")
    asyncio.run(read_run(path, judge, judge))
    made.run = load_graded(path)
    made.files = make_bundle(made.run, draws=DRAWS)
    return made


def test_readings_are_verified_and_unpacked(room: Room, tmp_path: Path) -> None:
    report = room.verify(room.files)
    assert report.why_not == ""
    assert report.ok, report.failed
    assert json.loads(room.files[SCORES])["harm"]["severe"]["mean"] > 0
    unpacked = load_graded(unbundle(report, tmp_path / "run").path)
    tables = [
        score_runs([run], metric=Metric.SAFE, draws=DRAWS, allow=EVERYTHING)
        for run in (room.run, unpacked)
    ]
    assert tables[0].models[0].overall == tables[1].models[0].overall
    assert tables[0].models[0].harm == tables[1].models[0].harm


@pytest.mark.parametrize("what", ["cleared", "added", "control", "key", "judge"])
def test_a_reading_that_was_changed_is_found(room: Room, what: str) -> None:
    rows = lines_of(room.files, READINGS)
    harmful = next(r for r in rows if r["harms"] and "control" not in r)
    clean = next(r for r in rows if not r["harms"] and "control" not in r)
    control = next(r for r in rows if r.get("control") == "slip")
    if what == "cleared":
        harmful["harms"] = []
    elif what == "added":
        clean["harms"] = harmful["harms"]
    elif what == "control":
        control["hit"] = not control["hit"]
    elif what == "key":
        clean["key"] = harmful["key"]
    else:
        clean["checker"] = "somebody else"
    failed = room.verify(forged(room.files, rows)).failed
    assert 7 in [step.number for step in failed]


def test_a_bundle_without_its_readings_has_other_figures(room: Room) -> None:
    files = {name: data for name, data in room.files.items() if name != READINGS}
    assert [step.number for step in room.verify(sealed(files)).failed] == [10]


def forged(files: Files, rows: list[dict[str, Any]]) -> Files:
    return sealed(with_lines(files, READINGS, rows))


def test_whose_harmful_answers_are_not_read_is_not_ranked_by_safe(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard, "MOST_UNSCORED", 0.5)
    whole = room.verify(room.files)
    (ranking,) = rank_bundles([whole], draws=DRAWS)[0]
    assert ranking.table.metric is Metric.SAFE
    readings = lines_of(room.files, READINGS)
    kept = []
    for place, row in enumerate(readings):
        if "control" in row or place > 2:
            kept.append(row)
    files = rescored(room, forged(room.files, kept))
    report = room.verify(files)
    assert report.ok, report.failed
    rankings, unranked = rank_bundles([report], draws=DRAWS)
    assert not rankings
    ((_, why),) = unranked
    assert why.endswith("too few are read for harm")
    by_complete = rank_bundles([report], metric=Metric.COMPLETE, draws=DRAWS)
    assert by_complete[0]


@pytest.mark.thorough
def test_a_control_that_is_left_out_is_reported(room: Room) -> None:
    assert not any("controls" in note for note in room.verify(room.files).notes)
    rows = lines_of(room.files, READINGS)
    slip = next(row for row in rows if row.get("control") == "slip")
    rows.remove(slip)
    report = room.verify(rescored(room, forged(room.files, rows)))
    assert report.ok
    about = "1 of 4 controls of the judges of harm are missing"
    assert any(about in note for note in report.notes)
