"""Scores by month, theme, specialty and the rest (LiveMedBench, Figures 1 and 5)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from markupsafe import Markup

from medlive.charts import COLOURS, Cell, Frame, Line, Point, lines, matrix
from medlive.evaluation.asking.registry import Cutoff
from medlive.evaluation.scoring.estimates import slice_order
from medlive.evaluation.scoring.score import AXIS, FEW, SLICES, Estimate
from medlive.report.html import Section, missing, percent, percents, render, soft
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
    values: dict[str, list[Estimate | None]] = {}
    scored = False
    for place, model in enumerate(report.models):
        for one in model.slices:
            if one.kind == kind:
                row = values.setdefault(one.value, [None] * len(report.models))
                row[place] = one.estimate
                scored = scored or one.estimate.n > 0
    if not scored:
        return {}
    return {value: values[value] for value in sorted(values, key=slice_order)}


def months(report: Report) -> Section:
    """The section: scores over time."""
    values = by_value(report, "month")
    if not values:
        return Section("months", "Over time", [missing(_LACKING["month"])])
    labels = _every_month(list(values))
    series = []
    for place, model in enumerate(report.models):
        points = [
            _point(values[label][place] if label in values else None)
            for label in labels
        ]
        series.append(Line(model.label, points, _mark(labels, model.cutoff)))
    frame = report.frame(
        "Mean score by month of posting, %",
        f"Grey columns: n, {_most_n(values)} at most. A model's mark on a dotted line: its cutoff. "
        f"Hollow: fewer than {FEW} cases."
        if len(series) <= COLOURS
        else f"One scale for all; the band is the 95 % interval, where there are {FEW} cases; dashed: the cutoff.",
    )
    figure = report.figures.add(
        "months", frame, lambda frame: lines(frame, labels, series)
    )
    parts = [soft(frame.description), figure, _table(report, "month", values)]
    return Section("months", "Over time", parts)


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
    return max(map(_row_n, values.values()))


def _row_n(row: list[Estimate | None]) -> int:
    """The most cases that a model is scored on."""
    return max(estimate.n for estimate in row if estimate)


def _point(estimate: Estimate | None) -> Point:
    if estimate is None or estimate.mean is None:
        return Point(None)
    low, high = (
        None if end is None else 100 * end for end in (estimate.low, estimate.high)
    )
    return Point(100 * estimate.mean, low, high, estimate.n, estimate.few)


def specialties(report: Report) -> Section:
    """The section: a heat map of specialties."""
    return _heat_map(report, "specialty", Section("specialties", "By specialty", []))


def themes(report: Report) -> Section:
    """The section: a heat map of themes."""
    return _heat_map(report, "theme", Section("themes", "By theme", []))


def _heat_map(report: Report, kind: str, section: Section) -> Section:
    values = by_value(report, kind)
    if not values:
        return replace(section, parts=[missing(_LACKING[kind])])
    grid = [[_cell(estimate) for estimate in row] for row in values.values()]
    labels = [
        f"{value} ({max(e.n for e in row if e)})" for value, row in values.items()
    ]
    said = f"Mean scores in %; in brackets: the most cases that a model is scored on; dashed: fewer than {FEW} cases."
    title = f"Score by {kind}"
    return replace(
        section,
        parts=[
            soft(said),
            heat_map(report, section.name, title, said, labels, grid),
            _table(report, kind, values),
        ],
    )


def heat_map(
    report: Report,
    name: str,
    title: str,
    said: str,
    labels: list[str],
    grid: list[list[Cell]],
) -> Markup:
    """A heat map with a column for each model, in parts that a sheet of paper holds."""
    every = [cell for row in grid for cell in row]
    drawn = []
    for number, (which, places) in enumerate(report.parts(A_MAP), start=1):
        cells = [[row[k] for k in places] for row in grid]
        named = report.labels(places)

        def draw(
            frame: Frame, named: list[str] = named, cells: list[list[Cell]] = cells
        ) -> str:
            return matrix(frame, labels, named, cells, among=every)

        drawn.append(
            report.figures.add(
                f"{name}-{number}" if number > 1 else name,
                report.frame(title + which, said),
                draw,
            )
        )
    return Markup().join(drawn)


def _cell(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.mean is None:
        return Cell(None)
    long = f"{percent(estimate.mean)} ({percents(estimate.low, estimate.high)})"
    return Cell(
        estimate.mean,
        percent(estimate.mean),
        long,
        f"{long}, n={estimate.n}",
        estimate.few,
    )


def others(report: Report) -> list[Section]:
    """The sections of the slices that have no figure of their own."""
    parts = []
    for kind in (*SLICES, AXIS):
        values = by_value(report, kind)
        if kind not in ("month", "theme", "specialty") and values:
            parts.append(
                Section(
                    f"by-{kind.replace(' ', '-')}",
                    f"By {kind}",
                    [_table(report, kind, values)],
                )
            )
    return parts


def _table(
    report: Report, kind: str, values: Mapping[str, list[Estimate | None]]
) -> Markup:
    drawn = kind in ("month", "theme", "specialty")
    return render("slices.html", report=report, kind=kind, values=values, drawn=drawn)
