"""Contamination: the drop past each model's cutoff, and what else could have made it."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from markupsafe import Markup

from medlive.charts import Frame, Interval, IntervalGroup, IntervalRow, intervals
from medlive.evaluation.scoring.contamination import ContaminationTable
from medlive.report.html import (
    Row,
    Section,
    Under,
    beside,
    missing,
    p_said,
    percent,
    percents,
    points,
    points_around,
    shut,
    soft,
    some,
    table,
    upper_first,
)
from medlive.report.model import Report, in_parts

MOST_NAMED: Final = 3
"""Models that a cell names; of more it says how many."""
MOST_OPEN: Final = 16
"""Rows of the table of mixes that stand open."""
A_SHEET: Final = 18
"""Models in one part of the figure: as many as a sheet of paper is high."""
_TITLE = "Contamination"
_LACKING = (
    "No cutoff of any of these models is known, so no drop is claimed. Write each model's cutoff and where it is "
    'stated into config/models.toml ([candidates."MODEL"]: cutoff, cutoff_source, confidence, or released), or '
    "give a file of the same form with --models."
)

_NO_ARMS: Final = (
    "Whether rewriting hides memorisation cannot be told: no model was also run on the threads' own words."
)


def contamination(report: Report) -> Section:
    """The section: drops, differences in differences, placebo dates, adjusted mixes, the paper's own figure."""
    found = report.contamination
    if found is None:
        return Section("contamination", _TITLE, [missing(_LACKING)])
    said = _notes(found) + (Markup() if found.arms else soft(_NO_ARMS))
    parts = [beside(_figure(report, found), said), _drops(report, found), _beside(report, found)]
    parts += [_mixes(report, found), _arms(report, found)]
    return Section("contamination", _TITLE, parts)


def _figure(report: Report, found: ContaminationTable) -> Markup:
    rows = []
    for model in found.models:
        drop = model.drop
        if drop is None or drop.difference is None:
            continue
        text = f"{points(drop.difference)} ({points_around(drop.low, drop.high)})"
        label = f"{model.label} (n={drop.n_pre} before, {drop.n_post} after)"
        low, high = (None if end is None else 100 * end for end in (drop.low, drop.high))
        rows.append(IntervalRow(label, [Interval(100 * drop.difference, low, high, text, model.few)]))
    if not rows:
        text = "No model has cases on both sides of its cutoff: take cases from before and after it to see a drop."
        return missing(text)
    note = f"Above 0: worse on what the model cannot have seen. {upper_first(report.said)}."
    title = "Drop: mean score up to the cutoff less after it, on disjoint sets"
    ends = [e for row in rows for v in row.values if v for e in (v.value, v.low, v.high) if e is not None]
    drawings = []
    for which, places in in_parts(len(rows), A_SHEET):
        part = [rows[place] for place in places]
        frame = Frame(
            f"Drop past the cutoff, {which}" if which else "Drop past the cutoff",
            "Mean score up to each model's cutoff less that after it, in points of 100.",
            note=note,
        )
        drawn = intervals(
            frame,
            [""],
            [IntervalGroup("", part)],
            least=min(ends),
            most=max(ends),
            axis="drop of the mean score, points of 100",
        )
        drawings.append((which, drawn))
    return report.figures.add_parts("contamination", title, drawings)


def _drops(report: Report, found: ContaminationTable) -> Markup:
    rows = []
    for model in found.models:
        cutoff = "unknown" if model.cutoff is None else f"{model.cutoff.text} ({model.cutoff.basis})"
        ours: list[object] = [None] * 5
        theirs: list[object] = [None] * 3
        if (drop := model.drop) is not None:
            ours = [
                Under(percent(drop.pre), f"n={drop.n_pre}"),
                Under(percent(drop.post), f"n={drop.n_post}"),
                Under(points(drop.difference), points_around(drop.low, drop.high)),
                p_said(drop.p) + (" exact" if drop.exact else ""),
                p_said(model.p_holm),
            ]
        if (paper := model.paper) is not None:
            theirs = [
                Under(percent(paper.full.mean), f"n={paper.full.n}"),
                Under(percent(paper.post.mean), f"n={paper.post.n}"),
                Under(points(paper.difference), points_around(paper.low, paper.high)),
            ]
        rows.append(Row([model.label, cutoff, *ours, *theirs], model.few))
    heads = (
        "model", "cutoff", "*up to it, %", "*after it, %", "*drop, points of 100", "*p", "*p (Holm)",
        "*paper: full set, %", "*paper: after, %", "*paper's figure, points",
    )  # fmt: skip
    caption = (
        f"Drops on disjoint sets, with 95 % intervals; p by {found.permutations} permutations; the last three "
        "columns are the LiveMedBench paper's own figure, after the cutoff against the full set, which overlap; "
        f"{report.said}"
    )
    return table(caption, heads, rows)


