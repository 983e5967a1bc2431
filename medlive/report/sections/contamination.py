"""Contamination: the drop past each model's cutoff, and what else could have made it."""

from pathlib import Path
from typing import Final

from markupsafe import Markup

from medlive.charts import Frame, Interval, IntervalGroup, IntervalRow, intervals
from medlive.evaluation.log import some
from medlive.evaluation.scoring.contamination import ContaminationTable
from medlive.report.html import (
    Section,
    missing,
    points,
    points_around,
    render,
    soft,
    upper_first,
)
from medlive.report.model import Report

_TITLE = "Contamination"
_LACKING = (
    "No cutoff of any of these models is known, so no drop is claimed. Write each model's cutoff and where it is "
    'stated into config/models.toml ([candidates."MODEL"]: cutoff, cutoff_source, confidence, or released), or '
    "give a file of the same form with --models."
)

_NO_ARMS: Final = "Whether rewriting hides memorisation is unknown: no model was also run on the threads' own words."


def contamination(report: Report) -> Section:
    """The section: drops, differences in differences, placebo dates, adjusted mixes, the paper's own figure."""
    found = report.contamination
    if found is None:
        return Section("contamination", _TITLE, [missing(_LACKING)])
    notes = _notes(found) + (Markup() if found.arms else soft(_NO_ARMS))
    parts = [
        _figure(report, found),
        render("contamination.html", report=report, found=found),
        notes,
    ]
    return Section("contamination", _TITLE, parts)


def _figure(report: Report, found: ContaminationTable) -> Markup:
    rows = []
    for model in found.models:
        drop = model.drop
        if drop is None or drop.difference is None:
            continue
        text = f"{points(drop.difference)} ({points_around(drop.low, drop.high)})"
        more = f", n={drop.n_pre} / {drop.n_post}"
        low, high = (
            None if end is None else 100 * end for end in (drop.low, drop.high)
        )
        rows.append(
            IntervalRow(
                model.label,
                [Interval(100 * drop.difference, low, high, text, more, model.few)],
            )
        )
    if not rows:
        text = "No model has cases on both sides of its cutoff: take cases from before and after it to see a drop."
        return missing(text)
    frame = report.frame(
        "Drop past the cutoff",
        "Mean score up to each model's cutoff less that after it, on disjoint sets, in points of 100; above 0: "
        "worse on what the model cannot have seen; n before / after.",
    )

    def draw(frame: Frame) -> str:
        groups = [IntervalGroup("", rows)]
        return intervals(
            frame,
            [""],
            groups,
            origin=0.0,
            axis="drop of the mean score, points of 100",
        )

    return soft(frame.description) + report.figures.add("contamination", frame, draw)


def _notes(found: ContaminationTable) -> Markup:
    by_note: dict[str, list[str]] = {}
    for model in found.models:
        for note in model.notes:
            by_note.setdefault(note, []).append(model.label)
    notes = [
        f"{upper_first(note)}: {some(labels)}." for note, labels in by_note.items()
    ]
    notes += [f"Cutoffs are from {Path(found.registry).name}."]
    return Markup().join(map(soft, notes))
