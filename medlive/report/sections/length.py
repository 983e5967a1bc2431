"""How the complete score goes with the paper's, and each score with the length of the answers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from markupsafe import Markup

from medlive.charts import Frame, Line, Point, lines
from medlive.evaluation.scoring.companions import answer_lengths
from medlive.evaluation.scoring.score import FEW, ModelScore
from medlive.report.html import Section, render, soft
from medlive.report.model import Report

_QUARTERS: Final = 4
_CAPTION: Final = (
    "Characters of an answer against its score. Partial: Pearson's r given the model and the case, so that neither "
    "long-winded models nor questions that need much count (ClinConsensus, Table 11). A score that pays for length "
    "has a high one; the core score is there to be compared."
)


class _Quarter(NamedTuple):
    """A fourth of all answers, by their length."""

    low: float
    high: float
    """Included in the last quarter alone."""
    label: str


def length(report: Report) -> Section:
    """The section."""
    parts = [soft(_CAPTION), render("length.html", report=report)]
    quarters = _quarters(report.models)
    if quarters:
        parts.insert(1, _figure(report, quarters))
    return Section("length", "Length of answers", parts)


def _quarters(models: Sequence[ModelScore]) -> list[_Quarter]:
    """The quarters of all scored answers by length; none where answers are too alike to be told apart."""
    lengths = [
        characters
        for model in models
        for _, characters in answer_lengths(model.run, model.cases)
    ]
    if not lengths:
        return []
    ends = np.quantile(lengths, np.linspace(0, 1, _QUARTERS + 1)).tolist()
    if len(set(ends)) < len(ends):
        return []
    quarters = []
    for low, high in pairwise(ends):
        quarters.append(_Quarter(low, high, f"{low:,.0f} to {high:,.0f}"))
    return quarters


def _figure(report: Report, quarters: Sequence[_Quarter]) -> Markup:
    frame = report.frame(
        "Score by the length of the answer",
        "Mean score of each model in per cent, by quarters of all answers in characters.",
    )
    series = [_line(model, quarters) for model in report.models]
    labels = [quarter.label for quarter in quarters]

    def draw(frame: Frame) -> str:
        return lines(frame, labels, series)

    return report.figures.add("length", frame, draw)


def _line(model: ModelScore, quarters: Sequence[_Quarter]) -> Line:
    scores: list[list[float]] = [[] for _ in quarters]
    starts = [quarter.low for quarter in quarters]
    for one, characters in answer_lengths(model.run, model.cases):
        place = int(np.searchsorted(starts, characters, side="right")) - 1
        scores[place].append(one.score or 0.0)
    return Line(model.label, [_point(own) for own in scores])


def _point(scores: Sequence[float]) -> Point:
    if not scores:
        return Point(None)
    mean = 100 * sum(scores) / len(scores)
    return Point(mean, n=len(scores), faint=len(scores) < FEW)
