"""People's ratings of answers, from a file: what each rater said of each criterion, or a score by case.

The format is a table, a row for each rating, as JSON Lines (`.jsonl`, an object a line) or CSV (a header; comma,
semicolon or tab; UTF-8 or UTF-16, BOM or none). Columns: `case_id` and `rater`, with either

- `criterion_id` and `met`: JSON true, false or null; in CSV true/false, yes/no, met/not met, 1/0, empty for none;
- `score`: a number from 0 to 1 for the whole answer, null or empty for none.

One file may hold rows of both kinds; other columns are left alone. "None" is a rater who could not say: kept apart
from met and not met. Files of other makers are told by their shape and read by `human_sets`.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_bytes
from medlive.errors import BadInput

Place = tuple[str, str]
"""(case id, criterion id)."""

MOST_FIELD: Final = 64 * 1024 * 1024
_NAMED: Final = 5
"""How many faults of a file are named; the others are counted."""

_MET: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "met", "是"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "not met", "not_met", "unmet", "否"), False),
    "": None,
    "null": None,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table and the line it begins on."""

    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Humans:
    """What people said; raters in the order in which the file names them first."""

    name: str
    """The file's name."""
    digest: str
    format: str
    """"medlive", "kqa" or "frank"."""
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """By criterion and rater; None: rated, without a decision."""
    scores: Mapping[str, Mapping[str, float]]
    """By case and rater, 0 to 1."""
    lines: Mapping[Place | str, int] = field(default_factory=dict)
    """The line on which a criterion, or a case with a score, is named first."""
    notes: tuple[str, ...] = ()


class Gathered:
    """Ratings as they are read, with what is wrong with them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._raters: dict[str, int] = {}
        self._verdicts: dict[Place, dict[str, bool | None]] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._lines: dict[Place | str, int] = {}
        self._faults: list[str] = []
        self._again: list[int] = []
        self._undecided = 0

    def fault(self, line: int, what: str) -> None:
        """A line cannot be read as a rating."""
        self._faults.append(f"line {line}: {what}")

    def verdict(self, line: int, place: Place, rater: str, met: bool | None) -> None:
        """A rater's word on a criterion."""
        given = self._verdicts.setdefault(place, {})
        if rater in given:
            self._twice(line, given[rater] is met, f"{rater!r} on criterion {place[1]!r} of case {place[0]!r}")
            return
        given[rater] = met
        self._undecided += met is None
        self._raters[rater] = self._raters.get(rater, 0) + 1
        self._lines.setdefault(place, line)

    def score(self, line: int, case_id: str, rater: str, score: float | None) -> None:
        """A rater's score of a whole answer."""
        given = self._scores.setdefault(case_id, {})
        if rater in given:
            self._twice(line, given[rater] == score, f"{rater!r} on case {case_id!r}")
            return
        if score is None:
            self._undecided += 1
            return
        given[rater] = score
        self._raters[rater] = self._raters.get(rater, 0) + 1
        self._lines.setdefault(case_id, line)

    def _twice(self, line: int, same: bool, what: str) -> None:
        if same:
            self._again.append(line)
        else:
            self.fault(line, f"{what} has said otherwise before")

    def humans(self, digest: str, format_: str) -> Humans:
        """What was gathered. Raises BadInput when a line was wrong, or when there is no rating at all."""
        if self._faults:
            more = len(self._faults) - _NAMED
            told = "; ".join(self._faults[:_NAMED]) + (f"; and {more} more lines" if more > 0 else "")
            raise BadInput(f"{self._name}: {told}")
        if not self._raters:
            raise BadInput(f"{self._name} holds no rating")
        notes = []
        if self._again:
            shown = ", ".join(map(str, self._again[:_NAMED])) + (" …" if len(self._again) > _NAMED else "")
            notes.append(f"{len(self._again)} ratings stand there twice and count once (lines {shown})")
        if self._undecided:
            notes.append(f"{self._undecided} ratings hold no decision and count neither as met nor as not met")
        notes += [f"rater {name!r} rated one item only" for name, n in self._raters.items() if n == 1]
        scores = {case_id: given for case_id, given in self._scores.items() if given}
        return Humans(
            self._name, digest, format_, tuple(self._raters), self._verdicts, scores, self._lines, tuple(notes)
        )


