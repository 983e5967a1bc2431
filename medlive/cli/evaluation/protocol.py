"""`medlive eval protocol`: other papers' methods on runs, with the options, plans and budgets of grading."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    AllowOption,
    Cache,
    Calls,
    CasesOption,
    Grader,
    JudgeOption,
    RunsArgument,
    SeedOption,
    check_runs,
    find_incomplete,
    load_runs,
    plan_or_ask,
    plan_result,
    plans_result,
    read_allowed,
)
from medlive.cli.options import Commands, read_settings
from medlive.cli.output import Grid, Result, progress
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.questions import QuestionsAsked
    from medlive.evaluation.protocols.model import Material, Protocol, Results, Table
    from medlive.evaluation.scoring.graded import GradedRun
    from medlive.evaluation.scoring.refusals import Objection
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine

_WRITTEN = (
    "case_id",
    "turns",
    "advice",
    "language",
    "post_time",
    "source",
    "theme",
    "specialty",
    "tags",
)
"""Fields of a case with a planted error: narrative and query are its one turn."""

app = Commands(help="Evaluate by other papers' methods: coverage, comparison and more.")
OutFolderOption = Annotated[
    Path,
    Option("--out", help="Folder of what judges said; a repeated run goes on there."),
]


@app.command("list")
def list_() -> Result:
    """List the protocols with their options."""
    from medlive.evaluation.protocols.registry import PROTOCOLS

    value, rows = [], []
    for kind in PROTOCOLS.values():
        row = {
            "name": kind.name,
            "about": kind.about,
            "figure": kind.figure,
            "asks": kind.asks,
            "options": kind.model_json_schema().get("properties", {}),
        }
        value.append(row)
        options = []
        for name, field in kind.model_fields.items():
            if name not in ("draws", "seed"):
                default = "required" if field.is_required() else field.default
                options.append(f"{name} = {default}: {field.description}")
        rows.append([kind.name, f"{kind.about}; {kind.figure}", options or "none"])
    columns = ["protocol", "what it does, and its figure", "options"]
    return Result(value, [Grid(columns, rows)])


@app.command()
def run(
    name: str,
    runs: Annotated[
        list[Path] | None, Argument(callback=lambda paths: check_runs(paths or []))
    ] = None,
    pairs: Path | None = None,
    out: OutFolderOption = Path("protocols"),
    option: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE")] = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    *,
    by: Grader,
    cache: Cache,
    calls: Calls,
) -> Result:
    """Apply a protocol to the runs of one or more models, or to pairs of a document and a text.

    Without --grader the grader's role in config/models.toml is asked. What is on record is not asked again;
    --dry-run counts what can be asked now, not what builds on replies to come. Exit status 1 while questions are
    ungraded, 3 where no call was answered.

    Args:
        name: The protocol; `list` shows them.
        runs: Run folders.
        pairs: Instead of runs: JSON Lines of document and text, see docs/protocols.md.
        option: An option of the protocol.
    """
    from medlive.api import UNASKED
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.protocols.model import Subject
    from medlive.evaluation.protocols.registry import make_protocol
    from medlive.evaluation.scoring.score import labelled

    protocol = make_protocol(name, _options(option or []))
    overridden: list[Objection] = []
    material: Material
    if runs and pairs is None:
        graded, overridden = _checked(runs, judge, allow)
        material = [Subject.of(run) for run in labelled(graded)]
    else:
        material = _pairs(protocol, runs or [], pairs)
    if not protocol.asks:
        results = protocol.results(material, UNASKED)
        return _describe_results(protocol, results, None, overridden)
    budget = calls.budget()
    found = _plan_or_ask(protocol, material, out, by, cache, calls, budget)
    if isinstance(found, Plan):
        return plan_result(found.about, found, budget)
    done, results = found
    return _describe_results(protocol, results, done, overridden)


def _checked(
    runs: list[Path], judge: str | None, allow: list[str] | None
) -> "tuple[list[GradedRun], list[Objection]]":
    """The runs, and what is overridden to compare them. Raises Misleading."""
    from medlive.evaluation.scoring.refusals import check_figures

    graded = load_runs(runs, judge)
    return graded, check_figures(graded, read_allowed(allow))


def _pairs(protocol: "Protocol", runs: list[Path], pairs: Path | None) -> "Material":
    """The pairs of a file. Raises UsageError where runs are named beside it, or neither."""
    from medlive.evaluation.protocols.pairs import read_pairs

    if pairs is None or runs:
        raise UsageError("name run folders, or a file with --pairs")
    if not protocol.of_pairs:
        raise UsageError(
            f"{protocol.name} needs runs: a pair of texts has no question and no rubric"
        )
    return read_pairs(pairs)


def _plan_or_ask(
    protocol: "Protocol",
    material: "Material",
    out: Path,
    by: Grader,
    cache: Cache,
    calls: Calls,
    budget: "Budget",
) -> "Plan | tuple[QuestionsAsked, Results]":
    """With --dry-run what would be asked, else what a judge said and what it comes to."""
    from medlive.api import ask_protocol
    from medlive.evaluation.protocols.runner import plan_protocol

    def plan(engine: "Engine", **how: Any) -> "Plan":
        return plan_protocol(
            protocol, material, out, engine.identity, cache=cache.open(engine), **how
        )

    async def ask(engine: "Engine", **how: Any) -> "tuple[QuestionsAsked, Results]":
        with progress(f"{protocol.name}: questions") as tick:
            return await ask_protocol(
                protocol,
                material,
                out,
                engine,
                cache=cache.open(engine),
                progress=tick,
                **how,
            )

    return plan_or_ask(calls, by, budget, plan, ask)


@app.command("all")
def all_(
    runs: RunsArgument,
    out: OutFolderOption = Path("protocols"),
    judge: JudgeOption = None,
    allow: AllowOption = None,
    *,
    by: Grader,
    cache: Cache,
    calls: Calls,
) -> Result:
    """Apply every protocol that fits to runs of several models on several sets of cases, and compare the tasks.

    Runs of the same cases belong together; ranks, how alike tasks rank models, and the gaps between knowledge and
    execution, passive and active safety come last, and on the page portfolio.html in --out. Exit status 1 while
    questions are ungraded.
    """
    from medlive.api import UNASKED
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.protocols.model import Subject
    from medlive.evaluation.protocols.portfolio import Portfolio, TaskResults, portfolio
    from medlive.evaluation.protocols.registry import PROTOCOLS, fitting
    from medlive.report.portfolio import write_portfolio

    graded, overridden = _checked(runs, judge, allow)
    subjects = [Subject.of(run) for run in graded]
    budget = calls.budget()
    tasks: list[TaskResults] = []
    tables: list[Table] = []
    plans: dict[str, Plan] = {}
    left = 0
    for task, protocol, material in fitting(subjects):
        done: QuestionsAsked | None = None
        if protocol.asks:
            found = _plan_or_ask(protocol, material, out, by, cache, calls, budget)
            if isinstance(found, Plan):
                plans[task] = found
                continue
            done, results = found
            left += done.questions - done.settled
        else:
            results = protocol.results(material, UNASKED)
        tasks.append(TaskResults.of(task, protocol, results, done))
        tables += results.tables
    if calls.dry_run:
        return plans_result(plans, budget) if plans else Result({})
    if not tasks:
        raise UsageError(
            "no protocol fits these runs",
            hint="`eval protocol list` says what each works on",
        )
    sides = {task.task: PROTOCOLS[task.protocol].side for task in tasks}
    figures = {task.task: task.figures for task in tasks}
    whole = Portfolio(tasks=tuple(tasks), tables=portfolio(figures, sides))
    page = write_portfolio(whole, out)
    return Result(
        whole.model_dump(mode="json"),
        describe_tables([*tables, *whole.tables], overridden),
        [*(objection.why for objection in overridden), f"page: {page}"],
        find_incomplete(left, "questions are ungraded"),
    )


@app.command()
def errors(
    cases: CasesOption,
    out: Annotated[Path, Option()],
    seed: SeedOption = 0,
) -> Result:
    """Plant one error in the advice of cases, for models to find: `eval run` on them, then active-safety.

    Args:
        out: The file of cases to write, for eval run --cases.
    """
    from medlive.cli.evaluation.run import load_set
    from medlive.digest import canonical_json
    from medlive.evaluation.log import writing
    from medlive.evaluation.protocols.errors import plant
    from medlive.evaluation.runs.folder import write_whole

    if out.exists():
        raise UsageError(f"{out} exists", hint="name a new file")
    made, notes = plant(
        load_set(read_settings(), cases, unverified=False).cases, seed=seed
    )
    if not made:
        raise UsageError(f"no error can be planted in the advice of {cases}")
    lines = ""
    for case in made:
        row = case.row()
        written = {name: row[name] for name in _WRITTEN if row.get(name)}
        lines += canonical_json(written) + "\n"
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, lines.encode("utf-8", "backslashreplace"))
    return Result(out, [str(out)], notes)


def _options(given: list[str]) -> dict[str, Any]:
    """NAME=VALUE as a mapping; a value that begins with [ is a JSON list. Raises UsageError."""
    found: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, not {one!r}")
        try:
            found[name.replace("-", "_")] = (
                json.loads(value) if value.startswith("[") else value
            )
        except ValueError as exc:
            raise UsageError(f"--set {name} is not a JSON list: {exc}") from exc
    return found


def _describe_results(
    protocol: "Protocol",
    results: "Results",
    done: "QuestionsAsked | None",
    overridden: "list[Objection]",
) -> Result:
    from medlive.evaluation.protocols.portfolio import TaskResults

    value = TaskResults.of(protocol.name, protocol, results, done)
    notes = [*(objection.why for objection in overridden), *value.notes]
    failure = None
    if done is not None:
        for why, n in done.reasons.items():
            notes.append(f"ungraded: {n}: {why}")
        left = done.questions - done.settled
        failure = find_incomplete(left, "questions are ungraded", [done], always=True)
    shown = describe_tables(results.tables, overridden)
    return Result(value.model_dump(mode="json"), shown, notes, failure)


def describe_tables(
    tables: "Sequence[Table]", overridden: "Sequence[Objection]" = ()
) -> Iterator[Grid | str]:
    """Tables for people, each interval drawn as well, and in each title what was overridden."""
    from medlive.charts import Interval, interval_lines
    from medlive.evaluation.protocols.model import format_cell
    from medlive.evaluation.scoring.refusals import marked

    for table in tables:
        rows = [list(map(format_cell, row)) for row in table.rows]
        columns = list(table.columns)
        drawn = []
        for _, value, low, high in table.estimates:
            drawn.append(None if value is None else Interval(value, low, high))
        if drawn:
            columns.append("95 % interval")
            for row, line in zip(rows, interval_lines(drawn), strict=True):
                row.append(line)
        yield Grid(columns, rows, marked(table.title, overridden))
        if table.note:
            yield table.note
            yield ""
