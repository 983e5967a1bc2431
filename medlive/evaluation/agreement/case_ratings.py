"""Physicians' ratings of the cases: coherence of the narrative, quality of the advice, validity of each criterion.

Writes blank sheets as for LiveMedBench's Table 1 and evaluates the ratings. Scales: 0 to 2 for narrative with
query and for the advice, 0 or 1 for a criterion; 1 or more means agreement. Needs only a run's cases.
"""

import csv
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.digest import digest_json
from medlive.errors import BadInput
from medlive.evaluation.agreement.human_tables import (
    Row,
    csv_rows,
    decode_text,
    entries,
    json_document,
    json_rows,
    list_faults,
    read_bytes,
)
from medlive.evaluation.agreement.sheets import MOST_CELL, Sheets, cell, draw_cases, put_sheets
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import open_run
from medlive.statistics.agreement import ac1_of_sums, rater_sums
from medlive.statistics.estimate import Estimate, estimate, no_estimate, ratio_of

ASPECTS: Final[Mapping[str, int]] = {"narrative_and_query": 3, "advice": 3, "criterion": 2}
"""The rated aspects, with the number of values on their scales."""
COLUMNS: Final = (
    "item", "rater", "number", "case", "language", "aspect", "question", "advice", "criterion", "rating",
    "comment",
)  # fmt: skip
LEAST_ITEMS: Final = 5

GUIDE: Final = """\
How to rate

Each row asks for one rating of one case; write a number into the column "rating".
narrative_and_query: 2 coherent and a real clinical question, 1 with small faults, 0 not.
advice: 2 right and safe for this patient, 1 acceptable, 0 wrong or harmful.
criterion: 1 clinically right and relevant to this case, 0 not. A criterion with which an answer would lose points
is valid where it describes a real fault.
Leave "rating" empty where you cannot decide, and say why under "comment". Change no other column. Work alone: do
not compare with another rater before both are done. Save as "CSV UTF-8" and send the file back.

评分说明

每行请对一个病例的一个方面评分，在 “rating” 列填写数字。
narrative_and_query（病情叙述与问题）：2 分为连贯且是真实的临床问题，1 分为有小的缺陷，0 分为不合格。
advice（医生建议）：2 分为对该患者正确且安全，1 分为可以接受，0 分为错误或有害。
criterion（评分标准）：1 分为临床上正确且与该病例相关，0 分为否。扣分的标准，只要描述的是真实的错误即为有效。
无法判断时请留空，并在 “comment” 列说明原因。请勿改动其他列。
请独立完成，在双方都完成之前不要与其他评分者讨论。完成后请另存为 “CSV UTF-8” 并发回。
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One aspect of one case."""

    id: str
    case: EvaluationCase
    aspect: str
    criterion: str = ""


@dataclass(frozen=True, slots=True)
class RaterShare:
    """The share of one rater's ratings that are 1 or more."""

    rater: str
    agreed: Estimate


@dataclass(frozen=True, slots=True)
class AspectQuality:
    """Figures for one aspect, with 95 % intervals over bootstrap draws of cases."""

    aspect: str
    values: int
    """The number of values on its scale."""
    raters: tuple[RaterShare, ...]
    ac1: Estimate
    """Over all raters at once, on the original values."""
    equal: Estimate
    """The share of equal pairs of ratings."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The ratings of a run's cases."""

    cases: str
    """The cases' snapshot or file."""
    cases_digest: str
    n: int
    """Cases of the run."""
    files: str
    aspects: tuple[AspectQuality, ...]
    draws: int
    seed: int
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {"format": "medlive-quality", "format_version": 1, "level": 0.95, **asdict(self)}


def write_quality_sheets(
    run_dir: Path, folder: Path, raters: Sequence[str], *, sample: int | None = None, seed: int = 0
) -> Sheets:
    """Write a blank sheet for each rater; arguments and errors as for `sheets.write_sheets`."""
    cases = open_run(run_dir).cases
    chosen = draw_cases((case.case_id for case in cases), sample, seed)
    kept = [case for case in cases if case.case_id in chosen]

    def sheet(rater: str) -> str:
        out = io.StringIO()
        table = csv.writer(out)
        table.writerow(COLUMNS)
        number = 0
        for place, case in enumerate(random.Random(f"{seed}/{rater}").sample(kept, len(kept)), start=1):
            for item in _items(case):
                number += 1
                # The case's texts are only in its first row.
                shown = ("", "") if item.criterion or item.aspect == "advice" else (case.question, case.advice)
                texts = map(cell, (case.language, item.aspect, *shown, item.criterion))
                table.writerow([item.id, cell(rater), number, place, *texts, "", ""])
        return out.getvalue()

    files = put_sheets(folder, raters, GUIDE, sheet)
    n = sum(1 for case in kept for _ in _items(case))
    cut = sum(1 for case in kept for text in (case.question, case.advice) if len(text) >= MOST_CELL)
    return Sheets(files, n, len(kept), cut)