def read_ratings(data: bytes, name: str) -> Humans:
    """The ratings in a file of medlive's own format. Raises BadInput with the lines that are wrong."""
    text = decoded(data, name)
    found = Gathered(name)
    rows = json_rows(text, found) if text.lstrip().startswith("{") else csv_rows(text, name)
    for row in rows:
        _take(row, found)
    return found.humans(digest_bytes(data), "medlive")


def decoded(data: bytes, name: str) -> str:
    """A file's text. Raises BadInput when it is empty or in no encoding that is read."""
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise BadInput(f"{name}: line {line}: no UTF-8", hint="save the file as UTF-8") from exc
    if not text.strip():
        raise BadInput(f"{name} is empty")
    return text


def json_rows(text: str, found: Gathered) -> Iterator[Row]:
    """The objects of JSON Lines; a line that is none is a fault."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            found.fault(number, f"no JSON: {str(exc)[:80]}")
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            found.fault(number, f"a {type(value).__name__} and no object")


def csv_rows(text: str, name: str, needed: Sequence[str] = ("case_id", "rater")) -> Iterator[Row]:
    """The rows of CSV under its header, an empty line being none. Raises BadInput when the header lacks a column,
    or when a row has more fields than the header."""
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    csv.field_size_limit(MOST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        columns = [column.strip() for column in next(reader)]
        absent = [column for column in needed if column not in columns]
        if absent:
            raise BadInput(
                f"{name}: line 1: no column {', '.join(absent)}",
                hint=f"the columns are {', '.join(columns)[:200]}",
            )
        if len(set(columns)) < len(columns):
            raise BadInput(f"{name}: line 1: two columns have one name")
        line = reader.line_num + 1
        for fields in reader:
            if len(fields) > len(columns):
                raise BadInput(f"{name}: line {line}: {len(fields)} fields under {len(columns)} columns")
            if any(fields):
                yield Row(line, dict(zip(columns, fields, strict=False)))
            line = reader.line_num + 1
    except csv.Error as exc:
        raise BadInput(f"{name}: line {reader.line_num}: {exc}") from exc


def _take(row: Row, found: Gathered) -> None:
    values = row.values
    names = [values.get("case_id"), values.get("rater")]
    if not all(isinstance(text, str) and text.strip() for text in names):
        found.fault(row.line, "case_id and rater are texts, neither may be missing")
        return
    case_id, rater = (str(text).strip() for text in names)
    criterion = values.get("criterion_id")
    rated = False
    if isinstance(criterion, str) and criterion.strip() and "met" in values:
        rated = True
        try:
            found.verdict(row.line, (case_id, criterion.strip()), rater, _met(values["met"]))
        except ValueError as exc:
            found.fault(row.line, str(exc))
    if "score" in values and (values["score"] not in (None, "") or not rated):
        rated = True
        try:
            found.score(row.line, case_id, rater, _score(values["score"]))
        except ValueError as exc:
            found.fault(row.line, str(exc))
    if not rated:
        found.fault(row.line, "neither criterion_id and met, nor score")


def _met(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _MET:
        return _MET[value.strip().lower()]
    raise ValueError(f"met is {str(value)[:40]!r}: neither true, false nor null")


def _score(value: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        # A decimal comma is what a table with semicolons holds.
        number = math.nan if isinstance(value, bool) else float(str(value).strip().replace(",", "."))
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError(f"score is {str(value)[:40]!r}: no number from 0 to 1")
    return number


def read_scores(path: Path) -> tuple[dict[str, float], str]:
    """A score for each case from a file in the format above, the mean where several raters gave one; and the
    raters' names. Raises BadInput when the file holds no score."""
    humans = read_ratings(read_bytes(path), path.name)
    if not humans.scores:
        raise BadInput(f"{path.name} holds no score by case")
    means = {case_id: sum(given.values()) / len(given) for case_id, given in humans.scores.items()}
    return means, ", ".join(sorted({rater for given in humans.scores.values() for rater in given}))


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises BadInput when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc
