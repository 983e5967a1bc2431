"""Freezing: the same rows make the same bytes, and frozen stays frozen."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.guard.bounds import SNAPSHOT_LINE_BYTES
from medlive.integrity.digest import canonical_json
from medlive.integrity.folder import REQUIRED, SIGNATURE
from medlive.integrity.log import Locked, exclusive
from medlive.snapshot.contents import read_ledger, write_ledger
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.manifest import Ancestor, Signing
from medlive.snapshot.model import SnapshotCriterion
from tests.support.entries import Entries
from tests.unit.snapshot.conftest import META, PROVENANCE, Freeze, added, make_case

pytestmark = pytest.mark.whole


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_the_same_rows_in_any_zone_make_the_same_bytes(
    tmp_path: Path, freeze: Freeze
) -> None:
    first = freeze(30)
    cases = [make_case(i) for i in range(30)]
    moment = META.created_at.astimezone(timezone(timedelta(hours=8)))
    moved = META.model_copy(update={"created_at": moment})
    again = write_snapshot(iter(cases), moved, tmp_path / "elsewhere", added(cases))
    assert contents(first.path) == contents(again.path)


@pytest.mark.thorough
def test_another_process_with_another_clock_zone_and_hash_seed_makes_the_same_bytes(
    tmp_path: Path, freeze: Freeze
) -> None:
    first = freeze(8)
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.snapshot.conftest import META, added, make_case\n"
        "from medlive.snapshot.freeze import write_snapshot\n"
        "cases = [make_case(i) for i in range(8)]\n"
        "write_snapshot(cases, META, Path(sys.argv[1]), added(cases))\n"
    )
    root = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "TZ": "Asia/Shanghai",
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": str(root),
    }
    command = [sys.executable, "-c", code, str(tmp_path / "other")]
    subprocess.run(command, check=True, cwd=root, env=environment)
    assert contents(first.path) == contents(tmp_path / "other" / first.path.name)


def test_freezing_again_leaves_the_folder_and_other_rows_are_refused(
    freeze: Freeze,
) -> None:
    first = freeze(4)
    before, inode = contents(first.path), first.path.stat().st_ino
    assert freeze(4).path.stat().st_ino == inode
    with pytest.raises(CheckFailed):
        freeze(5)
    assert contents(first.path) == before
    (first.path / "more.txt").write_text("x")
    with pytest.raises(CheckFailed, match=r"more\.txt"):
        freeze(4)


def test_the_files_are_what_plain_tools_expect(freeze: Freeze) -> None:
    frozen = freeze(6)
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],
        cwd=frozen.path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.count(": OK") == len(REQUIRED)
    rows = [
        json.loads(x)
        for x in (frozen.path / "data/cases.jsonl").read_bytes().split(b"\n")
        if x
    ]
    assert [r["case_id"] for r in rows] == [f"c{i:03d}" for i in range(6)]
    plain = json.loads((frozen.path / "livemedbench.json").read_text("utf-8"))
    assert plain[1] == {
        "canary": frozen.manifest.canary,
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
    assert all(
        manifest.canary.encode() in (frozen.path / name).read_bytes()
        for name in REQUIRED
    )


def test_what_may_not_be_published_says_so_in_card_and_manifest(freeze: Freeze) -> None:
    frozen = freeze(
        2,
        meta=META.model_copy(
            update={"why_not": ("the screener was the rules engine",)}
        ),
    )
    assert not frozen.manifest.publishable
    assert "Not publishable" in (frozen.path / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"theme": "Chit-chat"}, "theme"),
        ({"posted_at": date(2030, 1, 1)}, "first release"),
        (
            {"first_release": "2026.W46"},
            r"neither 2026\.W47 nor one of its ancestors",
        ),
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
        write_snapshot(
            [make_case(0), make_case(1, **changes)],
            META,
            tmp_path / "out",
            Entries(),
        )
    assert [p.name for p in (tmp_path / "out").iterdir()] == [".freeze.lock"]


def test_a_snapshot_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="no case"):
        write_snapshot([], META, tmp_path, Entries())


def test_a_killed_freeze_leaves_nothing_that_counts_and_the_next_one_clears_it(
    tmp_path: Path, freeze: Freeze
) -> None:
    left = tmp_path / "out" / ".medlive-2026.W47-abc.partial"
    (left / "data").mkdir(parents=True)
    frozen = freeze(2)
    assert not left.exists()
    assert sorted(p.name for p in frozen.path.parent.iterdir()) == [
        ".freeze.lock",
        "medlive-2026.W47",
    ]


def test_two_freezes_at_once_do_not_meet(tmp_path: Path, freeze: Freeze) -> None:
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out" / ".freeze.lock"), pytest.raises(Locked):
        freeze(2)
    assert freeze(2).path.is_dir()


def test_a_place_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        write_snapshot([make_case(1)], META, tmp_path / "file", Entries())


def test_provenance_is_kept_whole(freeze: Freeze) -> None:
    assert freeze(2).manifest.provenance == PROVENANCE


def test_a_signed_release_names_its_key_and_vouches_for_the_manifests_own_words(
    tmp_path: Path,
) -> None:
    signing = Signing(key_id="0123456789ABCDEF", public_key="R" * 56)
    signed: list[tuple[bytes, str]] = []

    def sign(data: bytes, comment: str) -> str:
        signed.append((data, comment))
        return f"signature of {len(data)} bytes\n"

    with pytest.raises(UsageError):
        write_snapshot(
            [make_case(0)],
            META.model_copy(update={"signing": signing}),
            tmp_path,
            Entries(),
        )
    with pytest.raises(UsageError):
        write_snapshot([make_case(0)], META, tmp_path, Entries(), sign)
    frozen = write_snapshot(
        [make_case(0)],
        META.model_copy(update={"signing": signing}),
        tmp_path,
        Entries(),
        sign,
    )
    data, comment = signed[0]
    assert (
        (frozen.path / SIGNATURE).read_text("utf-8")
        == frozen.signature
        == f"signature of {len(data)} bytes\n"
    )
    assert data == (frozen.path / "SHA256SUMS").read_bytes()
    moment = int(datetime(2026, 11, 21, 8, 30, 1, tzinfo=UTC).timestamp())
    assert comment == (
        f"timestamp:{moment}\tfile:SHA256SUMS\tversion:2026.W47\tcanary:{frozen.manifest.canary}"
    )
    assert frozen.manifest.signing == signing


def test_ledgers_and_lineage_are_written_as_they_are_read(tmp_path: Path) -> None:
    ancestors = tuple(
        Ancestor(version=f"2026.W{n}", digest="sha256:" + str(n)[0] * 64)
        for n in (39, 46)
    )
    held = tuple(
        {"commitment": "sha256:" + c * 64, "held_since": "2026.W46"} for c in "ba"
    )
    cases = [make_case(0, first_release="2026.W39"), make_case(1)]
    entries = replace(added(cases[1:]), held=held)
    frozen = write_snapshot(
        cases, META.model_copy(update={"lineage": ancestors}), tmp_path, entries
    )
    manifest = frozen.manifest
    assert (manifest.parent, manifest.parent_digest) == (
        "2026.W46",
        ancestors[1].digest,
    )
    assert manifest.counts.held == 2
    assert manifest.counts.by_first_release == {"2026.W39": 1, "2026.W47": 1}
    assert manifest.counts.criteria_per_case == {"3": 2}
    head, sections = read_ledger(frozen.path, "holdouts.json")
    assert head == {"canary": manifest.canary, "version": "2026.W47"}
    assert sections == {"held": list(held[::-1]), "revealed": [], "dropped": []}
    changes = json.loads((frozen.path / "changes.json").read_text("utf-8"))
    assert [c["case_id"] for c in changes["added"]] == ["c001"]


COUNT = st.none() | st.integers(min_value=1, max_value=9)
ENTRY = st.fixed_dictionaries(
    {"reason": st.text().map("x".__add__), "from_revision": COUNT, "to_revision": COUNT}
)


@settings(max_examples=12)
@given(st.lists(ENTRY, max_size=3), st.lists(ENTRY, max_size=3), st.data())
def test_a_ledger_reads_as_it_was_written_and_every_other_spelling_is_a_fault(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[dict[str, Any]],
    other: list[dict[str, Any]],
    data: st.DataObject,
) -> None:
    lists = {"added": one, "revised": other, "withdrawn": []}
    for entries in lists.values():
        for number, entry in enumerate(entries):
            entry["case_id"] = f"{number:04d}"
    root = tmp_path_factory.getbasetemp()
    with (root / "changes.json").open("wb") as out:
        counts = write_ledger(out.write, {"version": "x"}, lists.items())
    assert counts == {"added": len(one), "revised": len(other), "withdrawn": 0}
    written = (root / "changes.json").read_bytes()
    assert json.loads(written) == {"version": "x", **lists}
    assert read_ledger(root, "changes.json") == ({"version": "x"}, lists)
    at = data.draw(st.integers(0, len(written) - 1))
    spoilt = data.draw(
        st.sampled_from(
            [written[:at], written[:at] + b" " + written[at:], written + b"\n"]
        )
    )
    (root / "changes.json").write_bytes(spoilt)
    with suppress(ValueError):
        assert read_ledger(root, "changes.json") != ({"version": "x"}, lists)


def change(number: int, reason: str = "x") -> dict[str, Any]:
    return {
        "case_id": f"{number:04d}",
        "reason": reason,
        "from_revision": None,
        "to_revision": 1,
    }


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (b",{}", "line 4: case_id: Field required"),
        (b',"x"', "line 4: .*valid dictionary"),
        (b",[[" * 9_000, "line 4: "),
        (
            b"," + canonical_json(change(0)).encode(),
            "line 4: added is not in the order of case_id",
        ),
        (b", " + canonical_json(change(1)).encode(), "line 4: expected "),
        (b"", "line 4: "),
    ],
)
def test_a_ledger_is_read_up_to_the_first_wrong_line(
    tmp_path: Path, second: bytes, fault: str
) -> None:
    with (tmp_path / "changes.json").open("wb") as out:
        out.write(
            b'{"version":"x"\n,"added":[\n'
            + canonical_json(change(0)).encode()
            + b"\n"
            + second
            + b"\n"
        )
        out.truncate(2**33)
    with pytest.raises(ValueError, match=fault):
        read_ledger(tmp_path, "changes.json")


@pytest.mark.thorough
def test_a_ledger_may_be_longer_than_other_documents(tmp_path: Path) -> None:
    entries = [change(n, "x" * (SNAPSHOT_LINE_BYTES // 2)) for n in range(6)]
    with (tmp_path / "changes.json").open("wb") as out:
        write_ledger(
            out.write,
            {"version": "x"},
            {"added": entries, "revised": [], "withdrawn": []}.items(),
        )
    assert read_ledger(tmp_path, "changes.json")[1]["added"] == entries
