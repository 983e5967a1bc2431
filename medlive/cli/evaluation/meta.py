"""`medlive eval meta`: how far a run's grading can be trusted."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.cli.evaluation.options import RunArgument
from medlive.cli.options import JsonOption, ReplaceOption, grouped
from medlive.cli.output import new_file, print_result, print_table, say
from medlive.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """What people said of the run."""

    human: Annotated[list[Path] | None, Option(metavar="FILE", help="People's ratings; repeatable.")] = None
    adjudicator: Annotated[str | None, Option(metavar="NAME", help="The rater who settled disagreements.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What else the grading is compared with."""

    baseline: Annotated[list[Path] | None, Option(help="Scores by case: a file, or a run of judge-direct.")] = None
    against: Annotated[list[Path] | None, Option(help="The same answers in a run that another graded.")] = None
    judge: Annotated[str | None, Option(help="The grader, by digest or model.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheets:
    """Blank sheets for people to rate on."""

    sheet: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Write blank sheets for --rater; with --human and "
            "--adjudicator one of what they disagreed on. Compares nothing.",
        ),
    ] = None
    rater: Annotated[list[str] | None, Option(metavar="NAME", help="Who is to rate; any number of them.")] = None
    about: Annotated[str, Option(help="What a sheet asks about: answers, or the cases themselves.")] = "answers"
    sample: Annotated[int | None, Option(min=1, help="Cases on a sheet [all].")] = None


