"""`medlive eval meta`: how far a run's grading can be trusted."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    AdjudicatorOption,
    AllowOption,
    HumanOption,
    JudgeOption,
    RunArgument,
    SeedOption,
    read_allowed,
)
from medlive.cli.options import ReplaceOption
from medlive.cli.output import Grid, Result, new_file
from medlive.evaluation.agreement.meta import Meta, meta_run
from medlive.evaluation.scoring.refusals import marked
from medlive.report.html import format_p
from medlive.report.tables import json_bytes, write_whole
from medlive.statistics.raters import Reliability


def meta(
    run_dir: RunArgument,
    *,
    human: HumanOption = None,
    adjudicator: AdjudicatorOption = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    draws: Annotated[int, Option(min=100, max=100_000)] = 1000,
    seed: SeedOption = 0,
    out: Path | None = None,
    replace: ReplaceOption = False,
) -> Result:
    """Compare a run's grading with people, with a direct judge and with itself.

    Args:
        draws: Bootstrap draws.
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
        row += [case.spearman, case.pearson.n, case.mean, case.mean_people, case.gain]
        rows.append(row)
    if rows:
        columns = ["method", "judge", "Pearson", "p", "Spearman", "n", "mean"]
        yield Grid(
            [*columns, "people's mean", "rubric better by"],
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
