"""`medlive eval protocol`: other papers' methods on runs, with the options, plans and budgets of grading."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.api import UNASKED, ask_protocol
from medlive.cli.evaluation.options import (
    AllowOption,
    CasesOption,
    Grading,
    JudgeOption,
    RunsArgument,
    SeedOption,
    find_incomplete,
    load_checked,
    plan_or_ask,
    plan_result,
    plans_result,
    reason_notes,
)
from medlive.cli.evaluation.run import load_set
from medlive.cli.options import Commands, read_settings
from medlive.cli.output import Grid, Result, new_file, progress
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.questions import QuestionsAsked, plan_questions
from medlive.evaluation.protocols.model import (
    Material,
    Protocol,
    Results,
    Table,
    format_cell,
)
from medlive.evaluation.protocols.portfolio import Portfolio, TaskResults, portfolio
from medlive.evaluation.protocols.registry import (
    fitting,
    known_protocols,
    make_protocol,
)
from medlive.evaluation.protocols.safety.errors import plant
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.evaluation.scoring.score import labelled
from medlive.integrity.digest import canonical_json
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.report.render import write_portfolio
from medlive.report.tables import write_whole

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
    Option(help="Folder of what judges said; a repeated run goes on there."),
]


@app.callback()
def _group() -> None:
    read_settings()  # They name the folder of plugins


@app.command("list")
def list_() -> Result:
    """List the protocols with their options."""
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
    by: Grading,
) -> Result:
    """Apply a protocol to the runs of one or more models.

    Without --grader the grader's role in config/models.toml is asked. What is on record is not asked again;
    --dry-run counts what can be asked now, not what builds on replies to come. Exit status 1 while questions are
    ungraded, 3 where no call was answered.

    Args:
        name: The protocol; `list` shows them.
        option: An option of the protocol.
    """
    options: dict[str, object] = {}
    for text in option or ():
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, not {text!r}")
        options[key.replace("-", "_")] = _read_value(key, value)
    protocol = make_protocol(name, options)
    graded, overridden = load_checked(runs, judge, allow)
    material = labelled(graded)
    budget = _budget(by, out)
    outcome = _apply(protocol, material, out, by, budget)
    if isinstance(outcome, Plan):
        return plan_result(outcome.about, outcome, budget)
    done, results = outcome
    task = TaskResults.from_results(protocol.name, protocol, results, done)
    notes = [*(objection.why for objection in overridden), *task.notes]
    if done:
        notes += reason_notes("ungraded", done.reasons)
    return _result(task, results.tables, overridden, notes, budget, [done])


def _read_value(name: str, text: str) -> object:
    """A value as it is, or the JSON list that it begins. Raises UsageError."""
    try:
        return json.loads(text) if text.startswith("[") else text
    except ValueError as exc:
        raise UsageError(f"--set {name} is not a JSON list: {exc}") from exc


def _budget(by: Grading, out: Path) -> Budget:
    """What may be spent, with what all protocols in a folder have cost already."""
    return by.budget(logs=[out / f"{name}.jsonl" for name in known_protocols()])


def _result(
    value: TaskResults | Portfolio,
    tables: Sequence[Table],
    overridden: list[Objection],
    notes: list[str],
    budget: Budget,
    asked: Sequence[QuestionsAsked | None],
) -> Result:
    """The figures; the failure where questions are ungraded or a budget is spent."""
    work = [done for done in asked if done]
    left = sum(done.left for done in work)
    return Result(
        value.model_dump(mode="json") | {"spent": budget.as_json()},
        describe_tables(tables, overridden),
        notes,
        find_incomplete(
            left,
            "question is ungraded",
            "questions are ungraded",
            work,
            always=True,
        ),
    )


def _apply(
    protocol: Protocol,
    material: Material,
    out: Path,
    by: Grading,
    budget: Budget,
) -> Plan | tuple[QuestionsAsked | None, Results]:
    """With --dry-run what would be asked, else what a judge was asked, if anything, and the results."""
    if not protocol.asks:
        return None, protocol.results(material, UNASKED)

    def plan(engine: Engine, **how: Any) -> Plan:
        return plan_questions(*protocol.work(material, out), engine.identity, **how)

    async def ask(engine: Engine, **how: Any) -> tuple[QuestionsAsked, Results]:
        with progress(f"{protocol.name}: questions") as tick:
            return await ask_protocol(
                protocol,
                material,
                out,
                engine,
                progress=tick,
                **how,
            )

    return plan_or_ask(by, budget, plan, ask)


@app.command("all")
def all_(
    runs: RunsArgument,
    out: OutFolderOption = Path("protocols"),
    judge: JudgeOption = None,
    allow: AllowOption = None,
    *,
    by: Grading,
) -> Result:
    """Apply every protocol that fits to runs of several models on several sets of cases, and compare the tasks.

    Runs of the same cases belong together; ranks, and how alike tasks rank models, come last, and on the page
    portfolio.html in --out. Exit status 1 while questions are ungraded.
    """
    graded, overridden = load_checked(runs, judge, allow)
    tasks: list[TaskResults] = []
    tables: list[Table] = []
    plans: dict[str, Plan] = {}
    asked: list[QuestionsAsked | None] = []
    budget = _budget(by, out)
    for task, protocol, material in fitting(graded):
        outcome = _apply(protocol, material, out, by, budget)
        if isinstance(outcome, Plan):
            plans[task] = outcome
            continue
        done, results = outcome
        asked.append(done)
        tasks.append(TaskResults.from_results(task, protocol, results, done))
        tables += results.tables
    if by.dry_run:
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
    notes = [objection.why for objection in overridden]
    notes.append(f"page: {write_portfolio(whole, out)}")
    every = [*tables, *whole.tables]
    return _result(whole, every, overridden, notes, budget, asked)


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
    new_file(out)
    made, notes = plant(load_set(cases, unverified=False).cases, seed=seed)
    if not made:
        raise UsageError(f"no error can be planted in the advice of {cases}")
    lines = ""
    for case in made:
        row = case.row()
        written = {name: row[name] for name in _WRITTEN if row.get(name)}
        lines += canonical_json(written) + "\n"
    write_whole(out, lines.encode("utf-8", "backslashreplace"))
    return Result(out, [str(out)], notes)


def describe_tables(
    tables: Sequence[Table],
    overridden: Sequence[Objection] = (),
) -> Iterator[Grid | str]:
    """Tables for people, and in each title what was overridden."""
    for table in tables:
        rows = [list(map(format_cell, row)) for row in table.rows]
        yield Grid(table.columns, rows, marked(table.title, overridden))
        if table.note:
            yield table.note
            yield ""
