"""`medlive eval judges`: several judges of the same answers, and what people settle between them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from medlive.cli.evaluation.meta import print_figures
from medlive.cli.evaluation.options import (
    DrawsOption,
    ErrataFileOption,
    ModeOption,
    RunArgument,
    RunsArgument,
    SeedOption,
    read_mode,
)
from medlive.cli.options import JsonOption, ReplaceOption, read_settings
from medlive.cli.output import attributes, echo, pick, print_result, print_table, say
from medlive.errors import UsageError

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
    they are in the same order under every two judges.
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
    sheet: Annotated[
        Path | None,
        Option(
            metavar="FOLDER", help="Write blind sheets of what is left, for --rater."
        ),
    ] = None,
    rater: Annotated[
        list[str] | None, Option(metavar="NAME", help="Who is to rate; repeatable.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of a sheet's order.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write a third grading of a run: both judges where they agree, people where not, else ungraded.

    People's ratings are a sheet's or a study's (a grader check of the review desk). The same files again add
    nothing.
    """
    from medlive.evaluation.agreement.settle import settle as settle_run
    from medlive.evaluation.agreement.sheets import write_open

    if bool(sheet) is not bool(rater):
        raise UsageError("--sheet and --rater belong together")
    found = settle_run(run_dir, judge or (), human=human or (), adjudicator=adjudicator)
    value = attributes(
        found, "name judge judges criteria agreed people overruled new"
    ) | {"open": len(found.open)}
    if sheet is not None:
        value["files"] = write_open(
            run_dir, sheet, rater or (), set(found.open), seed=seed
        ).files
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


@app.command()
def export(
    runs: RunsArgument,
    out: Annotated[Path, Option(help="The folder to write.")],
    mode: ModeOption = "rubric",
    validation: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL", help="A model of validation.jsonl; repeatable [drawn]."
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        Option(metavar="MODEL", help="A model of test.jsonl; repeatable [drawn]."),
    ] = None,
    judge: Annotated[
        str | None, Option(metavar="DIGEST", help="The settled grading, of several.")
    ] = None,
    errata_file: ErrataFileOption = None,
    seed: Annotated[int, Option(min=0, help="Of the draw of models.")] = 0,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write chat lines to fine-tune a local judge on, from settled runs, split by the model that answered.

    Each line is a request as a grader is sent it and a reply as it is read. What was withdrawn, cases that are not
    released, and what is not settled are left out; left_out.jsonl says which and why.
    """
    from medlive.evaluation.agreement.training import export_training
    from medlive.evaluation.scoring.errata import ErrataSearch
    from medlive.service.paths import snapshots_path

    search = ErrataSearch(errata_file, snapshots_path(read_settings()))
    made = export_training(
        runs,
        out,
        search,
        mode=read_mode(mode),
        judge=judge,
        validation=validation or (),
        test=test or (),
        seed=seed,
        replace=replace,
    )
    files = made["files"].items()
    rows = [
        [out / name, of["lines"], of.get("criteria"), of.get("met")]
        for name, of in files
    ]
    print_result(
        made,
        as_json,
        lambda: print_table(["file", "lines", "criteria", "met"], rows),
        notes=made["notes"],
    )
    for why, n in made["left_out"].items() if not as_json else ():
        say(f"left out: {n}: {why}")
