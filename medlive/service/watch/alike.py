"""Failures grouped by cause: what differs between two failures alike is replaced before they are compared."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from medlive.db.mapping import Record

_VARIABLE: Final = (
    (re.compile(r"https?://\S+"), "URL"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^”]*”"), "…"),
    (re.compile(r"\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b"), "#"),
    (re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{12,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
    (re.compile(r"\s+"), " "),
)
"""Patterns in the order in which they are replaced: addresses, quoted text, ids, numbers, white space. An id and a
number become the same, since an id may be all digits."""
_STATUS: Final = re.compile(r"\bstatus (\d{3})\b")
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Threads that failed for the same cause."""

    reason: str
    cause: str  # The message with what varies replaced
    threads: int
    stages: tuple[str, ...]
    example: str  # The newest one, as `medlive thread show` takes it


def group_failures(failures: Iterable[Record]) -> list[FailureGroup]:
    """The groups of failures alike, the largest first; `failures` are newest first."""
    members: dict[tuple[str, str], list[Record]] = {}
    for failure in failures:
        members.setdefault(
            (failure.reason, normalise_cause(failure.detail)), []
        ).append(failure)
    groups = []
    for (reason, cause), alike in members.items():
        groups.append(
            FailureGroup(
                reason=reason,
                cause=cause,
                threads=len(alike),
                stages=tuple(sorted({failure.stage for failure in alike})),
                example=f"{alike[0].source}/{alike[0].thread_id}",
            )
        )
    return sorted(groups, key=lambda group: (-group.threads, group.reason, group.cause))


def normalise_cause(message: str) -> str:
    """A message without what varies from one failure to the next; a status code stays."""
    kept = [match.group(1) for match in _STATUS.finditer(message)]
    text = _STATUS.sub("status ~", message)
    for pattern, replacement in _VARIABLE:
        text = pattern.sub(replacement, text)
    for status in kept:
        text = text.replace("status ~", f"status {status}", 1)
    return text.strip()[:_LONGEST]
