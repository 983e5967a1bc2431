"""`medlive eval meta`: compare a grader with people; `eval judges compare`: compare judges of the same answers."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.output import Grid, Result, fields_of, table_of
from medlive.evaluation.agreement.judges import compare_judges
from medlive.evaluation.agreement.meta import meta_run
from medlive.evaluation.scoring.refusals import marked
from medlive.statistics.raters import Reliability

from .options import (
    AllowOption,
    DrawsOption,
    JudgeOption,
    RunArgument,
    RunsArgument,
)

JudgesOption = Annotated[
    list[str] | None,
    Option(
        metavar="DIGEST",
        help="A judge, by digest or model; repeatable [all].",
    ),
]
HumanOption = Annotated[list[Path] | None, Option(help="People's ratings; repeatable.")]
AdjudicatorOption = Annotated[
    str | None, Option(help="The rater who settled disagreements.")
]


def meta(
    run_dir: RunArgument,
    *,
    human: HumanOption = None,
    adjudicator: AdjudicatorOption = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    draws: DrawsOption = 1000,
) -> Result:
    """Compare a run's grading with people, with a direct judge and with itself.

    Save what --json prints in a file for `medlive eval report --meta`.
    """
    grading = meta_run(
        run_dir,
        human=human or (),
        adjudicator=adjudicator,
        judge=judge,
        draws=draws,
        allow=allow or (),
    )
    titled = partial(marked, overridden=grading.overridden)
    shown: list[Grid] = []
    if grading.coverage is not None and grading.human is not None:
        counts = ("criteria", "rated", "graded", "invalid", "ungraded")
        title = titled(
            f"{grading.run['model']} graded by {grading.grader['name']}, people: {grading.human['file']}"
        )
        more = ("cases_rated", "cases_scored_by_people", "people_scores")
        shown.append(table_of([grading.coverage], (*counts, *more), title))
    if grading.criteria is not None:
        shown += _criteria_tables(grading.criteria, titled)
    names = ("method", "judge", "pearson", "spearman", "mean", "mean_people")
    title = titled("case scores against people's mean")
    shown.append(table_of(grading.cases, names, title))
    if grading.repeated is not None:
        rounds = ("rounds", "invalid", "equal", "ac1")
        title = titled("the grader with itself")
        shown.append(table_of([grading.repeated], (*rounds, "score_range"), title))
    return Result(grading, shown, grading.notes)


_PAIR = ("first", "second", "equal", "ac1", "kappa", "macro_f1")
_RATES = ("first_rate", "second_rate")


def _criteria_tables(
    reliability: Reliability,
    titled: Callable[[str], str],
) -> Iterator[Grid]:
    """Agreement on criteria by pair of raters, and its summary; `titled` adds to a title what was overridden."""
    pairs = [*reliability.people, *reliability.grader]
    if reliability.majority is not None:
        pairs.append(reliability.majority)
    title = titled("criteria, with 95 % intervals over cases")
    yield table_of(pairs, (*_PAIR, *_RATES), title)
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
    yield Grid(["figure", "value"], summary.items(), titled("summary"))


def compare(
    runs: RunsArgument,
    judge: JudgesOption = None,
    *,
    draws: DrawsOption = 1000,
) -> Result:
    """Compare judges on criteria, and the order of models under each.

    Takes a run that several judges graded, or several runs with the same answers. With at least two models, shows
    also whether the models are in the same order under each two judges.
    """
    comparison = compare_judges(runs, judge or (), draws=draws)
    rows = []
    for row in comparison.criteria:
        pair = row["pair"]
        about = {"differ": pair.confusion.differing, "undecided": row["undecided"]}
        rows.append(fields_of(pair, (*_PAIR[:-1], *_RATES)) | about)
    orders = ("first", "second", "mean_absolute_difference", "spearman", "kendall")
    title = "models under each judge, on common cases"
    shown = [
        table_of(rows, list(rows[0]), "criteria, with 95 % intervals over cases"),
        table_of(comparison.scores, ("model", "judge", "score"), title),
        table_of(comparison.rankings, orders, "the order of models"),
    ]
    return Result(comparison, shown, comparison.notes)
