"""The threat model names tests that there are, each once written and of its file."""

import ast
from pathlib import Path

import pytest

from tests.conftest import THREATS, named_tests

TESTS = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_is_there() -> None:
    absent = []
    functions = {}
    for name in sorted(named_tests(THREATS)):
        file, _, function = name.partition("::")
        if file not in functions:
            [path] = TESTS.rglob(file)
            functions[file] = _top_functions(path)
        if function not in functions[file]:
            absent.append(name)
    assert absent == []


def _top_functions(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_every_threat_is_tried() -> None:
    rows = [
        line
        for line in THREATS.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    threats = [row for row in rows if not row.startswith(("| threat ", "| --- "))]
    assert len(threats) >= 30
    assert [row for row in threats if "`test_" not in row.rsplit("|", 2)[1]] == []


def test_they_are_called_from_one_place(request: pytest.FixtureRequest) -> None:
    """This test's own session has marked what it collected of them."""
    named = named_tests(THREATS)
    for item in request.session.items:
        name = item.nodeid.partition("[")[0].rpartition("/")[2]
        assert (name in named) == (item.get_closest_marker("security") is not None)
