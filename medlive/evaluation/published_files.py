"""LiveMedBench's own files, kept in a run's folder as they were imported, for the figures of its published script.

A run folder holds what is known: an answer that failed is none, a verdict is met, not met or ungraded. The
published script counts what its files say (docs/metric-parity.md), so its table is computed from them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput
from medlive.evaluation.livemedbench import read_grades, read_json
from medlive.evaluation.published import MonthTable, published_table
from medlive.evaluation.run import write_whole

_FOLDER: Final = "livemedbench"


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """The benchmark and the gradings of one import, entry by entry as they stand in the files."""

    benchmark: list[Any]
    gradings: list[dict[str, Any]]


def keep_files(run: Path, judge: str, benchmark: Path, grades: Path) -> None:
    """Keep the files that a run's verdicts of `judge` (`Grade.judge`) came from. Raises BadInput."""
    held = {"judge": judge, "benchmark": read_json(benchmark), "gradings": read_grades(grades)}
    data = json.dumps(held, ensure_ascii=False).encode("utf-8", "backslashreplace")
    place = _place(run, judge)
    try:
        place.parent.mkdir(exist_ok=True)
        if not place.is_file() or place.read_bytes() != data:
            write_whole(place, data)
    except OSError as exc:
        raise BadInput(f"{place} cannot be written: {exc.strerror or exc}") from exc


def kept_files(run: Path, judge: str | None) -> PublishedFiles | None:
    """The files that a run's verdicts of `judge` came from; None where they came from elsewhere."""
    if judge is None or not (place := _place(run, judge)).is_file():
        return None
    held = read_json(place)
    if not isinstance(held, dict) or held.get("judge") != judge or not isinstance(held.get("benchmark"), list):
        raise BadInput(f"{place} holds no files of LiveMedBench's")
    return PublishedFiles(held["benchmark"], held["gradings"])


def table_of_files(runs: Sequence[tuple[str, Path, str | None]]) -> MonthTable | None:
    """The published table of runs, each (label, folder, judge), from the files they were imported from.

    None where one was not imported, or where they are of different benchmarks.
    """
    found = [(label, kept_files(path, judge)) for label, path, judge in runs]
    kept = {label: files for label, files in found if files is not None}
    if not kept or len(kept) < len(runs):
        return None
    first = next(iter(kept.values())).benchmark
    # As text: a NaN among the points is not equal to itself.
    if any(json.dumps(files.benchmark) != json.dumps(first) for files in list(kept.values())[1:]):
        return None
    return published_table(first, {label: files.gradings for label, files in kept.items()})


def _place(run: Path, judge: str) -> Path:
    return run / _FOLDER / f"{judge.removeprefix('sha256:')[:16]}.json"
