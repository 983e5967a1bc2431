"""`medlive eval power` and `plan`: how many cases a question needs, and which models to ask again about a new week."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from medlive import api
from medlive.cli.output import Result, table_of
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import cost_per_case
from medlive.evaluation.scoring.ability import plan_link
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.statistics.planning import Spread

from .options import (
    AllowOption,
    GradedRuns,
    JudgeOption,
    check_runs,
    load_runs,
)


def power(
    runs: Annotated[list[Path] | None, Argument()] = None,
    points: list[float] | None = None,
    spread: float | None = None,
    correlation: float = 0.5,
    power: float = 0.8,
    alpha: Annotated[float, Option(min=1e-6)] = 0.05,
    models: int = 2,
    before: int | None = None,
    per_week: Annotated[float, Option(min=0.01, max=1e6)] = 100.0,
    judge: JudgeOption = None,
    allow: AllowOption = None,
) -> Result:
    """Say how many cases are needed to tell two models some points apart, and to show such a drop after a cutoff.

    The spread of scores is measured on graded runs (by cluster), or assumed.

    Args:
        runs: Graded runs that show the spread.
        points: Difference or drop to detect, in points of 100; repeatable [2, 5, 10].
        spread: Without runs: standard deviation of scores by case, in points [30].
        correlation: Without runs: correlation of two models' scores.
        power: The probability to detect a true difference.
        alpha: The two-sided significance level.
        models: Models compared: the level is for all their pairs by Holm.
        before: Cases up to the cutoff [as many as after it].
        per_week: Cases that a week of harvest gives.
    """
    if runs and spread is not None:
        raise UsageError("--spread is for no runs")
    graded = load_runs(check_runs(runs), judge) if runs else []
    # The first round measures the spread of the runs, the others reuse it.
    known: float | Spread = 30.0 if spread is None else spread
    overridden: Sequence[Objection] = ()
    rows: list[dict[str, float | None]] = []
    for difference in points or [2.0, 5.0, 10.0]:
        needed = api.power(
            difference,
            () if rows else graded,
            spread=known,
            correlation=correlation,
            power=power,
            alpha=alpha,
            models=models,
            before=before,
            allow=allow or (),
        )
        known = seen = needed.spread
        overridden = overridden or needed.overridden
        apart, fresh = needed.to_tell_two_apart, needed.after_the_cutoff
        row = {
            "points": needed.points,
            "to tell two models apart": apart,
            "after the cutoff": fresh,
            "weeks to tell two models apart": math.ceil(apart / per_week),
            "weeks after the cutoff": fresh and math.ceil(fresh / per_week),
        }
        rows.append(row)
    origin = f"seen in {len(graded)} runs" if graded else "assumed"
    value = {
        "power": power,
        "alpha": alpha,
        "models": models,
        "spread": origin,
        "cases_per_week": per_week,
        "deviation_of_scores": 100 * seen.score,
        "deviation_of_differences": 100 * seen.difference,
        "overridden": [objection._asdict() for objection in overridden],
        "needed": rows,
    }
    title = (
        f"cases needed at power {power:g} and level {alpha:g} among {models} models; deviation by case {origin}: "
        f"{100 * seen.score:.1f} points, of differences {100 * seen.difference:.1f}; {per_week:g} cases a week"
    )
    notes = []
    if any(row["after the cutoff"] is None for row in rows):
        notes.append(
            f"{before} cases up to the cutoff are too few for the smallest drop, however many come after it"
        )
    table = table_of(rows, list(rows[0]), marked(title, overridden))
    return Result(value, [table], notes)


def plan(
    graded: GradedRuns,
    *,
    cases: Annotated[int, Option(min=1, max=1_000_000)],
    error: Annotated[float, Option(min=0.01, max=100)] = 1.0,
    models: Annotated[int, Option(min=1, max=10_000)] = 1,
) -> Result:
    """Say which models to ask again, or how many old cases to keep, so that a new week is linked to those before.

    Takes graded runs of the weeks before. Without re-asked models or kept cases nobody can tell a harder week from
    worse models. Costs are estimated from what each run's calls cost.

    Args:
        cases: Cases of the new week.
        error: Wanted standard error of the new week's difficulty, in points of 100.
        models: New models that will answer the week, for the number of old cases to keep.
    """
    scored = api.score(graded.load(), allow=graded.allow or ())
    # Anchors: models to ask again, the most informative first
    anchors, kept = plan_link(scored, cases=cases, models=models, error=error / 100)
    rows = []
    enough = None
    for number, anchor in enumerate(anchors, start=1):
        if enough is None and 100 * anchor.together <= error:
            enough = number
        usd = cost_per_case(scored.models[anchor.column].run.run.path)
        row = {
            "models": number,
            "model": anchor.name,
            # The error if only this model is asked again; and with all rows before it
            "error alone": round(100 * anchor.error, 3),
            "error together": round(100 * anchor.together, 3),
            "answers": cases,
            "usd": None if usd is None else round(usd * cases, 4),
        }
        rows.append(row)
    value = {
        "cases": cases,
        "wanted_error": error,
        "models_to_ask_again": enough,
        "old_cases_to_keep": kept,
        "new_models": models,
        "anchors": rows,
    }
    title = f"models to ask again about {cases} new cases; errors of the week's difficulty in points"
    table = table_of(
        rows,
        list(rows[0]),
        marked(title, scored.overridden),
    )
    none = "no number is enough"
    notes = [
        f"models to ask again for an error of {error:g} points: {enough or none}",
        f"or old cases that {models} new models answer too: {none if kept is None else kept}",
    ]
    return Result(value, [table], notes)
