"""`medlive eval plan`: whom to ask again so that a new week can be compared with those before."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    AllowOption,
    JudgeOption,
    check_runs,
    load_runs,
)
from medlive.cli.output import Result, table_of

if TYPE_CHECKING:
    from medlive.statistics.anchors import Anchor


def plan(
    runs: Annotated[list[Path], Argument()],
    cases: Annotated[int, Option(min=1, max=1_000_000)],
    error: Annotated[float, Option(min=0.01, max=100)] = 1.0,
    judge: JudgeOption = None,
    allow: AllowOption = None,
) -> Result:
    """Say which models to ask again, so that a new week is linked to those before.

    Without them, nobody can tell a harder week from worse models. Costs are by what each run's calls cost.

    Args:
        runs: Graded runs of the weeks before.
        cases: Of the new week.
        error: Wanted standard error of the new week's difficulty, in points of 100.
    """
    from medlive import api
    from medlive.evaluation.runs.spending import cost_per_case
    from medlive.evaluation.scoring.ability import plan_link
    from medlive.evaluation.scoring.refusals import marked

    paths = check_runs(runs)
    scored = api.score(load_runs(paths, judge), allow=allow or ())
    rows = []
    enough = None
    for number, anchor in enumerate(plan_link(scored, cases), start=1):
        usd = cost_per_case(paths[anchor.column])
        rows.append(_row(number, anchor, cases, usd))
        if enough is None and 100 * anchor.together <= error:
            enough = number
    value = {
        "cases": cases,
        "wanted_error": error,
        "models_to_ask_again": enough,
        "anchors": rows,
    }
    title = f"models to ask again about {cases} new cases; errors of the week's difficulty in points"
    table = table_of(rows, list(rows[0]), marked(title, scored.overridden))
    words = "no number of these models is enough"
    if enough:
        words = f"{enough} of them, asked again about all {cases}, are enough"
    notes = [f"for an error of {error:g} points: {words}"]
    return Result(value, [table], notes)


def _row(
    number: int, anchor: "Anchor", cases: int, usd: float | None
) -> dict[str, object]:
    return {
        "models": number,
        "model": anchor.name,
        "error alone": round(100 * anchor.error, 3),
        "error together": round(100 * anchor.together, 3),
        "answers": cases,
        "usd": None if usd is None else round(usd * cases, 4),
    }
