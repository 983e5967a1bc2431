"""A slice as one file: every format gives the cases back, and no spreadsheet runs one."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medlive.__main__ import run
from medlive.errors import BadInput, UsageError
from medlive.evaluation.cases.load import from_snapshot, load_cases
from medlive.integrity.digest import digest_file
from medlive.snapshot.export import _RISKY, ExportFormat, export_slice, guarded
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.load import Snapshot, load_snapshot
from medlive.snapshot.model import PROOF_FIELDS
from tests.unit.snapshot.conftest import META, added, make_case


def unguarded(cell: str) -> str:
    """The text that `guarded` made the cell of."""
    return cell[1:] if cell.startswith("'") and _RISKY.match(cell[1:]) else cell


FORMULA = '=HYPERLINK("x","y")'


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    cases = [make_case(i) for i in range(6)]
    cases[2] = make_case(
        2, narrative=FORMULA, query="-2 + 3?", advice='  + rest,\n"lots"'
    )
    root = tmp_path_factory.mktemp("export")
    return load_snapshot(write_snapshot(cases, META, root, added(cases)).path)


def _read(path: Path, form: ExportFormat) -> list[dict[str, Any]]:
    if form is ExportFormat.JSONL:
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    with path.open(encoding="utf-8-sig", newline="") as handle:
        read: list[dict[str, Any]] = [
            {k: unguarded(v) for k, v in row.items()} for row in csv.DictReader(handle)
        ]
    for row in read:
        row |= {
            "revision": int(row["revision"]),
            "criteria": json.loads(row["criteria"]),
        }
        for name in (*PROOF_FIELDS, "ordinary"):
            row[name] = float(row[name]) if row[name] else None
        row["overruled"] = row["overruled"] or None
    return read


@pytest.mark.parametrize("form", [ExportFormat.JSONL, ExportFormat.CSV])
def test_every_format_gives_the_slice_back(
    loaded: Snapshot, form: ExportFormat, tmp_path: Path
) -> None:
    part = loaded.filter(language="en")
    done = export_slice(part, tmp_path / "slice", form)
    assert (done.cases, done.criteria, done.source) == (3, 9, loaded.digest)
    assert done.digest == digest_file(done.path)
    whole = {"case_id", "revision"}
    assert _read(done.path, form) == [
        {
            **case.row(),
            "canary": loaded.manifest.canary,
            "criteria": [
                {k: v for k, v in c.row().items() if k not in whole}
                for c in case.criteria
            ],
        }
        for case in part
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["slice"]


def test_livemedbench_of_all_is_the_snapshots_own_and_of_a_slice_is_evaluated_as_the_slice(
    loaded: Snapshot, tmp_path: Path
) -> None:
    done = export_slice(loaded, tmp_path / "all.json", ExportFormat.LIVEMEDBENCH)
    assert done.path.read_bytes() == (loaded.path / "livemedbench.json").read_bytes()
    part = loaded.filter(language="zh")
    cases = load_cases(
        export_slice(part, tmp_path / "zh.json", ExportFormat.LIVEMEDBENCH).path
    )
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


@given(
    st.text(
        alphabet=st.sampled_from("='+-@\t\r\n \uff1d\uff20ab") | st.characters(),
        max_size=6,
    )
)
@example(FORMULA)
@example("'=1")
@example(" \n=1")
@example("'\r")
def test_no_cell_begins_as_a_formula_and_each_comes_back(text: str) -> None:
    cell = guarded(text)
    assert unguarded(cell) == text
    assert not re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell)
    assert not cell.startswith(("\t", "\r", "\n"))


def test_nothing_is_overwritten_spoilt_or_left_half_made(
    loaded: Snapshot, tmp_path: Path
) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")
    with pytest.raises(UsageError):
        export_slice(loaded, there, ExportFormat.CSV)
    with pytest.raises(UsageError, match="inside"):
        export_slice(loaded, loaded.path / "data" / "slice.csv", ExportFormat.CSV)
    with pytest.raises(UsageError):
        export_slice(
            loaded.filter(source="nowhere"),
            tmp_path / "none.json",
            ExportFormat.LIVEMEDBENCH,
        )
    with pytest.raises(BadInput):
        export_slice(loaded, tmp_path / "absent" / "x.csv", ExportFormat.CSV)
    with pytest.raises(ZeroDivisionError):
        export_slice(
            loaded.where(lambda c: 1 // (c.case_id < "c003") > 0),
            tmp_path / "x",
            ExportFormat.JSONL,
        )
    assert there.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [there]


def test_the_command_exports_by_the_files_name(
    loaded: Snapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "zh.jsonl"
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
    assert (printed["cases"], printed["of_cases"], printed["format"]) == (3, 6, "jsonl")
    assert printed["snapshot_digest"] == loaded.digest
    assert "cite the snapshot" in told.err
    assert len(out.read_bytes().splitlines()) == 3
    assert run([*call[:4], str(tmp_path / "what.txt")]) == 2
    assert "--format" in capsys.readouterr().err
