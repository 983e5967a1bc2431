"""LiveMedBench's published metric, figure for figure, its quirks included (docs/metric-parity.md lists them)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medlive.evaluation.livemedbench import month_of


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


def published_table(benchmark: Sequence[Any], gradings: Mapping[str, Sequence[Mapping[str, Any]]]) -> MonthTable:
    """The published table of raw benchmark entries and, by model, raw grading entries.

    The first model of `gradings` is the one whose cases are counted (the published script takes the first file
    that the file system lists). Scores are neither clipped by case nor marked where a model lacks a month.
    """
    rubrics: dict[str, tuple[Any, Any]] = {}
    for entry in benchmark:
        if isinstance(entry, dict) and entry.get("case_id") is not None:
            rubrics[str(entry["case_id"])] = (entry.get("post_time", ""), entry.get("rubric_items", []))
    scores = {model: _case_scores(entries, rubrics) for model, entries in gradings.items()}
    months = sorted({m for cases in scores.values() for m, _ in cases.values() if m is not None})
    models = tuple(sorted(scores))
    first = next(iter(scores), None)
    rows, counted = [], 0
    for month in months:
        by_model = {name: [s for m, s in cases.values() if m == month] for name, cases in scores.items()}
        n = len(by_model[first]) if first is not None else 0
        counted += n
        rows.append((month, tuple(_clipped_mean(by_model[name]) for name in models), n))
    overall = tuple(_clipped_mean([s for _, s in scores[name].values()]) for name in models)
    return MonthTable(models, tuple(rows), overall, counted)


def _clipped_mean(scores: Sequence[float]) -> float:
    # min before max, as published: a NaN comes out as 1.
    return max(0.0, min(1.0, sum(scores) / len(scores))) if scores else 0.0


def _case_scores(
    entries: Sequence[Mapping[str, Any]], rubrics: Mapping[str, tuple[Any, Any]]
) -> dict[Any, tuple[str | None, float]]:
    """Id as the grading spells it (1 and "1" are two) → (month, unclipped score)."""
    found: dict[Any, tuple[str | None, float]] = {}
    for entry in entries:
        case_id, evaluations = entry.get("case_id"), entry.get("evaluations", {})
        if not case_id or not isinstance(evaluations, dict):
            continue
        post_time, items = rubrics.get(str(case_id), ("", []))
        items = items if isinstance(items, list) else []
        most = 0.0
        for item in items:
            points = item.get("points", 0) if isinstance(item, dict) else 0
            if isinstance(points, int | float) and points > 0:
                most += float(points)
        total = _total(evaluations, items)
        found[case_id] = (month_of(post_time), total / most if most > 0 else 0.0)
    return found


def _total(evaluations: Mapping[str, Any], items: Sequence[Any]) -> float:
    """The weighted scores of the criteria whose text stands in the rubric: an edited text counts for nothing."""
    known = {item["criterion"] for item in items if isinstance(item, dict) and _named(item)}
    total = 0.0
    for grading in evaluations.values():
        if isinstance(grading, dict) and _named(grading) and grading["criterion"] in known:
            weighted = grading.get("weighted_score", 0)
            if isinstance(weighted, int | float):
                total += float(weighted)
    return total


def _named(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("criterion"), str) and bool(item["criterion"])
