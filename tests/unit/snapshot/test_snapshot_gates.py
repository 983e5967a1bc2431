"""The gates: each has its reason, and what decides them has a digest."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.deidentify import detect
from medlive.llm.engine import UNPUBLISHABLE_ENGINES
from medlive.snapshot import gates
from medlive.snapshot.gates import (
    Gate,
    content_hits,
    gates_digest,
    lint_case,
    release_faults,
    row_hits,
)
from medlive.snapshot.manifest import EngineUse
from medlive.snapshot.model import SnapshotCase
from tests.unit.snapshot.conftest import PROVENANCE, make_case


@pytest.mark.parametrize("engine", sorted(UNPUBLISHABLE_ENGINES))
def test_a_release_by_an_engine_whose_cases_are_unpublishable_is_so_too(
    engine: str,
) -> None:
    by_it = PROVENANCE.model_copy(
        update={"engines": (EngineUse(role="screener", engine=engine, model="m"),)}
    )
    (fault,) = release_faults(by_it, 10, 10)
    assert "screener" in fault


def test_a_minimum_of_cases_is_asked_for() -> None:
    (fault,) = release_faults(PROVENANCE, 10, 11)
    assert fault == "10 cases, at least 11 are asked for"


def first(case: SnapshotCase, **changes: object) -> SnapshotCase:
    """The case with its first criterion changed."""
    changed = replace(case.criteria[0], **changes)  # type: ignore[arg-type]
    return replace(case, criteria=(changed, *case.criteria[1:]))


CASE = make_case(0, narrative="My knee hurts since 3 days.")
NUMBER = "criterion 1: its id is not the case's, -c and a number"


@pytest.mark.parametrize(
    ("case", "details"),
    [
        (CASE, []),
        (first(CASE, criterion_id="c000-c12"), []),
        (first(CASE, criterion_id="c000-c01"), [NUMBER]),
        (first(CASE, criterion_id="c000-c"), [NUMBER]),
        (first(CASE, criterion_id="c000-c\u0661"), [NUMBER]),
        (first(CASE, criterion_id="c000-c1\n"), [NUMBER]),
        (first(CASE, criterion_id="c0001-c1"), [NUMBER]),
        (first(CASE, criterion_id="c000-c" + "1" * 200), [NUMBER]),
        (first(CASE, criterion_id="c000-c2"), ["two criteria share an id"]),
        (first(CASE, axis="Kindness"), ["criterion 1: axis 'Kindness'"]),
        (first(CASE, points=0), ["criterion 1: 0 points"]),
        (first(CASE, points=-11), ["criterion 1: -11 points"]),
        (first(CASE, position=2), ["criterion 1: position 2"]),
        (first(CASE, revision=2), ["criterion 1: belongs to c000 revision 2"]),
        (first(CASE, criterion=" \u3000\n"), ["criterion 1: is empty"]),
        (replace(CASE, query=" \t"), ["query is empty"]),
        (replace(CASE, theme="Rest"), ["theme 'Rest'"]),
        (replace(CASE, specialty="unknown"), []),
        (replace(CASE, specialty="Rest"), ["specialty 'Rest'"]),
        (replace(CASE, first_release="2026.W60"), ["first release '2026.W60'"]),
        (
            replace(CASE, first_release="2024.W01"),
            ["posted on 2025-01-03, after its first release 2024.W01"],
        ),
        (replace(CASE, criteria=()), ["no criterion has positive points"]),
    ],
)
def test_each_rule_of_a_row_is_named(case: SnapshotCase, details: list[str]) -> None:
    assert [h.detail for h in row_hits(case)] == details


def test_a_text_of_no_human_length_is_named_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case(0, advice="word " * 20_001)
    monkeypatch.setattr(detect, "find_identifiers", None)  # It is not called
    (hit,) = content_hits(case)
    assert (hit.gate, hit.detail) == (
        Gate.TEXT,
        "advice has more than 100,000 characters",
    )


def test_all_that_a_release_shows_is_read_for_identifiers() -> None:
    address = "May I write to ann@example.org?"
    case = replace(
        CASE, asked=f'[{{"id": "q1", "text": "{address}"}}]', overruled=address
    )
    named = set()
    for hit in content_hits(case):
        if hit.gate is Gate.IDENTIFIERS:
            named.add(hit.detail.split(" holds")[0])
    assert named == {"part q1 of the query", "overruled"}


def test_a_rubric_with_no_legal_axis_is_left_to_the_row_rules() -> None:
    case = first(CASE, axis="Kindness")
    assert lint_case(case) == []
    assert "criterion 1: axis 'Kindness'" in [h.detail for h in row_hits(case)]


def test_the_digest_changes_with_every_byte_of_a_module_that_decides(
    tmp_path: Path,
) -> None:
    for name in gates.DECIDING_MODULES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((gates.PACKAGE / name).read_bytes())
    digest = gates_digest.__wrapped__
    assert digest(tmp_path) == gates_digest()
    for name in gates.DECIDING_MODULES:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole + b"#")
        assert digest(tmp_path) != gates_digest(), name
        (tmp_path / name).write_bytes(whole)


@pytest.mark.thorough
def test_the_digest_covers_every_module_that_scanner_and_linter_run_through() -> None:
    script = (
        "import sys; read = []\n"
        "sys.addaudithook(lambda name, at: name == 'open' and read.append(str(at[0])))\n"
        "from medlive.snapshot.gates import lint_case\n"
        "from types import SimpleNamespace\n"
        "texts = dict.fromkeys(('narrative', 'query', 'advice'), 'x')\n"
        "before = set(sys.modules)\n"
        "lint_case(SimpleNamespace(**texts, language='en', criteria=()))\n"
        "from medlive.deidentify.detect import find_identifiers\n"
        "find_identifiers('My name is 张三, from Wuhan', 'en')\n"
        "print(*sorted(n for n in set(sys.modules) - before if n.startswith('medlive.')))\n"
        "print(*read, sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    modules, *opened = ran.stdout.splitlines()
    loaded = {
        f"{name.removeprefix('medlive.').replace('.', '/')}.py"
        for name in modules.split()
    }
    data = {
        path.relative_to(gates.PACKAGE).as_posix()
        for path in map(Path, opened)
        if path.is_relative_to(gates.PACKAGE) and path.suffix in (".toml", ".txt")
    }
    packages = {f"{folder}.py" for folder in ("deidentify", "rubric", "text")}
    assert loaded - packages <= set(gates.DECIDING_MODULES)
    assert {"text/quantities.py", "deidentify/chinese.py", "rubric/lint.py"} <= loaded
    # The function words tell languages apart, which these are given.
    assert data - {"text/data/function_words.txt"} <= set(gates.DECIDING_MODULES)
    assert "deidentify/data/chinese.txt" in data
