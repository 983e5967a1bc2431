"""`medlive eval meta`: how far a run's grading can be trusted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.evaluation.options import (
    AllowOption,
    JudgeOption,
    RunArgument,
    read_allowed,
)
from medlive.cli.evaluation.records import records
from medlive.cli.options import ReplaceOption
from medlive.cli.output import Grid, Result, new_file

if TYPE_CHECKING:
    from medlive.evaluation.agreement.meta import Meta
    from medlive.statistics.raters import Reliability


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """What people said of the run.

    Attributes:
        human: People's ratings; repeatable.
        adjudicator: The rater who settled disagreements.
    """

    human: list[Path] | None = None
    adjudicator: Annotated[str | None, Option(metavar="NAME")] = None


def meta(
    run_dir: RunArgument,
    *,
    people: People,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    draws: Annotated[int, Option(min=100, max=100_000)] = 1000,
    seed: Annotated[int, Option(min=0)] = 0,
    out: Path | None = None,
    replace: ReplaceOption = False,
) -> Result:
    """Compare a run's grading with people, with a direct judge and with itself.

    Args:
        draws: Bootstrap draws.
        seed: Of the bootstrap.
        out: A folder to write meta.json into.
    """
    from medlive.evaluation.agreement.meta import meta_run
    from medlive.report.tables import json_bytes, write_whole

    file = None if out is None else out / "meta.json"
    if file is not None:
        new_file(file, replace)
    grading = meta_run(
        run_dir,
        human=people.human or (),
        adjudicator=people.adjudicator,
        judge=judge,
        draws=draws,
        seed=seed,
        allow=read_allowed(allow),
    )
    result = Result(grading.as_json(), _tables(grading), grading.notes)
    if file is not None:
        write_whole(file, json_bytes(result.value))
    return result


def _tables(meta: "Meta") -> Iterator[Grid]:
    from medlive.evaluation.scoring.refusals import marked
    from medlive.report.html import format_p

    titled = partial(marked, overridden=meta.overridden)
    if meta.coverage is not None and meta.human is not None:
        yield records(
            titled(
                f"{meta.run['model']} graded by {meta.grader['name']}, people: {meta.human['file']}"
            ),
            [meta.coverage],
            {
                "criteria": lambda c: c.criteria,
                "rated": lambda c: c.rated,
                "by two or more": lambda c: c.rated_twice,
                "graded": lambda c: c.graded,
                "invalid": lambda c: c.invalid,
                "ungraded": lambda c: c.ungraded,
                "cases rated": lambda c: c.cases_rated,
                "case scores": lambda c: (
                    f"{c.cases_scored_by_people} {c.people_scores}"
                ),
            },
        )
    if meta.criteria is not None:
        yield from _criteria_tables(meta.criteria, titled)
    if meta.cases:
        yield records(
            titled("case scores against people's mean"),
            meta.cases,
            {
                "method": lambda c: c.method,
                "judge": lambda c: c.judge,
                "Pearson": lambda c: c.pearson,
                "p": lambda c: format_p(c.pearson.p),
                "Spearman": lambda c: c.spearman,
                "n": lambda c: c.pearson.n,
                "mean": lambda c: c.mean,
                "people's mean": lambda c: c.mean_people,
            },
        )
    if meta.repeated is not None:
        yield records(
            titled("the grader with itself"),
            [meta.repeated],
            {
                "rounds": lambda r: r.rounds,
                "criteria": lambda r: r.criteria,
                "unanimous": lambda r: r.unanimous,
                "met in each": lambda r: ", ".join(map(_percent, r.met)),
                "no verdict": lambda r: r.invalid,
                "equal pairs": lambda r: r.equal,
                "AC1": lambda r: r.ac1,
                "range of a case's score": lambda r: r.score_range,
            },
        )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _criteria_tables(
    reliability: "Reliability", titled: Callable[[str], str]
) -> Iterator[Grid]:
    pairs = [*reliability.people, *reliability.grader]
    if reliability.majority is not None:
        pairs.append(reliability.majority)
    yield records(
        titled("criteria, with 95 % intervals over cases"),
        pairs,
        {
            "first": lambda p: p.first,
            "second": lambda p: p.second,
            "n": lambda p: p.equal.n,
            "equal": lambda p: p.equal,
            "AC1": lambda p: p.ac1,
            "kappa": lambda p: p.kappa,
            "macro-F1": lambda p: p.macro_f1,
            "met by first": lambda p: p.first_rate,
            "by second": lambda p: p.second_rate,
            "invalid": lambda p: p.confusion.invalid,
        },
    )
    yield records(
        titled("confusion"),
        pairs,
        {
            "first": lambda p: p.first,
            "second": lambda p: p.second,
            "both met": lambda p: p.confusion.both_met,
            "first only": lambda p: p.confusion.first_only,
            "second only": lambda p: p.confusion.second_only,
            "neither": lambda p: p.confusion.neither,
        },
    )
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
    yield records(
        titled("summary"),
        summary.items(),
        {
            "figure": lambda row: row[0],
            "value": lambda row: row[1],
            "n": lambda row: row[1].n,
            "cases": lambda row: row[1].clusters,
        },
    )
