"""`medlive eval judges`: several judges of the same answers, and what people settle between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    DrawsOption,
    RunArgument,
    RunsArgument,
    SeedOption,
)
from medlive.cli.evaluation.records import records
from medlive.cli.options import Commands
from medlive.cli.output import Grid, Result, fields_of

if TYPE_CHECKING:
    from medlive.evaluation.agreement.judges import GroupAgreement, Judges

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
    from medlive.evaluation.agreement.judges import compare_judges

    comparison = compare_judges(runs, judge or (), draws=draws, seed=seed)
    return Result(comparison.as_json(), _tables(comparison), comparison.notes)


def _tables(judges: "Judges") -> Iterator[Grid | str]:
    pairs: dict[tuple[str, str], list[GroupAgreement]] = {}
    for group in judges.criteria:
        names = group.pair.first, group.pair.second
        pairs.setdefault(names, []).append(group)
    for (first, second), groups in pairs.items():
        yield records(
            f"{first} and {second}, with 95 % intervals over cases",
            groups,
            {
                "criteria": lambda g: g.group,
                "n": lambda g: g.pair.equal.n,
                "differ": lambda g: g.pair.confusion.differing,
                "equal": lambda g: g.pair.equal,
                "AC1": lambda g: g.pair.ac1,
                "kappa": lambda g: g.pair.kappa,
                "met by first": lambda g: g.pair.first_rate,
                "met by second": lambda g: g.pair.second_rate,
                "undecided": lambda g: g.undecided,
            },
        )
    yield records(
        "scores of a model's cases",
        judges.cases,
        {
            "model": lambda c: c.model,
            "first": lambda c: c.first,
            "second": lambda c: c.second,
            "Spearman": lambda c: c.spearman,
            "Kendall": lambda c: c.kendall,
            "mean |difference|": lambda c: c.mean_absolute_difference,
            "cases": lambda c: c.spearman.n,
        },
    )
    yield records(
        "models under each judge, on common cases",
        judges.scores,
        {
            "model": lambda s: s.model,
            "judge": lambda s: s.judge,
            "score": lambda s: s.score,
            "cases": lambda s: s.score.n,
        },
    )
    if not judges.rankings:
        return
    yield records(
        "the order of models",
        judges.rankings,
        {
            "first": lambda r: r.first,
            "second": lambda r: r.second,
            "second less first": lambda r: r.shift,
            "mean |difference|": lambda r: r.mean_absolute_difference,
            "Spearman": lambda r: r.spearman,
            "Kendall": lambda r: r.kendall,
            "same best": lambda r: ", ".join(f"{n} of {k}" for k, n in r.top.items()),
            "other order": lambda r: "; ".join(map(" and ".join, r.reversed)),
        },
    )


@app.command()
def settle(
    run_dir: RunArgument,
    judge: JudgesOption = None,
    human: list[Path] | None = None,
    adjudicator: Annotated[str | None, Option(metavar="NAME")] = None,
) -> Result:
    """Write a third grading of a run: both judges where they agree, people where not, else ungraded.

    People's ratings are a study's (a grader check of the review desk) or of a file. The same files again add
    nothing.

    Args:
        human: People's ratings; repeatable.
        adjudicator: The rater who settles disagreements.
    """
    from medlive.evaluation.agreement.settle import settle as settle_run

    settled = settle_run(
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
    row = [
        settled.criteria,
        settled.agreed,
        settled.people,
        len(settled.open),
        settled.new,
    ]
    option = f"--judge {settled.judge.removeprefix('sha256:')[:12]}"
    return Result(value, [Grid(columns, [row], settled.name), option], notes)
