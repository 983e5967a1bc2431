"""What runs share: verdicts and replies, paid for once, found by every run folder that holds the same answer.

A folder with one small file for each judge, question and answer, or judge and case, named by their digest, a row a
line. A verdict is found by its grade's key, so an edited criterion is asked for alone. Any number of processes may
read and add: a row is appended by one write.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from medlive.errors import BadInput
from medlive.evaluation.log import read_found, values_of
from medlive.evaluation.model import Answer, EvaluationCase, Grade, Origin
from medlive.integrity.digest import canonical_json, digest_json, digest_text
from medlive.integrity.paths import UnsafePath, create_below, open_plain, walk
from medlive.text.quotes import shows

T = TypeVar("T")

# Below MEDLIVE_HOME, unless another folder is named
PLACE: Final = Path("cache") / "grades"
MOST_WAITING: Final = 64
"""Files whose new verdicts are gathered before they are written."""


class SharedRows:
    """Rows of logs in a folder, found by a digest."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first verdict."""
        self.folder = folder
        self.notes: list[str] = []
        """What could not be read or written; grading goes on without the cache then."""
        self._waiting: dict[Path, list[bytes]] = {}

    def rows(self, digest: str, parse: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """The rows that are kept under a digest."""
        try:
            yield from values_of(self._path(digest), parse, [])
        except BadInput as exc:
            self._note(exc.message)

    def keep(self, digest: str, row: Mapping[str, Any]) -> None:
        """Keep a row."""
        line = canonical_json(row).encode("utf-8", "backslashreplace") + b"\n"
        self._waiting.setdefault(self._path(digest), []).append(line)
        # Most of a case's verdicts come together, and open its file once.
        if len(self._waiting) >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path, lines in waiting.items():
                with create_below(
                    self.folder, path.relative_to(self.folder).as_posix(), append=True
                ) as file:
                    # A kill may have left half a row, which must not make one line with the next.
                    lines = lines if _ends_whole(path) else [b"\n", *lines]
                    file.write(b"".join(lines))
        except UnsafePath as exc:
            self._note(f"the cache {self.folder} cannot be written: {exc.message}")
        except OSError as exc:
            self._note(
                f"the cache {self.folder} cannot be written: {exc.strerror or exc}"
            )

    def files_about(self, case_ids: Collection[str]) -> list[Path]:
        """The files with a verdict that was made for one of these cases."""
        marks = [
            canonical_json({"case_id": case_id})[1:-1].encode() for case_id in case_ids
        ]
        files = []
        for entry in walk(self.folder) if self.folder.is_dir() else ():
            if entry.is_file and entry.name.endswith(".jsonl"):
                data = read_found(self.folder / entry.name)
                if any(mark in data for mark in marks):
                    files.append(self.folder / entry.name)
        return files

    def _path(self, digest: str) -> Path:
        name = digest.partition(":")[2]
        return self.folder / name[:2] / f"{name[2:]}.jsonl"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _ends_whole(path: Path) -> bool:
    with open_plain(path) as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
        return not size or file.read(1) == b"\n"


class GradeCache(SharedRows):
    """The verdicts in a folder; protocols keep their findings there too."""

    def find(
        self, case: EvaluationCase, answer: Answer, judge: str
    ) -> dict[str, Grade]:
        """The verdicts about an answer by its judge's digest, by key; as new rows, which cost nothing."""
        return {
            grade.key: replace(
                grade, case_id=case.case_id, usage={}, origin=Origin.CACHE
            )
            for grade in self.rows(_digest(case, answer, judge), Grade.from_row)
            # Whatever the folder holds, a criterion is not met without words of the answer.
            if grade.met is False or (grade.met and _shown(grade, answer))
        }

    def add(self, case: EvaluationCase, answer: Answer, grade: Grade) -> None:
        """Keep a verdict; one that is ungraded or came from here is passed over."""
        if grade.met is not None and grade.origin is not Origin.CACHE:
            self.keep(_digest(case, answer, grade.judge), grade.row())


def _digest(case: EvaluationCase, answer: Answer, judge: str) -> str:
    return digest_json(
        [judge, case.language, digest_text(case.question), answer.digest]
    )


def _shown(grade: Grade, answer: Answer) -> bool:
    return shows(grade.quote, answer.response) or (
        grade.whole and not grade.quote.strip()
    )
