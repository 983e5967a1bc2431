"""Rankings of bundles: what stands together, what stands apart and why."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from medlive.evaluation.bundles import leaderboard
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import archive
from medlive.evaluation.bundles.leaderboard import rank_bundles
from medlive.evaluation.bundles.verify import BundleReport, verify_bundle
from medlive.evaluation.cases.selection import Selection
from medlive.grader.judge import Mode
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind, write_errata_file
from tests.support.bundles import (
    DRAWS,
    FORGERIES,
    Files,
    Room,
    graded,
    made_room,
    rescored,
    run_json,
    sealed,
)

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return made_room(tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half of the cases may lack a score."""
    monkeypatch.setattr(leaderboard, "MOST_UNSCORED", 0.5)


def reports(room: Room, where: Path, entries: dict[str, Files]) -> list[BundleReport]:
    """The bundles verified, in that order."""
    found = []
    for name, files in entries.items():
        path = where / f"{name}.zip"
        path.write_bytes(archive(files))
        found.append(verify_bundle(path, snapshot=room.cases))
    return found


def test_bundles_of_the_same_conditions_rank_and_the_others_stand_apart(
    room: Room, tmp_path: Path, half: None
) -> None:
    better = make_bundle(
        graded(room.snapshot, tmp_path / "better", "cand-2", share=0.95), draws=DRAWS
    )
    rubric = make_bundle(
        graded(room.snapshot, tmp_path / "rubric", "cand-3", mode=Mode.RUBRIC),
        draws=DRAWS,
    )
    seen = reports(
        room,
        tmp_path,
        {
            "rubric": rubric,
            "first": room.files,
            "again": make_bundle(room.run, draws=DRAWS + 1),
            "better": better,
            "forged": sealed(
                FORGERIES["a verdict"](dict(room.files), random.Random(1))
            ),
        },
    )
    assert [r.ok for r in seen] == [True, True, True, True, False]
    rankings, unranked = rank_bundles(seen, draws=DRAWS)
    both, alone = rankings
    means = [m.overall.value or 0.0 for m in both.table.models]
    assert sorted(m.label for m in both.table.models) == ["cand-1", "cand-2"]
    assert means == sorted(means, reverse=True)
    own = [
        json.loads(files["scores.json"])["paper"]["overall"]["mean"]
        for files in (room.files, better)
    ]
    assert [round(mean, 6) for mean in means] == sorted(own, reverse=True)
    # Another grader's verdicts are another ranking, whatever the number of bundles that it has.
    assert [m.label for m in alone.table.models] == ["cand-3"]
    grader = alone.table.models[0].run.grader
    assert grader is not None
    assert grader.mode == "rubric"
    assert any(
        "first.zip: its origin is not verified (not signed)" in note
        for note in both.notes
    )
    why = {report.path.stem: text for report, text in unranked}
    assert why["again"].startswith("cand-1 is already ranked with first.zip")
    assert why["forged"].startswith("step ")


@pytest.mark.thorough
def test_a_model_stands_once_and_copied_answers_under_no_other_name(
    room: Room, tmp_path: Path, half: None
) -> None:
    named = run_json(lambda v: v.update(model="cand-9"))(
        dict(room.files), random.Random(1)
    )
    renamed = run_json(lambda v: v["template"].update(name="mine"))(
        dict(room.files), random.Random(1)
    )
    wide = run_json(lambda v: v.update(model="ＣＡＮＤ-１"))(
        dict(room.files), random.Random(1)
    )
    other = make_bundle(
        graded(room.snapshot, tmp_path / "other", "cand-1", share=0.9), draws=DRAWS
    )
    entries = {
        "first": room.files,
        "named": named,
        "renamed": renamed,
        "wide": wide,
        "other": other,
    }
    for name in ("named", "renamed", "wide"):
        # A forger makes the scores fit as well.
        entries[name] = rescored(room, sealed(entries[name]))
    seen = reports(room, tmp_path, entries)
    assert [r.why_not for r in seen] == [""] * 5
    rankings, unranked = rank_bundles(seen, draws=DRAWS)
    (ranking,) = rankings
    assert [r.path.stem for r in ranking.ranked] == ["first"]
    why = {report.path.stem: text for report, text in unranked}
    assert "identical to those of first.zip" in why["named"]
    assert "identical to those of first.zip" in why["renamed"]
    assert (
        why["other"]
        == "cand-1 is already ranked with first.zip: a model is ranked once per set of conditions"
    )
    assert "already ranked with first.zip" in why["wide"]


def test_whoever_leaves_out_what_went_badly_is_not_ranked(
    room: Room, tmp_path: Path
) -> None:
    (seen,) = reports(room, tmp_path, {"first": room.files})
    ((_, why),) = rank_bundles([seen], draws=DRAWS)[1]
    assert why == "33.3 % of its cases have no score, more than 5 %"
    assert any("1 of 6 cases have no answer" in note for note in seen.notes)
    assert any("of 15 criteria are ungraded" in note for note in seen.notes)


@pytest.mark.thorough
def test_other_templates_and_parts_of_the_cases_are_other_rankings(
    room: Room, tmp_path: Path, half: None
) -> None:
    part = graded(
        room.snapshot, tmp_path / "part", "cand-4", selection=Selection(limit=4)
    )
    open_ = graded(room.snapshot, tmp_path / "open", "cand-5", template="open")
    entries = {
        "first": room.files,
        "part": make_bundle(part, draws=DRAWS),
        "open": make_bundle(open_, draws=DRAWS),
    }
    seen = reports(room, tmp_path, entries)
    assert any("4 of its 6 cases, by {'limit': 4}" in note for note in seen[1].notes)
    rankings, _ = rank_bundles(seen, draws=DRAWS)
    assert [[r.path.stem for r in ranking.ranked] for ranking in rankings] == [
        ["first"],
        ["part"],
        ["open"],
    ]


def test_what_the_errata_name_is_told_and_left_out_for_all(
    room: Room, tmp_path: Path, half: None
) -> None:
    entry = Erratum(
        id=1,
        issued_at=datetime(2026, 11, 21, tzinfo=UTC),
        kind=WithdrawalKind.ERRATUM,
        case_id="ml-0000000000000004",
        criterion_id=None,
        reason="It is wrong.",
        revision=None,
        snapshots=("2026.W47",),
        fixed_in=None,
    )
    file = write_errata_file(tmp_path, Errata(entries=(entry,)), None)
    (tmp_path / "entry.zip").write_bytes(archive(room.files))
    seen = verify_bundle(tmp_path / "entry.zip", snapshot=room.cases, errata_file=file)
    assert "1 cases and 0 criteria were withdrawn but are scored" in seen.notes
    (applied,) = rank_bundles([seen], draws=DRAWS)[0]
    assert applied.left_out.cases == ("ml-0000000000000004",)
    assert applied.table.models[0].rates.cases == 5
