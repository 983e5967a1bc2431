"""`medlive eval meta`: how far a run's grading can be trusted."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.cli.evaluation.options import RunArgument
from medlive.cli.options import JsonOption, ReplaceOption, grouped
from medlive.cli.output import (
    new_file,
    pick,
    print_result,
    print_table,
)
from medlive.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """What people said of the run."""

    human: Annotated[
        list[Path] | None, Option(metavar="FILE", help="People's ratings; repeatable.")
    ] = None
    adjudicator: Annotated[
        str | None, Option(metavar="NAME", help="The rater who settled disagreements.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What else the grading is compared with."""

    baseline: Annotated[
        list[Path] | None,
        Option(help="Scores by case: a file, or a run of judge-direct."),
    ] = None
    judge: Annotated[str | None, Option(help="The grader, by digest or model.")] = None


@grouped
def meta(
    run_dir: RunArgument,
    *,
    people: People,
    others: Others,
    draws: Annotated[int, Option(min=100, max=100_000, help="Bootstrap draws.")] = 1000,
    seed: Annotated[int, Option(min=0, help="Of the bootstrap.")] = 0,
    quality: Annotated[
        list[Path] | None, Option(metavar="FILE", help="Ratings of the cases.")
    ] = None,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, Option(help="A folder to write meta.json into.")
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Compare a run's grading with people, with a direct judge and with itself.

    With --quality it reads people's ratings of the cases instead.
    """
    from medlive.evaluation.agreement.case_ratings import quality as read_quality
    from medlive.evaluation.agreement.meta import meta_run
    from medlive.report.tables import json_bytes, write_whole

    if quality and any(
        (people.human, people.adjudicator, others.baseline, others.judge)
    ):
        raise UsageError(
            "--quality is about the cases alone: leave what compares answers out"
        )
    file = None if out is None else out / ("quality.json" if quality else "meta.json")
    if file is not None:
        new_file(file, replace)
    found: Any
    if quality:
        found = read_quality(run_dir, quality, draws=draws, seed=seed)
    else:
        found = meta_run(
            run_dir,
            human=people.human or (),
            adjudicator=people.adjudicator,
            judge=others.judge,
            baselines=others.baseline or (),
            draws=draws,
            seed=seed,
        )
    if file is not None:
        write_whole(file, json_bytes(found.as_json()))
    show = _show_quality if quality else _show
    print_result(found.as_json(), as_json, lambda: show(found), notes=found.notes)


def print_figures(
    columns: list[str], rows: Iterable[Iterable[Any]], title: str
) -> None:
    """Print a table whose cells may be estimates."""
    print_table(
        columns,
        [[_figure(c) if hasattr(c, "why") else c for c in row] for row in rows],
        title=title,
    )


def _figure(e: Any) -> str:
    """A value with its interval, or why there is none."""
    if e.value is None:
        return f"- ({e.why})"
    return f"{e.value:.3f}" + (
        f" [{e.low:.3f}, {e.high:.3f}]" if e.low is not None else f" ({e.why})"
    )


def _show_quality(found: Any) -> None:
    names = [one.aspect.replace("_", " ") for one in found.aspects]
    named = list(zip(names, found.aspects, strict=True))
    print_figures(
        ["aspect", "scale", "rater", "agrees (1 and more)", "n"],
        [
            [name, f"0 to {one.values - 1}", *row]
            for name, one in named
            for row in pick(one.raters, "rater agreed agreed.n")
        ],
        f"people on the cases of {found.cases}: {found.files}",
    )
    figures = zip(
        names, pick(found.aspects, "equal ac1 macro_f1 ac1.n ac1.clusters"), strict=True
    )
    rows = [[name, *row] for name, row in figures]
    print_figures(
        ["aspect", "equal", "AC1", "macro-F1", "n", "cases"],
        rows,
        "all raters at once, with 95 % intervals over cases",
    )


def _show(found: Any) -> None:
    from medlive.report.html import format_p

    if (c := found.coverage) is not None:
        (row,) = pick(
            [c], "criteria rated rated_twice graded invalid ungraded cases_rated"
        )
        print_figures(
            [
                "criteria",
                "rated",
                "by two or more",
                "graded",
                "invalid",
                "ungraded",
                "cases rated",
                "case scores",
            ],
            [[*row, f"{c.cases_scored_by_people} {c.people_scores}"]],
            f"{found.run['model']} graded by {found.grader['name']}, people: {found.human['file']}",
        )
    if found.criteria is not None:
        _show_criteria(found.criteria)
    if found.cases:
        print_figures(
            [
                "method",
                "judge",
                "Pearson",
                "p",
                "Spearman",
                "n",
                "mean",
                "people's mean",
                "rubric better by",
            ],
            [
                [
                    v.method,
                    v.judge,
                    v.pearson,
                    format_p(v.pearson.p),
                    v.spearman,
                    v.pearson.n,
                    v.mean,
                    v.mean_people,
                    v.gain,
                ]
                for v in found.cases
            ],
            "case scores against people's mean",
        )
    if found.repeated is not None:
        names = "stability.rounds stability.criteria stability.unanimous equal ac1 score_range"
        columns = [
            "rounds",
            "criteria",
            "unanimous",
            "equal pairs",
            "AC1",
            "range of a case's score",
        ]
        print_figures(columns, pick([found.repeated], names), "the grader with itself")


def _show_criteria(found: Any) -> None:
    pairs = [
        *found.people,
        *found.grader,
        *([found.majority] if found.majority else []),
    ]
    invalid = [[p.confusion.invalid_met + p.confusion.invalid_not_met] for p in pairs]
    rows = pick(
        pairs, "first second equal.n equal ac1 kappa macro_f1 first_rate second_rate"
    )
    print_figures(
        [
            "first",
            "second",
            "n",
            "equal",
            "AC1",
            "kappa",
            "macro-F1",
            "met by first",
            "by second",
            "invalid",
        ],
        [row + more for row, more in zip(rows, invalid, strict=True)],
        "criteria, with 95 % intervals over cases",
    )
    names = "first second confusion.both_met confusion.first_only confusion.second_only confusion.neither"
    columns = ["first", "second", "both met", "first only", "second only", "neither"]
    print_figures(columns, pick(pairs, names), "confusion")
    summary = [
        ["AC1, all people at once", found.people_ac1],
        ["macro-F1, mean over pairs of people", found.people_macro_f1],
        ["AC1, grader, mean over people", found.grader_ac1],
        ["macro-F1, grader, mean over people", found.grader_macro_f1],
    ]
    if (by := found.by_case) is not None:
        summary += [
            ["macro-F1 by case, mean", by.mean],
            [f"share of cases under {by.threshold}", by.below],
        ]
    if (strict := found.strictness) is not None:
        summary += [
            ["share met, grader", strict.grader],
            ["share met, people", strict.people],
            ["grader less people", strict.difference],
        ]
    print_figures(
        ["figure", "value", "n", "cases"],
        [[name, e, e.n, e.clusters] for name, e in summary],
        "summary",
    )
