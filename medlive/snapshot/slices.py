"""Which cases of a snapshot are taken, by their fields."""

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from medlive.errors import UsageError

from .model import week_end

_REPEATABLE = ("language", "source", "theme", "specialty", "first_release")
"""The fields of which several values may be asked for."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Which cases of a snapshot are taken; a case without a field that is asked for is left out.

    Attributes:
        language: Only cases in this language, en or zh; repeatable.
        source: Only cases of this community; repeatable.
        theme: Only cases of this theme; repeatable.
        specialty: Only cases of this specialty; repeatable.
        first_release: Only cases that are new in this version; repeatable.
        first_release_after: Only cases that are new after this version.
        posted_from: Only cases of this day or later.
        posted_before: Only cases from before this day.
    """

    language: list[str] | None = None
    source: list[str] | None = None
    theme: list[str] | None = None
    specialty: list[str] | None = None
    first_release: list[str] | None = None
    first_release_after: str | None = None
    posted_from: str | None = None
    posted_before: str | None = None

    def __post_init__(self) -> None:
        """Check the versions and days. Raises UsageError."""
        for version in (*(self.first_release or ()), self.first_release_after):
            if version is not None and week_end(version) is None:
                raise UsageError(f"{version!r} is not a version such as 2026.W47")
        for day in (self.posted_from, self.posted_before):
            if day is not None and not is_day(day):
                raise UsageError(f"{day!r} is not a date of the form YYYY-MM-DD")

    def fits(self, case: Any, day: str) -> bool:
        """Whether a case, posted on that day ("" for unknown), is taken."""
        for name in _REPEATABLE:
            wanted = getattr(self, name)
            if wanted is not None and getattr(case, name) not in wanted:
                return False
        if self.posted_before is not None and not "" < day < self.posted_before:
            return False
        # An unknown version or day is "", which sorts before every other.
        after = self.first_release_after
        is_newer = after is None or (case.first_release or "") > after
        return is_newer and day >= (self.posted_from or "")

    def as_json(self) -> dict[str, Any] | None:
        """The conditions that are set; None when all cases are taken."""
        wanted: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if value is not None:
                wanted[name] = sorted(value) if name in _REPEATABLE else value
        return wanted or None


def is_day(text: str) -> bool:
    """Whether a text is a date of the form YYYY-MM-DD."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
