"""`medlive eval power`: how many cases a question needs, and how many weeks of harvest those are."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    AllowOption,
    JudgeOption,
    check_runs,
    load_runs,
    read_allowed,
)
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.scoring.refusals import Objection
    from medlive.evaluation.scoring.score import ScoreTable
    from medlive.statistics.power import Spread


def power(
    runs: Annotated[
        list[Path] | None, Argument(help="Graded runs that show the spread.")
    ] = None,
    points: Annotated[
        list[float] | None,
        Option(min=0.01, max=100, help="To tell apart, of 100; repeatable [2, 5, 10]."),
    ] = None,
    spread: Annotated[
        float | None,
        Option(
            min=0.01, max=1000, help="Without runs: deviation of scores in points [30]."
        ),
    ] = None,
    correlation: Annotated[
        float, Option(min=-1, max=0.99, help="Without runs: of two models' scores.")
    ] = 0.5,
    chance: Annotated[
        float, Option("--power", help="The probability to find what is there.")
    ] = 0.8,
    alpha: Annotated[float, Option(min=1e-6, help="The two-sided level.")] = 0.05,
    models: Annotated[
        int,
        Option(
            min=2,
            max=10_000,
            help="Models compared: the level is for all their pairs by Holm.",
        ),
    ] = 2,
    before: Annotated[
        int | None, Option(min=2, help="Cases up to the cutoff [as many as after it].")
    ] = None,
    per_week: Annotated[
        float, Option(min=0.01, max=1e6, help="Cases that a week of harvest gives.")
    ] = 100.0,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many cases tell two models apart by some points, and how many after a cutoff show a drop of as many.

    The spread is that seen in graded runs, clusters counted, or assumed.
    """
    from medlive.evaluation.scoring.refusals import marked
    from medlive.statistics.power import Spread, cases_for_drop, cases_for_pair

    wanted = points or [2.0, 5.0, 10.0]
    if runs and spread is not None:
        raise UsageError("--spread is for no runs")
    overridden: tuple[Objection, ...] = ()
    if runs:
        table = _table(runs, judge, allow)
        seen, overridden = _seen(table), table.overridden
        origin = f"seen in {len(runs)} runs"
    else:
        score = (30.0 if spread is None else spread) / 100
        seen, origin = Spread(score * math.sqrt(2 - 2 * correlation), score), "assumed"
    pairs = models * (models - 1) / 2
    rows: list[dict[str, Any]] = []
    for d in wanted:
        try:
            apart = cases_for_pair(
                d / 100, seen.difference, power=chance, alpha=alpha / pairs
            )
            fresh = cases_for_drop(
                d / 100, seen.score, before=before, power=chance, alpha=alpha / models
            )
        except ValueError as exc:
            raise UsageError(str(exc)) from exc
        needed = {"to tell two models apart": apart, "after the cutoff": fresh}
        weeks = {
            f"weeks {name}": n and math.ceil(n / per_week) for name, n in needed.items()
        }
        rows.append({"points": d, **needed, **weeks})
    about = {
        "power": chance,
        "alpha": alpha,
        "models": models,
        "spread": origin,
        "cases_per_week": per_week,
        "deviation_of_scores": 100 * seen.score,
        "deviation_of_differences": 100 * seen.difference,
        "overridden": [objection._asdict() for objection in overridden],
    }
    title = (
        f"cases needed at power {chance:g} and level {alpha:g} among {models} models; deviation by case {origin}: "
        f"{100 * seen.score:.1f} points, of differences {100 * seen.difference:.1f}; {per_week:g} cases a week"
    )
    cells = [list(row.values()) for row in rows]
    print_result(
        {**about, "needed": rows},
        as_json,
        lambda: print_table(list(rows[0]), cells, title=marked(title, overridden)),
    )
    if any(row["after the cutoff"] is None for row in rows):
        say(
            f"{before} cases up to the cutoff are too few for the smallest drop, however many come after it"
        )


def _table(
    runs: list[Path], judge: str | None, allow: list[str] | None
) -> "ScoreTable":
    from medlive.evaluation.scoring.score import score_runs

    graded = load_runs(check_runs(runs), judge)
    return score_runs(graded, draws=1, allow=read_allowed(allow))


def _seen(table: "ScoreTable") -> "Spread":
    from medlive.evaluation.model import cluster_numbers
    from medlive.evaluation.scoring.score import score_matrix
    from medlive.statistics.power import spread_of

    cases, values = score_matrix(table)
    spread = spread_of(values, cluster_numbers(cases))
    if spread is None or spread.score == 0:
        raise UsageError(
            "the scores of these runs show no spread", hint="give --spread"
        )
    return spread
