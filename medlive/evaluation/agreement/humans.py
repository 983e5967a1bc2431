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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from medlive.errors import BadInput
from medlive.evaluation.cases.benchmarks import KQA_COLUMNS, Place, kqa_rows
from medlive.evaluation.model import Answer, EvaluationCase, gradable
from medlive.evaluation.tables import FORMAT_HINT, decode_text, list_faults, read_table
from medlive.grader.rated import verdict_id
from medlive.integrity.digest import digest_bytes
from medlive.integrity.log import read_bytes, some
from medlive.statistics.raters import Codes, agreed_codes, code_of

_MET: Final = ["true", "1", "1.0", "yes", "y", "met", "是", "满足", "符合", "达到"]
_NOT_MET: Final = (
    "not met",
    *[
        "false",
        "0",
        "0.0",
        "no",
        "n",
        "not_met",
        "unmet",
        "否",
        "不满足",
        "不符合",
        "未满足",
        "未达到",
    ],
)
_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(_MET, True),
    **dict.fromkeys(_NOT_MET, False),
    **dict.fromkeys(("", "null", "none"), None),
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
    """Of the files, one after the other."""
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """By criterion and rater; None: the rater could not decide."""
    scores: Mapping[str, Mapping[str, float]]
    """By case and rater, 0 to 1."""
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
    """What a rater said."""

    about: Place | str | None
    """A criterion, or a case whose whole answer is scored; None: an item that is not one of the run's."""
    rater: str
    value: bool | float | None
    """None: the rater could not decide."""


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
    names, contents = [path.name for path in paths], list(map(read_bytes, paths))
    raters: dict[str, None] = {}
    verdicts: dict[Any, dict[str, Any]] = {}
    scores: dict[Any, dict[str, Any]] = {}
    faults: list[str] = []
    foreign: list[str] = []
    notes: list[str] = []
    undecided = 0
    for name, data in zip(names, contents, strict=True):
        text, chinese = decode_text(data, name)
        notes += ["not valid UTF-8, read as GB18030"] * chinese
        for line, rating in _ratings_of(text, name, items):
            where = line if len(names) == 1 else f"{name} {line}"
            if isinstance(rating, str):
                faults.append(f"{where}: {rating}")
            elif rating.about is None:
                foreign.append(where)
            elif isinstance(rating.about, str) and rating.value is None:
                undecided += 1
            else:
                of_kind = scores if isinstance(rating.about, str) else verdicts
                if fault := _add(of_kind, rating):
                    faults.append(f"{where}: {fault}")
                raters[rating.rater] = None
    name = ", ".join(names)
    if faults:
        raise BadInput(f"{name}: {list_faults(faults)}", hint=FORMAT_HINT)
    if not raters:
        why, hint = "has no ratings", FORMAT_HINT
        if foreign:
            why = "matches no current answer or criterion of the run"
            hint = (
                "name the run that was rated; its answers or criteria may have changed"
            )
        raise BadInput(f"{name} {why}", hint=hint)
    notes += _remarks(foreign, undecided, verdicts)
    return HumanRatings(
        name=name,
        digest=digest_bytes(b"".join(contents)),
        raters=tuple(raters),
        verdicts=verdicts,
        scores=scores,
        notes=tuple(notes),
    )


def _add(
    ratings: dict[Any, dict[str, Any]],
    rating: _Rating,
) -> str:
    """Add a rating; return what is wrong where it contradicts the rater's earlier one, else ""."""
    by_rater = ratings.setdefault(rating.about, {})
    earlier = by_rater.get(rating.rater)
    if earlier is None:
        by_rater[rating.rater] = rating.value
    if earlier is None or rating.value in (None, earlier):
        return ""
    what = f"case {rating.about!r}"
    if isinstance(rating.about, tuple):
        case_id, criterion = rating.about
        what = f"criterion {criterion!r} of case {case_id!r}"
    return f"{rating.rater!r} on {what} contradicts an earlier rating"


def _remarks(
    foreign: list[str],
    undecided: int,
    verdicts: Mapping[Place, Mapping[str, Any]],
) -> Iterator[str]:
    """What does not count."""
    if foreign:
        yield (
            f"{len(foreign)} items belong to another run, or to changed answers or criteria; left out "
            f"({some(foreign)})"
        )
    for ratings in verdicts.values():
        undecided += list(ratings.values()).count(None)
    if undecided:
        yield f"{undecided} ratings have no decision and count neither as met nor as not met"


def _ratings_of(
    text: str,
    name: str,
    items: Mapping[str, Place] | None,
) -> Iterator[tuple[str, _Rating | str]]:
    """Each rating of a file, or what is wrong with it, with its line. Raises BadInput where none can be read."""
    head = text.split("\n", 1)[0]
    if all(column in head for column in (*KQA_COLUMNS, "label_0")):
        yield from _kqa_ratings(text, name)
        return
    for line, values in read_table(text, name, ("case_id|item", "rater")):
        try:
            for rating in _row_ratings(values, items):
                yield line, rating
        except ValueError as exc:
            yield line, str(exc)


def _place_of(
    item: str,
    items: Mapping[str, Place] | None,
) -> Place | None:
    """The criterion of an item id; None if the run lacks it. Raises ValueError without a run."""
    if items is None:
        raise ValueError(f"item {item[:40]!r} can only be read together with its run")
    return items.get(item)


def _row_ratings(
    values: Mapping[str, Any] | str,
    items: Mapping[str, Place] | None,
) -> Iterator[_Rating]:
    """The ratings of a row. Raises ValueError if it is invalid."""
    if isinstance(values, str):
        raise ValueError(values)
    names = ("rater", "item", "case_id", "criterion_id")
    rater, item, case_id, criterion = map(_name, map(values.get, names))
    if not rater or not (case_id or item):
        raise ValueError("case_id (or item) and rater are required")
    has_verdict = "met" in values and bool(item or (case_id and criterion))
    if has_verdict:
        about = _place_of(item, items) if item else (case_id, criterion)
        yield _Rating(about, rater, _met(values["met"]))
    score = values.get("score")
    # A column that is empty beside a verdict is not a score that could not be given.
    no_score = "score" not in values or (has_verdict and score in (None, ""))
    if case_id and not no_score:
        yield _Rating(case_id, rater, _score(score, values.get("out_of")))
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
        # Tables with semicolons may use decimal commas.
        return float(text.replace(",", "."))
    except ValueError:
        return math.nan


def _kqa_ratings(
    text: str,
    name: str,
) -> Iterator[tuple[str, _Rating | str]]:
    """The ratings of physicians on whether an answer entails a statement.

    Entailment is met; Neutral and Contradiction are not met; an empty label is no decision. Raters are the columns
    `label_0`, `label_1` …; `majority_label` is not a rater.
    """
    for line, place, row in kqa_rows(text, name):
        for column, label in row.items():
            if not column.startswith("label_"):
                continue
            if label.strip() in _KQA_LABELS:
                met = _KQA_LABELS[label.strip()]
                yield f"line {line}", _Rating(place, column, met)
            else:
                fault = f"{column}: {label[:40]!r} is not a K-QA label"
                yield f"line {line}", fault
