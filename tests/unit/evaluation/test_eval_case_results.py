"""How models did on a case: bundles that verify and runs are shown, whatever else lies beside them."""

import json
import shutil
from pathlib import Path

import pytest

from medlive.evaluation.bundles.case_results import CaseResults
from medlive.evaluation.bundles.files import archive
from medlive.evaluation.runs.folder import GRADES
from medlive.evaluation.scoring.metrics import CaseState
from tests.support.bundles import Files, lines_of, made_room, sealed, with_lines

CASE = "ml-0000000000000003"


def forged(files: Files) -> Files:
    """The bundle with a verdict turned, every digest fitting again."""
    rows = lines_of(files, GRADES)
    turned = [
        row | {"met": not row["met"]} if row["met"] is not None else row for row in rows
    ]
    return sealed(with_lines(files, GRADES, turned))


def test_results_of_a_case_by_model_and_criterion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = made_room(tmp_path)
    monkeypatch.setenv("MEDLIVE_SNAPSHOTS", str(room.snapshot.parent))
    shown = tmp_path / "shown"
    shutil.copytree(tmp_path / "run", shown / "run")
    good, bad, broken = shown / "good.zip", shown / "bad.zip", shown / "broken"
    good.write_bytes(archive(room.files))
    bad.write_bytes(archive(forged(room.files)))
    broken.mkdir()
    (broken / "run.json").write_text("{}")
    (shown / "notes.txt").write_text("not a source")
    results = CaseResults([shown, tmp_path / "nowhere"])
    results.refresh()
    problems = dict(results.problems())
    assert set(problems) == {"bad.zip", "broken"}
    assert "does not verify: step 7" in problems["bad.zip"]
    [found] = results.of_case("ml-0000000000000004")
    verdicts = room.run.verdicts("ml-0000000000000004")
    assert (found.cases, [c.criterion for c in found.criteria]) == (
        "2026.W47",
        ["Advises 4", "Harms 4", "Names 4"],
    )
    assert {(r.model, r.verified) for r in found.results} == {
        ("cand-1", True),
        ("cand-1", False),
    }
    assert {r.met for r in found.results} == {
        tuple(verdicts[c.id] for c in found.criteria)
    }
    # The grader gave no verdict on one criterion, and the first case has no answer.
    assert {(r.state, r.score, r.met[2]) for r in results.of_case(CASE)[0].results} == {
        (CaseState.PARTLY_GRADED, None, None)
    }
    assert {
        (r.state, r.met) for r in results.of_case("ml-0000000000000001")[0].results
    } == {(CaseState.UNANSWERED, ())}
    assert results.of_case("ml-unknown") == []

    good.write_bytes(archive(forged(room.files)))
    bad.unlink()
    run = json.loads((shown / "run" / "run.json").read_text())
    (shown / "run" / "run.json").write_text(json.dumps(run | {"model": "cand-2"}))
    assert results.refresh_within(100)
    assert set(dict(results.problems())) == {"good.zip", "broken"}
    assert [r.model for r in results.of_case(CASE)[0].results] == ["cand-2"]
