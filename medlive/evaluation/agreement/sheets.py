"""Write blank sheets to rate a run's answers or its cases, and adjudication sheets for disagreements.

Sheets are blind: no model, verdict, points or other ratings. A row is one criterion of one answer, or one aspect
of a case. Its `item` is a digest of everything rated, so that ratings of changed texts are recognised and left
out. The order of cases, and of criteria in a case, is drawn for each rater.
"""

import csv
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from medlive.digest import digest_json
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.humans import HumanRatings
from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.log import writing
from medlive.evaluation.model import Answer, EvaluationCase, EvaluationCriterion
from medlive.evaluation.runs.folder import open_run

COLUMNS: Final = (
    "item",
    "rater",
    "number",
    "case",
    "language",
    "question",
    "answer",
    "criterion",
    "met",
    "comment",
)
MOST_CELL: Final = 32_767
"""The most characters of a spreadsheet cell; spreadsheets cut longer text."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_NAME: Final = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Item:
    """One criterion of one answer."""

    case: EvaluationCase
    answer: Answer
    criterion: EvaluationCriterion

    @property
    def id(self) -> str:
        """An id that spreadsheets do not mistake for a number or a date."""
        case, criterion = self.case, self.criterion
        digest = digest_json(
            [
                case.case_id,
                case.question,
                self.answer.digest,
                criterion.id,
                criterion.criterion,
            ]
        )
        return "i-" + digest.partition(":")[2][:16]


@dataclass(frozen=True, slots=True)
class Sheets:
    """The written files and their size."""

    files: tuple[Path, ...]
    items: int
    cases: int
    cut: int
    """Cells too long for a spreadsheet."""


def items_of(
    cases: Iterable[EvaluationCase], answers: Mapping[str, Answer]
) -> tuple[Item, ...]:
    """Every criterion of every gradable answer."""
    return tuple(
        Item(case, answers[case.case_id], criterion)
        for case in cases
        if case.case_id in answers and answers[case.case_id].gradable
        for criterion in case.criteria
    )


def places_of(items: Iterable[Item]) -> dict[str, Place]:
    """The criteria by item id."""
    return {item.id: (item.case.case_id, item.criterion.id) for item in items}


def write_sheets(
    run_dir: Path,
    folder: Path,
    raters: Sequence[str],
    *,
    sample: int | None = None,
    seed: int = 0,
) -> Sheets:
    """Write a sheet for each rater, with the same cases, and `how-to-rate.txt` in English and Chinese.

    `sample` is how many of the answered cases to draw, by default all; `seed` is that of the sample and the order.

    Raises:
        UsageError: If there is no rater, a duplicate name, or no answer.
        BadInput: If a file exists already, since it may contain ratings.
    """
    items = _items(run_dir)
    chosen = draw_cases({item.case.case_id for item in items}, sample, seed)
    return _write(
        folder, raters, [item for item in items if item.case.case_id in chosen], seed
    )


def draw_cases(ids: Iterable[str], sample: int | None, seed: int) -> frozenset[str]:
    """Draw a sample of the ids; all of them if there are no more."""
    known = sorted(set(ids))
    return frozenset(
        known
        if sample is None or sample >= len(known)
        else random.Random(seed).sample(known, sample)
    )


def write_adjudication(
    run_dir: Path,
    folder: Path,
    adjudicator: str,
    humans: HumanRatings,
    *,
    seed: int = 0,
) -> Sheets:
    """Write a blind sheet of the criteria on which raters disagreed or one of several could not decide.

    Raises:
        UsageError: If the adjudicator is one of the raters, or the raters agree on everything.
        BadInput: If the file exists already.
    """
    if adjudicator in humans.raters:
        raise UsageError(f"{adjudicator!r} is one of the raters of {humans.name}")
    disputed = {
        place
        for place, given in humans.verdicts.items()
        if len(set(given.values())) > 1
    }
    if not (items := _items(run_dir, disputed)):
        raise UsageError(
            f"{humans.name}: the raters agree on all answers of this run: nothing to adjudicate"
        )
    return _write(folder, [adjudicator], items, seed)


def write_open(
    run_dir: Path,
    folder: Path,
    raters: Sequence[str],
    places: Collection[Place],
    *,
    seed: int = 0,
) -> Sheets:
    """Write a blind sheet of these criteria for each rater. Raises as `write_sheets`."""
    if not (items := _items(run_dir, places)):
        raise UsageError(f"{run_dir}: nothing is left to settle")
    return _write(folder, raters, items, seed)


def _items(run_dir: Path, places: Collection[Place] | None = None) -> tuple[Item, ...]:
    """What can be rated, of these criteria alone if given."""
    run = open_run(run_dir)
    items = items_of(run.cases, run.answers()[0])
    if not items:
        raise UsageError(
            f"{run_dir} has no answer to rate", hint="run medlive eval run first"
        )
    return tuple(
        i for i in items if places is None or (i.case.case_id, i.criterion.id) in places
    )


def _write(
    folder: Path, raters: Sequence[str], items: Sequence[Item], seed: int
) -> Sheets:
    cases: dict[str, list[dict[str, str]]] = {}
    for one in items:
        row = {
            "item": one.id,
            "language": one.case.language,
            "question": one.case.question,
            "answer": one.answer.response,
            "criterion": one.criterion.criterion,
        }
        cases.setdefault(one.case.case_id, []).append(row)
    return put_sheets(
        folder,
        raters,
        "how-to-rate-answers.txt",
        COLUMNS,
        list(cases.values()),
        seed,
        mix=True,
    )


def put_sheets(
    folder: Path,
    raters: Sequence[str],
    guide: str,
    columns: Sequence[str],
    cases: Sequence[Sequence[Mapping[str, str]]],
    seed: int,
    *,
    mix: bool,
) -> Sheets:
    """Write a guide and each rater's sheet to a folder. Raises the errors of `write_sheets`.

    `cases` has each case's rows; rater, number and case are added, and long texts are only in the first row. `mix`
    draws the order of a case's rows too.
    """
    paths = _paths(folder, raters)
    sheets = {path: _rows(rater, cases, seed, mix) for rater, path in paths.items()}
    how = folder / "how-to-rate.txt"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        text = files("medlive.evaluation.agreement").joinpath(guide).read_text("utf-8")
        how.write_text(text, encoding="utf-8-sig")
        for path, rows in sheets.items():
            with path.open("w", encoding="utf-8-sig", newline="") as out:
                writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore")
                writer.writeheader()
                writer.writerows(
                    {name: _cell(text) for name, text in row.items()} for row in rows
                )
    first = next(iter(sheets.values()))
    cut = sum(len(text) >= MOST_CELL for row in first for text in row.values())
    return Sheets((how, *sheets), len(first), len(cases), cut)


def _rows(
    rater: str, cases: Sequence[Sequence[Mapping[str, str]]], seed: int, mix: bool
) -> list[dict[str, str]]:
    draw, out = random.Random(f"{seed}/{rater}"), list[dict[str, str]]()
    for place, rows in enumerate(draw.sample(cases, len(cases)), start=1):
        for n, row in enumerate(draw.sample(rows, len(rows)) if mix else rows):
            texts = {} if n == 0 else {"question": "", "answer": "", "advice": ""}
            out.append(
                {
                    **row,
                    **texts,
                    "rater": rater,
                    "number": str(len(out) + 1),
                    "case": str(place),
                }
            )
    return out


def _paths(folder: Path, raters: Sequence[str]) -> dict[str, Path]:
    """Each rater's file, which must not exist yet."""
    named = [name.strip() for name in raters if name.strip()]
    if not named:
        raise UsageError(
            "expected at least one rater", hint="add --rater NAME, once for each rater"
        )
    paths = {name: folder / f"ratings-{_NAME.sub('-', name)}.csv" for name in named}
    if len({path.name.casefold() for path in paths.values()}) < len(named):
        raise UsageError("two raters have the same name")
    if existing := [path for path in paths.values() if path.exists()]:
        raise BadInput(
            f"{existing[0]} already exists and may contain ratings",
            hint="name another folder",
        )
    return paths


def _cell(text: str) -> str:
    """A text as a safe cell: no formulas, no control characters except line ends and tabs."""
    clean = _CONTROL.sub(
        "\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n")
    )
    return f"'{clean}" if clean.startswith(("=", "+", "-", "@", "\t")) else clean
