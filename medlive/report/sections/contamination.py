"""Contamination: the drop past each model's cutoff, and what else could have made it."""

from pathlib import Path
from typing import Final

from medlive.integrity.log import some
from medlive.report.html import Section, missing, picture, soft, upper_first
from medlive.report.model import Report

_TITLE = "Contamination"
_LACKING = (
    "No cutoff of any of these models is known, so no drop is claimed. Write each model's cutoff and where it is "
    'stated into config/models.toml ([candidates."MODEL"]: cutoff, cutoff_source, confidence, or released), or '
    "give a file of the same form with --models."
)

_NO_DROP: Final = "No model has cases on both sides of its cutoff: take cases from before and after it to see a drop."
_CAPTION: Final = (
    "Mean score up to each model's cutoff less that after it, on disjoint sets, in points of 100; above 0: "
    "worse on what the model cannot have seen; n before / after."
)
_NO_ARMS: Final = "Whether rewriting hides memorisation is unknown: no model was also run on the threads' own words."


def contamination(report: Report) -> Section:
    """The section: drops, differences in differences, placebo dates, adjusted mixes, the paper's own figure."""
    table = report.contamination
    if table is None:
        return Section("contamination", _TITLE, [missing(_LACKING)])
    rows = []
    for model in table.models:
        if (drop := model.drop) is not None and drop.difference is not None:
            rows.append((model.label, drop.difference, drop.low, drop.high))
    figure = missing(_NO_DROP)
    if rows:
        title = report.marked("Drop past the cutoff")
        drawn = picture(title, "points, with 95 % intervals", rows)
        figure = soft(_CAPTION) + drawn
    by_note: dict[str, list[str]] = {}
    for model in table.models:
        for note in model.notes:
            by_note.setdefault(note, []).append(model.label)
    parts = [figure, report.render("contamination.html")]
    for note, labels in by_note.items():
        parts.append(soft(f"{upper_first(note)}: {some(labels)}."))
    parts.append(soft(f"Cutoffs are from {Path(table.registry).name}."))
    if not table.arms:
        parts.append(soft(_NO_ARMS))
    return Section("contamination", _TITLE, parts)
