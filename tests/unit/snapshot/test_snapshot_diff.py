"""What changed between two releases: found, counted, listed with reasons, refused where nothing can be said."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.__main__ import run
from medlive.errors import BadInput
from medlive.snapshot.diff import (
    Change,
    _criteria,
    diff_cases,
    diff_snapshots,
)
from medlive.snapshot.freeze import FrozenSnapshot
from tests.support.releases import case, criterion, release

ADDED: Final = "added"
REVISED: Final = "revised"
WITHDRAWN: Final = "withdrawn"

REASONS = (
    Change(ADDED, "c5", "new in this release", None, 1),
    Change(REVISED, "c2", "erratum: the antibiotic was wrong", 1, 2),
    Change(REVISED, "c3", "written anew", 1, 2),
    Change(WITHDRAWN, "c1", "takedown", 1, None),
)


def listed(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The cases that are listed, each after its kind."""
    return [(kind, case) for kind in found["counts"] for case in found[kind]]


@pytest.fixture(scope="module")
def line_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FrozenSnapshot]:
    """Three releases in a row, and one of another line."""
    out = tmp_path_factory.mktemp("diff")
    cases = [case(f"c{i}") for i in (1, 2, 3, 4)]
    first = release(out, "2026.W46", cases)
    rubric = (
        criterion("c2", 1, "Advises rest", 7),
        criterion("c2", 2, "Asks about fever", number=3),
        criterion("c2", 3, "Names no antibiotic", -3, number=2),
    )
    second_cases = [
        case("c2", revision=2, criteria=rubric),
        case(
            "c3",
            revision=2,
            query="What then?",
            posted_at=cases[2].posted_at.replace(day=4),
        ),
        cases[3],
        case("c5", first_release="2026.W47"),
    ]
    second = release(out, "2026.W47", second_cases, first, REASONS)
    third = release(out, "2026.W48", second_cases, second)
    other = release(tmp_path_factory.mktemp("other"), "2026.W46", cases[:2])
    return {"first": first, "second": second, "third": third, "other": other}


def test_every_change_is_found_with_its_reason(
    line_of: dict[str, FrozenSnapshot],
) -> None:
    found = diff_snapshots(line_of["first"].path, line_of["second"].path)
    assert found["counts"] == {ADDED: 1, REVISED: 2, WITHDRAWN: 1}
    assert [(kind, c["case_id"]) for kind, c in listed(found)] == [
        (ADDED, "c5"),
        (REVISED, "c2"),
        (REVISED, "c3"),
        (WITHDRAWN, "c1"),
    ]
    assert {c["case_id"]: c["reason"] for _, c in listed(found)} == {
        c.case_id: c.reason for c in REASONS
    }
    assert found["has_reasons"]
    by_id = {c["case_id"]: c for _, c in listed(found)}
    assert [(e["name"], e["old"], e["new"]) for e in by_id["c3"]["fields"]] == [
        ("posted_at", "2025-03-03", "2025-03-04"),
        ("query", "What now?", "What then?"),
    ]
    assert by_id["c3"]["criteria"] == ()
    edits = [
        (
            e["edits"],
            (e["old"] or {}).get("criterion_id"),
            (e["new"] or {}).get("criterion_id"),
        )
        for e in by_id["c2"]["criteria"]
    ]
    assert edits == [
        (("points",), "c2-c1", "c2-c1"),
        (("added",), None, "c2-c3"),
        (("criterion",), "c2-c2", "c2-c2"),
    ]


def test_a_release_does_not_differ_from_itself_and_back_is_the_reverse(
    line_of: dict[str, FrozenSnapshot],
) -> None:
    first, second = line_of["first"].path, line_of["second"].path
    assert list(diff_cases(first, first)) == []
    there, back = list(diff_cases(first, second)), list(diff_cases(second, first))
    turned = {ADDED: WITHDRAWN, REVISED: REVISED, WITHDRAWN: ADDED}
    assert [
        (turned[c.kind], c.case_id, c.to_revision, c.from_revision) for c in there
    ] == [(c.kind, c.case_id, c.from_revision, c.to_revision) for c in back]


def test_reasons_come_from_the_parent_alone(line_of: dict[str, FrozenSnapshot]) -> None:
    def said(one: str, other: str) -> dict[str, Any]:
        return diff_snapshots(line_of[one].path, line_of[other].path)

    for pair in (("first", "third"), ("second", "first"), ("other", "second")):
        found = said(*pair)
        assert not found["has_reasons"]
        assert {c["reason"] for _, c in listed(found)} == {None}
    assert said("second", "third")["counts"] == {ADDED: 0, REVISED: 0, WITHDRAWN: 0}


def test_what_is_listed_is_limited_and_what_is_counted_is_not(
    line_of: dict[str, FrozenSnapshot],
) -> None:
    found = diff_snapshots(line_of["first"].path, line_of["second"].path, limit=1)
    assert [c["case_id"] for _, c in listed(found)] == ["c5", "c2", "c1"]
    assert found["counts"][REVISED] == 2
    assert all(c["reason"] for _, c in listed(found))
    none = diff_snapshots(line_of["first"].path, line_of["second"].path, limit=0)
    assert listed(none) == []


texts = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6)


