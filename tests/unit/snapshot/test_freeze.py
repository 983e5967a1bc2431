"""Freezing: the same rows make the same bytes, and frozen stays frozen."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.snapshot.diff import ChangeKind, diff_rows
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.lock import Locked, exclusive
from medlive.snapshot.model import SnapshotCriterion
from tests.unit.snapshot.conftest import META, PROVENANCE, Freeze, make_case


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_rows_in_any_order_and_zone_make_the_same_bytes(tmp_path: Path, freeze: Freeze) -> None:
    first = freeze(30)
    cases = [make_case(i) for i in range(30)]
    random.Random(1).shuffle(cases)
    moved = replace(META, created_at=META.created_at.astimezone(timezone(timedelta(hours=8))))
    again = write_snapshot(iter(cases), moved, diff_rows([], cases), tmp_path / "elsewhere")
    assert contents(first.path) == contents(again.path)
    assert not first.unchanged


def test_another_process_with_another_clock_zone_and_hash_seed_makes_the_same_bytes(
    tmp_path: Path, freeze: Freeze
) -> None:
    first = freeze(8)
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.snapshot.conftest import META, make_case\n"
        "from medlive.snapshot.diff import diff_rows\n"
        "from medlive.snapshot.freeze import write_snapshot\n"
        "cases = [make_case(i) for i in range(8)]\n"
        "write_snapshot(cases, META, diff_rows([], cases), Path(sys.argv[1]))\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "TZ": "Asia/Shanghai", "PYTHONHASHSEED": "77", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code, str(tmp_path / "other")]
    subprocess.run(command, check=True, cwd=root, env=environment)
    assert contents(first.path) == contents(tmp_path / "other" / first.path.name)


def test_freezing_again_says_unchanged_and_other_rows_are_refused(freeze: Freeze) -> None:
    first = freeze(4)
    before = contents(first.path)
    assert freeze(4).unchanged
    with pytest.raises(CheckFailed, match="other bytes"):
        freeze(5)
    assert contents(first.path) == before
    (first.path / "more.txt").write_text("x")
    with pytest.raises(CheckFailed, match=r"more\.txt"):
        freeze(4)


def test_the_files_are_what_plain_tools_expect(freeze: Freeze) -> None:
    frozen = freeze(6)
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=frozen.path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count(": OK") == 11
    rows = [json.loads(x) for x in (frozen.path / "data/cases.jsonl").read_bytes().split(b"\n") if x]
    assert [r["case_id"] for r in rows] == [f"c{i:03d}" for i in range(6)]
    plain = json.loads((frozen.path / "livemedbench.json").read_text("utf-8"))
    assert plain[1] == {
        "case_id": "c001",
        "post_time": "2025-02-03T00:00:00",
        "narrative": "我膝盖疼了三天，体温 38.2℃。",
        "core_request": "需要吃药吗？",
        "doctor_advice": "先休息。",
        "rubric_items": [
            {"criterion": "Criterion 1 of c001", "points": 5, "axe": "Accuracy"},
            {"criterion": "Criterion 2 of c001", "points": -8, "axe": "Safety"},
            {"criterion": "Criterion 3 of c001", "points": 3, "axe": "Completeness"},
        ],
    }
    manifest = frozen.manifest
    assert manifest.counts.cases == 6
    assert manifest.counts.criteria == 18
    assert manifest.counts.by_language == {"en": 3, "zh": 3}
    assert manifest.created_at == datetime(2026, 11, 21, 8, 30, 1, tzinfo=UTC)
    assert manifest.publishable
    card = (frozen.path / "README.md").read_text("utf-8")
    front = card.split("---\n")[1]
    import yaml

    head = yaml.safe_load(front)
    assert head["language"] == ["en", "zh"]
    assert [c["config_name"] for c in head["configs"]] == ["cases", "criteria"]
    for config in head["configs"]:
        assert (frozen.path / config["data_files"][0]["path"]).is_file()
    croissant = json.loads((frozen.path / "croissant.json").read_text("utf-8"))
    for entry in croissant["distribution"]:
        assert manifest.files[entry["contentUrl"]].sha256 == entry["sha256"]
    assert all(manifest.canary in (frozen.path / n).read_text("utf-8") for n in ("README.md", "LICENSE"))


def test_what_may_not_be_published_says_so_in_card_and_manifest(freeze: Freeze) -> None:
    frozen = freeze(2, meta=replace(META, why_not=("the screener was the rules engine",)))
    assert not frozen.manifest.publishable
    assert "Not publishable" in (frozen.path / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"theme": "Chit-chat"}, "theme"),
        ({"posted_at": date(2030, 1, 1)}, "first release"),
        ({"first_release": "2026.W48"}, "comes after"),
        ({"narrative": "a \ud800 b"}, "surrogates"),
        ({"case_id": "https://x/y"}, "id"),
        ({"criteria": ()}, "positive"),
        (
            {"criteria": (SnapshotCriterion("c", "c001", 1, 1, "x", "Accuracy", 11),)},
            "11 points",
        ),
    ],
)
def test_an_illegal_row_is_named_and_nothing_is_left(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(CheckFailed, match=said):
        write_snapshot([make_case(0), make_case(1, **changes)], META, [], tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == [".freeze.lock"]


def test_doubles_emptiness_and_odd_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="twice"):
        write_snapshot([make_case(1), make_case(1)], META, [], tmp_path)
    with pytest.raises(CheckFailed, match="no case"):
        write_snapshot([], META, [], tmp_path)
    for version in ("2026.47", "2026.W54", "../x"):
        with pytest.raises(UsageError):
            write_snapshot([make_case(1)], replace(META, version=version), [], tmp_path)


def test_a_killed_freeze_leaves_nothing_that_counts_and_the_next_one_clears_it(
    tmp_path: Path, freeze: Freeze
) -> None:
    left = tmp_path / "out" / ".medlive-2026.W47-abc.partial"
    (left / "data").mkdir(parents=True)
    frozen = freeze(2)
    assert not left.exists()
    assert sorted(p.name for p in frozen.path.parent.iterdir()) == [".freeze.lock", "medlive-2026.W47"]


def test_two_freezes_at_once_do_not_meet(tmp_path: Path, freeze: Freeze) -> None:
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out" / ".freeze.lock"), pytest.raises(Locked):
        freeze(2)
    assert freeze(2).path.is_dir()


def test_a_place_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot be written"):
        write_snapshot([make_case(1)], META, [], tmp_path / "file")


def test_changes_name_what_was_added_revised_and_withdrawn() -> None:
    old = [make_case(0), make_case(1), make_case(2)]
    new = [make_case(0, revision=2), make_case(1, advice="See a doctor today."), make_case(3)]
    new[0] = replace(new[0], criteria=old[0].criteria)
    found = {(c.kind, c.case_id): c.reason for c in diff_rows(old, new, {"c002": "the patient asked for it"})}
    assert found == {
        (ChangeKind.ADDED, "c003"): "new in this release",
        (ChangeKind.REVISED, "c001"): "changed: advice",
        (ChangeKind.WITHDRAWN, "c002"): "the patient asked for it",
    }


def test_provenance_is_kept_whole(freeze: Freeze) -> None:
    assert freeze(2).manifest.provenance == PROVENANCE


def test_a_moment_is_cut_to_its_day_in_utc() -> None:
    late = datetime(2025, 3, 1, 2, 30, tzinfo=timezone(timedelta(hours=8)))
    case = make_case(0, posted_at=late)
    assert case.posted_at == date(2025, 2, 28)
    assert case.row()["posted_at"] == "2025-02-28"
    assert make_case(0, posted_at=datetime(2025, 3, 1, 23, 30)).posted_at == date(2025, 3, 1)  # noqa: DTZ001
