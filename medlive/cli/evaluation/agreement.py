"""`medlive eval meta` and `judges`: how far a run's grading can be trusted, and several judges of the same answers."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    AllowOption,
    DrawsOption,
    JudgeOption,
    RunArgument,
    RunsArgument,
    SeedOption,
    read_allowed,
)
from medlive.cli.options import Commands, ReplaceOption
from medlive.cli.output import Grid, Result, fields_of, new_file
from medlive.evaluation.agreement import settle as settling
from medlive.evaluation.agreement.judges import Judges, compare_judges
from medlive.evaluation.agreement.meta import Meta, meta_run
from medlive.evaluation.scoring.refusals import marked
from medlive.report.html import format_p
from medlive.report.tables import json_bytes, write_whole
from medlive.statistics.raters import Reliability

HumanOption = Annotated[
    list[Path] | None, Option("--human", help="People's ratings; repeatable.")
]
AdjudicatorOption = Annotated[
    str | None,
    Option(
        "--adjudicator", metavar="NAME", help="The rater who settled disagreements."
    ),
]
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


def meta(
    run_dir: RunArgument,
    *,
    human: HumanOption = None,
    adjudicator: AdjudicatorOption = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    out: Path | None = None,
    replace: ReplaceOption = False,
) -> Result:
    """Compare a run's grading with people, with a direct judge and with itself.

    Args:
        out: A folder to write meta.json into.
    """
    file = None if out is None else out / "meta.json"
    if file is not None:
        new_file(file, replace)
    grading = meta_run(
        run_dir,
        human=human or (),
        adjudicator=adjudicator,
        judge=judge,
        draws=draws,
        seed=seed,
        allow=read_allowed(allow),
    )
    value = grading.as_json()
    if file is not None:
        write_whole(file, json_bytes(value))
    return Result(value, _tables(grading), grading.notes)


def _tables(meta: Meta) -> Iterator[Grid]:
    titled = partial(marked, overridden=meta.overridden)
    if (rated := meta.coverage) is not None and meta.human is not None:
        columns = ["criteria", "rated", "by two or more", "graded", "invalid"]
        row = [
            rated.criteria,
            rated.rated,
            rated.rated_twice,
            rated.graded,
            rated.invalid,
            rated.ungraded,
            rated.cases_rated,
            f"{rated.cases_scored_by_people} {rated.people_scores}",
        ]
        yield Grid(
            [*columns, "ungraded", "cases rated", "case scores"],
            [row],
            titled(
                f"{meta.run['model']} graded by {meta.grader['name']}, people: {meta.human['file']}"
            ),
        )
    if meta.criteria is not None:
        yield from _criteria_tables(meta.criteria, titled)
    rows = []
    for case in meta.cases:
        row = [case.method, case.judge, case.pearson, format_p(case.pearson.p)]
        row += [case.spearman, case.pearson.n, case.mean, case.mean_people]
        rows.append(row)
    if rows:
        columns = ["method", "judge", "Pearson", "p", "Spearman", "n", "mean"]
        yield Grid(
            [*columns, "people's mean"],
            rows,
            titled("case scores against people's mean"),
        )
    if (repeated := meta.repeated) is not None:
        met = ["–" if share is None else f"{share:.1%}" for share in repeated.met]
        row = [
            repeated.rounds,
            repeated.criteria,
            repeated.unanimous,
            ", ".join(met),
            repeated.invalid,
            repeated.equal,
            repeated.ac1,
            repeated.score_range,
        ]
        columns = ["rounds", "criteria", "unanimous", "met in each", "no verdict"]
        yield Grid(
            [*columns, "equal pairs", "AC1", "range of a case's score"],
            [row],
            titled("the grader with itself"),
        )


def _criteria_tables(
    reliability: Reliability, titled: Callable[[str], str]
) -> Iterator[Grid]:
    pairs = [*reliability.people, *reliability.grader]
    if reliability.majority is not None:
        pairs.append(reliability.majority)
    agreements, confusions = [], []
    for pair in pairs:
        table = pair.confusion
        row = [pair.first, pair.second, pair.equal.n, pair.equal, pair.ac1, pair.kappa]
        row += [pair.macro_f1, pair.first_rate, pair.second_rate, table.invalid]
        agreements.append(row)
        counts = [table.both_met, table.first_only, table.second_only, table.neither]
        confusions.append([pair.first, pair.second, *counts])
    columns = ["first", "second", "n", "equal", "AC1", "kappa", "macro-F1"]
    yield Grid(
        [*columns, "met by first", "by second", "invalid"],
        agreements,
        titled("criteria, with 95 % intervals over cases"),
    )
    columns = ["first", "second", "both met", "first only", "second only", "neither"]
    yield Grid(columns, confusions, titled("confusion"))
    summary = {
        "AC1, all people at once": reliability.people_ac1,
        "macro-F1, mean over pairs of people": reliability.people_macro_f1,
        "AC1, grader, mean over people": reliability.grader_ac1,
        "macro-F1, grader, mean over people": reliability.grader_macro_f1,
    }
    if (by := reliability.by_case) is not None:
        summary["macro-F1 by case, mean"] = by.mean
        summary[f"share of cases under {by.threshold}"] = by.below
    if (strict := reliability.strictness) is not None:
        summary["share met, grader"] = strict.grader
        summary["share met, people"] = strict.people
        summary["grader less people"] = strict.difference
    rows = []
    for figure, estimate in summary.items():
        rows.append([figure, estimate, estimate.n, estimate.clusters])
    yield Grid(["figure", "value", "n", "cases"], rows, titled("summary"))


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
    return Result(comparison.as_json(), _judges_tables(comparison), comparison.notes)


def _judges_tables(judges: Judges) -> Iterator[Grid]:
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
        rows.append([*row, case.mean_absolute_difference, case.spearman.n])
    columns = ["model", "first", "second", "Spearman", "Kendall", "mean |difference|"]
    yield Grid([*columns, "cases"], rows, "scores of a model's cases")
    rows = []
    for own in judges.scores:
        rows.append([own.model, own.judge, own.score, own.score.n])
    columns = ["model", "judge", "score", "cases"]
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
            "; ".join(map(" and ".join, ranking.reversed)),
        ]
        rows.append(row)
    if rows:
        columns = ["first", "second", "second less first", "mean |difference|"]
        columns += ["Spearman", "Kendall", "same best", "other order"]
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
