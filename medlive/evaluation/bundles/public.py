"""Remove what must not be published from a run: keys, and addresses and paths of the machine that made it."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from medlive.errors import UsageError
from medlive.evaluation.harm import UNCHECKED, HarmRow
from medlive.evaluation.model import Answer, Grade
from medlive.evaluation.runs.folder import KEYS_BELONG, RunInfo, leaves, names_secret

_SECRET_VARIABLE: Final = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE
)
_LONG: Final = 12
"""Shorter values could be found in a text by chance."""
_PRIVATE: Final = re.compile(r"://[^/@\s]+@|\A(?:/[\w.-]+/|~/|[A-Za-z]:\\)")
"""A login in an address, or a path."""
_PATH: Final = re.compile(r"(?:/|~/|[A-Za-z]:[\\/]|\\\\|\.{1,2}/)")
_NO_REPLY: Final = {
    "endpoint: ": "endpoint: no reply came",
    "batch: ": "batch: no reply that counts",
}
"""Prefixes of failure reasons that may name machines, and their replacements."""
_MOST_USED: Final = 1e15


def public_info(info: RunInfo) -> RunInfo:
    """Remove the endpoint, the path to the snapshot, and paths in model names from `run.json`.

    Raises UsageError if a parameter looks like a secret or contains a login or a path: parameters define the run,
    so they cannot be removed.
    """
    for place, value in leaves(info.parameters):
        why = "looks like a secret" if names_secret(place) else ""
        if isinstance(value, str) and _PRIVATE.search(value):
            why = why or "contains a login or a path"
        if why:
            raise UsageError(
                f"the parameter {place} {why}, and a bundle would publish it",
                hint=KEYS_BELONG,
            )
    public = {
        "endpoint": None,
        "snapshots": None,
        "model": public_name(info.model),
        "asked_as": info.asked_as and public_name(info.asked_as),
    }
    return info.model_copy(update=public)


def public_answer(answer: Answer) -> Answer:
    """Remove the thinking, the reason's details and everything but numbers from the usage of an answer."""
    return replace(
        answer,
        model=public_name(answer.model),
        reason="no answer came" if answer.reason else "",
        usage=_numbers(answer.usage),
        thinking="",
    )


def public_grade(grade: Grade) -> Grade:
    """Remove machine names from the reason and everything but numbers from the usage of a grade."""
    return replace(
        grade,
        reason=_public_reason(grade.reason),
        grader=public_name(grade.grader),
        model=public_name(grade.model),
        usage=_numbers(grade.usage),
    )


def public_harm(row: HarmRow) -> HarmRow:
    """Remove machine names from a reading for harm."""
    return replace(
        row,
        missing=_public_reason(row.missing.removeprefix(UNCHECKED)),
        reader=public_name(row.reader),
        checker=public_name(row.checker),
    )


def _public_reason(reason: str) -> str:
    for prefix, text in _NO_REPLY.items():
        if reason.startswith(prefix):
            return text
    return reason


def _numbers(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a usage: numbers from 0 on, and None for unknown."""
    counts = {}
    for name, value in usage.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (number and 0 <= value < _MOST_USED):
            counts[name] = value
    return counts


def public_name(model: str) -> str:
    """A model's name; the last part of a path, by which serving software may name models."""
    if not _PATH.match(model):
        return model
    return re.split(r"[\\/]", model.rstrip("\\/"))[-1] or model


def find_secret(
    files: Mapping[str, bytes],
    environ: Mapping[str, str],
) -> tuple[str, str] | None:
    """The first file with the value of a secret environment variable, and the variable's name; None if none."""
    secrets: dict[str, bytes] = {}
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name) and len(value) >= _LONG:
            secrets[name] = os.fsencode(value)
    for file, data in files.items():
        for name, secret in secrets.items():
            if secret in data:
                return file, name
    return None
