"""`medlive eval judges`: several judges of the same answers, and what people settle between them."""

from collections.abc import Iterator
from typing import Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    AdjudicatorOption,
    DrawsOption,
    HumanOption,
    RunArgument,
    RunsArgument,
    SeedOption,
)
from medlive.cli.options import Commands
from medlive.cli.output import Grid, Result, fields_of
from medlive.evaluation.agreement import settle as settling
from medlive.evaluation.agreement.judges import Judges, compare_judges

JudgesOption = Annotated[
    list[str] | None,
    Option(
        "--judge",
        metavar="DIGEST",
        help="A judge, by digest or model; repeatable [all].",
    ),
]

app = Commands(
    help="Compare judges of the same answers, and settle where they differ.",
)


@app.command()
def compare(
    runs: RunsArgument,
    judge: JudgesOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
) -> Result:
    """Compare judges on criteria, and the order of models under each.

    A run that several judges graded, or several runs with the same answers. With two models and more also whether
    they are in the same order under every two judges.
    """
    comparison = compare_judges(runs, judge or (), draws=draws, seed=seed)
    return Result(comparison.as_json(), _tables(comparison), comparison.notes)


def _tables(judges: Judges) -> Iterator[Grid]:
    by_pair: dict[tuple[str, str], list[list[object]]] = {}
    for group in judges.criteria:
        pair = group.pair
        row = [group.group, pair.equal.n, pair.confusion.differing, pair.equal]
        row += [pair.ac1, pair.kappa, pair.first_rate, pair.second_rate]
        by_pair.setdefault((pair.first, pair.second), []).append(
            [*row, group.undecided]
        )
    columns = ["criteria", "n", "differ", "equal", "AC1", "kappa", "met by first"]
    columns += ["met by second", "undecided"]
    for (first, second), rows in by_pair.items():
        title = f"{first} and {second}, with 95 % intervals over cases"
        yield Grid(columns, rows, title)
    rows = []
    for case in judges.cases:
        row = [case.model, case.first, case.second, case.spearman, case.kendall]
        same = case.top and f"{case.top.shared} of {case.top.k}"
        rows.append([*row, case.mean_absolute_difference, case.spearman.n, same])
    columns = ["model", "first", "second", "Spearman", "Kendall", "mean |difference|"]
    yield Grid([*columns, "cases", "same best"], rows, "scores of a model's cases")
    rows = []
    for own in judges.scores:
        rows.append([own.model, own.judge, own.score, own.score.n, own.rank])
    columns = ["model", "judge", "score", "cases", "rank"]
    yield Grid(columns, rows, "models under each judge, on common cases")
    rows = []
    for ranking in judges.rankings:
        best = [f"{n} of {k}" for k, n in ranking.top.items()]
        row = [
            ranking.first,
            ranking.second,
            ranking.shift,
            ranking.mean_absolute_difference,
            ranking.spearman,
            ranking.kendall,
            ", ".join(best),
            ranking.kept,
            "; ".join(map(" and ".join, ranking.reversed)),
        ]
        rows.append(row)
    if rows:
        columns = ["first", "second", "second less first", "mean |difference|"]
        columns += ["Spearman", "Kendall", "same best", "pairs in order", "other order"]
        yield Grid(columns, rows, "the order of models")


@app.command()
def settle(
    run_dir: RunArgument,
    judge: JudgesOption = None,
    human: HumanOption = None,
    adjudicator: AdjudicatorOption = None,
) -> Result:
    """Write a third grading of a run: both judges where they agree, people where not, else ungraded.

    People's ratings are a study's (a grader check of the review desk) or of a file. The same files again add
    nothing.
    """
    settled = settling.settle(
        run_dir, judge or (), human=human or (), adjudicator=adjudicator
    )
    names = ("name", "judge", "judges", "criteria", "agreed", "people", "overruled")
    value = fields_of(settled, (*names, "new")) | {"open": len(settled.open)}
    notes = list(settled.notes)
    if settled.overruled:
        notes.append(
            f"on {settled.overruled} criteria people decided against both judges; the judges' verdict stands"
        )
    columns = ["criteria", "judges agree", "settled by people", "left", "new rows"]
    row = [settled.criteria, settled.agreed, settled.people, value["open"], settled.new]
    option = f"--judge {settled.judge.removeprefix('sha256:')[:12]}"
    return Result(value, [Grid(columns, [row], settled.name), option], notes)
