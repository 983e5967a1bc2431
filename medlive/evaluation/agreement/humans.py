"""Human ratings of answers from files: verdicts by criterion, or scores by case.

The format is a table, a row for each rating, as JSON Lines (`.jsonl`, an object a line), JSON (an array of them)
or CSV (a header; comma, semicolon or tab; UTF-8, UTF-16 or GB18030, BOM or none). Columns: `rater`, and

- `case_id`, `criterion_id` and `met`: JSON true, false or null; in CSV true/false, yes/no, met/not met, 1/0,
  是/否, empty for none;
- or `item` and `met`, as `medlive eval meta --sheet` wrote the item: the criterion and the answer in one id;
- or `case_id` and `score`: a number for the whole answer, from 0 to 1 or to `out_of`; null or empty for none.

One file may mix these kinds of rows; other columns are ignored. "None" means that the rater could not decide.
Published data sets in other formats are read by `human_sets`.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput
from medlive.evaluation.agreement.human_tables import (
    FORMAT_HINT,
    MOST_FAULTS,
    Row,
    csv_rows,
    decode_text,
    encoding_of,
    entries,
    json_document,
    json_rows,
    list_faults,
    read_bytes,
)

Place = tuple[str, str]
"""(case id, criterion id)."""

_NEEDED: Final = (("case_id", "item"), ("rater",))

_MET: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "y", "met", "是", "满足", "符合", "达到"), True),
    **dict.fromkeys(
        (
            "false",
            "0",
            "0.0",
            "no",
            "n",
            "not met",
            "not_met",
            "unmet",
            "否",
            "不满足",
            "不符合",
            "未满足",
            "未达到",
        ),
        False,
    ),
    **dict.fromkeys(("", "null", "none"), None),
}


@dataclass(frozen=True, slots=True)
class HumanRatings:
    """Ratings by people; raters are in order of first appearance."""

    name: str
    """The file's name; of several, all of them."""
    digest: str
    format: str
    """"medlive", "kqa" or "frank"; "mixed" of several files."""
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """By criterion and rater; None: the rater could not decide."""
    scores: Mapping[str, Mapping[str, float]]
    """By case and rater, 0 to 1."""
    lines: Mapping[Place | str, str] = field(default_factory=dict)
    """Where a criterion, or a case with a score, first appears: "line 7", with the file if there are several."""
    notes: tuple[str, ...] = ()