@grouped
def meta(
    run_dir: RunArgument,
    *,
    people: People,
    others: Others,
    top: Annotated[int | None, Option(min=1, help="k of the top-k overlap [a tenth of the cases].")] = None,
    draws: Annotated[int, Option(min=100, max=100_000, help="Bootstrap draws.")] = 1000,
    seed: Annotated[int, Option(min=0, help="Of the bootstrap, and of a sheet's order.")] = 0,
    sheets: Sheets,
    quality: Annotated[list[Path] | None, Option(metavar="FILE", help="Filled sheets on the cases.")] = None,
    as_json: JsonOption = False,
    out: Annotated[Path | None, Option(help="A folder to write meta.json into.")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Compare a run's grading with people, with a direct judge, with other graders and with itself.

    With --sheet it writes blank sheets for people to rate on, with --quality it reads those about the cases.
    """
    from medlive.evaluation.agreement.case_ratings import quality as read_quality
    from medlive.evaluation.agreement.meta import meta_run
    from medlive.report.tables import write_whole

    _check_options(sheets, quality, people, others, out)
    file = None if out is None else out / ("quality.json" if quality else "meta.json")
    if file is not None:
        new_file(file, replace)
    if sheets.sheet is not None:
        _write_sheets(run_dir, sheets.sheet, sheets, people, seed, as_json)
        return
    found: Any
    if quality:
        found = read_quality(run_dir, quality, draws=draws, seed=seed)
    else:
        found = meta_run(
            run_dir, human=people.human or (), adjudicator=people.adjudicator, judge=others.judge,
            baselines=others.baseline or (), against=others.against or (), top=top, draws=draws, seed=seed,
        )  # fmt: skip
    if file is not None:
        text = json.dumps(found.as_json(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        write_whole(file, text.encode("utf-8", "backslashreplace"))
    show = _show_quality if quality else _show
    print_result(found.as_json(), as_json, lambda: show(found), notes=found.notes)


def _check_options(
    sheets: Sheets, quality: list[Path] | None, people: People, others: Others, out: Path | None
) -> None:
    if sheets.about not in ("answers", "cases"):
        raise UsageError(f"--about {sheets.about}: choose answers or cases")
    if sheets.sheet is not None:
        if out is not None:
            raise UsageError("--sheet says where its files go, and compares nothing: leave --out out")
        return
    if sheets.rater or sheets.sample or sheets.about != "answers":
        raise UsageError("--rater, --sample and --about belong to --sheet")
    if quality and any((people.human, people.adjudicator, others.baseline, others.against, others.judge)):
        raise UsageError("--quality is about the cases alone: leave what compares answers out")


def _write_sheets(run_dir: Path, folder: Path, given: Sheets, people: People, seed: int, as_json: bool) -> None:
    from medlive.evaluation.agreement.case_ratings import write_quality_sheets
    from medlive.evaluation.agreement.sheets import MOST_CELL, write_sheets

    human, adjudicator, raters = people.human or [], people.adjudicator, given.rater or []
    if given.about == "cases" and (adjudicator or human):
        raise UsageError("--about cases takes --rater and --sample alone")
    if not adjudicator and not human:
        write = write_quality_sheets if given.about == "cases" else write_sheets
        made = write(run_dir, folder, raters, sample=given.sample, seed=seed)
    elif not adjudicator or not human or raters or given.sample:
        raise UsageError(
            "--sheet takes --rater, or for what raters disagreed on --human and --adjudicator",
            hint="medlive eval meta RUN --sheet FOLDER --rater A --rater B",
        )
    else:
        made = _adjudication(run_dir, folder, adjudicator, human, seed)
    print_result(
        {"files": made.files, "items": made.items, "cases": made.cases, "cut": made.cut, "seed": seed},
        as_json,
        lambda: print_table(
            ["file"], [[path] for path in made.files], title=f"{made.items} ratings of {made.cases} cases"
        ),
    )
    if made.cut:
        say(f"{made.cut} questions or answers exceed a spreadsheet's cell of {MOST_CELL:,} characters")


def _adjudication(run_dir: Path, folder: Path, adjudicator: str, human: list[Path], seed: int) -> Any:
    from medlive.evaluation.agreement.humans import read_humans
    from medlive.evaluation.agreement.sheets import items_of, places_of, write_adjudication
    from medlive.evaluation.runs.folder import open_run

    run = open_run(run_dir)
    ratings = read_humans(*human, items=places_of(items_of(run.cases, run.answers()[0])))
    for note in ratings.notes:
        say(note)
    return write_adjudication(run_dir, folder, adjudicator, ratings, seed=seed)


def _show_quality(found: Any) -> None:
    print_table(
        ["aspect", "scale", "rater", "agrees (1 and more)", "n"],
        [
            [one.aspect.replace("_", " "), f"0 to {one.values - 1}", share.rater, _figure(share.agreed),
             share.agreed.n]
            for one in found.aspects for share in one.raters
        ],
        title=f"people on the cases of {found.cases}: {found.files}",
    )  # fmt: skip
    print_table(
        ["aspect", "equal", "AC1", "n", "cases"],
        [
            [one.aspect.replace("_", " "), _figure(one.equal), _figure(one.ac1), one.ac1.n, one.ac1.clusters]
            for one in found.aspects
        ],
        title="all raters at once, with 95 % intervals over cases",
    )  # fmt: skip


def _show(found: Any) -> None:
    from medlive.report.html import format_p

    if found.coverage is not None:
        c = found.coverage
        print_table(
            ["criteria", "rated", "by two or more", "graded", "invalid", "ungraded", "cases rated", "case scores"],
            [[c.criteria, c.rated, c.rated_twice, c.graded, c.invalid, c.ungraded, c.cases_rated,
              f"{c.cases_scored_by_people} {c.people_scores}"]],
            title=f"{found.run['model']} graded by {found.grader['name']}, people: {found.human['file']}",
        )  # fmt: skip
    if found.criteria is not None:
        _show_criteria(found.criteria)
    if found.cases:
        print_table(
            ["method", "judge", "Pearson", "p", "Spearman", "n", "mean", "people's mean", "rubric better by"],
            [
                [v.method, v.judge, _figure(v.pearson), format_p(v.pearson.p), _figure(v.spearman), v.pearson.n,
                 _figure(v.mean), _figure(v.mean_people), _figure(v.gain) if v.gain else None]
                for v in found.cases
            ],
            title="case scores against people's mean",
        )  # fmt: skip
    if found.graders:
        print_table(
            ["graders", "equal", "AC1", "n", "Spearman", "Kendall", "mean |difference|", "top-k", "cases"],
            [
                [f"{g.criteria.first} / {g.criteria.second}", _figure(g.criteria.equal), _figure(g.criteria.ac1),
                 g.criteria.equal.n, _figure(g.spearman), _figure(g.kendall), _figure(g.mean_absolute_difference),
                 f"{g.top.shared} of {g.top.k}" if g.top else None, g.mean_absolute_difference.n]
                for g in found.graders
            ],
            title="graders of the same answers",
        )  # fmt: skip
    if (again := found.repeated) is not None:
        print_table(
            ["rounds", "criteria", "unanimous", "equal pairs", "AC1", "range of a case's score"],
            [[again.stability.rounds, again.stability.criteria, again.stability.unanimous, _figure(again.equal),
              _figure(again.ac1), _figure(again.score_range)]],
            title="the grader with itself",
        )  # fmt: skip


def _show_criteria(found: Any) -> None:
    pairs = [*found.people, *found.grader, *([found.majority] if found.majority else [])]
    print_table(
        ["first", "second", "n", "equal", "AC1", "kappa", "macro-F1", "met by first", "by second", "invalid"],
        [
            [p.first, p.second, p.equal.n, _figure(p.equal), _figure(p.ac1), _figure(p.kappa), _figure(p.macro_f1),
             _figure(p.first_rate), _figure(p.second_rate), p.confusion.invalid_met + p.confusion.invalid_not_met]
            for p in pairs
        ],
        title="criteria, with 95 % intervals over cases",
    )  # fmt: skip
    print_table(
        ["first", "second", "both met", "first only", "second only", "neither"],
        [
            [p.first, p.second, p.confusion.both_met, p.confusion.first_only, p.confusion.second_only,
             p.confusion.neither]
            for p in pairs
        ],
        title="confusion",
    )  # fmt: skip
    rows = [
        ["AC1, all people at once", found.people_ac1],
        ["macro-F1, mean over pairs of people", found.people_macro_f1],
        ["AC1, grader, mean over people", found.grader_ac1],
        ["macro-F1, grader, mean over people", found.grader_macro_f1],
    ]
    if (by := found.by_case) is not None:
        rows += [["macro-F1 by case, mean", by.mean], [f"share of cases under {by.threshold}", by.below]]
    if (strict := found.strictness) is not None:
        rows += [
            ["share met, grader", strict.grader], ["share met, people", strict.people],
            ["grader less people", strict.difference],
        ]  # fmt: skip
    print_table(
        ["figure", "value", "n", "cases"],
        [[name, _figure(e), e.n, e.clusters] for name, e in rows],
        title="summary",
    )


def _figure(e: Any) -> str:
    """A value with its interval, or why there is none."""
    if e.value is None:
        return f"- ({e.why})"
    return f"{e.value:.3f}" + (f" [{e.low:.3f}, {e.high:.3f}]" if e.low is not None else f" ({e.why})")
