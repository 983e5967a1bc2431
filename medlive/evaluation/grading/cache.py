"""Verdicts that runs share: graded once, found by every run folder that holds the same answer.

A folder with one small file for each judge, question and answer, named by their digest, a verdict a line. A row
is found by its `grade_key`, so an edited criterion is asked for alone. Any number of processes may read and add:
a row is appended whole, under a lock on its file, and a line that a kill tore is passed over.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from filelock import FileLock

from medlive.digest import canonical_json, digest_json, digest_text
from medlive.evaluation.grading.verdict import quoted
from medlive.evaluation.model import Answer, EvaluationCase, Grade, Origin

HELD: Final = 512
"""Verdicts that are gathered before they are written: most of a case's come together, and open its file once."""
NEAR: Final = 256
"""Cases whose files' names are remembered: those whose verdicts come in."""


class GradeCache:
    """The verdicts in a folder. One process's view; not to be shared between threads."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first verdict."""
        self.folder = folder
        self.notes: list[str] = []
        """What could not be read or written; grading goes on without the cache then."""
        self._waiting: dict[str, list[bytes]] = {}
        self._held = 0
        self._paths: dict[str, tuple[EvaluationCase, Answer, str, str]] = {}
        """By case: where the verdicts by a judge about an answer lie."""

    def find(self, case: EvaluationCase, answer: Answer, judge: str) -> dict[str, Grade]:
        """The verdicts about an answer by its judge's digest, by key; as new rows, which cost nothing."""
        found: dict[str, Grade] = {}
        for line in self._lines(self._path(case, answer, judge)):
            try:
                grade = Grade.from_row(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            # Whatever lies in the folder, a criterion is not met without words of the answer.
            shown = isinstance(grade.quote, str) and quoted(grade.quote, answer.response)
            sound = grade.met is False or (grade.met is True and shown)
            if sound:
                found[grade.key] = replace(grade, case_id=case.case_id, usage={}, origin=Origin.CACHE)
        return found

    def add(self, case: EvaluationCase, answer: Answer, grade: Grade, line: bytes | None = None) -> None:
        """Keep a verdict; one that is ungraded or came from here is passed over. `line` is its row as a log
        wrote it."""
        if grade.met is None or grade.origin is Origin.CACHE:
            return
        path = self._path(case, answer, grade.judge)
        if line is None:
            line = canonical_json(grade.row()).encode("utf-8", "backslashreplace") + b"\n"
        self._waiting.setdefault(path, []).append(line)
        self._held += 1
        if self._held >= HELD:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        waiting, self._waiting, self._held = self._waiting, {}, 0
        try:
            for path, lines in waiting.items():
                with FileLock(f"{self.folder}/.lock"):
                    _append(path, b"".join(lines))
        except OSError as exc:
            self._note(f"the cache {self.folder} cannot be written: {exc.strerror or exc}")

    def _path(self, case: EvaluationCase, answer: Answer, judge: str) -> str:
        known = self._paths.get(case.case_id)
        if known is not None and known[0] is case and known[1] is answer and known[2] == judge:
            return known[3]
        name = digest_json([judge, case.language, digest_text(case.question), answer.digest]).partition(":")[2]
        path = f"{self.folder}/{name[:2]}/{name[2:]}.jsonl"
        if len(self._paths) >= NEAR:
            del self._paths[next(iter(self._paths))]
        self._paths[case.case_id] = (case, answer, judge, path)
        return path

    def _lines(self, path: str) -> list[bytes]:
        try:
            with open(path, "rb", buffering=0) as handle:
                return handle.readall().splitlines()
        except FileNotFoundError:
            return []
        except OSError as exc:
            self._note(f"the cache {self.folder} cannot be read: {exc.strerror or exc}")
            return []

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _append(path: str, data: bytes) -> None:
    try:
        _add(path, data)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _add(path, data)


def _add(path: str, data: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            # A line that a kill tore must not swallow the next.
            data = b"\n" + data
        os.write(file, data)
    finally:
        os.close(file)
