"""How alike models fail: shared worst cases, and correlations over themes and specialties (Figures 16 to 18)."""

import math

import numpy as np
from markupsafe import Markup

from medlive.evaluation.scoring.overlap import Profiles, WorstCases
from medlive.report.html import Section, f, missing, soft
from medlive.report.model import ONE_RUN, Report, in_parts

_TITLE = "How alike the models are"


def overlap(report: Report) -> Section:
    """The section."""
    if report.worst is None:
        return Section("overlap", _TITLE, [missing(ONE_RUN)])
    parts = [_worst(report, report.worst)]
    parts += [_profile(report, profiles) for profiles in report.profiles]
    return Section("overlap", _TITLE, parts)


def _worst(report: Report, worst: WorstCases) -> Markup:
    if not worst.k:
        return missing(
            "The models have too few scored cases in common for worst cases to be compared."
        )
    pairs = worst.jaccard[np.tril_indices(len(worst.jaccard), -1)]
    mean = ""
    if len(pairs) > 1:
        mean = f"; the mean over {len(pairs)} pairs is {f(float(pairs.mean()))}"
    caption = (
        f"The {worst.k} lowest cases of each model among the {worst.common} that all are scored on; by chance two "
        f"such sets share {f(worst.by_chance)}{mean}. No interval: a count of just these."
    )
    return soft(caption) + report.render(
        "matrix.html",
        title=f"Jaccard overlap of the bottom {worst.k}",
        labels=list(worst.cases),
        rows=worst.jaccard,
        least=0,
        in_parts=in_parts,
        tooltip=f,
    )


def _profile(report: Report, profiles: Profiles) -> Markup:
    plural = {"theme": "themes", "specialty": "specialties"}[profiles.kind]
    if len(profiles.values) < 2 or np.isnan(profiles.between_values).all():
        least = "three models or more, and two "
        return missing(
            f"No correlation between {plural}: it needs {least}{plural} in which every model has at least 5 "
            f"scored cases; here are {len(profiles.labels)} models and {len(profiles.values)} such {plural}."
        )
    n = len(profiles.labels)
    few = "; so few say little" if n < 6 else ""
    caption = soft(
        f"Pearson's r over {n} models' mean scores{few}; the 95 % interval of each (Fisher's z, n = {n} models) "
        "is in the tooltip."
    )
    if profiles.left_out:
        names = ", ".join(profiles.left_out)
        caption += soft(f"Left out, for too few scored cases: {names}.")
    return caption + report.render(
        "matrix.html",
        title=f"Correlation between {plural}",
        labels=profiles.values,
        rows=profiles.between_values,
        least=-1,
        in_parts=in_parts,
        tooltip=lambda r: f"{r:.3f}{fisher_interval(r, n)}",
    )


def fisher_interval(r: float, n: int) -> str:
    """The 95 % interval of Pearson's r by Fisher's z; none for fewer than 4 pairs, or where r is 1 or -1."""
    if n < 4 or abs(r) > 1 - 1e-12:
        return f" (n={n})"
    z, half = math.atanh(r), 1.959964 / math.sqrt(n - 3)
    return f" ({math.tanh(z - half):.3f} to {math.tanh(z + half):.3f}, n={n})"
