"""The grades of a run as its log holds them."""

from collections.abc import Iterator
from pathlib import Path

from medlive.evaluation.log import values_of
from medlive.evaluation.model import Grade


def read_grades(path: Path) -> tuple[list[Grade], list[str]]:
    """Return all grades in log order, and the lines that could not be parsed."""
    notes: list[str] = []
    return list(grades_of(path, notes)), notes


def grades_of(path: Path, notes: list[str]) -> Iterator[Grade]:
    """Yield all grades in log order; `notes` is complete at the end."""
    return values_of(path, Grade.from_row, notes)
