"""The report's figures as matplotlib axes: `pip install 'medlive[plot]'` brings what they need.

Each function draws into `axes`, or into new ones, and returns them. Means are drawn with their 95 % intervals; a
figure without enough cases for an interval is drawn hollow, and one that is not known is left out.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from medlive.errors import MissingExtra, UsageError
from medlive.evaluation.scoring.contamination import ContaminationTable
from medlive.evaluation.scoring.estimates import Estimate, slice_order
from medlive.evaluation.scoring.score import ScoreTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scores(table: ScoreTable, axes: "Axes | None" = None) -> "Axes":
    """Each model's overall score, the best on top."""
    axes = _axes(axes)
    models = [model for model in table.models if model.overall.mean is not None]
    for place, model in enumerate(reversed(models)):
        _draw_interval(axes, place, model.overall)
    axes.set_yticks(range(len(models)), [model.label for model in reversed(models)])
    axes.set_xlabel(f"{table.metric.value} score, 95 % interval")
    return axes


def slices(table: ScoreTable, kind: str, axes: "Axes | None" = None) -> "Axes":
    """Each model's score by the values of a slice ("month", "theme", "specialty", "language" …).

    Raises UsageError if there is no such slice.
    """
    axes = _axes(axes)
    values = sorted(
        {
            part.value
            for model in table.models
            for part in model.slices
            if part.kind == kind
        },
        key=slice_order,
    )
    if not values:
        kinds = sorted({part.kind for model in table.models for part in model.slices})
        raise UsageError(f"no slice {kind!r}: expected one of {', '.join(kinds)}")
    for model in table.models:
        estimates = [model.slice(kind, value) for value in values]
        _draw_line(axes, estimates, model.label)
    axes.set_xticks(range(len(values)), values, rotation=45, ha="right")
    axes.set_ylabel(f"{table.metric.value} score")
    axes.legend()
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
            axes.plot([drop.low, drop.high], [place, place], color="C0")
        axes.plot([drop.difference], [place], "o", color="C0")
        labels.append(model.label)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("score up to the cutoff less score after it, 95 % interval")
    return axes


def lengths(table: ScoreTable, axes: "Axes | None" = None) -> "Axes":
    """Each case's score against the length of the answer, in characters, by model."""
    axes = _axes(axes)
    for model in table.models:
        sizes, values = [], []
        for found in model.cases:
            answer = model.run.answers.get(found.case.case_id)
            if answer is not None and found.score is not None:
                sizes.append(len(answer.response))
                values.append(found.score)
        axes.scatter(sizes, values, s=12, label=model.label)
    axes.set_xlabel("characters of the answer")
    axes.set_ylabel(f"{table.metric.value} score")
    axes.legend()
    return axes


def _axes(axes: "Axes | None") -> "Axes":
    if find_spec("matplotlib") is None:
        raise MissingExtra(
            "a figure needs matplotlib, which is not installed",
            hint="pip install 'medlive[plot]'",
        )
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _draw_interval(axes: "Axes", place: int, estimate: Estimate) -> None:
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [place, place], color="C0")
    filled = "none" if estimate.few else "C0"
    mean = 0.0 if estimate.mean is None else estimate.mean
    axes.plot([mean], [place], "o", color="C0", markerfacecolor=filled)


def _draw_line(axes: "Axes", estimates: Sequence[Estimate | None], label: str) -> None:
    places, means = [], []
    for place, estimate in enumerate(estimates):
        if estimate is not None and estimate.mean is not None:
            places.append(place)
            means.append(estimate.mean)
    axes.plot(places, means, "o-", label=label)
