"""Every name that docs/method.md gives for a rule exists: settings, prompts, and names of the code."""

import importlib
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import references  # noqa: E402

_MARKED = re.compile(r"→ ((?:`[^`]+`,?\s*)+)")


def names_of(page: str) -> list[str]:
    """The names after arrows, in the page's order."""
    names = []
    for marked in _MARKED.findall(page):
        names += re.findall(r"`([^`]+)`", marked)
    return names


@cache
def settings_and_tasks() -> set[str]:
    """Every setting, and every task that has a prompt."""
    settings = {setting.name for setting in references.settings()}
    prompts = (ROOT / "medlive").rglob("prompts/*.md")
    return settings | {file.stem.replace("_", ".", 1) for file in prompts}


def exists(name: str) -> bool:
    """Whether a name is a setting, a task with a prompt, or something of the code."""
    if not name.startswith("medlive."):
        return name in settings_and_tasks()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            return False
    return True


def test_every_name_of_the_method_exists() -> None:
    names = names_of((ROOT / "docs" / "method.md").read_text(encoding="utf-8"))
    assert len(names) > 80
    assert [name for name in dict.fromkeys(names) if not exists(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        "curation.absent",
        "validator.absent",
        "medlive.rubric.lint.absent",
        "medlive.absent.lint",
    ],
)
def test_a_name_that_does_not_exist_is_noticed(name: str) -> None:
    assert names_of(f"A rule. → `{name}`") == [name]
    assert not exists(name)
