"""How alike models fail: shared worst cases, and correlations over themes and specialties (Figures 16 to 18)."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from medlive.charts import Cell, Frame, Scale, matrix
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
    parts = [_worst(report, found.worst), _profile(report, found.themes), _profile(report, found.specialties)]
    return Section("overlap", _TITLE, [row_of([Markup("<div>{}</div>").format(part) for part in parts])])


def _worst(report: Report, worst: WorstCases) -> Markup:
    if not worst.k:
        return missing("The models have too few scored cases in common for worst cases to be compared.")
    pairs = [v for row, values in enumerate(worst.jaccard) for v in values[:row] if v is not None]
    mean = f"; the mean over {len(pairs)} pairs is {f(sum(pairs) / len(pairs))}" if len(pairs) > 1 else ""
    note = (
        f"The {worst.k} lowest cases of each model among the {worst.common} that all are scored on; by chance two "
        f"such sets share {f(worst.by_chance)}{mean}. No interval: a count of just these. "
        f"{report.table.metric.value.capitalize()} metric; {report.rests_on}."
    )
    frame = Frame(
        f"Jaccard overlap of the bottom {worst.k}", "How far two models fail on the same cases.", note=note
    )
    title = f"Overlap of the models' {worst.k} lowest cases"
    tied = [f"{label}: {n} of the {worst.k}" for label, n in worst.tied.items() if n]
    note_on_ties = soft(f"Chosen by id alone among equal scores: {'; '.join(tied)}.") if tied else Markup()
    return (
        report.figures.add(
            "worst-cases",
            title,
            matrix(frame, worst.labels, worst.labels, _grid(worst.jaccard), scale=Scale.SHARE),
        )
        + note_on_ties
    )


def _profile(report: Report, found: Profiles) -> Markup:
    plural = {"theme": "themes", "specialty": "specialties"}[found.kind]
    if len(found.values) < 2 or all(cell is None for row in found.between_values for cell in row):
        least = "three models or more, and two "
        return missing(
            f"No correlation between {plural}: it needs {least}{plural} in which every model has at least 5 "
            f"scored cases; here are {len(found.labels)} models and {len(found.values)} such {plural}."
        )
    left = (
        soft(f"Left out, for too few scored cases: {', '.join(found.left_out)}.") if found.left_out else Markup()
    )
    note = (
        f"Pearson's r over {len(found.labels)} models' mean scores; the 95 % interval of each (Fisher's z, n = "
        f"{len(found.labels)} models) is in the tooltip. {report.table.metric.value.capitalize()} metric; "
        f"{report.rests_on}."
    )
    if len(found.labels) < 6:
        note = f"r over only {len(found.labels)} models says little. {note}"
    frame = Frame(f"Correlation between {plural}", "Pearson's r of the models' mean scores.", note=note)
    drawn = matrix(
        frame, found.values, found.values, _grid(found.between_values, len(found.labels)), scale=Scale.AROUND_ZERO
    )
    title = f"Correlation between {plural}, over models"
    return report.figures.add(f"{found.kind}-correlation", title, drawn) + left


def _grid(values: Matrix, pairs: int | None = None) -> Sequence[Sequence[Cell]]:
    """Cells; with `pairs`, those of Pearson's r over so many pairs of values, their intervals in the tooltip."""
    return [[_cell(v, pairs) for v in row] for row in values]


def _cell(value: float | None, pairs: int | None) -> Cell:
    if value is None:
        return Cell(None)
    tooltip = f"{value:.3f}" + (fisher_interval(value, pairs) if pairs is not None else "")
    return Cell(value, f"{value:.2f}".replace("0.", ".", 1), tooltip)


def fisher_interval(r: float, n: int) -> str:
    """The 95 % interval of Pearson's r by Fisher's z; none for fewer than 4 pairs, or where r is 1 or -1."""
    if n < 4 or abs(r) > 1 - 1e-12:
        return f" (n={n})"
    z, half = math.atanh(r), 1.959964 / math.sqrt(n - 3)
    return f" ({math.tanh(z - half):.3f} to {math.tanh(z + half):.3f}, n={n})"
