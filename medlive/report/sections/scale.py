"""Models that answered differing cases on one scale, and what cases and criteria tell of them."""

from typing import Final

from medlive.evaluation.scoring.ability import abilities_of
from medlive.report.html import Section, missing, soft
from medlive.report.model import Report

MOST_SUSPECTS: Final = 30
_CAPTION: Final = (
    "Ability: the score that a model would have on all cases here, its own where it has them and elsewhere what the "
    "scores of the others lead to expect. On these cases: only what was not answered is in doubt; a model that "
    "answered everything has its plain mean. Cases of the kind: what other cases could have given; ranks and tie "
    "groups are made from it."
)


def one_scale(report: Report) -> Section:
    """The section."""
    table = abilities_of(report.table)
    parts = [soft(_CAPTION)]
    if table.scale.why:
        parts.append(missing(table.scale.why.capitalize() + "."))
    standings = {standing.name: standing for standing in table.scale.standings}
    drawn = report.render(
        "scale.html",
        abilities=table,
        standings=standings,
        plain={model.label: model.overall for model in report.models},
        suspects=table.suspects[:MOST_SUSPECTS],
    )
    return Section("scale", "One scale", [*parts, drawn])