def _beside(report: Report, found: ContaminationTable) -> Markup:
    rows = []
    for model in found.models:
        did, placebo = model.did, model.placebo
        values: list[object] = [None] * 4
        if did is not None:
            values[0] = f"{points(did.effect)} ({points_around(did.low, did.high)})"
            values[1] = f"{did.n_pre} / {did.n_post}"
        if placebo is not None:
            values[2] = f"{placebo.at_least} of {len(placebo.drops)}"
        if model.newer is not None and isinstance(model.newer_than, date):
            mean = model.newer
            values[3] = (
                f"{percent(mean.mean)} ({percents(mean.low, mean.high)}), n={mean.n}, after {model.newer_than}"
            )
        rows.append(Row([model.label, *values, _some(model.did_against)], model.few))
    heads = (
        "model", "*difference in differences, points", "*n seen / fresh", "*placebo dates no smaller",
        "*on newer releases, %", "~held against",
    )  # fmt: skip
    pooled = Markup()
    if (one := found.pooled) is not None:
        pooled = soft(
            f"Over all {one.models} models with a known cutoff, having been able to see a case adds "
            f"{points(one.effect)} points of 100 ({points_around(one.low, one.high)}) net of case difficulty "
            f"and model ability; n={one.n_pre} cases seen by some and not by others, {one.n_post} fresh to all."
        )
    return table(f"What else could have made the drop: {report.said}", heads, rows) + pooled


def _some(names: Sequence[str]) -> str:
    """A few names and how many more: all of 38 would make a row as high as a page."""
    more = len(names) - MOST_NAMED
    return (", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")) or "–"


def _mixes(report: Report, found: ContaminationTable) -> Markup:
    rows = []
    for model in found.models:
        for mix in model.mixes:
            one = mix.adjusted
            cells = [
                model.label, mix.by, percent(one.pre), one.n_pre, percent(one.post), one.n_post,
                f"{points(one.difference)} ({points_around(one.low, one.high)})",
                f"{one.lost_pre} / {one.lost_post}",
            ]  # fmt: skip
            rows.append(Row(cells, model.few))
    if not rows:
        return Markup()
    heads = (
        "model", "made alike by", "*up to it, %", "*n", "*after it, %", "*n", "*drop, points (95 % interval)",
        "*left out",
    )  # fmt: skip
    title = "The drop after both sides were given one mix of cases"
    drawn = table(f"{title}: {report.said}", heads, rows)
    return drawn if len(rows) <= MOST_OPEN else shut(f"{title}: {len(rows)} rows", drawn)


def _arms(report: Report, found: ContaminationTable) -> Markup:
    if not found.arms:
        return Markup()
    rows = []
    for arm in found.arms:
        drop = arm.drop
        raw_less_rewritten = f"{points(drop.difference)} ({points_around(drop.low, drop.high)})"
        rows.append(Row([arm.model, arm.raw, arm.rewritten, raw_less_rewritten, f"{drop.n_pre} / {drop.n_post}"]))
    heads = ("model", "own words", "rewritten", "*raw less rewritten, up to less after, points", "*n")
    return table(f"Raw threads against rewritten cases: {report.said}", heads, rows)


def _notes(found: ContaminationTable) -> Markup:
    by_note: dict[str, list[str]] = {}
    for model in found.models:
        for note in model.notes:
            by_note.setdefault(note, []).append(model.label)
    said = [f"{upper_first(note)}: {some(labels)}." for note, labels in by_note.items()]
    said += [f"Cutoffs are from {Path(found.registry).name}."]
    return Markup().join(map(soft, said))
