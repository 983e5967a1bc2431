"""The second reader's tasks by rules: it objects to nothing, since that would take a judgement."""

from collections.abc import Callable, Mapping
from typing import Any, Final


def text(_: Mapping[str, Any]) -> dict[str, Any]:
    """{problems, missing}: none."""
    return {"problems": [], "missing": []}


def case(_: Mapping[str, Any]) -> dict[str, Any]:
    """Every question answered in the case's favour."""
    return {
        "asked": True,
        "clinical": True,
        "enough": True,
        "answered": True,
        "wrong": [],
        "danger": "",
        "understandable": True,
        "reason": "The rules engine makes no clinical judgement.",
    }


def identifiers(_: Mapping[str, Any]) -> dict[str, Any]:
    """{found}: nothing beyond what the patterns found before."""
    return {"found": []}


def rubric(_: Mapping[str, Any]) -> dict[str, Any]:
    """{problems, life_critical}: none."""
    return {"problems": [], "life_critical": []}


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "reader.text": text,
    "reader.case": case,
    "reader.identifiers": identifiers,
    "reader.rubric": rubric,
}