class RatingCollector:
    """Collects ratings and faults while a file is read."""

    def __init__(self, name: str, *, unit: str = "line", items: Mapping[str, Place] | None = None) -> None:
        """`unit` names a row in messages; `items` maps a run's item ids to criteria."""
        self._name, self._unit, self._items = name, unit, items
        self._raters: dict[str, int] = {}
        self._verdicts: dict[Place, dict[str, bool | None]] = {}
        self._scores: dict[str, dict[str, float]] = {}
        self._lines: dict[Place | str, str] = {}
        self._faults: list[str] = []
        self._again: list[int] = []
        self._foreign: list[int] = []
        self._undecided = 0

    def fault(self, line: int, what: str) -> None:
        """Record that a line is not a valid rating."""
        self._faults.append(f"{self._unit} {line}: {what}")

    def place(self, line: int, item: str) -> Place | None:
        """The criterion of an item id; None if it is not one of the run's, which is recorded."""
        if self._items is None:
            self.fault(line, f"item {item[:40]!r} can only be read together with its run")
            return None
        if item not in self._items:
            self._foreign.append(line)
        return self._items.get(item)

    def verdict(self, line: int, place: Place, rater: str, met: bool | None) -> None:
        """Record a rater's verdict on a criterion."""
        given = self._verdicts.setdefault(place, {})
        if rater in given:
            self._record_duplicate(
                line, given[rater] is met, f"{rater!r} on criterion {place[1]!r} of case {place[0]!r}"
            )
            return
        given[rater] = met
        self._undecided += met is None
        self._raters[rater] = self._raters.get(rater, 0) + 1
        self._lines.setdefault(place, f"{self._unit} {line}")

    def score(self, line: int, case_id: str, rater: str, score: float | None) -> None:
        """Record a rater's score of a whole answer."""
        given = self._scores.setdefault(case_id, {})
        if rater in given:
            self._record_duplicate(line, given[rater] == score, f"{rater!r} on case {case_id!r}")
            return
        if score is None:
            self._undecided += 1
            return
        given[rater] = score
        self._raters[rater] = self._raters.get(rater, 0) + 1
        self._lines.setdefault(case_id, f"{self._unit} {line}")

    def _record_duplicate(self, line: int, same: bool, what: str) -> None:
        if same:
            self._again.append(line)
        else:
            self.fault(line, f"{what} contradicts an earlier rating")

    def humans(self, digest: str, format_: str, notes: Sequence[str] = ()) -> HumanRatings:
        """Return the ratings. Raises BadInput if there were faults or no ratings."""
        if self._faults:
            raise BadInput(f"{self._name}: {list_faults(self._faults)}", hint=FORMAT_HINT)
        if self._foreign and not self._raters:
            raise BadInput(
                f"{self._name}: no item matches the run's current answers and criteria",
                hint="name the run that the sheet was made for; its answers or criteria may have changed",
            )
        if not self._raters:
            raise BadInput(f"{self._name} has no ratings", hint=FORMAT_HINT)
        found = list(notes)
        if self._again:
            shown = self._shown(self._again)
            found.append(f"{len(self._again)} ratings are duplicates and count once ({shown})")
        if self._foreign:
            found.append(
                f"{len(self._foreign)} items belong to another run, or to changed answers or criteria; "
                f"left out ({self._shown(self._foreign)})"
            )
        if self._undecided:
            found.append(f"{self._undecided} ratings have no decision and count neither as met nor as not met")
        found += [f"rater {name!r} rated only one item" for name, n in self._raters.items() if n == 1]
        found += similar_names(self._raters)
        scores = {case_id: given for case_id, given in self._scores.items() if given}
        return HumanRatings(
            self._name, digest, format_, tuple(self._raters), self._verdicts, scores, self._lines, tuple(found)
        )

    def _shown(self, lines: Sequence[int]) -> str:
        return f"{self._unit}s {', '.join(map(str, lines[:MOST_FAULTS]))}" + (
            " …" if len(lines) > MOST_FAULTS else ""
        )