def quality(run_dir: Path, files: Sequence[Path], *, draws: int = 1000, seed: int = 0) -> Quality:
    """Evaluate filled sheets about the run's cases.

    Raises BadInput if lines are invalid, a rater contradicts themselves, or nothing matches the current cases.
    """
    run = open_run(run_dir)
    items = {item.id: item for case in run.cases for item in _items(case)}
    given, raters, notes = _read(files, items)
    aspects = []
    for aspect, values in ASPECTS.items():
        # In the run's order, so that draws do not depend on the order of rows or files.
        rated = [item.id for item in items.values() if item.aspect == aspect and item.id in given]
        codes = np.array([[given[item].get(rater, -1) for rater in raters] for item in rated], dtype=np.int_)
        codes = codes.reshape(len(rated), len(raters))
        names = {case_id: n for n, case_id in enumerate(dict.fromkeys(items[i].case.case_id for i in rated))}
        clusters = np.array([names[items[item].case.case_id] for item in rated], dtype=np.int_)
        shares = []
        for rater, column in zip(raters, codes.T, strict=True):
            kept = column >= 0
            cells = np.column_stack([column[kept] >= 1, np.ones(int(kept.sum()))]).astype(np.float64)
            shares.append(RaterShare(rater, estimate(cells, ratio_of, clusters[kept], draws=draws, seed=seed)))
        several = (codes >= 0).sum(axis=1) > 1
        n = int(several.sum())
        ac1 = equal = no_estimate(f"{n} items with two raters are too few", n)
        if n >= LEAST_ITEMS:
            sums = rater_sums(codes[several], values)
            ac1 = estimate(sums, ac1_of_sums, clusters[several], draws=draws, seed=seed)
            equal = estimate(sums[:, :2], ratio_of, clusters[several], draws=draws, seed=seed)
        aspects.append(AspectQuality(aspect, values, tuple(shares), ac1, equal))
    about, named = run.info.cases, ", ".join(path.name for path in files)
    return Quality(about.name, about.digest, len(run.cases), named, tuple(aspects), draws, seed, tuple(notes))


def _items(case: EvaluationCase) -> Iterator[Item]:
    yield Item(_id(case.case_id, "narrative_and_query", case.question), case, "narrative_and_query")
    yield Item(_id(case.case_id, "advice", case.question, case.advice), case, "advice")
    for c in case.criteria:
        yield Item(_id(case.case_id, c.id, case.question, c.criterion), case, "criterion", c.criterion)


def _id(*parts: str) -> str:
    return "q-" + digest_json(list(parts)).partition(":")[2][:16]


def _read(
    files: Sequence[Path], items: Mapping[str, Item]
) -> tuple[dict[str, dict[str, int]], tuple[str, ...], list[str]]:
    given: dict[str, dict[str, int]] = {}
    faults: list[str] = []
    notes: list[str] = []
    unknown = undecided = 0
    raters: dict[str, None] = {}
    for path in files:
        rows, unread = _rows(path)
        faults += unread
        for row in rows:
            item, rater, rating = (_text(row.values.get(name)) for name in ("item", "rater", "rating"))
            rating = rating.removesuffix(".0")
            where = f"{path.name}: line {row.line}"
            if not item or not rater:
                faults.append(f"{where}: item and rater are required")
            elif item not in items:
                unknown += 1
            elif not rating:
                undecided += 1
            elif rating not in map(str, range(most := ASPECTS[items[item].aspect])):
                faults.append(
                    f"{where}: rating must be a whole number from 0 to {most - 1}, found {rating[:40]!r}"
                )
            elif given.setdefault(item, {}).setdefault(rater, int(rating)) != int(rating):
                faults.append(f"{where}: {rater!r} contradicts their earlier rating of {item}")
            else:
                raters[rater] = None
    if faults:
        raise BadInput(
            list_faults(faults), hint="medlive eval meta RUN --sheet FOLDER --about cases writes blank sheets"
        )
    if not given:
        found = f"only {unknown} items of other cases or changed texts" if unknown else "no ratings"
        raise BadInput(
            f"{', '.join(path.name for path in files)}: expected ratings of this run's cases, found {found}"
        )
    if unknown:
        notes.append(f"{unknown} items belong to other cases or changed texts; left out")
    if undecided:
        notes.append(f"{undecided} ratings have no decision and are left out")
    return given, tuple(raters), notes


def _text(value: object) -> str:
    """A cell or a JSON number as text; "" if missing."""
    return "" if value is None or isinstance(value, bool) else str(value).strip()


def _rows(path: Path) -> tuple[list[Row], list[str]]:
    faults: list[str] = []

    def fault(line: int, what: str) -> None:
        faults.append(f"{path.name}: line {line}: {what}")

    text = decode_text(read_bytes(path), path.name)
    if not text.lstrip().startswith(("{", "[")):
        return list(csv_rows(text, path.name, (("item",), ("rater",), ("rating",)))), faults
    values = json_document(text)
    return list(json_rows(text, fault) if values is None else entries(values, fault)), faults
