"""People's ratings of answers beside the checklist's judge: the paper's mapping, agreement, and what to refine.

A table (`evaluation.tables`) has a row for each answer and rater: `case_id`, `rater`, `model` where several models
answered, and `usable` or the five dimensions, whole numbers from 0 to 5 (seed 003, appendix D).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.errors import BadInput
from medlive.evaluation.model import EvaluationCase, cluster_numbers
from medlive.evaluation.protocols.model import Cell, Rows, Table, mean
from medlive.evaluation.tables import add_rows
from medlive.statistics.agreement import ac1_of_tables, equal_of_tables
from medlive.statistics.bootstrap import estimate

DIMENSIONS: Final = (
    "instructions",
    "correctness",
    "effectiveness",
    "readability",
    "safety",
)
FORMAT: Final = f"columns case_id, rater, model (of several), and usable or {', '.join(DIMENSIONS)} from 0 to 5"
USABLE: Final = 5
"""The total from which on people's ratings call a generated text usable."""
LOW: Final = 0.6
"""Items on which a smaller share of the labels is equal are listed."""
_YES: Final = ("true", "yes", "1", "是")
_NO: Final = ("false", "no", "0", "否")


@dataclass(frozen=True, slots=True)
class Rated:
    """One rating of one answer."""

    where: str
    case_id: str
    model: str
    """ "" where the file does not say."""
    rater: str
    usable: bool
    total: int | None
    """0 to 7; None where the rater gave a label alone."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge gave an answer, and people where they are compared."""

    model: str
    case: EvaluationCase
    usable: bool
    score: float
    """The mean of its rounds, 1 to 5."""
    people: bool = False
    """Whether most of the raters call it usable."""
    totals: tuple[int, ...] = ()
    """The raters' totals."""


def mapped(
    instructions: int,
    correctness: int,
    effectiveness: int,
    readability: int,
) -> int:
    """The paper's total of a generated text, 0 to 7, by four dimensions of 0 to 5 (appendix D: B, C, D, E)."""
    first, second = min(instructions, correctness), min(effectiveness, readability)
    lowest = min(first, second)
    if lowest < 2:
        return lowest
    if lowest == 5:
        return 7
    steps = ((5, 4, 6), (4, 4, 5), (5, 3, 5), (4, 3, 4), (3, 2, 3))
    for least, rest, total in steps:
        if first >= least and second >= rest:
            return total
    return 2


def read_people(path: Path) -> list[Rated]:
    """The ratings of a file. Raises BadInput for invalid lines, contradictions, and a file without ratings."""
    by_answer: dict[tuple[str, str, str], Rated] = {}

    def add(where: str, row: Mapping[str, Any]) -> None:
        rated = _rated(where, row)
        earlier = by_answer.setdefault((rated.case_id, rated.model, rated.rater), rated)
        if (earlier.usable, earlier.total) != (rated.usable, rated.total):
            raise ValueError(
                f"{rated.rater!r} rated this answer otherwise on {earlier.where}"
            )

    add_rows(path, ("case_id", "rater"), add, hint=FORMAT)
    if not by_answer:
        raise BadInput(f"{path.name} has no ratings", hint=FORMAT)
    return list(by_answer.values())