def similar_names(raters: Iterable[str]) -> list[str]:
    """Notes on names that differ only in case, width or spaces and may be one person."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(raters):
        groups.setdefault("".join(unicodedata.normalize("NFKC", name).casefold().split()), []).append(name)
    return [
        f"raters {', '.join(map(repr, names))} count as {len(names)} people: their names differ only in spelling"
        for names in groups.values()
        if len(names) > 1
    ]


def read_ratings(data: bytes, name: str, items: Mapping[str, Place] | None = None) -> HumanRatings:
    """Read ratings in medlive's own format.

    Args:
        data: The file's content.
        name: The file's name.
        items: The criteria of a run's item ids (`sheets.places_of`).

    Raises:
        BadInput: If there are invalid lines, which it lists, or no ratings.
    """
    text = decode_text(data, name)
    found = RatingCollector(name, items=items)
    if text.lstrip().startswith(("{", "[")):
        values = json_document(text)
        if values is not None and not (len(values) == 1 and "\n" not in text.strip()):
            found = RatingCollector(name, unit="entry", items=items)
        rows = json_rows(text, found.fault) if values is None else entries(values, found.fault)
    else:
        rows = csv_rows(text, name, _NEEDED)
    for row in rows:
        _add_row(row, found)
    guessed = ["not valid UTF-8, read as GB18030"] if encoding_of(data) == "gb18030" else []
    return found.humans(digest_bytes(data), "medlive", guessed)


def merge_ratings(found: Sequence[HumanRatings]) -> HumanRatings:
    """Merge the ratings of several files; a decision replaces "could not decide".

    Raises BadInput if two files have different decisions of one rater.
    """
    if len(found) == 1:
        return found[0]
    verdicts: dict[Place, dict[str, bool | None]] = {}
    scores: dict[str, dict[str, float]] = {}
    lines: dict[Place | str, str] = {}
    faults: list[str] = []
    for one in found:
        for key, where in one.lines.items():
            lines.setdefault(key, f"{one.name} {where}")
        for place, given in one.verdicts.items():
            merged = verdicts.setdefault(place, {})
            for rater, met in given.items():
                if merged.get(rater) is None:
                    merged[rater] = met
                elif met is not None and met is not merged[rater]:
                    faults.append(
                        f"{one.name}, {one.lines[place]}: {rater!r} on criterion {place[1]!r} of {place[0]!r}"
                    )
        for case_id, given_scores in one.scores.items():
            merged_scores = scores.setdefault(case_id, {})
            for rater, score in given_scores.items():
                if merged_scores.setdefault(rater, score) != score:
                    faults.append(f"{one.name}, {one.lines[case_id]}: {rater!r} on case {case_id!r}")
    if faults:
        raise BadInput(
            f"a rater contradicts themselves in another file: {list_faults(faults)}",
            hint="give different people different names in the column rater",
        )
    formats = {one.format for one in found}
    return HumanRatings(
        ", ".join(one.name for one in found),
        digest_json([one.digest for one in found]),
        formats.pop() if len(formats) == 1 else "mixed",
        tuple(dict.fromkeys(rater for one in found for rater in one.raters)),
        verdicts,
        scores,
        lines,
        (
            *(f"{one.name}: {note}" for one in found for note in one.notes),
            *similar_names(rater for one in found for rater in one.raters),
        ),
    )


def _add_row(row: Row, found: RatingCollector) -> None:
    values = row.values
    rater, item = _name(values.get("rater")), _name(values.get("item"))
    case_id, criterion = _name(values.get("case_id")), _name(values.get("criterion_id"))
    if rater is None or (case_id is None and item is None):
        found.fault(row.line, "case_id (or item) and rater are required")
        return
    place = (case_id, criterion) if case_id is not None and criterion is not None else None
    rated = False
    if (item is not None or place is not None) and "met" in values:
        rated = True
        try:
            met = _met(values["met"])
        except ValueError as exc:
            found.fault(row.line, str(exc))
        else:
            place = found.place(row.line, item) if item is not None else place
            if place is not None:
                found.verdict(row.line, place, rater, met)
    if case_id is not None and "score" in values and (values["score"] not in (None, "") or not rated):
        rated = True
        try:
            found.score(row.line, case_id, rater, _score(values["score"], values.get("out_of")))
        except ValueError as exc:
            found.fault(row.line, str(exc))
    if not rated:
        found.fault(row.line, "expected criterion_id and met, or score")


def _name(value: object) -> str | None:
    """An id or a name as text; None if missing."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def _met(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _MET:
        return _MET[value.strip().lower()]
    raise ValueError(f"met must be true, false or null, found {str(value)[:40]!r}")


def _score(value: object, out_of: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    most = 1.0 if out_of is None or (isinstance(out_of, str) and not out_of.strip()) else _number(out_of)
    if not 0 < most < math.inf:
        raise ValueError(f"out_of must be a number above 0, found {str(out_of)[:40]!r}")
    number = _number(value)
    if not 0 <= number <= most:
        also = "" if out_of else "; give the best score of another scale in a column out_of"
        raise ValueError(f"score must be a number from 0 to {most:g}, found {str(value)[:40]!r}{also}")
    return number / most


def _number(value: object) -> float:
    """The value as a number, NaN if it is none."""
    if isinstance(value, bool):
        return math.nan
    try:
        # Tables with semicolons may use decimal commas.
        return float(str(value).strip().replace(",", "."))
    except ValueError:
        return math.nan


def read_scores(path: Path) -> tuple[dict[str, float], str]:
    """Read the mean score of each case, and the raters' names. Raises BadInput if the file has no scores."""
    humans = read_ratings(read_bytes(path), path.name)
    if not humans.scores:
        raise BadInput(f"{path.name} has no scores by case")
    means = {case_id: sum(given.values()) / len(given) for case_id, given in humans.scores.items()}
    return means, ", ".join(sorted({rater for given in humans.scores.values() for rater in given}))
