"""Human ratings of answers from files: verdicts by criterion, or scores by case.

The format is a table, a row for each rating, as JSON Lines (`.jsonl`, an object a line), JSON (an array of them)
or CSV (a header; commas; UTF-8 or GB18030, BOM or none). Columns: `rater`, and

- `case_id`, `criterion_id` and `met`: JSON true, false or null; in CSV true/false, yes/no, met/not met, 1/0,
  是/否, empty for none;
- or `item` and `met`, as a study exports the item: the criterion and the answer in one id;
- or `case_id` and `score`: a number for the whole answer, from 0 to 1 or to `out_of`; null or empty for none.

One file may mix these kinds of rows; other columns are ignored. "None" means that the rater could not decide.
One published set is read as it is: K-QA's CSV (physicians on statements).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medlive.errors import BadInput
from medlive.evaluation.cases.benchmarks import KQA_COLUMNS, Place, kqa_rows
from medlive.evaluation.model import Answer, EvaluationCase, gradable
from medlive.evaluation.tables import (
    FORMAT_HINT,
    Rows,
    add_rows,
    decode_text,
    read_table,
)
from medlive.grader.rated import verdict_id
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.integrity.log import read_bytes, some
from medlive.statistics.raters import Codes, agreed_codes, code_of

_MET = ["true", "1", "1.0", "yes", "y", "met"]
_NOT_MET = ["false", "0", "0.0", "no", "n", "not met", "not_met", "unmet"]
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys([*_MET, "是", "满足", "符合", "达到"], True),
    **dict.fromkeys(_NOT_MET, False),
    **dict.fromkeys(["否", "不满足", "不符合", "未满足", "未达到"], False),
    **dict.fromkeys(["", "null", "none"], None),
}
"""People's verdicts, spelt small."""
_KQA_LABELS: Mapping[str, bool | None] = {
    "Entailment": True,
    "Neutral": False,
    "Contradiction": False,
    "": None,
}


@dataclass(frozen=True, slots=True)
class HumanRatings:
    """Ratings by people; raters are in order of first appearance."""

    name: str
    """The file's name; of several, all of them, with their folders where two have the same."""
    digest: str
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """By criterion and rater; None: the rater could not decide."""
    scores: Mapping[str, Mapping[str, float]]
    """By case and rater, 0 to 1."""
    lines: Mapping[Place | str, str]
    """Where a criterion, or a case with a score, first appears: "line 7", with the file if there are several."""
    notes: tuple[str, ...] = ()
    adjudicator: str | None = None
    """The rater who decides where others differ, and counts for nothing else."""

    def codes(self, places: Sequence[Place], raters: Sequence[str]) -> Codes:
        """The verdicts of raters (places x raters)."""
        codes = np.empty((len(places), len(raters)), dtype=np.int_)
        for row, place in enumerate(places):
            by_rater = self.verdicts[place]
            codes[row] = [code_of(by_rater.get(rater)) for rater in raters]
        return codes

    def decisions(self, places: Sequence[Place]) -> Codes:
        """The adjudicator's verdicts (places)."""
        return self.codes(places, [self.adjudicator or ""])[:, 0]

    def agreed(self, places: Sequence[Place]) -> Codes:
        """The adjudicator's verdicts, else what two raters or more agree on (places)."""
        codes = self.codes(places, self.raters)
        return agreed_codes(codes, self.decisions(places))


def items_of(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
) -> dict[str, Place]:
    """Every criterion of every gradable answer, by the item id that `medlive.grader.rated` makes."""
    items: dict[str, Place] = {}
    for case, answer in gradable(cases, answers):
        for criterion in case.criteria:
            item = verdict_id(
                case.case_id,
                case.question,
                answer.digest,
                criterion.id,
                criterion.criterion,
            )
            items[item] = case.case_id, criterion.id
    return items


class _Rating(NamedTuple):
    """What a rater says of a criterion, or of a case."""

    key: Place | str | None
    """None: an item that is not the run's."""
    rater: str
    value: bool | float | None
    """None: the rater could not decide."""


def _ratings_of(
    row: Mapping[str, Any],
    items: Mapping[str, Place] | None,
) -> Iterator[_Rating]:
    """The ratings of a row. Raises ValueError if it is invalid."""
    names = ("rater", "item", "case_id", "criterion_id")
    rater, item, case_id, criterion = map(_name, map(row.get, names))
    if not rater or not (case_id or item):
        raise ValueError("case_id (or item) and rater are required")
    has_verdict = "met" in row and bool(item or (case_id and criterion))
    if has_verdict:
        met = _met(row["met"])
        place: Place | None = (case_id, criterion)
        if item:
            if items is None:
                what = f"item {item[:40]!r}"
                raise ValueError(f"{what} can only be read together with its run")
            place = items.get(item)
        yield _Rating(place, rater, met)
    written = row.get("score")
    # A column that is empty beside a verdict is not a score that could not be given.
    no_score = written in (None, "") if has_verdict else "score" not in row
    if case_id and not no_score:
        yield _Rating(case_id, rater, _score(written, row.get("out_of")))
    elif not has_verdict:
        raise ValueError("expected criterion_id and met, or score")


