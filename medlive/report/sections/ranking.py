"""The ranking with its intervals and tie groups (LiveMedBench, Figure 4), and the pairs behind them."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from markupsafe import Markup

from medlive.charts import Frame, Interval, IntervalGroup, IntervalRow, intervals
from medlive.evaluation.scoring.score import AFTER, CUTOFF, Estimate, ModelScore
from medlive.report.html import (
    Section,
    beside,
    missing,
    percent,
    percents,
    render,
    soft,
    some,
    upper_first,
)
from medlive.report.model import Report, judged, unpublishable

_NO_CUTOFF: Final = (
    "No bar after the cutoff for {}: the model registry names no cutoff and no release date for it. Write a table "
    '[candidates."MODEL"] with cutoff and cutoff_source in config/models.toml, or give a file with --models.'
)
_NO_SCORE: Final = (
    "No model has a score: none of the cases is wholly graded. What is missing says why; medlive eval grade RUN "
    "grades what has an answer."
)
_HOW_TO_READ: Final = (
    "Rank: the best and the worst place that the significant differences leave open.",
    "Tie group: the models that do not differ from the group's first at 5 %, after Holm's correction.",
    "Bounds: the least and the most that the ungraded and unanswered could make of the score.",
    "After the cutoff: the score on the cases that were posted after the model's training data ended.",
)
A_SHEET: Final = 10
"""Models in one part of the figure: as many as a sheet of paper is high."""


def ranking(report: Report) -> Section:
    """The section."""
    figure = missing(_NO_SCORE)
    if any(model.overall.mean is not None for model in report.models):
        figure = report.figures.add_parts("ranking", "Scores with 95 % intervals, by tie group", _figures(report))
    # What is the same for all is in the caption.
    further = {
        "cases": [report.case_name(model) for model in report.models],
        "grader": [judged(model) for model in report.models],
    }
    differing = {name: values for name, values in further.items() if len(set(values)) > 1}
    lacking = [model.label for model in report.models if model.cutoff is None]
    notes = [missing(_NO_CUTOFF.format(some(lacking)))] if lacking else []
    notes += map(soft, (f"Score: {report.metric_in_words}, in per cent.", *_HOW_TO_READ))
    drawn = render("ranking.html", report=report, differing=differing, unpublishable=unpublishable)
    parts = [beside(figure, Markup().join(notes)), drawn]
    return Section("ranking", "Ranking", parts)


def _figures(report: Report) -> list[tuple[str, str]]:
    fresh = any(model.slice(CUTOFF, AFTER) for model in report.models)

    shown = [one for model in report.models for one in _bars(model, fresh).values if one]
    ends = [end for one in shown for end in (one.value, one.low, one.high) if end is not None]
    note = (
        f"{upper_first(report.basis)}. A tie group holds what does not differ from its first at 5 % after Holm's "
        "correction."
    )
    drawings = []
    for which, places in report.parts(A_SHEET):
        groups = _groups([report.models[k] for k in places], fresh)
        title = f"Overall score, {which}" if which else "Overall score"
        frame = Frame(title, "Mean score of each model in per cent, with its 95 % interval and n.", note=note)
        named = ["all cases", "cases after the model's cutoff"] if fresh else ["all cases"]
        drawn = intervals(
            frame, named, groups, least=min(ends, default=0), most=max(ends, default=0), axis="mean score, %"
        )
        drawings.append((which, drawn))
    return drawings


def _groups(models: Sequence[ModelScore], fresh: bool) -> list[IntervalGroup]:
    """The tie groups of the models that have a score."""
    groups = []
    for heading, members in groupby(models, key=_heading):
        rows = [_bars(model, fresh) for model in members]
        if shown := [row for row in rows if any(row.values)]:
            groups.append(IntervalGroup(heading, shown))
    return groups


def _heading(model: ModelScore) -> str:
    return f"Tie group {model.standing.group}" if model.standing else "No score"


def _bars(model: ModelScore, fresh: bool) -> IntervalRow:
    estimates = [model.overall, model.slice(CUTOFF, AFTER)] if fresh else [model.overall]
    return IntervalRow(_name(model), [_interval(estimate) for estimate in estimates])


def _name(model: ModelScore) -> str:
    return model.label + (" (not publishable)" if unpublishable(model) else "")


def _interval(estimate: Estimate | None) -> Interval | None:
    if estimate is None or estimate.mean is None:
        return None
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    span = "" if low is None else f" ({percents(estimate.low, estimate.high)})"
    text = f"{percent(estimate.mean)}{span}, n={estimate.n}"
    return Interval(100 * estimate.mean, low, high, text, estimate.few)


def pairs(report: Report) -> list[Section]:
    """The section, where there is one: every pair on the cases that both are scored on."""
    if not report.table.comparisons:
        return []
    return [Section("pairs", "Pairs", [render("pairs.html", report=report)])]
