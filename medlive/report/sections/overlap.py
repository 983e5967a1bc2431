"""How alike models fail: shared worst cases, and correlations over themes and specialties (Figures 16 to 18)."""

import math
from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from medlive.charts import WIDTH, Cell, Frame, Scale, matrix
from medlive.evaluation.scoring.overlap import Matrix, Profiles, WorstCases
from medlive.report.html import Section, f, missing, row_of, soft
from medlive.report.model import Report

_TITLE = "How alike the models are"


def overlap(report: Report) -> Section:
    """The section."""
    found = report.overlaps
    if found is None:
        text = "One run alone is compared with nothing: give the run folders of two models or more."
        return Section("overlap", _TITLE, [missing(text)])
    parts = [
        _worst(report, found.worst),
        _profile(report, found.themes),
        _profile(report, found.specialties),
    ]
    return Section(
        "overlap",
        _TITLE,
        [row_of([Markup("<div>{}</div>").format(part) for part in parts])],
    )


def _worst(report: Report, worst: WorstCases) -> Markup:
    if not worst.k:
        return missing(
            "The models have too few scored cases in common for worst cases to be compared."
        )
    pairs = [
        v
        for row, values in enumerate(worst.jaccard)
        for v in values[:row]
        if v is not None
    ]
    mean = (
        f"; the mean over {len(pairs)} pairs is {f(sum(pairs) / len(pairs))}"
        if len(pairs) > 1
        else ""
    )
    said = (
        f"The {worst.k} lowest cases of each model among the {worst.common} that all are scored on; by chance two "
        f"such sets share {f(worst.by_chance)}{mean}. No interval: a count of just these."
    )
    frame = replace(
        report.frame(f"Jaccard overlap of the bottom {worst.k}", said),
        note=f"{said} {report.table.metric.value.capitalize()} metric; {report.rests_on}.",
    )
    tied = [f"{label}: {n} of the {worst.k}" for label, n in worst.tied.items() if n]
    note_on_ties = (
        soft(f"Chosen by id alone among equal scores: {'; '.join(tied)}.")
        if tied
        else Markup()
    )

    def draw(frame: Frame) -> str:
        return matrix(
            frame, worst.labels, worst.labels, _grid(worst.jaccard), scale=Scale.SHARE
        )

    return (
        report.figures.add("worst-cases", frame, draw, width=WIDTH)
        + soft(said)
        + note_on_ties
    )


def _profile(report: Report, found: Profiles) -> Markup:
    plural = {"theme": "themes", "specialty": "specialties"}[found.kind]
    if len(found.values) < 2 or all(
        cell is None for row in found.between_values for cell in row
    ):
        least = "three models or more, and two "
        return missing(
            f"No correlation between {plural}: it needs {least}{plural} in which every model has at least 5 "
            f"scored cases; here are {len(found.labels)} models and {len(found.values)} such {plural}."
        )
    left = (
        soft(f"Left out, for too few scored cases: {', '.join(found.left_out)}.")
        if found.left_out
        else Markup()
    )
    few = "; so few say little" if len(found.labels) < 6 else ""
    said = (
        f"Pearson's r over {len(found.labels)} models' mean scores{few}; the 95 % interval of each (Fisher's z, "
        f"n = {len(found.labels)} models) is in the tooltip."
    )
    frame = replace(
        report.frame(f"Correlation between {plural}", said),
        note=f"{said} {report.table.metric.value.capitalize()} metric; {report.rests_on}.",
    )
    cells = _grid(found.between_values, len(found.labels))

    def draw(frame: Frame) -> str:
        return matrix(frame, found.values, found.values, cells, scale=Scale.AROUND_ZERO)

    return (
        report.figures.add(f"{found.kind}-correlation", frame, draw, width=WIDTH)
        + soft(said)
        + left
    )


def _grid(values: Matrix, pairs: int | None = None) -> Sequence[Sequence[Cell]]:
    """Cells; with `pairs`, those of Pearson's r over so many pairs of values, their intervals in the tooltip."""
    # What is above the diagonal would only say the same again.
    below = (
        [v if k <= place else None for k, v in enumerate(row)]
        for place, row in enumerate(values)
    )
    return [[_cell(v, pairs) for v in row] for row in below]


def _cell(value: float | None, pairs: int | None) -> Cell:
    if value is None:
        return Cell(None)
    tooltip = f"{value:.3f}" + (
        fisher_interval(value, pairs) if pairs is not None else ""
    )
    return Cell(value, f"{value:.2f}".replace("0.", ".", 1), tooltip=tooltip)


def fisher_interval(r: float, n: int) -> str:
    """The 95 % interval of Pearson's r by Fisher's z; none for fewer than 4 pairs, or where r is 1 or -1."""
    if n < 4 or abs(r) > 1 - 1e-12:
        return f" (n={n})"
    z, half = math.atanh(r), 1.959964 / math.sqrt(n - 3)
    return f" ({math.tanh(z - half):.3f} to {math.tanh(z + half):.3f}, n={n})"
