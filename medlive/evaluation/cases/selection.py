"""Select a part of the cases by their fields; `run.json` records the selection as part of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from medlive.errors import UsageError
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.integrity.digest import digest_text
from medlive.snapshot.slices import Slice

from .livemedbench import posting_day

IN_PYTHON: Mapping[str, Any] = {"filter": "in Python"}
"""The `selection` of cases that are a part of a snapshot chosen by `Snapshot`'s methods."""


@dataclass(frozen=True, kw_only=True)
class Selection(Slice):
    """Which cases of an evaluation are asked about.

    Attributes:
        limit: At most so many cases, always the same ones.
    """

    limit: int | None = None
    """Drawn by the digests of the cases' ids: always the same, and among those of a larger limit."""

    def __post_init__(self) -> None:
        """Raises UsageError for an invalid version, day or limit."""
        Slice.__post_init__(self)
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"the limit must be at least 1, found {self.limit}")


def in_words(selection: Mapping[str, Any] | None) -> str:
    """Which cases a run asks about, by the selection in its `run.json`; None: all."""
    if not selection:
        return "all cases"
    parts = []
    for name, value in selection.items():
        values = value if isinstance(value, list | tuple) else [value]
        parts.append(f"{name.replace('_', ' ')} {', '.join(map(str, values))}")
    return f"the cases of {'; '.join(parts)}"


def select(cases: CaseSet, selection: Selection) -> CaseSet:
    """The cases that fit a selection, in their order. Raises UsageError if none is left.

    A case that continues another is left out with it, since it could not be asked.
    """
    # In the order of their lots, no case comes before the one that it continues.
    lots: dict[str | None, str] = {None: ""}
    for case in cases.cases:
        if selection.fits(case, day_of(case) or "") and case.after in lots:
            lots[case.case_id] = max(digest_text(case.case_id), lots[case.after])
    del lots[None]
    drawn = set(sorted(lots, key=lots.__getitem__)[: selection.limit])
    chosen = [case for case in cases.cases if case.case_id in drawn]
    if not chosen:
        part = in_words(selection.as_json())
        raise UsageError(f"{cases.name} has no such cases: {part}")
    return replace(
        cases,
        cases=tuple(chosen),
        selection=selection.as_json(),
    )


def day_of(case: EvaluationCase) -> str | None:
    """The day a case was posted on, `YYYY-MM-DD` as its posting time spells it; None where that cannot be read."""
    return posting_day(case.post_time)
