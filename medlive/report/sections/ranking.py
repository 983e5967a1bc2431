"""The ranking with its intervals and tie groups (LiveMedBench, Figure 4), the pairs behind them, and the one scale."""

from typing import Final

from medlive.evaluation.scoring.ability import abilities_of
from medlive.integrity.log import some
from medlive.report.html import Section, missing, picture, soft
from medlive.report.model import ONE_RUN, Report, judged, unpublishable
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
_CAPTION: Final = (
    "Mean score in per cent with its 95 % interval. Complete: over all criteria; paper: over those of the physician's "
    "advice; core: over those of 7 points and more, either way. Harm: the share of answers in which two judges "
    "confirm a severe harm, or any; omissions are in scores.json. Rank: the best and the worst place that the "
    "significant differences leave open. Tie group: the models that do not differ from the group's first at 5 %, "
    "after Holm's correction. Bounds: the least and the most that the ungraded and unanswered could make of the score."
)
MOST_SUSPECTS: Final = 30
_SCALE_CAPTION: Final = (
    "Ability: the score that a model would have on all cases here, its own where it has them and elsewhere what the "
    "scores of the others lead to expect. On these cases: only what was not answered is in doubt; a model that "
    "answered everything has its plain mean. Cases of the kind: what other cases could have given; ranks and tie "
    "groups are made from it."
)


def ranking(report: Report) -> Section:
    """The section."""
    rows = []
    for model in report.models:
        overall = model.overall
        if overall.value is not None:
            rows.append((model.label, overall.value, overall.low, overall.high))
    figure = missing(_NO_SCORE)
    if rows:
        note = f"{report.table.metric.value} score in %, with 95 % intervals"
        figure = picture(report.marked("Overall score"), note, rows)
    # What is the same for all is said above all sections.
    further = {
        "cases": list(map(report.case_name, report.models)),
        "grader": list(map(judged, report.models)),
    }
    differing = {name: own for name, own in further.items() if len(set(own)) > 1}
    lacking = [model.label for model in report.models if model.cutoff is None]
    notes = [missing(_NO_CUTOFF.format(some(lacking)))] if lacking else []
    fresh = report.render("fresh.html")
    heads = [f"*{name}, %" for name, _ in beside_rows(report.table, report.models[0])]
    drawn = report.render(
        "ranking.html",
        differing=differing,
        unpublishable=unpublishable,
        beside_heads=heads,
        beside_rows=beside_rows,
    )
    return Section(
        "ranking",
        "Ranking",
        [soft(_CAPTION), fresh, figure, drawn, *notes],
    )


def pairs(report: Report) -> Section:
    """The section: every pair on the cases that both are scored on."""
    compared = ordered_pairs(report)
    if not compared:
        return Section("pairs", "Pairs", [missing(ONE_RUN)])
    return Section(
        "pairs",
        "Pairs",
        [report.render("pairs.html", compared=compared)],
    )


def ordered_pairs(report: Report) -> list[Comparison]:
    """Every pair, the model that the table ranks higher first, in the order of the ranking."""
    rank = {model.label: place for place, model in enumerate(report.models)}
    pairs = []
    for pair in report.table.comparisons:
        is_in_order = rank[pair.first] < rank[pair.second]
        pairs.append(pair if is_in_order else pair.turned())
    return sorted(
        pairs,
        key=lambda pair: (rank[pair.first], rank[pair.second]),
    )


def one_scale(report: Report) -> Section:
    """The section."""
    table = abilities_of(report.table)
    parts = [soft(_SCALE_CAPTION)]
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
