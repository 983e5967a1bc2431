"""Data frames of cases, answers, verdicts and scores: pandas, polars or arrow, as the reader likes.

Each function takes `library`: "pandas" (the default), "polars" or "arrow", which `pip install 'medlive[frames]'`
brings. A value that is not known is missing in the frame, never 0 or false.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from .api import Run, Runs, load_runs
from .errors import UsageError, require
from .evaluation.cases.load import from_snapshot
from .evaluation.model import CaseSet
from .evaluation.scoring.estimates import KINDS
from .evaluation.scoring.score import ScoreTable, labelled
from .report.tables import score_rows
from .snapshot.load import Snapshot

Library = Literal["pandas", "polars", "arrow"]
Frame = Any
"""A frame of the library that was asked for."""
Row = Mapping[str, object]

# Columns: texts of a case, whole numbers, other numbers; columns in none hold text, and `met` true or false
_TEXTS = (
    "case_id",
    "language",
    "source",
    "theme",
    "specialty",
    "difficulty",
    "month",
    "first_release",
    "narrative",
    "query",
)
_WHOLE = ("criteria", "characters", "input_tokens", "output_tokens", "n")
_NUMBERS = (
    "positive_points",
    "points",
    "score",
    "mean",
    "low",
    "high",
    "least",
    "most",
)


def cases(source: Run | CaseSet | Snapshot, library: Library = "pandas") -> Frame:
    """The cases of a run, a case set or a snapshot, a row each."""
    match source:
        case CaseSet():
            case_set = source.cases
        case Snapshot():
            case_set = from_snapshot(source).cases
        case _:
            case_set = load_runs(source)[0].run.cases
    rows = []
    for case in case_set:
        row = {
            "posted": case.post_time or None,
            "criteria": len(case.criteria),
            "positive_points": case.positive_points,
        }
        rows.append(_values(case, _TEXTS) | row)
    columns = (*_TEXTS, "posted", "criteria", "positive_points")
    return _frame(rows, columns, library)


def answers(runs: Runs, library: Library = "pandas") -> Frame:
    """The answers of runs, a row for each answered case; `model` is the label used in scores."""
    rows = []
    for run in labelled(load_runs(runs)):
        for answer in run.answers.values():
            about = {"model": run.label, "characters": len(answer.response)}
            rows.append({**answer.usage, **asdict(answer), **about})
    columns = ("model", "case_id", "state", "response", "characters", "finish_reason")
    return _frame(rows, (*columns, "input_tokens", "output_tokens"), library)


def verdicts(runs: Runs, library: Library = "pandas") -> Frame:
    """The grader's verdicts, a row for each criterion of an answered case; `met` is missing where ungraded."""
    rows = []
    for run in labelled(load_runs(runs)):
        for case in run.run.cases:
            met = run.answered_verdicts(case.case_id)
            if met is None:
                continue
            grades = run.grades.get(case.case_id, {})
            for criterion in case.criteria:
                grade = grades.get(criterion.id)
                row = {
                    "model": run.label,
                    "case_id": case.case_id,
                    "criterion_id": criterion.id,
                    "met": met.get(criterion.id),
                }
                rows.append(
                    {**(asdict(grade) if grade else {}), **asdict(criterion), **row}
                )
    of_criterion = ("criterion", "axis", "origin", "points")
    columns = ("model", "case_id", "criterion_id", *of_criterion)
    return _frame(rows, (*columns, "met", "quote", "reasoning"), library)


def scores(table: ScoreTable, library: Library = "pandas") -> Frame:
    """The score of every case under the table's metric; `score` is missing where ungraded or unanswered."""
    of_case = ("case_id", "month", "language", "specialty", "theme")
    figures = ("state", "score", "low", "high")
    rows = []
    for model in table.models:
        for case_score in model.cases:
            row = {"model": model.label} | _values(case_score.case, of_case)
            rows.append(row | _values(case_score, figures))
    return _frame(rows, ("model", *of_case, *figures), library)


def means(table: ScoreTable, library: Library = "pandas") -> Frame:
    """The overall mean of every model and that of every slice, with 95 % intervals and bounds."""
    rows = []
    for row in score_rows(table):
        if row["slice"] in ("overall", *KINDS):
            rows.append(row | {"kind": row["slice"]})
    figures = ("n", "mean", "low", "high", "least", "most")
    return _frame(rows, ("model", "kind", "value", *figures), library)


def _values(record: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(record, name) for name in names}


def _frame(
    rows: Iterable[Row],
    columns: Sequence[str],
    library: Library,
) -> Frame:
    """A frame of these columns; other values of the rows are left out. Raises UsageError and MissingExtra."""
    if library not in ("pandas", "polars", "arrow"):
        raise UsageError(f"library: expected pandas, polars or arrow, got {library!r}")
    for name in ("pyarrow", "pandas", "polars"):
        if name in ("pyarrow", library):
            require(name, "a data frame", "'medlive[frames]'")
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {"met": pa.bool_()}
    kinds.update(dict.fromkeys(_WHOLE, pa.int64()))
    kinds.update(dict.fromkeys(_NUMBERS, pa.float64()))
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    table = pa.Table.from_pylist(list(rows), schema)
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars as pl

        return pl.DataFrame(table)
    return table
