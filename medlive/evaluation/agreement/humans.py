"""Human ratings of answers from files: verdicts by criterion, or scores by case.

The format is a table, a row for each rating, as JSON Lines (`.jsonl`, an object a line), JSON (an array of them)
or CSV (a header; comma, semicolon or tab; UTF-8, UTF-16 or GB18030, BOM or none). Columns: `rater`, and

- `case_id`, `criterion_id` and `met`: JSON true, false or null; in CSV true/false, yes/no, met/not met, 1/0,
  是/否, empty for none;
- or `item` and `met`, as a study exports the item: the criterion and the answer in one id;
- or `case_id` and `score`: a number for the whole answer, from 0 to 1 or to `out_of`; null or empty for none.

One file may mix these kinds of rows; other columns are ignored. "None" means that the rater could not decide.
One published set is read as it is: K-QA's CSV (physicians on statements).
"""

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from medlive.errors import BadInput
from medlive.evaluation.cases.benchmarks import KQA_COLUMNS, Place, kqa_rows
from medlive.evaluation.tables import FORMAT_HINT, decode_text, list_faults, read_table
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.integrity.log import read_bytes, some

V = TypeVar("V", bool | None, float)
_WORDS: Final[Mapping[bool | None, Sequence[str]]] = {
    True: ("true", "1", "1.0", "yes", "y", "met", "是", "满足", "符合", "达到"),
    False: (
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
    None: ("", "null", "none"),
}
_KQA_LABELS: Final[Mapping[str, bool | None]] = {
    "Entailment": True,
    "Neutral": False,
    "Contradiction": False,
    "": None,
}


@dataclass(frozen=True, slots=True)
class HumanRatings:
    """Ratings by people; raters are in order of first appearance."""

    name: str
    """The file's name; of several, all of them."""
    digest: str
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """By criterion and rater; None: the rater could not decide."""
    scores: Mapping[str, Mapping[str, float]]
    """By case and rater, 0 to 1."""
    lines: Mapping[Place | str, str]
    """Where a criterion, or a case with a score, first appears: "line 7", with the file if there are several."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RatingCollector:
    """The ratings and faults of one or more files, while they are read.

    A decision replaces "could not decide"; two different decisions of one rater are a fault.
    """

    names: Sequence[str]
    items: Mapping[str, Place] | None = None
    """The criteria of a run's item ids; None without a run."""
    digests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    raters: dict[str, None] = field(default_factory=dict)
    verdicts: dict[Place, dict[str, bool | None]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    lines: dict[Place | str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    """Where an item is not one of the run's."""
    unscored: int = 0

    def where(self, name: str, place: str) -> str:
        """A row's place in messages."""
        return place if len(self.names) == 1 else f"{name} {place}"

    def place(self, item: str, case_id: str, criterion: str) -> Place | None:
        """The criterion of an item, or of both ids; None if the run lacks the item. ValueError without a run."""
        if not item:
            return case_id, criterion
        if self.items is None:
            raise ValueError(
                f"item {item[:40]!r} can only be read together with its run"
            )
        return self.items.get(item)

    def verdict(
        self, where: str, place: Place | None, rater: str, met: bool | None
    ) -> None:
        """Record a rater's verdict on a criterion; None is one of another run."""
        if place is None:
            self.foreign.append(where)
        else:
            self._record(where, place, rater, met, self.verdicts.setdefault(place, {}))

    def score(self, where: str, case_id: str, rater: str, score: float | None) -> None:
        """Record a rater's score of a whole answer."""
        if score is None:
            self.unscored += 1
        else:
            ratings = self.scores.setdefault(case_id, {})
            self._record(where, case_id, rater, score, ratings)

    def _record(
        self,
        where: str,
        key: Place | str,
        rater: str,
        value: V,
        ratings: MutableMapping[str, V],
    ) -> None:
        earlier = ratings.get(rater)
        if earlier is None:
            ratings[rater] = value
            self.raters[rater] = None
            self.lines.setdefault(key, where)
        elif value not in (None, earlier):
            what = f"case {key!r}"
            if isinstance(key, tuple):
                what = f"criterion {key[1]!r} of case {key[0]!r}"
            self.faults.append(
                f"{where}: {rater!r} on {what} contradicts an earlier rating"
            )

    def humans(self) -> HumanRatings:
        """Return the ratings. Raises BadInput if there were faults or no ratings."""
        name = ", ".join(self.names)
        if self.faults:
            raise BadInput(f"{name}: {list_faults(self.faults)}", hint=FORMAT_HINT)
        if self.foreign and not self.raters:
            raise BadInput(
                f"{name}: no item matches the run's current answers and criteria",
                hint="name the run that was rated; its answers or criteria may have changed",
            )
        if not self.raters:
            raise BadInput(f"{name} has no ratings", hint=FORMAT_HINT)
        digests = self.digests
        return HumanRatings(
            name=name,
            digest=digests[0] if len(digests) == 1 else digest_json(digests),
            raters=tuple(self.raters),
            verdicts=self.verdicts,
            scores=self.scores,
            lines=self.lines,
            notes=(*self.notes, *self._remarks()),
        )

    def _remarks(self) -> Iterator[str]:
        """What does not count."""
        undecided = self.unscored
        for ratings in self.verdicts.values():
            undecided += list(ratings.values()).count(None)
        if self.foreign:
            yield (
                f"{len(self.foreign)} items belong to another run, or to changed answers or criteria; left out "
                f"({some(self.foreign)})"
            )
        if undecided:
            yield f"{undecided} ratings have no decision and count neither as met nor as not met"


def read_humans(*paths: Path, items: Mapping[str, Place] | None = None) -> HumanRatings:
    """Read human ratings in medlive's own format, K-QA's CSV of physicians, or MEDIQA's XML.

    `items` has the criteria of a run's item ids (`items.places_of`).

    Raises:
        BadInput: If there are invalid lines, which it lists, no ratings, or ratings that contradict each other.
    """
    collector = RatingCollector([path.name for path in paths], items)
    for path in paths:
        add_file(collector, read_bytes(path), path.name)
    return collector.humans()


def add_file(collector: RatingCollector, data: bytes, name: str) -> None:
    """Add the ratings of a file. Raises BadInput where it cannot be read at all."""
    text, chinese = decode_text(data, name)
    collector.digests.append(digest_bytes(data))
    if chinese:
        collector.notes.append("not valid UTF-8, read as GB18030")
    head = text.split("\n", 1)[0]
    if all(column in head for column in (*KQA_COLUMNS, "label_0")):
        _read_kqa(text, name, collector)
    else:
        for place, values in read_table(text, name, ("case_id|item", "rater")):
            where = collector.where(name, place)
            try:
                _add_row(where, values, collector)
            except ValueError as exc:
                collector.faults.append(f"{where}: {exc}")


def _add_row(
    where: str, values: Mapping[str, Any] | str, collector: RatingCollector
) -> None:
    """Add the ratings of a row. Raises ValueError if it is invalid."""
    if isinstance(values, str):
        raise ValueError(values)
    rater, item, case_id, criterion = (
        _name(values.get(n)) for n in ("rater", "item", "case_id", "criterion_id")
    )
    if not rater or not (case_id or item):
        raise ValueError("case_id (or item) and rater are required")
    has_verdict = "met" in values and bool(item or (case_id and criterion))
    if has_verdict:
        place = collector.place(item, case_id, criterion)
        collector.verdict(where, place, rater, _met(values["met"]))
    score = values.get("score")
    # A column that is empty beside a verdict is not a score that could not be given.
    no_score = "score" not in values or (has_verdict and score in (None, ""))
    if case_id and not no_score:
        collector.score(where, case_id, rater, _score(score, values.get("out_of")))
    elif not has_verdict:
        raise ValueError("expected criterion_id and met, or score")


def _name(value: object) -> str:
    """An id or a name as text; "" if missing."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def _met(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    for met, words in _WORDS.items():
        if isinstance(value, str) and value.strip().lower() in words:
            return met
    raise ValueError(f"met must be true, false or null, found {str(value)[:40]!r}")


def _score(value: object, out_of: object) -> float | None:
    if _is_empty(value):
        return None
    most = 1.0 if _is_empty(out_of) else _number(out_of)
    if not 0 < most < math.inf:
        raise ValueError(f"out_of must be a number above 0, found {str(out_of)[:40]!r}")
    number = _number(value)
    if not 0 <= number <= most:
        message = (
            f"score must be a number from 0 to {most:g}, found {str(value)[:40]!r}"
        )
        if not out_of:
            message += "; give the best score of another scale in a column out_of"
        raise ValueError(message)
    return number / most


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _number(value: object) -> float:
    """The value as a number, NaN if it is not one."""
    if isinstance(value, bool):
        return math.nan
    try:
        # Tables with semicolons may use decimal commas.
        return float(str(value).strip().replace(",", "."))
    except ValueError:
        return math.nan


def _read_kqa(text: str, name: str, collector: RatingCollector) -> None:
    """Add the ratings of physicians on whether an answer entails a statement.

    Entailment is met; Neutral and Contradiction are not met; an empty label is no decision. Raters are the columns
    `label_0`, `label_1` …; `majority_label` is not a rater.
    """
    for line, place, row in kqa_rows(text, name):
        where = collector.where(name, f"line {line}")
        for column, label in row.items():
            if not column.startswith("label_"):
                continue
            if label.strip() in _KQA_LABELS:
                collector.verdict(where, place, column, _KQA_LABELS[label.strip()])
            else:
                collector.faults.append(
                    f"{where}: {column}: {label[:40]!r} is not a K-QA label"
                )
