"""The ranking with its intervals and tie groups (LiveMedBench, Figure 4), and the pairs behind them."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from markupsafe import Markup

from medlive.charts import Frame, Interval, IntervalGroup, IntervalRow, intervals
from medlive.evaluation.log import some
from medlive.evaluation.scoring.score import AFTER, CUTOFF, Estimate, ModelScore
from medlive.report.html import (
    Section,
    format_p,
    missing,
    percent,
    percents,
    points,
    points_around,
    render,
    soft,
)
from medlive.report.model import Report, judged, unpublishable
from medlive.report.tables import beside_rows
from medlive.statistics.bootstrap import Comparison

_NO_CUTOFF: Final = (
    "No score after the cutoff for {}: the model registry names no cutoff and no release date. Write a table "
    '[candidates."MODEL"] with cutoff and cutoff_source in config/models.toml, or give a file with --models.'
)
_NO_SCORE: Final = (
    "No model has a score: none of the cases is wholly graded. What is missing says why; medlive eval grade RUN "
    "grades what has an answer."
)
_ONE_RUN: Final = "One run alone is compared with nothing: give the run folders of two models or more."
_CAPTION: Final = (
    "Mean score in per cent with its 95 % interval. Complete: over all criteria; paper: over those of the physician's "
    "advice; core: over those of 7 points and more, either way. Rank: the best and the worst place that the "
    "significant differences leave open. Tie group: the models that do not differ from the group's first at 5 %, "
    "after Holm's correction. Bounds: the least and the most that the ungraded and unanswered could make of the score."
)
A_SHEET: Final = 48
"""Marks in one part of the figure: as many as a sheet of paper is high."""
MOST_PAIRS: Final = 45
"""Pairs that a forest shows; of more, those with the first model."""


def ranking(report: Report) -> Section:
    """The section."""
    figure = missing(_NO_SCORE)
    if any(model.overall.mean is not None for model in report.models):
        figure = _figures(report)
    # What is the same for all is said above all sections.
    further = {
        "cases": [report.case_name(model) for model in report.models],
        "grader": [judged(model) for model in report.models],
    }
    differing = {
        name: values for name, values in further.items() if len(set(values)) > 1
    }
    lacking = [model.label for model in report.models if model.cutoff is None]
    notes = [missing(_NO_CUTOFF.format(some(lacking)))] if lacking else []
    fresh = render("fresh.html", report=report)
    heads = [f"*{name}, %" for name, _ in beside_rows(report.table, report.models[0])]
    drawn = render(
        "ranking.html",
        report=report,
        differing=differing,
        unpublishable=unpublishable,
        beside_heads=heads,
        beside_rows=beside_rows,
    )
    return Section("ranking", "Ranking", [soft(_CAPTION), fresh, figure, drawn, *notes])


def _figures(report: Report) -> Markup:
    fresh = any(model.slice(CUTOFF, AFTER) for model in report.models)
    named = ["all cases"]
    if fresh:
        named.append("cases after the model's cutoff")
    ends: list[float] = []
    for model in report.models:
        for value in _row(model, fresh).values:
            ends += value.ends if value else []
    drawings = []
    parts = report.parts(A_SHEET // len(named))
    for number, (which, places) in enumerate(parts, start=1):
        groups = _groups([report.models[k] for k in places], fresh)
        frame = report.frame(
            f"Overall score{which}",
            "Mean score of each model, with its 95 % interval and n.",
        )

        def draw(frame: Frame, groups: Sequence[IntervalGroup] = groups) -> str:
            return intervals(frame, named, groups, ends=ends, axis="mean score, %")

        name = f"ranking-{number}" if number > 1 else "ranking"
        drawings.append(report.figures.add(name, frame, draw))
    return Markup().join(drawings)


def _groups(models: Sequence[ModelScore], fresh: bool) -> list[IntervalGroup]:
    """The tie groups of the models that have a score."""
    groups = []
    for heading, members in groupby(models, key=_heading):
        rows = [_row(model, fresh) for model in members]
        if shown := [row for row in rows if any(row.values)]:
            groups.append(IntervalGroup(heading, shown))
    return groups


def _heading(model: ModelScore) -> str:
    return f"Tie group {model.standing.group}" if model.standing else "No score"


def _row(model: ModelScore, fresh: bool) -> IntervalRow:
    estimates = (
        [model.overall, model.slice(CUTOFF, AFTER)] if fresh else [model.overall]
    )
    name = model.label + (" (not publishable)" if unpublishable(model) else "")
    return IntervalRow(name, [_interval(estimate) for estimate in estimates])


def _interval(estimate: Estimate | None) -> Interval | None:
    if estimate is None or estimate.mean is None:
        return None
    low, high = (
        None if end is None else 100 * end for end in (estimate.low, estimate.high)
    )
    span = "" if low is None else f" ({percents(estimate.low, estimate.high)})"
    text = f"{percent(estimate.mean)}{span}, n={estimate.n}"
    return Interval(100 * estimate.mean, low, high, text, faint=estimate.few)


def pairs(report: Report) -> Section:
    """The section: every pair on the cases that both are scored on."""
    found = ordered_pairs(report)
    if not found:
        return Section("pairs", "Pairs", [missing(_ONE_RUN)])
    shown = (
        found
        if len(found) <= MOST_PAIRS
        else [c for c in found if c.first == report.models[0].label]
    )
    parts = [render("pairs.html", report=report, found=found)]
    if any(c.difference is not None for c in shown):
        parts.insert(0, _forest(report, shown, len(found)))
    return Section("pairs", "Pairs", parts)


def ordered_pairs(report: Report) -> list[Comparison]:
    """Every pair, the model that the table ranks higher first, in the order of the ranking."""
    rank = {model.label: place for place, model in enumerate(report.models)}
    turned = [
        c if rank[c.first] < rank[c.second] else c.turned()
        for c in report.table.comparisons
    ]
    return sorted(turned, key=lambda c: (rank[c.first], rank[c.second]))


def _forest(report: Report, shown: Sequence[Comparison], of: int) -> Markup:
    groups = [
        IntervalGroup(f"{first}, less", [_pair(c) for c in members])
        for first, members in groupby(
            (c for c in shown if c.difference is not None), key=lambda c: c.first
        )
    ]
    pairs = f"{of} pair{'s' * (of > 1)}"
    of_all = "" if len(shown) == of else f"; those with the first model, of {pairs}"
    frame = report.frame(
        "Differences of pairs",
        f"First less second in points of 100 with the 95 % interval; p corrected by Holm for {pairs}{of_all}.",
    )
    series = ["differ at 5 % after Holm's correction", "do not"]

    def draw(frame: Frame) -> str:
        return intervals(
            frame,
            series,
            groups,
            origin=0.0,
            axis="difference of mean scores, points of 100",
        )

    return soft(frame.description) + report.figures.add("pairs", frame, draw)


def _pair(c: Comparison) -> IntervalRow:
    low, high = (None if end is None else 100 * end for end in (c.low, c.high))
    text = f"{points(c.difference)} ({points_around(c.low, c.high)})"
    mark = Interval(
        100 * (c.difference or 0.0),
        low,
        high,
        text,
        f", p {format_p(c.p_holm)}, n={c.n}",
    )
    return IntervalRow(c.second, [mark, None] if c.p_holm < 0.05 else [None, mark])
