"""LiveMedBench's published metric, figure for figure, its quirks included (docs/metric-parity.md lists them)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medlive.evaluation.cases.livemedbench import month_of


@dataclass(frozen=True, slots=True)
class MonthTable:
    """Scores by month and overall, as the published script prints them."""

    models: tuple[str, ...]
    """Columns, sorted by name."""
    rows: tuple[tuple[str, tuple[float | None, ...], int], ...]
    """(month, a score for each model, cases); None is printed as NA."""
    overall: tuple[float | None, ...]
    cases: int
    """Cases with a readable month, of the first model given."""

    def tsv(self) -> str:
        """`Date`, the models, `# case`; a row a month, then `Overall`; four decimals."""

        def row(name: str, scores: Sequence[float | None], n: int) -> str:
            return "\t".join([name, *("NA" if s is None else f"{s:.4f}" for s in scores), str(n)]) + "\n"

        head = "\t".join(["Date", *self.models, "# case"]) + "\n"
        return head + "".join(row(*r) for r in self.rows) + row("Overall", self.overall, self.cases)


@dataclass(frozen=True, slots=True)
class CaseFigure:
    """What the published script makes of one graded case."""

    case_id: str
    """The benchmark's case, as text."""
    month: str | None
    value: float
    """Not clipped; it may be no finite number."""


def published_table(benchmark: Sequence[Any], gradings: Mapping[str, Sequence[Mapping[str, Any]]]) -> MonthTable:
    """The published table of raw benchmark entries and, by model, raw grading entries.

    The first model of `gradings` is the one whose cases are counted (the published script takes the first file
    that the file system lists). Scores are neither clipped by case nor marked where a model lacks a month.
    """
    return table_of_figures(
        {
            model: [(f.month, f.value) for f in case_figures(benchmark, entries)]
            for model, entries in gradings.items()
        }
    )


def table_of_figures(figures: Mapping[str, Sequence[tuple[str | None, float]]]) -> MonthTable:
    """The published table of each model's (month, unclipped figure) by case; as `published_table` otherwise."""
    months = sorted({month for cases in figures.values() for month, _ in cases if month is not None})
    models = tuple(sorted(figures))
    first = next(iter(figures), None)
    rows, counted = [], 0
    for month in months:
        by_model = {name: [s for m, s in cases if m == month] for name, cases in figures.items()}
        n = len(by_model[first]) if first is not None else 0
        counted += n
        rows.append((month, tuple(published_mean(by_model[name]) for name in models), n))
    overall = tuple(published_mean([s for _, s in figures[name]]) for name in models)
    return MonthTable(models, tuple(rows), overall, counted)


def published_mean(figures: Sequence[float]) -> float:
    """The clipped mean of unclipped figures, added up in their order; of none 0, and with a NaN among them 1."""
    # min before max, as published: a NaN comes out as 1.
    return max(0.0, min(1.0, sum(figures) / len(figures))) if figures else 0.0


def case_figures(benchmark: Sequence[Any], entries: Sequence[Any]) -> list[CaseFigure]:
    """The figure of every case that the gradings name, in the order in which a mean adds them up.

    1 and "1" are two cases, of one benchmark entry; 1 and 1.0 are one, and the entry is the later one's. What the
    published script ends in a traceback over is left out.
    """
    rubrics: dict[str, tuple[Any, Any]] = {}
    for case in benchmark:
        if isinstance(case, dict) and case.get("case_id") is not None:
            rubrics[str(case["case_id"])] = (case.get("post_time", ""), case.get("rubric_items", []))
    found: dict[Any, CaseFigure] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        case_id, evaluations = entry.get("case_id"), entry.get("evaluations", {})
        if not case_id or isinstance(case_id, list | dict) or not isinstance(evaluations, dict):
            continue
        post_time, items = rubrics.get(str(case_id), ("", []))
        items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        most = 0.0
        for item in items:
            if (points := _float(item.get("points", 0))) is not None and points > 0:
                most += points
        total = _total(evaluations, items)
        found[case_id] = CaseFigure(str(case_id), month_of(post_time), total / most if most > 0 else 0.0)
    return list(found.values())


def _total(evaluations: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> float:
    """Sum the weighted scores of criteria whose text is in the rubric; edited texts do not count."""
    # Any value that is not empty is a criterion's "text" to the script: 5, 5.0 and "5" are two.
    known = {item["criterion"] for item in items if _has_text(item)}
    total = 0.0
    for grading in evaluations.values():
        if isinstance(grading, dict) and _has_text(grading) and grading["criterion"] in known:
            weighted = _float(grading.get("weighted_score", 0))
            if weighted is not None:
                total += weighted
    return total


def _has_text(item: Mapping[str, Any]) -> bool:
    criterion = item.get("criterion")
    return bool(criterion) and not isinstance(criterion, list | dict)


def _float(value: object) -> float | None:
    """The value as a float, including booleans; None if it is not a number or overflows."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
