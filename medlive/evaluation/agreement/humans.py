"""Read human ratings of answers from files (`read_humans`): verdicts by criterion, or scores by case.

The format is a table, a row for each rating, as JSON Lines (`.jsonl`, an object a line), JSON (an array of them)
or CSV (a header; commas), in UTF-8. Columns: `rater`, and

- `case_id`, `criterion_id` and `met`: true/false, yes/no, 1/0, 是/否;
- or `item` and `met`, as a study exports the item: the criterion and the answer in one id;
- or `case_id` and `score`: a number from 0 to 1 for the whole answer.

One file may mix these kinds of rows; other columns are ignored. An empty cell or null means that the rater could
not decide. One published set is read as it is: K-QA's CSV (physicians on statements).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medlive.errors import BadInput
from medlive.evaluation.cases.benchmarks import KQA_COLUMNS, Place, kqa_rows
from medlive.evaluation.model import Answer, EvaluationCase, gradable
from medlive.evaluation.tables import (
    Rows,
    add_rows,
    cell_text,
    decode_text,
    read_table,
    read_verdict,
)
from medlive.grader.rated import verdict_id
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.integrity.log import read_bytes, some
from medlive.statistics.raters import Codes, agreed_codes, code_of

_COLUMNS = "case_id, criterion_id, rater, met, or case_id, rater, score (docs/meta.md)"
_KQA_LABELS: Mapping[str, bool | None] = {
    "Entailment": True,
    "Neutral": False,
    "Contradiction": False,
    "": None,
}


@dataclass(frozen=True)
class HumanRatings:
    """Ratings by people; raters are in order of first appearance."""

    name: str
    """The file's name; of several, all of them."""
    digest: str
    raters: tuple[str, ...]
    verdicts: Mapping[Place, Mapping[str, bool | None]]
    """(case id, criterion id) → rater → verdict; None: the rater could not decide."""
    scores: Mapping[str, Mapping[str, float]]
    """Case id → rater → score, 0 to 1."""
    notes: tuple[str, ...] = ()
    adjudicator: str | None = None
    """The rater who decides where others differ, and is not counted otherwise."""

    def codes(self, places: Sequence[Place], raters: Sequence[str]) -> Codes:
        """The codes of raters' verdicts: (places x raters)."""
        codes = np.empty((len(places), len(raters)), dtype=np.int_)
        for row, place in enumerate(places):
            by_rater = self.verdicts[place]
            codes[row] = [code_of(by_rater.get(rater)) for rater in raters]
        return codes

    def agreed(self, places: Sequence[Place]) -> Codes:
        """The adjudicator's verdict, else that of two raters or more if all agree, else ABSENT: (places)."""
        codes = self.codes(places, self.raters)
        decisions = self.codes(places, [self.adjudicator or ""])[:, 0]
        return agreed_codes(codes, decisions)


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


def _rating_of(
    row: Mapping[str, Any],
    items: Mapping[str, Place] | None,
) -> _Rating:
    """The rating of a row. Raises ValueError if it is invalid."""
    names = ("rater", "item", "case_id", "criterion_id")
    rater, item, case_id, criterion = (cell_text(row.get(name)) for name in names)
    if not rater or not (case_id or item):
        raise ValueError("case_id (or item) and rater are required")
    column = "met" if item or criterion else "score"
    if column not in row:
        raise ValueError("expected criterion_id and met, or score")
    if column == "score":
        return _Rating(case_id, rater, _score(row["score"]))
    if cell_text(row.get("score")):
        raise ValueError("a verdict and a score are two ratings: give each its own row")
    place: Place | None = (case_id, criterion)
    if item:
        if items is None:
            what = f"item {item[:40]!r}"
            raise ValueError(f"{what} can only be read together with its run")
        place = items.get(item)
    return _Rating(place, rater, read_verdict(row["met"], "met"))


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
    foreign: list[str] = []
    undecided = 0

    def add_row(where: str, row: Mapping[str, Any]) -> None:
        """Add the rating of a row; a decision replaces "could not decide"."""
        nonlocal undecided
        key, rater, rating = _rating_of(row, items)
        if key is None:
            foreign.append(where)
            return
        undecided += rating is None
        of_case = isinstance(key, str)
        if of_case and rating is None:
            return
        raters[rater] = None
        by_rater = ratings.setdefault(key, {})
        earlier = by_rater.setdefault(rater, rating)
        if earlier is None:
            by_rater[rater] = rating
        elif rating not in (None, earlier):
            raise ValueError(f"{rater!r} on {key!r} contradicts an earlier rating")

    files = [(path.name, read_bytes(path)) for path in paths]
    name = ", ".join(name for name, _ in files)
    add_rows(_rows_of(files), name, add_row)
    if not raters:
        raise BadInput(f"{name} has no ratings of this run", hint=_COLUMNS)
    notes = []
    if foreign:
        notes.append(
            f"{len(foreign)} items belong to another run, or to changed answers or criteria; left out "
            f"({some(foreign)})"
        )
    if undecided:
        notes.append(
            f"{undecided} ratings have no decision and count neither as met nor as not met"
        )
    scores = {key: by for key, by in ratings.items() if isinstance(key, str)}
    verdicts = {key: by for key, by in ratings.items() if not isinstance(key, str)}
    digests = [digest_bytes(data) for _, data in files]
    return HumanRatings(
        name=name,
        digest=digests[0] if len(digests) == 1 else digest_json(digests),
        raters=tuple(raters),
        verdicts=verdicts,
        scores=scores,
        notes=tuple(notes),
    )


def _rows_of(files: Sequence[tuple[str, bytes]]) -> Rows:
    """The rows of files, with the file's name in their places if there are several."""
    for name, data in files:
        text = decode_text(data, name)
        head = text.partition("\n")[0]
        if all(column in head for column in (*KQA_COLUMNS, "label_0")):
            rows = _kqa_ratings(text, name)
        else:
            rows = read_table(text, name, ("rater",))
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


def _score(value: object) -> float | None:
    text = cell_text(value)
    if not text:
        return None
    with suppress(ValueError):
        if 0 <= (score := float(text)) <= 1:
            return score
    raise ValueError(f"score must be a number from 0 to 1, found {text[:40]!r}")
