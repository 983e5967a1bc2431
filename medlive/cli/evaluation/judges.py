"""`medlive eval judges`: several judges of the same answers, and what people settle between them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from medlive.cli.evaluation.meta import print_figures
from medlive.cli.evaluation.options import (
    DrawsOption,
    RunArgument,
    RunsArgument,
    SeedOption,
)
from medlive.cli.options import JsonOption
from medlive.cli.output import attributes, echo, pick, print_result, print_table, say

if TYPE_CHECKING:
    from medlive.evaluation.agreement.judges import Judges
    from medlive.evaluation.agreement.settle import Settled

JudgesOption = Annotated[
    list[str] | None,
    Option(
        "--judge",
        metavar="DIGEST",
        help="A judge, by digest or model; repeatable [all].",
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    help="Compare judges of the same answers, and settle where they differ.",
)


@app.command()
def compare(
    runs: RunsArgument,
    judge: JudgesOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare judges on criteria, and the order of models under each.

    A run that several judges graded, or several runs with the same answers. With two models and more also whether
    they stand in the same order under every two judges.
    """
    from medlive.evaluation.agreement.judges import compare_judges

    found = compare_judges(runs, judge or (), draws=draws, seed=seed)
    print_result(found.as_json(), as_json, lambda: _show(found), notes=found.notes)


def _show(found: "Judges") -> None:
    names = "group pair.equal.n pair.equal pair.ac1 pair.kappa pair.first_rate pair.second_rate undecided"
    for first, second in dict.fromkeys(
        (g.pair.first, g.pair.second) for g in found.criteria
    ):
        of = [
            g
            for g in found.criteria
            if (g.pair.first, g.pair.second) == (first, second)
        ]
        differ = [
            g.pair.confusion.first_only + g.pair.confusion.second_only for g in of
        ]
        rows = [
            [*row[:2], n, *row[2:]]
            for row, n in zip(pick(of, names), differ, strict=True)
        ]
        columns = [
            "criteria",
            "n",
            "differ",
            "equal",
            "AC1",
            "kappa",
            "met by first",
            "met by second",
            "undecided",
        ]
        print_figures(
            columns, rows, f"{first} and {second}, with 95 % intervals over cases"
        )
    rows = pick(
        found.cases,
        "model first second spearman kendall mean_absolute_difference spearman.n",
    )
    tops = [one.top and f"{one.top.shared} of {one.top.k}" for one in found.cases]
    columns = [
        "model",
        "first",
        "second",
        "Spearman",
        "Kendall",
        "mean |difference|",
        "cases",
        "same best",
    ]
    print_figures(
        columns,
        [[*row, top] for row, top in zip(rows, tops, strict=True)],
        "scores of a model's cases",
    )
    rows = pick(found.scores, "model judge score score.n rank")
    print_figures(
        ["model", "judge", "score", "cases", "rank"],
        rows,
        "models under each judge, on common cases",
    )
    if found.rankings:
        names = "first second shift mean_absolute_difference spearman kendall"
        rows = pick(found.rankings, names)
        tops = [
            ", ".join(f"{n} of {k}" for k, n in r.top.items()) for r in found.rankings
        ]
        columns = [
            "first",
            "second",
            "second less first",
            "mean |difference|",
            "Spearman",
            "Kendall",
            "same best",
        ]
        print_figures(
            columns,
            [[*row, top] for row, top in zip(rows, tops, strict=True)],
            "the order of models",
        )
    for ranking in found.rankings:
        echo(ranking.in_words())


@app.command()
def settle(
    run_dir: RunArgument,
    judge: JudgesOption = None,
    human: Annotated[
        list[Path] | None, Option(metavar="FILE", help="People's ratings; repeatable.")
    ] = None,
    adjudicator: Annotated[
        str | None, Option(metavar="NAME", help="The rater who settles disagreements.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a third grading of a run: both judges where they agree, people where not, else ungraded.

    People's ratings are a study's (a grader check of the review desk) or of a file. The same files again add
    nothing.
    """
    from medlive.evaluation.agreement.settle import settle as settle_run

    found = settle_run(run_dir, judge or (), human=human or (), adjudicator=adjudicator)
    value = attributes(
        found, "name judge judges criteria agreed people overruled new"
    ) | {"open": len(found.open)}
    print_result(value, as_json, lambda: _show_settled(found), notes=found.notes)


def _show_settled(found: "Settled") -> None:
    columns = ["criteria", "judges agree", "settled by people", "left", "new rows"]
    row = [found.criteria, found.agreed, found.people, len(found.open), found.new]
    print_table(columns, [row], title=found.name)
    if found.overruled:
        say(
            f"on {found.overruled} criteria people decided against both judges; the judges' verdict stands"
        )
    echo(f"--judge {found.judge.removeprefix('sha256:')[:12]}")
