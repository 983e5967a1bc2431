"""A slice as one file."""

import json
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.errors import BadInput, UsageError
from medlive.evaluation.cases.load import from_snapshot, load_cases
from medlive.snapshot.export import export_slice
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.load import Snapshot, load_snapshot
from tests.unit.snapshot.conftest import META, added, make_case


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    cases = [make_case(i) for i in range(6)]
    cases[2] = make_case(2, query="-2 + 3?", advice='  + rest,\n"lots"')
    root = tmp_path_factory.mktemp("export")
    return load_snapshot(write_snapshot(cases, META, root, added(cases)).path)


def test_livemedbench_of_all_is_the_snapshots_own_and_of_a_slice_is_evaluated_as_the_slice(
    loaded: Snapshot, tmp_path: Path
) -> None:
    export_slice(loaded, tmp_path / "all.json")
    assert (tmp_path / "all.json").read_bytes() == (
        loaded.path / "livemedbench.json"
    ).read_bytes()
    part = loaded.filter(language="zh")
    export_slice(part, tmp_path / "zh.json")
    cases = load_cases(tmp_path / "zh.json")
    assert all("has the prompt of" in note for note in cases.notes), (
        "the fixture repeats its questions"
    )
    for theirs, ours in zip(cases.cases, from_snapshot(part).cases, strict=True):
        assert (theirs.case_id, theirs.question, theirs.month) == (
            ours.case_id,
            ours.question,
            ours.month,
        )
        assert [(c.criterion, c.points, c.axis) for c in theirs.criteria] == [
            (c.criterion, c.points, c.axis) for c in ours.criteria
        ]


def test_nothing_is_overwritten_spoilt_or_left_half_made(
    loaded: Snapshot, tmp_path: Path
) -> None:
    there = tmp_path / "there.jsonl"
    there.write_text("mine")
    with pytest.raises(UsageError):
        export_slice(loaded, there)
    with pytest.raises(UsageError):
        export_slice(
            loaded.filter(source="nowhere"),
            tmp_path / "none.json",
        )
    with pytest.raises(BadInput):
        export_slice(loaded, there / "x.jsonl")
    with pytest.raises(ZeroDivisionError):
        export_slice(
            loaded.where(lambda c: 1 // (c.case_id < "c003") > 0),
            tmp_path / "x",
        )
    assert there.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [there]


def test_the_command_exports_a_slice(
    loaded: Snapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "zh.json"
    call = [
        "snapshot",
        "export",
        str(loaded.path),
        "--out",
        str(out),
        "--language",
        "zh",
    ]
    assert run([*call, "--first-release-after", "2026.W46", "--json"]) == 0
    told = capsys.readouterr()
    printed = json.loads(told.out)
    assert (printed["cases"], printed["of_cases"]) == (3, 6)
    assert printed["snapshot_digest"] == loaded.digest
    assert "cite the snapshot" in told.err
    assert len(json.loads(out.read_bytes())) == 3
