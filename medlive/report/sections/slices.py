"""Scores by month, theme, specialty and the rest (LiveMedBench, Figures 1 and 5)."""

from collections.abc import Iterator
from typing import Final

from medlive.evaluation.scoring.estimates import (
    AXIS,
    SLICES,
    ScoreEstimate,
    slice_order,
)
from medlive.report.html import Section, missing
from medlive.report.model import Report

_LACKING: Final = {
    "month": "No scored case has a date that can be read, so scores over time cannot be shown.",
    "specialty": "No scored case names a specialty; medlive's snapshots do, LiveMedBench's files do not.",
    "theme": "No scored case names a theme; medlive's snapshots do, LiveMedBench's files do not.",
}


def by_value(
    report: Report,
    kind: str,
) -> dict[str, list[ScoreEstimate | None]]:
    """Each value of a kind of slice, in order, with an estimate for each model, in the report's order.

    Nothing where no model has a scored case with any of them.
    """
    values: dict[str, list[ScoreEstimate | None]] = {}
    scored = False
    for place, model in enumerate(report.models):
        for part in model.slices:
            if part.kind == kind:
                row = values.setdefault(
                    part.value,
                    [None] * len(report.models),
                )
                row[place] = part.estimate
                scored = scored or part.estimate.n > 0
    if not scored:
        return {}
    return {value: values[value] for value in sorted(values, key=slice_order)}


def others(report: Report) -> Iterator[Section]:
    """The sections of the slices that have none of their own."""
    for kind in (*SLICES, AXIS):
        if kind not in _LACKING and by_value(report, kind):
            name = f"by-{kind.replace(' ', '-')}"
            yield slices(report, kind, name, f"By {kind}")


def slices(
    report: Report,
    kind: str,
    name: str,
    title: str,
) -> Section:
    """The section of a kind of slice: a heat map of specialties and themes."""
    values = by_value(report, kind)
    part = missing(_LACKING.get(kind, ""))
    if values:
        shaded = kind in ("specialty", "theme")
        part = report.render(
            "slices.html",
            kind=kind,
            values=values,
            shaded=shaded,
        )
    return Section(name, title, [part])
