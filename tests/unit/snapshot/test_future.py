"""A snapshot of the future: every enumeration has one more value, every file of ours one more field."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.penalties import AnsweredCase
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import score_runs
from medlive.site.pages import site_files
from medlive.site.read import Inputs, read_content
from medlive.snapshot.contents import CHANGES, HOLDOUTS, read_ledger, write_ledger
from medlive.snapshot.diff import diff_snapshots
from medlive.snapshot.freeze import FrozenSnapshot, write_snapshot
from medlive.snapshot.load import (
    NewerSnapshotWarning,
    load_snapshot,
    open_snapshot,
)
from medlive.snapshot.manifest import pretty_json
from medlive.snapshot.model import ENUMERATIONS, TABLES, commitment, shape_of
from medlive.snapshot.verify.steps import verify_snapshot
from tests.support.forging import derive, read_rows, recount, write_rows
from tests.support.release_0_1_0 import unpack_folders
from tests.support.runs import made_run
from tests.support.spoiling import seal
from tests.unit.snapshot.conftest import META, added, earlier_format, make_case

pytestmark = pytest.mark.whole

Freeze = Callable[..., FrozenSnapshot]
Edit = Callable[[dict[str, Any]], object]

NEW = {name: f"New {name.replace('_', ' ')}" for name in ENUMERATIONS}
CASES, CRITERIA = "data/cases.jsonl", "data/criteria.jsonl"
SETTING = {"name": "setting", "type": "string", "optional": True, "default": "clinic"}
PARTS = {"name": "parts", "type": "list of texts", "optional": True, "default": None}
WEIGHED = {"name": "weighed", "type": "number", "optional": True, "default": None}


def of_the_future(folder: Path) -> Path:
    """The snapshot as a later medlive would have written it."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name, value in NEW.items():
        manifest["enumerations"][name].append(value)
    manifest["columns"]["cases"] += [SETTING, PARTS]
    manifest["columns"]["criteria"].append(WEIGHED)
    path.write_text(pretty_json(manifest))

    cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
    for number, case in enumerate(cases):
        case |= {"setting": "ward" if number else "clinic", "parts": ["first", "then"]}
        for name in ("language", "theme", "specialty", "difficulty"):
            case[name] = NEW[name] if number == 1 else case[name]
        case["dialogue_register"] = NEW["dialogue_register"]
    for number, criterion in enumerate(criteria):
        criterion["weighed"] = 0.5 if number else None
    criteria[1] |= {"axis": NEW["axis"], "origin": NEW["origin"]}
    write_rows(folder, CASES, cases)
    write_rows(folder, CRITERIA, criteria)
    derive(folder)
    add_parts_to_parquet(folder)

    for name in (CHANGES, HOLDOUTS):
        head, sections = read_ledger(folder, name)
        for entries in sections.values():
            for entry in entries:
                entry["noted"] = "in passing"
        out = io.BytesIO()
        write_ledger(out.write, {**head, "zone": "somewhere"}, sections.items())
        (folder / name).write_bytes(out.getvalue())
    croissant = json.loads((folder / "croissant.json").read_bytes())
    (folder / "croissant.json").write_text(pretty_json({**croissant, "isNew": True}))

    recount(manifest, folder)
    manifest["counts"]["by_setting"] = {"ward": 1}
    manifest["provenance"]["machine"] = {"cores": 2}
    manifest["reviewed_by"] = ["somebody"]
    for entry in manifest["files"].values():
        entry["encoding"] = "plain"
    path.write_text(pretty_json(manifest))
    seal(folder, None)
    return folder


