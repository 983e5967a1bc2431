"""The grades of a run as its log holds them."""

from collections.abc import Iterator
from pathlib import Path

from medlive.evaluation.log import Lines, rows_of
from medlive.evaluation.model import Grade


def read_grades(path: Path) -> tuple[list[Grade], list[str]]:
    """Every grade of a log, in order, and what in it was none."""
    notes: list[str] = []
    return list(grades_of(path, notes)), notes


def grades_of(path: Path, notes: list[str]) -> Iterator[Grade]:
    """`read_grades`, a grade at a time; `notes` is whole at the end."""
    lines = Lines()
    odd: list[str] = []
    for row in rows_of(path, lines):
        try:
            grade = Grade.from_row(row.value)
        except (TypeError, KeyError, ValueError) as exc:
            odd.append(f"{path.name}: no grade: {str(exc)[:120]}")
            continue
        yield grade
    notes += [f"{path.name}:{number}: {why}" for number, why in lines.damaged] + odd
