"""What criteria rest on: in the rows of a snapshot, in LiveMedBench's file, and in snapshots of before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.snapshot.diff import diff_snapshots
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.gates import row_hits
from medlive.snapshot.load import load_snapshot
from medlive.snapshot.model import SnapshotCase, commitment
from medlive.snapshot.verify.steps import verify_snapshot
from tests.unit.snapshot.conftest import META, added, earlier_format, make_case

ORIGINS = {
    "c000-c1": ("advice", ""),
    "c000-c2": ("evidence", "pubmed:1:s"),
    "c000-c3": ("consensus", "model-a, model-b"),
}


def mixed_case() -> SnapshotCase:
    """A case with a criterion of each origin."""
    case = make_case(0)
    criteria = []
    for criterion in case.criteria:
        origin, source = ORIGINS[criterion.criterion_id]
        criteria.append(replace(criterion, origin=origin, source=source))
    return replace(case, criteria=tuple(criteria))


def test_a_snapshot_states_origins_and_livemedbench_has_the_advice_alone(
    tmp_path: Path,
) -> None:
    case = mixed_case()
    frozen = write_snapshot([case], META, tmp_path, added([case]))
    assert verify_snapshot(frozen.path).ok
    snapshot = load_snapshot(frozen.path)
    assert snapshot.cases == (case,)
    table = snapshot.to_arrow("criteria").to_pylist()
    found = {row["criterion_id"]: (row["origin"], row["source"]) for row in table}
    assert found == ORIGINS
    counts = snapshot.manifest.counts
    assert counts.by_origin == {"advice": 1, "consensus": 1, "evidence": 1}
    [plain] = json.loads((frozen.path / "livemedbench.json").read_bytes())
    assert [item["criterion"] for item in plain["rubric_items"]] == [
        "Criterion 1 of c000"
    ]


@pytest.mark.parametrize(
    ("origin", "source"),
    [("guess", "x"), ("advice", "pubmed:1:s"), ("evidence", ""), ("consensus", "")],
)
def test_an_origin_without_its_source_is_illegal(origin: str, source: str) -> None:
    case = make_case(0)
    first = replace(case.criteria[0], origin=origin, source=source)
    bad = replace(case, criteria=(first, *case.criteria[1:]))
    assert any("origin" in hit.detail for hit in row_hits(bad))
    assert not list(row_hits(case))


def test_a_snapshot_of_format_2_loads_with_every_criterion_from_advice(
    tmp_path: Path,
) -> None:
    case = make_case(0)
    with earlier_format(2):
        old = write_snapshot([case], META, tmp_path / "old", added([case]))
    rows = (old.path / "data/criteria.jsonl").read_text().splitlines()
    assert all("origin" not in json.loads(row) for row in rows)
    assert "by_origin" not in (old.path / "manifest.json").read_text()
    assert verify_snapshot(old.path).ok
    snapshot = load_snapshot(old.path)
    assert snapshot.cases == (case,)
    origins = snapshot.to_arrow("criteria").column("origin").to_pylist()
    assert origins == ["advice"] * 3
    revised = replace(mixed_case(), revision=1)
    new = write_snapshot([revised], META, tmp_path / "new", added([revised]))
    [changed] = diff_snapshots(old.path, new.path)["revised"]
    edits = [edit["edits"] for edit in changed["criteria"]]
    assert edits == [("origin", "source"), ("origin", "source")]


def test_a_commitment_of_format_2_still_holds_and_one_covers_origins() -> None:
    # Computed by the code of format 2, before criteria had an origin.
    salt = "0" * 64
    assert commitment(make_case(0), salt) == COMMITTED
    assert commitment(mixed_case(), salt) != COMMITTED


COMMITTED = "sha256:952dd7eff199ac8739437fc56ccc2e3fd3f776b49e08547275056d29d50394dc"