def read_humans(
    *paths: Path,
    items: Mapping[str, Place] | None = None,
) -> HumanRatings:
    """Read human ratings in medlive's own format, or K-QA's CSV of physicians.

    `items` has the criteria of a run's item ids (`items_of`). A decision replaces "could not decide"; two different
    decisions of one rater are a fault.

    Raises:
        BadInput: If there are invalid lines, which it lists, no ratings, or ratings that contradict each other.
    """
    raters: dict[str, None] = {}
    ratings: dict[Place | str, dict[str, Any]] = {}
    lines: dict[Place | str, str] = {}
    foreign: list[str] = []
    undecided = 0

    def add_row(where: str, row: Mapping[str, Any]) -> None:
        """Add the ratings of a row; a decision replaces "could not decide"."""
        nonlocal undecided
        for key, rater, rating in _ratings_of(row, items):
            if key is None:
                foreign.append(where)
                continue
            of_case = isinstance(key, str)
            if of_case and rating is None:
                undecided += 1
                continue
            lines.setdefault(key, where)
            raters[rater] = None
            by_rater = ratings.setdefault(key, {})
            earlier = by_rater.get(rater)
            if rating is not None and earlier not in (None, rating):
                of_criterion = "criterion {1!r} of case {0!r}"
                what = f"case {key!r}" if of_case else of_criterion.format(*key)
                raise ValueError(f"{rater!r} on {what} contradicts an earlier rating")
            by_rater[rater] = rating if earlier is None else earlier

    files = _read_files(paths)
    name = ", ".join(files)
    notes: list[str] = []
    add_rows(_rows_of(files, notes), name, add_row, FORMAT_HINT)
    if not raters:
        why, hint = "has no ratings", FORMAT_HINT
        if foreign:
            why = "matches no current answer or criterion of the run"
            hint = (
                "name the run that was rated; its answers or criteria may have changed"
            )
        raise BadInput(f"{name} {why}", hint=hint)
    if foreign:
        notes.append(
            f"{len(foreign)} items belong to another run, or to changed answers or criteria; left out "
            f"({some(foreign)})"
        )
    scores = {key: by for key, by in ratings.items() if isinstance(key, str)}
    verdicts = {key: by for key, by in ratings.items() if not isinstance(key, str)}
    undecided += sum([*met.values()].count(None) for met in verdicts.values())
    if undecided:
        notes.append(
            f"{undecided} ratings have no decision and count neither as met nor as not met"
        )
    digests = list(map(digest_bytes, files.values()))
    return HumanRatings(
        name=name,
        digest=digests[0] if len(digests) == 1 else digest_json(digests),
        raters=tuple(raters),
        verdicts=verdicts,
        scores=scores,
        lines=lines,
        notes=tuple(notes),
    )


def _read_files(paths: Sequence[Path]) -> dict[str, bytes]:
    """The files by name, with their folders where two have the same."""
    names = [path.name for path in paths]
    files = {}
    for path in paths:
        name = path.name if names.count(path.name) == 1 else str(path)
        files[name] = read_bytes(path)
    return files


def _rows_of(files: Mapping[str, bytes], notes: list[str]) -> Rows:
    """The rows of files, with the file's name in their places if there are several; what is irregular is noted."""
    for name, data in files.items():
        text, chinese = decode_text(data, name)
        notes += ["not valid UTF-8, read as GB18030"] * chinese
        head = text.partition("\n")[0]
        if all(column in head for column in (*KQA_COLUMNS, "label_0")):
            rows = _kqa_ratings(text, name)
        else:
            rows = read_table(text, name, ("case_id|item", "rater"))
        for place, row in rows:
            yield place if len(files) == 1 else f"{name} {place}", row


def _kqa_ratings(text: str, name: str) -> Rows:
    """Whether an answer entails a statement, by each physician.

    Entailment is met; Neutral and Contradiction are not met; an empty label is no decision. Raters are the columns
    `label_0`, `label_1` …; `majority_label` is not a rater.
    """
    for line, (case_id, criterion_id), row in kqa_rows(text, name):
        for column, label in row.items():
            if not column.startswith("label_"):
                continue
            if label.strip() in _KQA_LABELS:
                rating = {
                    "case_id": case_id,
                    "criterion_id": criterion_id,
                    "rater": column,
                    "met": _KQA_LABELS[label.strip()],
                }
                yield f"line {line}", rating
            else:
                fault = f"{column}: {label[:40]!r} is not a K-QA label"
                yield f"line {line}", fault


def _name(value: object) -> str:
    """An id or a name as text; "" if missing."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def _met(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise ValueError(f"met must be true, false or null, found {str(value)[:40]!r}")


def _score(value: object, out_of: object) -> float | None:
    number, most = _number(value), _number(out_of)
    if number is None:
        return None
    if most is None:
        most = 1.0
    if not 0 < most < math.inf:
        raise ValueError(f"out_of must be a number above 0, found {str(out_of)[:40]!r}")
    if not 0 <= number <= most:
        message = (
            f"score must be a number from 0 to {most:g}, found {str(value)[:40]!r}"
        )
        if not out_of:
            message += "; give the best score of another scale in a column out_of"
        raise ValueError(message)
    return number / most


def _number(value: object) -> float | None:
    """The value as a number, None if it is empty, NaN if it is not a number."""
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan
