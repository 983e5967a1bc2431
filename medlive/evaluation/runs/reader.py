"""A run read from its folder piece by piece: a case or an answer is read when it is its turn, and let go."""

import hashlib
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, overload

from medlive.errors import BadInput
from medlive.evaluation.log import Lines, parsed, rows_of
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.runs.folder import RESPONSES, read_info

CASES: Final = "cases.jsonl"


class _Rows:
    """Lines of a file by their place in it."""

    def __init__(self, path: Path, file: int) -> None:
        self._path, self._file = path, file
        self._starts, self._sizes = array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, size: int) -> int:
        """Remember one; its number."""
        self._starts.append(start)
        self._sizes.append(size)
        return len(self._starts) - 1

    def read(self, number: int) -> bytes:
        """The bytes of one. Raises BadInput where the file no longer holds them."""
        try:
            data = os.pread(self._file, self._sizes[number], self._starts[number])
        except OSError as exc:
            raise BadInput(f"{self._path} cannot be read: {exc.strerror or exc}") from exc
        if len(data) < self._sizes[number]:
            raise BadInput(f"{self._path} was cut while it was in use")
        return data


class StoredCases(Sequence[EvaluationCase]):
    """The cases of a run, each read when it is asked for."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> EvaluationCase: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[EvaluationCase]: ...

    def __getitem__(self, index: int | slice) -> EvaluationCase | Sequence[EvaluationCase]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(*index.indices(len(self))))
        return EvaluationCase.from_row(parsed(self._rows.read(index)))


class StoredAnswers(Mapping[str, Answer]):
    """The answers of a run that can be graded, by case, each read when it is asked for."""

    def __init__(self, rows: _Rows, places: Mapping[str, int]) -> None:
        self._rows, self._places = rows, places

    def __getitem__(self, case_id: str) -> Answer:
        return Answer.from_row(parsed(self._rows.read(self._places[case_id])))

    def __contains__(self, case_id: object) -> bool:
        return case_id in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in its folder, checked."""

    path: Path
    cases: StoredCases
    answers: StoredAnswers
    """Of each case the latest, where it can be graded."""
    notes: tuple[str, ...]
    """What in the log of answers was no answer or belongs to no case."""


@contextmanager
def stored_run(path: Path) -> Iterator[StoredRun]:
    """The run in a folder, as `open_run` and `RunFolder.answers` read it, but nothing of it is held: of each row
    only its place in the file. Raises as they do."""
    digest = read_info(path).cases.rows
    with ExitStack() as files:
        cases, ids = _cases(path / CASES, digest, files)
        answers, notes = _answers(path / RESPONSES, ids, files)
        yield StoredRun(path, cases, answers, tuple(notes))


def _cases(path: Path, digest: str, files: ExitStack) -> tuple[StoredCases, set[str]]:
    """The cases and their ids, when the file is the one with that digest."""
    seen = hashlib.sha256()
    try:
        handle = files.enter_context(path.open("rb"))
        rows, at = _Rows(path, handle.fileno()), 0
        for line in handle:
            seen.update(line)
            if row := line.removesuffix(b"\n"):
                rows.add(at, len(row))
            at += len(line)
    except OSError as exc:
        raise BadInput(f"{path.parent} holds no run: {exc.strerror or exc}") from exc
    if digest != "sha256:" + seen.hexdigest():
        raise BadInput(f"{path} was changed since the run began")
    cases = StoredCases(rows)
    try:
        return cases, {case.case_id for case in cases}
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise BadInput(f"{path} cannot be read: {exc}") from exc


def _answers(path: Path, ids: set[str], files: ExitStack) -> tuple[StoredAnswers, list[str]]:
    """The answers, and what in their log was none or is of no case."""
    places: dict[str, int] = {}
    try:
        file = files.enter_context(path.open("rb")).fileno() if path.exists() else -1
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc
    rows, lines = _Rows(path, file), Lines()
    notes: list[str] = []
    for row in rows_of(path, lines):
        try:
            answer = Answer.from_row(row.value)
        except (TypeError, KeyError, ValueError) as exc:
            lines.damaged.append((row.number, f"not a valid row: {str(exc)[:120]}"))
            continue
        if answer.case_id not in ids:
            notes.append(f"{path.name}: case {answer.case_id!r} is not in the cases; left out")
        elif answer.gradable:
            places[answer.case_id] = rows.add(row.start, row.size)
        else:
            # Whatever stands above it: the latest counts.
            places.pop(answer.case_id, None)
    return StoredAnswers(rows, places), lines.notes(path.name) + notes
