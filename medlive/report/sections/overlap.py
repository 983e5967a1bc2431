"""How alike models fail: shared worst cases, and correlations over themes and specialties (Figures 16 to 18)."""

from collections.abc import Sequence

from medlive.charts import Cell, Frame, Scale, matrix
from medlive.evaluation.overlap import Matrix, Profiles, WorstCases
from medlive.report.html import f, missing, section, soft
from medlive.report.model import Report

_TITLE = "How alike the models are"


def overlap(report: Report) -> str:
    """The section."""
    found = report.overlaps
    if found is None:
        text = "One run alone is compared with nothing: give the run folders of two models or more."
        return section("overlap", _TITLE, missing(text))
    parts = [_worst(report, found.worst), _profile(report, found.themes), _profile(report, found.specialties)]
    return section("overlap", _TITLE, *parts)


def _worst(report: Report, worst: WorstCases) -> str:
    if not worst.k:
        return missing("The models have too few scored cases in common for worst cases to be compared.")
    note = (
        f"The {worst.k} lowest cases of each model among the {worst.common} that all are scored on; by chance two "
        f"such sets share {f(worst.by_chance)}. {report.said}."
    )
    frame = Frame(
        f"Jaccard overlap of the bottom {worst.k}", "How far two models fail on the same cases.", note=note
    )
    title = f"Overlap of the models' {worst.k} lowest cases"
    tied = [f"{label}: {n} of the {worst.k}" for label, n in worst.tied.items() if n]
    said = soft(f"Chosen by id alone among equal scores: {'; '.join(tied)}.") if tied else ""
    return (
        report.figures.add("worst-cases", title, matrix(frame, worst.labels, worst.labels, _grid(worst.jaccard)))
        + said
    )


def _profile(report: Report, found: Profiles) -> str:
    plural = {"theme": "themes", "specialty": "specialties"}[found.kind]
    if len(found.values) < 2 or all(cell is None for row in found.between_values for cell in row):
        least = "three models or more, and two "
        return missing(
            f"No correlation between {plural}: it needs {least}{plural} in which every model has at least 5 "
            f"scored cases; here are {len(found.labels)} models and {len(found.values)} such {plural}."
        )
    left = f" Left out, for too few scored cases: {', '.join(found.left_out)}." if found.left_out else ""
    note = f"Pearson's r over {len(found.labels)} models' mean scores.{left} {report.said}."
    if len(found.labels) < 6:
        note = f"r over only {len(found.labels)} models says little. {note}"
    frame = Frame(f"Correlation between {plural}", "Pearson's r of the models' mean scores.", note=note)
    drawn = matrix(frame, found.values, found.values, _grid(found.between_values), scale=Scale.AROUND_ZERO)
    return report.figures.add(f"{found.kind}-correlation", f"Correlation between {plural}, over models", drawn)


def _grid(values: Matrix) -> Sequence[Sequence[Cell]]:
    return [
        [Cell(None) if v is None else Cell(v, f"{v:.2f}".replace("0.", ".", 1), f"{v:.3f}") for v in row]
        for row in values
    ]