@given(
    old=texts, new=texts, weights=st.lists(st.integers(1, 3), min_size=12, max_size=12)
)
def test_the_edits_of_a_rubric_make_the_one_from_the_other(
    old: list[str], new: list[str], weights: list[int]
) -> None:
    before, now = (
        [
            criterion("c", i, text, weights[i + at], number=number(i)).row()
            for i, text in enumerate(some, start=1)
        ]
        for some, at, number in ((old, -1, lambda i: i), (new, 5, lambda i: 2 * i - 1))
    )
    edits = list(_criteria(before, now))
    rows = {r["criterion_id"]: r["criterion"] for r in before}
    for edit in edits:
        if edit["old"] is not None:
            assert rows.pop(edit["old"]["criterion_id"]) == edit["old"]["criterion"]
    kept = list(rows.values())
    for edit in edits:
        if edit["new"] is not None:
            kept.append(edit["new"]["criterion"])
    assert sorted(kept) == sorted(new)
    assert (edits == []) == ([_bare(r) for r in before] == [_bare(r) for r in now])


def _bare(row: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in row.items() if k not in ("case_id", "revision")}


def test_thousands_of_rewritten_criteria_are_paired_in_linear_time() -> None:
    before = [criterion("c", i, f"criterion {i}").row() for i in range(1, 4001)]
    now = [{**row, "criterion": f"new {row['criterion']}"} for row in before]
    started = time.process_time()
    assert {e["edits"] for e in _criteria(before, now)} == {("criterion",)}
    assert time.process_time() - started < 3


def _swap(text: str) -> str:
    rows = text.splitlines(keepends=True)
    return "".join([*rows[:2], rows[3], rows[2], *rows[4:]])


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("data/cases.jsonl", _swap),
        ("data/criteria.jsonl", _swap),
        ("data/cases.jsonl", lambda t: t.split("\n", 1)[1]),
        ("data/cases.jsonl", lambda t: "\n".join(t.split("\n")[:-2]) + "\n"),
        ("data/cases.jsonl", lambda t: t + "{}\n"),
        ("data/cases.jsonl", lambda t: t.replace("c2", "\\ud800")),
        ("data/cases.jsonl", lambda t: t.replace("What now?", "\\ud800")),
        ("data/cases.jsonl", lambda t: t + t.splitlines(keepends=True)[-1]),
        ("data/cases.jsonl", lambda t: t + "[" * 100_000 + "\n"),
        ("data/criteria.jsonl", lambda t: t.replace('"points":5', '"points":"5"')),
        ("data/criteria.jsonl", lambda t: "\x00\n" + t),
        ("changes.json", lambda t: t.replace(',"revised":[', ',"revised" :[')),
        ("changes.json", lambda t: ""),
        ("manifest.json", lambda t: t[:-9]),
        ("SHA256SUMS", None),
    ],
)
def test_what_cannot_be_compared_is_refused(
    line_of: dict[str, FrozenSnapshot],
    tmp_path: Path,
    name: str,
    spoil: Callable[[str], str] | None,
) -> None:
    for which in ("first", "second"):
        for file in (
            "data/cases.jsonl",
            "data/criteria.jsonl",
            "changes.json",
            "manifest.json",
            "SHA256SUMS",
        ):
            target = tmp_path / which / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((line_of[which].path / file).read_bytes())
    path = tmp_path / ("second" if name == "changes.json" else "first") / name
    if spoil is None:
        path.unlink()
    else:
        path.write_text(spoil(path.read_text()))
    with pytest.raises(BadInput):
        diff_snapshots(tmp_path / "first", tmp_path / "second")


def test_a_criterion_without_its_case_ends_the_comparison_where_it_stands(
    line_of: dict[str, FrozenSnapshot], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("data/cases.jsonl", "data/criteria.jsonl", "manifest.json"):
        text = (line_of["second"].path / name).read_text()
        (tmp_path / name).write_text(
            text.split("\n", 1)[1] if "cases" in name else text
        )
    with pytest.raises(BadInput):
        next(diff_cases(tmp_path, line_of["first"].path))


def test_the_command_tells_people_and_programs(
    line_of: dict[str, FrozenSnapshot],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    first, second = str(line_of["first"].path), str(line_of["second"].path)
    assert run(["snapshot", "diff", first, second]) == 0
    told = capsys.readouterr()
    shown = " ".join(told.out.split())
    assert "2026.W46 → 2026.W47" in shown
    assert "revised │ c2 │ 1 │ 2 │ erratum: the antibiotic was wrong" in shown
    assert "added │ c5" in shown
    assert "c2-c1: points" in shown
    assert "query │ What now? │ What then?" in shown
    assert (
        run(
            [
                "snapshot",
                "diff",
                first,
                second,
                "--unverified",
                "--json",
                "--limit",
                "1",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"added": 1, "revised": 2, "withdrawn": 1}
    assert [len(found[kind]) for kind in ("added", "revised", "withdrawn")] == [1, 1, 1]
    assert (
        found["revised"][0]["criteria"][2]["new"]["criterion"] == "Names no antibiotic"
    )
    assert run(["snapshot", "diff", first, str(tmp_path / "none")]) == 2
    spoilt = shutil.copytree(second, tmp_path / "medlive-2026.W47")
    with (spoilt / "LICENSE").open("a") as licence:
        licence.write("x")
    assert run(["snapshot", "diff", first, str(spoilt)]) == 1
    assert run(["snapshot", "diff", first, str(spoilt), "--unverified"]) == 0


def test_a_change_of_the_number_alone_is_told(tmp_path: Path) -> None:
    first = release(tmp_path, "2026.W46", [case("c1")])
    second = release(tmp_path, "2026.W47", [case("c1", revision=2)], first)
    assert list(diff_cases(first.path, second.path)) == [
        Change(REVISED, "c1", None, 1, 2)
    ]
