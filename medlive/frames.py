"""Data frames of cases, answers, verdicts and scores: pandas, polars or arrow, as the reader likes.

Each function takes `library`: "pandas" (the default), "polars" or "arrow", which `pip install 'medlive[frames]'`
brings. A value that is not known is missing in the frame, never 0 or false.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Literal

from medlive.api import Run, Runs, load_run, load_runs
from medlive.errors import MissingExtra, UsageError
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.evaluation.scoring.estimates import Estimate
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.score import ScoreTable
from medlive.snapshot.load import Snapshot

Library = Literal["pandas", "polars", "arrow"]
Frame = Any
"""A frame of the library that was asked for."""
Row = Mapping[str, Any]
Columns = Mapping[str, str]
"""Column → its kind: text, number, whole or truth."""

_CASE: Columns = {
    "case_id": "text",
    "language": "text",
    "source": "text",
    "theme": "text",
    "specialty": "text",
    "difficulty": "text",
    "posted": "text",
    "month": "text",
    "first_release": "text",
    "narrative": "text",
    "query": "text",
    "criteria": "whole",
    "positive_points": "number",
}
_ANSWER: Columns = {
    "model": "text",
    "case_id": "text",
    "state": "text",
    "response": "text",
    "characters": "whole",
    "finish_reason": "text",
    "input_tokens": "whole",
    "output_tokens": "whole",
}
_VERDICT: Columns = {
    "model": "text",
    "case_id": "text",
    "criterion_id": "text",
    "criterion": "text",
    "axis": "text",
    "origin": "text",
    "points": "number",
    "met": "truth",
    "quote": "text",
    "reasoning": "text",
}
_SCORE: Columns = {
    "model": "text",
    "case_id": "text",
    "month": "text",
    "language": "text",
    "specialty": "text",
    "theme": "text",
    "state": "text",
    "score": "number",
    "low": "number",
    "high": "number",
}
_MEAN: Columns = {
    "model": "text",
    "kind": "text",
    "value": "text",
    "n": "whole",
    "mean": "number",
    "low": "number",
    "high": "number",
    "least": "number",
    "most": "number",
}


def cases(source: Run | CaseSet | Snapshot, library: Library = "pandas") -> Frame:
    """The cases of a run, a case set or a snapshot, a row each."""
    if isinstance(source, Snapshot):
        from medlive.evaluation.cases.load import from_snapshot

        source = from_snapshot(source)
    found = source.cases if isinstance(source, CaseSet) else _run(source).run.cases
    return _frame(map(_case_row, found), _CASE, library)


def answers(runs: Runs, library: Library = "pandas") -> Frame:
    """The answers of runs, a row for each answered case."""
    rows = []
    for run in load_runs(runs):
        for answer in run.answers.values():
            rows.append(
                {
                    "model": run.label,
                    "case_id": answer.case_id,
                    "state": answer.state.value,
                    "response": answer.response,
                    "characters": len(answer.response),
                    "finish_reason": answer.finish_reason,
                    "input_tokens": answer.usage.get("input_tokens"),
                    "output_tokens": answer.usage.get("output_tokens"),
                }
            )
    return _frame(rows, _ANSWER, library)


def verdicts(runs: Runs, library: Library = "pandas") -> Frame:
    """The grader's verdicts, a row for each criterion of an answered case; `met` is missing where ungraded."""
    rows = []
    for run in load_runs(runs):
        for case in run.run.cases:
            rows += _verdict_rows(run, case)
    return _frame(rows, _VERDICT, library)


def scores(table: ScoreTable, library: Library = "pandas") -> Frame:
    """The score of every case under the table's metric; `score` is missing where ungraded or unanswered."""
    rows = []
    for model in table.models:
        for found in model.cases:
            rows.append(
                {
                    "model": model.label,
                    "case_id": found.case.case_id,
                    "month": found.case.month,
                    "language": found.case.language,
                    "specialty": found.case.specialty,
                    "theme": found.case.theme,
                    "state": found.state.value,
                    "score": found.score,
                    "low": found.low,
                    "high": found.high,
                }
            )
    return _frame(rows, _SCORE, library)


def means(table: ScoreTable, library: Library = "pandas") -> Frame:
    """The overall mean of every model and that of every slice, with 95 % intervals and bounds."""
    rows = []
    for model in table.models:
        rows.append(_mean_row(model.label, "overall", "", model.overall))
        for part in model.slices:
            rows.append(_mean_row(model.label, part.kind, part.value, part.estimate))
    return _frame(rows, _MEAN, library)


def comparisons(table: ScoreTable, library: Library = "pandas") -> Frame:
    """Every pair of models: the difference with its interval, p, and p by Holm."""
    rows = [asdict(comparison) for comparison in table.comparisons]
    kinds = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        kinds[name] = _kind_of(values)
    return _frame(rows, kinds, library)


def _run(run: Run) -> GradedRun:
    return run if isinstance(run, GradedRun) else load_run(run)


def _case_row(case: EvaluationCase) -> Row:
    return {
        "case_id": case.case_id,
        "language": case.language,
        "source": case.source,
        "theme": case.theme,
        "specialty": case.specialty,
        "difficulty": case.difficulty,
        "posted": case.post_time or None,
        "month": case.month,
        "first_release": case.first_release,
        "narrative": case.narrative,
        "query": case.query,
        "criteria": len(case.criteria),
        "positive_points": case.positive_points,
    }


def _verdict_rows(run: GradedRun, case: EvaluationCase) -> list[Row]:
    answer = run.answers.get(case.case_id)
    if answer is None or not answer.gradable:
        return []
    met, grades = run.verdicts(case.case_id), run.grades.get(case.case_id, {})
    rows: list[Row] = []
    for criterion in case.criteria:
        grade = grades.get(criterion.id)
        rows.append(
            {
                "model": run.label,
                "case_id": case.case_id,
                "criterion_id": criterion.id,
                "criterion": criterion.criterion,
                "axis": criterion.axis,
                "origin": criterion.origin,
                "points": criterion.points,
                "met": met.get(criterion.id),
                "quote": grade.quote if grade else None,
                "reasoning": grade.reasoning if grade else None,
            }
        )
    return rows


def _mean_row(label: str, kind: str, value: str, estimate: Estimate) -> Row:
    return {
        "model": label,
        "kind": kind,
        "value": value,
        "n": estimate.n,
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "least": estimate.least,
        "most": estimate.most,
    }


def _kind_of(values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return "text"
    if known and all(isinstance(value, bool) for value in known):
        return "truth"
    if known and all(isinstance(value, int) for value in known):
        return "whole"
    return "number"


def _frame(rows: Iterable[Row], columns: Columns, library: Library) -> Any:
    if library not in ("pandas", "polars", "arrow"):
        raise UsageError(f"library: expected pandas, polars or arrow, got {library!r}")
    wanted = {"pyarrow", "pyarrow" if library == "arrow" else library}
    for name in sorted(wanted):
        if find_spec(name) is None:
            raise MissingExtra(
                f"a data frame needs {name}, which is not installed",
                hint="pip install 'medlive[frames]'",
            )
    import pyarrow as pa

    kinds = {
        "text": pa.string(),
        "number": pa.float64(),
        "whole": pa.int64(),
        "truth": pa.bool_(),
    }
    fields = [pa.field(name, kinds[kind]) for name, kind in columns.items()]
    table = pa.Table.from_pylist([dict(row) for row in rows], pa.schema(fields))
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars as pl

        return pl.DataFrame(table)
    return table
