"""The threat model names tests that there are, each once written and of its file."""

import re
from pathlib import Path

import pytest

from tests.conftest import THREATS, named_tests

TESTS = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = named_tests(THREATS)
    files = {name.partition("::")[0] for name in named}
    paths = [path for path in TESTS.rglob("test_*.py") if path.name in files]
    assert sorted(path.name for path in paths) == sorted(files)
    written = set()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for function in re.findall(r"^(?:async )?def (\w+)\(", text, re.M):
            written.add(f"{path.name}::{function}")
    assert named - written == set()


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
