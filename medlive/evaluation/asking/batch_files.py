"""The files of a batch: calls to hand in, in OpenAI's format, and results to read; for grading and for answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, UsageError

BATCHES: Final = "batches.jsonl"
"""In a run folder: which calls were written, and which results were read."""
URL: Final = "/v1/chat/completions"
MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 190 * 1024 * 1024
"""Of a file; OpenAI takes 50,000 requests and 200 MB."""
MOST_LINE: Final = 32 * 1024 * 1024
NAMED: Final = 5
"""Faults of a kind that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Result:
    """A line of a result file."""

    where: str
    custom_id: str
    digest: str
    row: Mapping[str, Any]


class BatchFiles:
    """Lines over as many files as the limits ask for."""

    def __init__(self, out: Path, most_requests: int, most_bytes: int) -> None:
        self.paths: list[Path] = []
        self.requests = 0
        self._out, self._most_requests, self._most_bytes = out, most_requests, most_bytes
        self._handle: IO[bytes] | None = None
        self._lines = self._bytes = 0

    @contextmanager
    def open(self) -> Iterator["BatchFiles"]:
        """Files appear under their names when all are whole."""
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            try:
                yield self
            except BaseException:
                self._close()
                for path in self.paths:
                    _partial(path).unlink(missing_ok=True)
                raise
            self._close()
            if len(self.paths) == 1:
                _partial(self.paths[0]).replace(self._out)
                self.paths = [self._out]
            else:
                for path in self.paths:
                    _partial(path).replace(path)
        except OSError as exc:
            raise BadInput(f"{self._out} cannot be written: {exc.strerror or exc}") from exc

    def add(self, custom_id: str, body: Mapping[str, Any]) -> None:
        """One call more. Raises UsageError for one that is longer than a file may be."""
        row = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
        # As the live client writes it: a lone surrogate has no UTF-8 form.
        line = canonical_json(row).encode("utf-8", "replace") + b"\n"
        if len(line) > self._most_bytes:
            raise UsageError(f"a call of {len(line)} bytes fits into no file of {self._most_bytes}")
        full = self._lines >= self._most_requests or self._bytes + len(line) > self._most_bytes
        if self._handle is None or full:
            self._begin()
        assert self._handle is not None
        self._handle.write(line)
        self._lines, self._bytes, self.requests = self._lines + 1, self._bytes + len(line), self.requests + 1

    def _close(self) -> None:
        if self._handle is not None:
            self._handle.close()

    def _begin(self) -> None:
        self._close()
        path = self._out.with_name(f"{self._out.stem}-{len(self.paths) + 1:03d}{self._out.suffix}")
        self._handle = _partial(path).open("wb")
        self.paths.append(path)
        self._lines = self._bytes = 0


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def read_results(path: Path) -> Iterator[Result | str]:
    """The results in a file, in order; a line that is none as a note. Raises BadInput for a file that cannot be
    read."""
    try:
        with path.open("rb") as handle:
            for number, line in enumerate(iter(lambda: handle.readline(MOST_LINE), b""), start=1):
                if line.strip():
                    yield _result(f"{path.name}:{number}", line.strip())
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc


def _result(where: str, line: bytes) -> Result | str:
    try:
        row = json.loads(line)
        custom_id = row["custom_id"]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        return f"{where}: no result: {str(exc)[:100]}"
    if "body" in row and "response" not in row:
        return f"{where}: no result: it is a call, as it was handed in"
    if not isinstance(custom_id, str):
        return f"{where}: no result: its custom_id is no text"
    return Result(where, custom_id, digest_bytes(line), row)


def result_error(row: Mapping[str, Any]) -> str | None:
    """Why a result is none; None where it holds a body."""
    if error := row.get("error"):
        return _said(error)
    response = row.get("response")
    if not isinstance(response, dict):
        return "the result holds no response"
    status, body = response.get("status_code"), response.get("body")
    if status != 200:
        said = _said(body.get("error")) if isinstance(body, dict) and body.get("error") else ""
        return f"status {status}{f': {said}' if said else ''}"
    return None


def _said(error: object) -> str:
    text = error.get("message") or error.get("code") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:300]


def brief(notes: Sequence[str]) -> list[str]:
    """The first notes of each kind, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(note.split(": ")[1][:20] if ": " in note else note, []).append(note)
    return [
        told
        for found in kinds.values()
        for told in (
            found[:NAMED] + ([f"… and {len(found) - NAMED} more of this kind"] if len(found) > NAMED else [])
        )
    ]


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """The files of a batch."""

    files: tuple[Path, ...]
    requests: int
    criteria: int
    cached: int
    """Verdicts that the cache held: in the log now, and in no request."""
    repairs: int = 0
    """Of the requests, those that hold an earlier reply and what is wrong with it."""
    waiting: int = 0
    """Calls that were written before and have no result yet: among the requests, or left out of them."""
