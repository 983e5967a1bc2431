"""`medlive eval protocol`: other papers' methods on runs, with the options, plans and budgets of grading."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from typer import Option

from medlive.cli.evaluation.options import (
    AllowOption,
    AskArguments,
    Calls,
    CasesOption,
    Grader,
    JudgeOption,
    PlanArguments,
    RunsArgument,
    SeedOption,
    find_incomplete,
    load_checked,
    plan_or_ask,
    plan_result,
    plans_result,
)
from medlive.cli.options import Commands, read_settings
from medlive.cli.output import Grid, Result, progress
from medlive.errors import MedliveError, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.questions import QuestionsAsked
    from medlive.evaluation.protocols.model import Material, Protocol, Results, Table
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


@app.callback()
def _group() -> None:
    read_settings()  # They name the folder of plugins


@app.command("list")
def list_() -> Result:
    """List the protocols with their options."""
    from medlive.evaluation.protocols.registry import known_protocols

    value, rows = [], []
    for kind in known_protocols().values():
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
    runs: RunsArgument,
    out: OutFolderOption = Path("protocols"),
    option: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE")] = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    *,
    by: Grader,
    calls: Calls,
) -> Result:
    """Apply a protocol to the runs of one or more models.

    Without --grader the grader's role in config/models.toml is asked. What is on record is not asked again;
    --dry-run counts what can be asked now, not what builds on replies to come. Exit status 1 while questions are
    ungraded, 3 where no call was answered.

    Args:
        name: The protocol; `list` shows them.
        option: An option of the protocol.
    """
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.protocols.model import Subject
    from medlive.evaluation.protocols.registry import make_protocol
    from medlive.evaluation.scoring.score import labelled

    protocol = make_protocol(name, _options(option or []))
    graded, overridden = load_checked(runs, judge, allow)
    material = [Subject.of(run) for run in labelled(graded)]
    budget = _budget(calls, out)
    outcome = _apply(protocol, material, out, by, calls, budget)
    if isinstance(outcome, Plan):
        return plan_result(outcome.about, outcome, budget)
    done, results = outcome
    return _describe_results(protocol, results, done, budget, overridden)


def _budget(calls: Calls, out: Path) -> "Budget":
    """What may be spent, with what all protocols in a folder have cost already."""
    from medlive.evaluation.protocols.registry import known_protocols

    return calls.budget(logs=[out / f"{name}.jsonl" for name in known_protocols()])


def _find_unasked(work: "list[QuestionsAsked]") -> MedliveError | None:
    """The failure where questions are ungraded or a budget is spent."""
    left = sum(done.questions - done.settled for done in work)
    return find_incomplete(left, "questions are ungraded", work, always=True)


def _apply(
    protocol: "Protocol",
    material: "Material",
    out: Path,
    by: Grader,
    calls: Calls,
    budget: "Budget",
) -> "Plan | tuple[QuestionsAsked | None, Results]":
    """With --dry-run what would be asked, else what a judge was asked, if anything, and the results."""
    from medlive.api import UNASKED, ask_protocol
    from medlive.evaluation.protocols.runner import plan_protocol

    if not protocol.asks:
        return None, protocol.results(material, UNASKED)

    def plan(engine: "Engine", **how: Unpack[PlanArguments]) -> "Plan":
        return plan_protocol(protocol, material, out, engine.identity, **how)

    async def ask(
        engine: "Engine", **how: Unpack[AskArguments]
    ) -> "tuple[QuestionsAsked, Results]":
        with progress(f"{protocol.name}: questions") as tick:
            return await ask_protocol(
                protocol,
                material,
                out,
                engine,
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
    calls: Calls,
) -> Result:
    """Apply every protocol that fits to runs of several models on several sets of cases, and compare the tasks.

    Runs of the same cases belong together; ranks, and how alike tasks rank models, come last, and on the page
    portfolio.html in --out. Exit status 1 while questions are ungraded.
    """
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.protocols.model import Subject
    from medlive.evaluation.protocols.portfolio import Portfolio, TaskResults, portfolio
    from medlive.evaluation.protocols.registry import fitting
    from medlive.report.portfolio import write_portfolio

    graded, overridden = load_checked(runs, judge, allow)
    subjects = [Subject.of(run) for run in graded]
    tasks: list[TaskResults] = []
    tables: list[Table] = []
    plans: dict[str, Plan] = {}
    asked: list[QuestionsAsked] = []
    budget = _budget(calls, out)
    for task, protocol, material in fitting(subjects):
        outcome = _apply(protocol, material, out, by, calls, budget)
        if isinstance(outcome, Plan):
            plans[task] = outcome
            continue
        done, results = outcome
        if done is not None:
            asked.append(done)
        tasks.append(TaskResults.of(task, protocol, results, done))
        tables += results.tables
    if calls.dry_run:
        return plans_result(plans, budget) if plans else Result({})
    if not tasks:
        raise UsageError(
            "no protocol fits these runs",
            hint="`eval protocol list` says what each works on",
        )
    figures = {task.task: task.figures for task in tasks}
    whole = Portfolio(
        tasks=tuple(tasks),
        tables=portfolio(figures),
        overridden=tuple(overridden),
    )
    page = write_portfolio(whole, out)
    return Result(
        whole.model_dump(mode="json") | {"spent": budget.as_json()},
        describe_tables([*tables, *whole.tables], overridden),
        [*(objection.why for objection in overridden), f"page: {page}"],
        _find_unasked(asked),
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
    from medlive.evaluation.protocols.safety.errors import plant
    from medlive.evaluation.runs.folder import write_whole
    from medlive.integrity.digest import canonical_json
    from medlive.integrity.log import writing

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


def _options(options: list[str]) -> dict[str, object]:
    """NAME=VALUE as a mapping; a value that begins with [ is a JSON list. Raises UsageError."""
    values: dict[str, object] = {}
    for option in options:
        name, sign, value = option.partition("=")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, not {option!r}")
        try:
            values[name.replace("-", "_")] = (
                json.loads(value) if value.startswith("[") else value
            )
        except ValueError as exc:
            raise UsageError(f"--set {name} is not a JSON list: {exc}") from exc
    return values


def _describe_results(
    protocol: "Protocol",
    results: "Results",
    done: "QuestionsAsked | None",
    budget: "Budget",
    overridden: "list[Objection]",
) -> Result:
    from medlive.evaluation.protocols.portfolio import TaskResults

    value = TaskResults.of(protocol.name, protocol, results, done)
    notes = [*(objection.why for objection in overridden), *value.notes]
    for why, n in (done.reasons if done else {}).items():
        notes.append(f"ungraded: {n}: {why}")
    return Result(
        value.model_dump(mode="json") | {"spent": budget.as_json()},
        describe_tables(results.tables, overridden),
        notes,
        _find_unasked([done] if done else []),
    )


def describe_tables(
    tables: "Sequence[Table]", overridden: "Sequence[Objection]" = ()
) -> Iterator[Grid | str]:
    """Tables for people, and in each title what was overridden."""
    from medlive.evaluation.protocols.model import format_cell
    from medlive.evaluation.scoring.refusals import marked

    for table in tables:
        rows = [list(map(format_cell, row)) for row in table.rows]
        yield Grid(table.columns, rows, marked(table.title, overridden))
        if table.note:
            yield table.note
            yield ""
