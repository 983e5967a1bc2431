"""Select a part of the cases by their fields; `run.json` records the selection as part of the run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Any

from medlive.errors import UsageError
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.integrity.digest import digest_text
from medlive.snapshot.model import week_end

IN_PYTHON: Mapping[str, Any] = {"filter": "in Python"}
"""The selection of a part of a snapshot that was chosen by its methods."""

_AMONG = ("language", "source", "theme", "specialty", "first_release")


@dataclass(frozen=True)
class Selection:
    """Which cases; None and () leave all in. A case that does not say what is asked for is out."""

    language: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    theme: tuple[str, ...] = ()
    specialty: tuple[str, ...] = ()
    first_release: tuple[str, ...] = ()
    first_release_after: str | None = None
    """A version, `YYYY.WNN`: only what is newer."""
    posted_from: str | None = None
    """A day, `YYYY-MM-DD`, inclusive."""
    posted_before: str | None = None
    """A day, exclusive."""
    limit: int | None = None
    """At most so many, drawn by the digests of their ids: always the same, and among those of a larger limit."""

    def __post_init__(self) -> None:
        """Raises UsageError for what is no version, no day or no number."""
        for version in (*self.first_release, self.first_release_after):
            if version is not None and week_end(version) is None:
                raise UsageError(f"{version!r} is not a version such as 2026.W47")
        for day in (self.posted_from, self.posted_before):
            if day is not None and not is_day(day):
                raise UsageError(f"{day!r} is not a date of the form YYYY-MM-DD")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"the limit must be at least 1, found {self.limit}")

    def fits(self, case: EvaluationCase) -> bool:
        """Whether a case is in, but for the limit."""
        for name in _AMONG:
            wanted = getattr(self, name)
            if wanted and getattr(case, name) not in wanted:
                return False
        day = day_of(case) or ""
        if self.posted_before is not None and not "" < day < self.posted_before:
            return False
        # A version, a day: whatever is said sorts after "".
        newer = (case.first_release or "") > (self.first_release_after or "")
        return day >= (self.posted_from or "") and (
            newer or self.first_release_after is None
        )

    def as_json(self) -> dict[str, Any] | None:
        """What is asked for, without what is not; None when all cases are in."""
        wanted: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if value not in (None, ()):
                wanted[name] = sorted(value) if isinstance(value, tuple) else value
        return wanted or None


def in_words(selection: Mapping[str, Any] | None) -> str:
    """Which cases a run asks about, by what stands in its `run.json`."""
    if not selection:
        return "all cases"
    parts = []
    for name, value in selection.items():
        values = value if isinstance(value, list | tuple) else [value]
        parts.append(f"{name.replace('_', ' ')} {', '.join(map(str, values))}")
    return f"the cases of {'; '.join(parts)}"


def select(cases: CaseSet, selection: Selection) -> CaseSet:
    """The part of the cases that fits all that is given, in their order, without those that go on from one that is not
    in it: nobody could ask them. Raises UsageError when none is left."""
    # Sorted by these, no case comes before the one that it goes on from.
    lots: dict[str | None, str] = {None: ""}
    for case in cases.cases:
        if selection.fits(case) and case.after in lots:
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
    try:
        posted = datetime.fromisoformat(case.post_time.replace("Z", "+00:00"))
        return posted.date().isoformat()
    except ValueError:
        return None


def is_day(text: str) -> bool:
    """Whether a text is a date of the form YYYY-MM-DD."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