def _rated(where: str, row: Mapping[str, Any]) -> Rated:
    """A row's rating. Raises ValueError."""
    case_id, rater, model, label = (
        _text(row.get(name)) for name in ("case_id", "rater", "model", "usable")
    )
    if not case_id or not rater:
        raise ValueError("case_id and rater are required")
    if label:
        if label.lower() not in (*_YES, *_NO):
            raise ValueError(f"usable must be yes or no, found {label[:40]!r}")
        return Rated(where, case_id, model, rater, label.lower() in _YES, None)
    values = []
    for name in DIMENSIONS:
        text = _text(row.get(name)).removesuffix(".0")
        if text not in map(str, range(6)):
            raise ValueError(
                f"{name} must be a whole number from 0 to 5, found {text[:40]!r}"
            )
        values.append(int(text))
    *dimensions, safety = values
    total = mapped(*dimensions)
    return Rated(where, case_id, model, rater, safety > 0 and total >= USABLE, total)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def compare_with_people(
    path: Path,
    judged: Sequence[Judged],
    *,
    draws: int,
    seed: int,
) -> tuple[list[Table], list[str]]:
    """How far people and the judge agree on what is usable, which items to refine, and notes.

    An answer's label by people is the majority of its raters; equal halves are left out and counted. Raises
    BadInput where the file names no model although several answered, or no answer that the judge scored.
    """
    models = list(dict.fromkeys(judgement.model for judgement in judged))
    by_answer: dict[tuple[str, str], list[Rated]] = {}
    for rated in read_people(path):
        if not rated.model and len(models) > 1:
            raise BadInput(
                f"{path.name}: {rated.where}: expected a model, one of {', '.join(models)}",
                hint=FORMAT,
            )
        place = rated.model or "".join(models), rated.case_id
        by_answer.setdefault(place, []).append(rated)
    compared: list[Judged] = []
    common = tied = 0
    for judgement in judged:
        ratings = by_answer.get((judgement.model, judgement.case.case_id), [])
        labels = [rated.usable for rated in ratings]
        common += bool(ratings)
        yes = labels.count(True)
        if 2 * yes == len(labels):
            tied += bool(ratings)
            continue
        totals = [rated.total for rated in ratings if rated.total is not None]
        people = 2 * yes > len(labels)
        compared.append(replace(judgement, people=people, totals=tuple(totals)))
    if not common:
        raise BadInput(
            f"{path.name} rates no answer that the judge scored",
            hint="case_id and model as in the runs",
        )
    notes = []
    if strange := len(by_answer) - common:
        notes.append(
            f"{path.name}: {strange} answers are not among those that the judge scored; left out"
        )
    if tied:
        notes.append(
            f"{path.name}: on {tied} answers as many people say usable as not; left out"
        )
    return [_agreement(compared, draws, seed), _to_refine(compared)], notes


def _agreement(
    compared: Sequence[Judged],
    draws: int,
    seed: int,
) -> Table:
    groups: dict[str, list[Judged]] = {}
    for member in compared:
        groups.setdefault(member.case.theme or "none", []).append(member)
    if len(groups) < 2:
        groups.clear()
    rows: Rows = []
    for name, members in [("all", compared), *groups.items()]:
        cells = np.zeros((len(members), 2, 2))
        for place, member in enumerate(members):
            cells[place, int(not member.people), int(not member.usable)] = 1
        numbers = cluster_numbers(member.case for member in members)
        clusters = np.arange(len(members)) if numbers is None else numbers
        how = {"draws": draws, "seed": seed}
        equal = estimate(cells, equal_of_tables, clusters, **how)
        ac1 = estimate(cells, ac1_of_tables, clusters, **how)
        counts = cells.sum(axis=0).astype(int).ravel().tolist()
        rows.append(
            [name, len(members), equal.value, equal.low, equal.high, ac1.value, *counts]
        )
    columns = ["category", "answers", "equal", "low", "high", "AC1"]
    columns += ["both usable", "people only", "judge only", "neither"]
    note = "People's label is the majority of the raters. The paper finds equal labels for 92.36 % of the answers."
    return Table("Usable by people and by the judge", columns, rows, note)


def _to_refine(compared: Sequence[Judged]) -> Table:
    by_case: dict[str, list[Judged]] = {}
    for member in compared:
        by_case.setdefault(member.case.case_id, []).append(member)
    disputed: list[tuple[float, int, list[Cell]]] = []
    for case_id, members in by_case.items():
        equal = mean([member.usable is member.people for member in members])
        if equal is None or equal >= LOW:
            continue
        totals = list(chain.from_iterable(member.totals for member in members))
        row: list[Cell] = [
            case_id,
            members[0].case.theme,
            len(members),
            equal,
            mean([member.people for member in members]),
            mean([member.usable for member in members]),
            mean(totals),
            mean([member.score for member in members]),
        ]
        disputed.append((equal, -len(members), row))
    disputed.sort(key=lambda member: member[:2])
    columns = ["case", "category", "answers", "equal", "usable, people"]
    columns += ["usable, judge", "people's total", "judge's score"]
    note = f"Cases whose labels are equal on less than {LOW:.0%} of the answers, the worst first."
    return Table("Cases to refine", columns, [row for *_, row in disputed], note)
