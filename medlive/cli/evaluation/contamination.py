"""`medlive eval contamination`: scores on cases that a model may have seen in training, and on those it cannot have."""

from collections.abc import Sequence

from medlive import api
from medlive.cli.output import Grid, Result, Shown, dimmed
from medlive.evaluation.scoring.contamination import (
    BookArm,
    ContaminationTable,
    score_arms,
)
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.refusals import marked
from medlive.report.html import format_p, points
from medlive.report.tables import (
    arms_rows,
    contamination_json,
)
from medlive.text.html import interval, percent

from .options import Scoring
from .tables import cases_and_graders, scored


def contamination(
    *,
    how: Scoring,
) -> Result:
    """Compare each model's scores on cases that it may have seen in training and on cases that it cannot have seen.

    The cutoffs are in the tables [candidates."MODEL"] of config/models.toml; a model without one is "unknown".
    docs/contamination.md defines every figure.
    """
    table = scored(how)
    study = api.contamination(table)
    arms = score_arms(table)
    value = contamination_json(study) | {"open_book_against_closed": arms_rows(arms)}
    notes = [*table.warnings]
    notes.append(
        "--json and medlive eval report have what else could have made it: other models, mix, placebos"
    )
    for model in study.models:
        notes += [f"{model.label}: {note}" for note in model.notes]
    on = marked(
        cases_and_graders(model.run for model in table.models), table.overridden
    )
    return Result(value, _describe(study, arms, on), notes)


def _describe(
    study: ContaminationTable,
    arms: Sequence[BookArm],
    on: str,
) -> Shown:
    """The drops past each cutoff, how they differ in the threads' own words, and the open book against the closed.

    `on` names the cases and graders.
    """
    metric = f"{study.scores.metric} metric"
    clipped = ", cases and means not clipped"
    if study.scores.metric.clips_cases:
        clipped = ""
    columns = ["model", "cutoff", "basis", "n pre/post", "pre %", "post %", "drop"]
    drops: list[Sequence[object]] = []
    for model in study.models:
        row: list[object] = [model.label, "unknown", *[None] * 8]
        if model.cutoff is not None and (drop := model.drop) is not None:
            row = [model.label, model.cutoff.text, model.cutoff.basis]
            row += [
                f"{drop.n_pre}/{drop.n_post}",
                percent(drop.pre),
                percent(drop.post),
            ]
            row += [points(drop.difference), interval(drop.low, drop.high, points)]
            row += [format_p(drop.p), format_p(model.p_holm)]
        drops.append(dimmed(row) if model.few and model.cutoff else row)
    yield Grid(
        [*columns, "95 % interval", "p", "p (Holm)"],
        drops,
        f"drop past the cutoff ({metric}{clipped}, points of 100) on {on}; dim: under {FEW} "
        "cases on a side",
    )
    for arm in study.arms:
        drop = arm.drop
        between = interval(drop.low, drop.high, points)
        few = ", which is few" if min(drop.n_pre, drop.n_post) < FEW else ""
        yield (
            f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {points(drop.difference)} "
            f"({between}; n {drop.n_pre}/{drop.n_post}{few})"
        )
    rows = []
    for book in arms:
        cases = "after the cutoff" if book.cutoff else "all (cutoff unknown)"
        row = [book.model, cases, book.pair.n]
        for score in (book.baseline, book.closed_score, book.open_score):
            row.append(percent(score.value))
        row.append(points(book.pair.difference))
        row.append(interval(book.pair.low, book.pair.high, points))
        row.append(format_p(book.p_holm))
        rows.append(dimmed(row) if book.few else row)
    columns = ["model", "cases", "n", "baseline %", "closed book %", "open book %"]
    yield Grid(
        [*columns, "difference", "95 % interval", "p (Holm)"],
        rows,
        f"open book against closed ({metric}) on {on}; dim: under {FEW} cases",
    )