def add_parts_to_parquet(folder: Path) -> None:
    """The column of a type that this medlive does not know."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "data/cases.parquet"
    table = pq.read_table(path)
    parts = pa.array([["first", "then"]] * len(table))
    table = table.append_column("parts", parts)
    pq.write_table(table, path, compression="zstd", data_page_version="1.0")


@pytest.fixture(scope="module")
def future(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cases = [make_case(number) for number in range(3)]
    frozen = write_snapshot(
        cases, META, tmp_path_factory.mktemp("future"), added(cases)
    )
    return of_the_future(frozen.path)


def test_it_verifies_with_a_note_of_everything_that_is_new(future: Path) -> None:
    report = verify_snapshot(future)
    assert report.ok, report.summary()
    assert (
        report.complete
        or "parent" in str(report.skipped)
        or "unsigned" in str(report.skipped)
    )
    for name, value in NEW.items():
        assert f"{name} {value!r}" in report.unknown
    for words in (
        "column 'setting' of cases",
        "column 'parts' of cases",
        "column 'weighed' of criteria",
        "field 'counts.by_setting' of manifest.json",
        "field 'provenance.machine' of manifest.json",
        "field 'reviewed_by' of manifest.json",
        "field 'noted' of added of changes.json",
        "field 'zone' of changes.json",
        "field 'zone' of holdouts.json",
    ):
        assert words in report.unknown


def test_a_new_column_of_cases_does_not_count_as_the_position_of_a_criterion(
    freeze: Freeze,
) -> None:
    folder = freeze(3).path
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["columns"]["cases"].append(PARTS | {"name": "position"})
    path.write_text(pretty_json(manifest))
    first, *others = [case | {"position": None} for case in read_rows(folder, CASES)]
    write_rows(folder, CASES, [first, first | {"position": ["a"]}, *others])
    seal(folder, None, lambda manifest: None)
    report = verify_snapshot(folder)
    assert "rows in order, each once" in str(report.steps)


def test_it_is_loaded_exported_and_evaluated_with_what_is_new(
    future: Path, tmp_path: Path
) -> None:
    with pytest.warns(NewerSnapshotWarning, match="axis 'New axis'"):
        snapshot = load_snapshot(future)
    first, second, _ = snapshot.cases
    assert first.further == {"parts": ["first", "then"]}
    assert second.further == {"setting": "ward", "parts": ["first", "then"]}
    assert second.theme == "New theme"
    assert first.criteria[1].axis == "New axis"
    assert len(snapshot.filter(theme="New theme")) == 1
    frame = snapshot.to_arrow("cases").to_pydict()
    assert frame["setting"] == ["clinic", "ward", "ward"]
    assert "parts" not in frame
    cases = load_cases(future)
    assert "New axis" in cases.notes[-1]
    assert cases.cases[0].criteria[1].axis == "New axis"


def test_what_needs_the_meaning_of_a_new_axis_says_what_is_missing(
    future: Path,
) -> None:
    case = load_snapshot_quietly(future)[0]
    with pytest.raises(BadInput, match="expected one of the axes of this version"):
        _ = AnsweredCase(case, {}).criteria


def load_snapshot_quietly(folder: Path) -> Any:
    with pytest.warns(NewerSnapshotWarning):
        return load_snapshot(folder).cases


def test_a_commitment_covers_unknown_columns_unless_they_have_their_default() -> None:
    case, salt = make_case(0), "0" * 64
    ward = replace(case, further={"setting": "ward"})
    assert commitment(ward, salt) != commitment(case, salt)


def test_a_run_on_it_is_scored_and_the_site_shows_it(
    future: Path, tmp_path: Path
) -> None:
    cases = load_cases(future)
    table = score_runs(
        [load_graded(made_run(cases, tmp_path / "run", "model", 0.6))], draws=20
    )
    assert any("axis 'New axis'" in warning for warning in table.warnings)
    assert table.models[0].overall is not None
    content = read_content(Inputs(snapshots=future.parent))
    assert b"New axis" in site_files(content)["weeks.html"]


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_earlier_formats_verify_load_and_are_compared(
    tmp_path: Path, version: int
) -> None:
    cases = [make_case(number) for number in range(4)]
    with earlier_format(version):
        old = write_snapshot(cases[:2], META, tmp_path / "old", added(cases[:2])).path
    assert verify_snapshot(old).ok
    assert verify_snapshot(old).unknown == ()
    assert list(load_snapshot(old)) == cases[:2]
    for table in TABLES:
        names = load_snapshot(old).to_arrow(table).column_names
        assert set(names) == {column.name for column in shape_of().columns[table]}
    new = write_snapshot(cases, META, tmp_path / "new", added(cases)).path
    assert diff_snapshots(old, new)["counts"]["added"] == 2


def test_the_oldest_release_verifies_loads_and_is_evaluated(tmp_path: Path) -> None:
    unpack_folders(tmp_path)
    [folder] = (tmp_path / "snapshots").glob("medlive-*")
    report = verify_snapshot(folder)
    assert report.ok, report.summary()
    assert report.unknown == ()
    snapshot = open_snapshot(folder)
    assert snapshot.manifest.format_version == 2
    cases = load_cases(folder)
    assert len(cases.cases) == len(snapshot.cases) == snapshot.manifest.counts.cases
    run = made_run(cases, tmp_path / "run", "model", 0.6, missing=False)
    table = score_runs([load_graded(run)], draws=20, allow=[Allow.NOT_PUBLISHABLE])
    assert table.models[0].overall is not None


SPOILT: dict[str, tuple[Edit, str]] = {
    "a value that the manifest does not name": (
        lambda m: m["enumerations"]["theme"].remove("New theme"),
        "theme 'New theme'",
    ),
    "a column that the manifest does not name": (
        lambda m: m["columns"]["cases"].pop(),
        "unknown fields parts",
    ),
    "a changed meaning": (
        lambda m: m.update(format_version=5, provenance={"new": 1}),
        "formats 2 to 4, not 5: a later one needs a later medlive",
    ),
    "no word on who signed it": (lambda m: m.pop("signing"), "signing"),
    "a field of the future in format 3": (
        lambda m: (
            m.update(format_version=3),
            m.pop("columns"),
            m.pop("enumerations"),
        ),
        "unknown fields",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_a_format_does_not_allow_is_refused(
    future: Path, tmp_path: Path, what: str
) -> None:
    edit, words = SPOILT[what]
    folder = Path(shutil.copytree(future, tmp_path / future.name))
    seal(folder, None, edit)
    with pytest.raises(CheckFailed) as refused:
        load_snapshot(folder)
    assert words in refused.value.message


def test_a_text_of_an_unknown_column_holds_no_address(
    future: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(future, tmp_path / future.name))
    rows = read_rows(folder, CASES)
    rows[0]["parts"] = [{"seen": "write to me@example.org"}]
    write_rows(folder, CASES, rows)
    seal(folder, None)
    failed = {step.number for step in verify_snapshot(folder).steps if step.findings}
    assert 18 in failed
