"""Scores by month, theme, specialty and the rest (LiveMedBench, Figures 1 and 5)."""

from collections.abc import Mapping
from typing import Final

from markupsafe import Markup

from medlive.charts import Cell, Frame, Line, Point, Polygon, lines, matrix, radar
from medlive.evaluation.asking.registry import Cutoff
from medlive.evaluation.scoring.score import AXIS, FEW, SLICES, Estimate
from medlive.report.html import (
    Section,
    beside,
    missing,
    percent,
    percents,
    render,
    upper_first,
)
from medlive.report.model import Report

A_MAP: Final = 20
"""Models in one part of the heat map: as many columns as a sheet of paper holds legibly."""
_LACKING: Final = {
    "month": "No scored case has a date that can be read, so scores over time cannot be shown.",
    "specialty": "No scored case names a specialty; medlive's snapshots do, LiveMedBench's files do not.",
    "theme": "No scored case names a theme; medlive's snapshots do, LiveMedBench's files do not.",
}


def by_value(report: Report, kind: str) -> dict[str, list[Estimate | None]]:
    """Each value of a kind of slice, in order, with an estimate for each model, in the report's order.

    Nothing where no model has a scored case with any of them.
    """
    found: list[Mapping[str, Estimate]] = [
        {s.value: s.estimate for s in model.slices if s.kind == kind} for model in report.models
    ]
    values = sorted({value for slices in found for value in slices})
    if not any(estimate.n for slices in found for estimate in slices.values()):
        return {}
    return {value: [slices.get(value) for slices in found] for value in values}


def months(report: Report) -> Section:
    """The section: scores over time."""
    values = by_value(report, "month")
    if not values:
        return Section("months", "Over time", [missing(_LACKING["month"])])
    labels = _every_month(list(values))
    series = []
    for place, model in enumerate(report.models):
        points = [_point(values[label][place] if label in values else None) for label in labels]
        mark = _mark(labels, model.cutoff)
        series.append(Line(model.label, points, mark, "cutoff" if mark is not None else ""))
    drawings = []
    for which, places in report.parts():
        frame = Frame(
            _titled("Mean score by month of posting", which),
            "Mean score of each model by month in per cent, with its 95 % interval.",
            note=(
                f"Scores in %. {upper_first(report.basis)}. Band: the interval. Grey columns: n, "
                f"{_most_n(values)} at most. Hollow: fewer than {FEW} cases, no band."
            ),
        )
        drawings.append((which, lines(frame, labels, [series[k] for k in places], among=series)))
    figure = report.figures.add_parts("months", "Scores over time, by the month a case was posted", drawings)
    return Section("months", "Over time", [beside(figure, _table(report, "month", values))])


def _titled(title: str, which: str) -> str:
    return f"{title}, {which}" if which else title


def _every_month(known: list[str]) -> list[str]:
    """The months from the first to the last, those without a case too: a gap in time is seen as one."""
    try:
        first, last = (int(m[:4]) * 12 + int(m[5:7]) - 1 for m in (known[0], known[-1]))
    except ValueError:
        return known
    if last - first > 240:
        return known
    return [f"{k // 12:04d}-{k % 12 + 1:02d}" for k in range(first, last + 1)]


def _mark(labels: list[str], cutoff: Cutoff | None) -> int | None:
    """Before which month a model's cutoff lies, where that is within the months shown."""
    if cutoff is None:
        return None
    place = sum(label <= f"{cutoff.day:%Y-%m}" for label in labels)
    return place if 0 < place < len(labels) else None


def _most_n(values: Mapping[str, list[Estimate | None]]) -> int:
    return max(estimate.n for row in values.values() for estimate in row if estimate)


def _point(estimate: Estimate | None) -> Point:
    if estimate is None or estimate.mean is None:
        return Point(None)
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return Point(100 * estimate.mean, low, high, estimate.n, estimate.few)


def specialties(report: Report) -> Section:
    """The section: a heat map of specialties."""
    values = by_value(report, "specialty")
    if not values:
        return Section("specialties", "By specialty", [missing(_LACKING["specialty"])])
    grid = [[_cell(estimate) for estimate in row] for row in values.values()]
    labels = [f"{value} ({max(e.n for e in row if e)})" for value, row in values.items()]
    drawings = []
    for which, places in report.parts(A_MAP):
        frame = Frame(
            _titled("Score by specialty", which),
            "Mean score in per cent, a row for each specialty and a column for each model.",
            note=(
                "Mean scores in %; most cases that a model is scored on in brackets; dashed: fewer than "
                f"{FEW} cases. Intervals and each n are in the table. {upper_first(report.basis)}."
            ),
        )
        named = [report.models[k].label for k in places]
        cells = [[row[k] for k in places] for row in grid]
        drawings.append((which, matrix(frame, labels, named, cells, among=[c for row in grid for c in row])))
    figure = report.figures.add_parts("specialties", "Scores by specialty", drawings)
    return Section("specialties", "By specialty", [beside(figure, _table(report, "specialty", values))])


def _cell(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.mean is None:
        return Cell(None)
    tooltip = f"{percent(estimate.mean)} %, {percents(estimate.low, estimate.high)}, n={estimate.n}"
    return Cell(estimate.mean, percent(estimate.mean), tooltip, estimate.few)


def themes(report: Report) -> Section:
    """The section: a radar of themes and its table."""
    values = by_value(report, "theme")
    if not values:
        return Section("themes", "By theme", [missing(_LACKING["theme"])])
    body = _table(report, "theme", values)
    if len(values) < 3:
        few = missing("A radar needs three themes; these cases have fewer.")
        return Section("themes", "By theme", [few, body])
    profiles = [
        Polygon(model.label, [_share(row[place]) for row in values.values()])
        for place, model in enumerate(report.models)
    ]
    most = max((v for one in profiles for v in one.values if v is not None), default=0.0)
    labels = [f"{value} (n={max((e.n for e in row if e), default=0)})" for value, row in values.items()]
    drawings = []
    for which, places in report.parts():
        frame = Frame(
            _titled("Mean score by theme", which),
            "Mean score of each model on each theme in per cent.",
            note=(
                "Scores in %. In brackets: the most cases that a model is scored on. Intervals and each n are "
                f"in the table. {upper_first(report.basis)}."
            ),
        )
        drawings.append((which, radar(frame, labels, [profiles[k] for k in places], most=most)))
    figure = report.figures.add_parts("themes", "Scores by theme", drawings)
    return Section("themes", "By theme", [beside(figure, body)])


def _share(estimate: Estimate | None) -> float | None:
    return None if estimate is None or estimate.mean is None else 100 * estimate.mean


def others(report: Report) -> list[Section]:
    """The sections of the slices that have no figure of their own."""
    parts = []
    for kind in (*SLICES, AXIS):
        values = by_value(report, kind)
        if kind not in ("month", "theme", "specialty") and values:
            parts.append(Section(f"by-{kind.replace(' ', '-')}", f"By {kind}", [_table(report, kind, values)]))
    return parts


def _table(report: Report, kind: str, values: Mapping[str, list[Estimate | None]]) -> Markup:
    return render("slices.html", report=report, kind=kind, values=values)
