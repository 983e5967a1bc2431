"""The report's figures as matplotlib axes: `pip install 'medlive[plot]'` brings what they need.

Each function draws into `axes`, or into new ones, and returns them. Means are drawn with their 95 % intervals; a
figure without enough cases for an interval is drawn hollow, and one that is not known is left out. Scores are in
per cent, differences in points of 100, and what was overridden to show them is in the title.
"""

import io
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from medlive.errors import MissingExtra, UsageError
from medlive.evaluation.scoring.companions import answer_lengths
from medlive.evaluation.scoring.contamination import ContaminationTable
from medlive.evaluation.scoring.estimates import ScoreEstimate, slice_order
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
)
from medlive.statistics.charts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SERIES: Final = 10
"""Most models in a figure with a colour for each: more colours look alike."""
_MARKS: Final = "os^vDP*X<>"
_NAME: Final = 60
"""Characters of a model's name that a figure shows."""


def scores(table: ScoreTable, axes: "Axes | None" = None) -> "Axes":
    """Each model's overall score, the best on top."""
    axes = _axes(axes)
    models = [model for model in table.models if model.overall.value is not None]
    models.reverse()
    for place, model in enumerate(models):
        _draw_interval(axes, place, model.overall)
    axes.set_yticks(range(len(models)), _names(models))
    axes.set_xlabel(f"{table.metric.value} score in %, 95 % interval")
    _title(axes, "Overall score", table.overridden)
    return axes


def slices(table: ScoreTable, kind: str, axes: "Axes | None" = None) -> "Axes":
    """Each of the ten best models' scores by the values of a slice ("month", "theme", "specialty" …).

    Raises UsageError if there is no such slice.
    """
    axes = _axes(axes)
    parts = [part for model in table.models for part in model.slices]
    values = sorted(
        {part.value for part in parts if part.kind == kind}, key=slice_order
    )
    if not values:
        kinds = sorted({part.kind for part in parts})
        raise UsageError(f"no slice {kind!r}: expected one of {', '.join(kinds)}")
    models = table.models[:MOST_SERIES]
    for model, mark, name in zip(models, _MARKS, _names(models), strict=False):
        places = []
        means = []
        for place, value in enumerate(values):
            estimate = model.slice(kind, value)
            if estimate is not None and estimate.value is not None:
                places.append(place)
                means.append(100 * estimate.value)
        axes.plot(places, means, f"{mark}-", label=name)
    labels = [_name(value) for value in values]
    axes.set_xticks(range(len(values)), labels, rotation=45, ha="right")
    axes.set_ylabel(f"{table.metric.value} score in %")
    _title(axes, f"Score by {kind}{_of(table)}", table.overridden)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    return axes


def drops(table: ContaminationTable, axes: "Axes | None" = None) -> "Axes":
    """How far each model's score falls past its cutoff; to the right of 0 it is worse on what it cannot know."""
    axes = _axes(axes)
    labels: list[str] = []
    for model in reversed(table.models):
        drop = model.drop
        if drop is None or drop.difference is None:
            continue
        place = len(labels)
        if drop.low is not None and drop.high is not None:
            axes.plot([100 * drop.low, 100 * drop.high], [place, place], color="C0")
        axes.plot([100 * drop.difference], [place], "o", color="C0")
        labels.append(_name(model.label))
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("score up to the cutoff less score after it, points, 95 % interval")
    _title(axes, "Drop past the cutoff", table.overridden)
    return axes


def lengths(table: ScoreTable, axes: "Axes | None" = None) -> "Axes":
    """Each case's score against the length of the answer, in characters, by model; the ten best."""
    axes = _axes(axes)
    models = table.models[:MOST_SERIES]
    for model, mark, name in zip(models, _MARKS, _names(models), strict=False):
        sizes = []
        values = []
        for score, characters in answer_lengths(model.run, model.cases):
            sizes.append(characters)
            assert score.score is not None  # `answer_lengths` gives scored cases alone
            values.append(100 * score.score)
        # Hundreds of thousands of points would be a file of as many marks.
        axes.scatter(sizes, values, s=12, marker=mark, label=name, rasterized=True)
    axes.set_xlabel("characters of the answer")
    axes.set_ylabel(f"{table.metric.value} score in %")
    _title(axes, f"Score by length of the answer{_of(table)}", table.overridden)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    return axes


def svg(draw: Callable[["Axes"], object], rows: int = 0) -> str | None:
    """Return a figure as SVG with room for so many rows; None where matplotlib is not installed."""
    if not available():
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    sink = io.StringIO()
    style = rc_context(
        {
            "axes.titlesize": "medium",
            "font.size": 9,
            # Text stays text: the viewer has the fonts of characters that matplotlib's own lacks.
            "svg.fonttype": "none",
            "svg.hashsalt": "medlive",
            "text.parse_math": False,
        }
    )
    with style, warnings.catch_warnings(action="ignore"):
        figure = Figure(figsize=(7, max(3.5, 1.2 + 0.25 * rows)), layout="constrained")
        draw(figure.subplots())
        figure.savefig(sink, format="svg", metadata={"Date": None})
    return sink.getvalue()


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _axes(axes: "Axes | None") -> "Axes":
    if not available():
        raise MissingExtra(
            "a figure needs matplotlib, which is not installed",
            hint="pip install 'medlive[plot]'",
        )
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _names(models: Sequence[ModelScore]) -> list[str]:
    return [_name(model.label) for model in models]


def _name(label: str) -> str:
    """A name that is too long loses its middle: names often differ at their end."""
    if len(label) > _NAME:
        label = f"{label[: _NAME - 20]}…{label[-19:]}"
    return plain(label)


def _of(table: ScoreTable) -> str:
    number = len(table.models)
    return f", the {MOST_SERIES} best of {number}" if number > MOST_SERIES else ""


def _title(axes: "Axes", title: str, overridden: Sequence[Objection]) -> None:
    axes.set_title(marked(title, overridden), wrap=True)


def _draw_interval(axes: "Axes", place: int, estimate: ScoreEstimate) -> None:
    if estimate.low is not None and estimate.high is not None:
        ends = [100 * estimate.low, 100 * estimate.high]
        axes.plot(ends, [place, place], color="C0")
    filled = "none" if estimate.few else "C0"
    mean = 0.0 if estimate.value is None else 100 * estimate.value
    axes.plot([mean], [place], "o", color="C0", markerfacecolor=filled)
