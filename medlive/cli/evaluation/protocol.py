"""`medlive eval protocol list|run|all|errors`: other papers' methods on runs, with grading's options and budgets."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from medlive.api import UNASKED
from medlive.cli.output import Grid, Result, Shown, fields_of, refuse_existing
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.questions import QuestionsAsked, read_findings
from medlive.evaluation.protocols.model import Material, Protocol, Table, format_cell
from medlive.evaluation.protocols.planted import plant
from medlive.evaluation.protocols.portfolio import (
    PORTFOLIO,
    Portfolio,
    TaskResults,
    portfolio,
)
from medlive.evaluation.protocols.registry import (
    fitting,
    known_protocols,
    make_protocol,
)
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.evaluation.scoring.score import labelled
from medlive.instance.loading import read_settings
from medlive.integrity.digest import canonical_json
from medlive.integrity.log import write_whole
from medlive.llm.budget import Budget
from medlive.report.html import utf8

from .options import (
    CasesOption,
    GradedRuns,
    Grading,
    Work,
    Works,
    find_incomplete,
    plan_or_ask_questions,
    plans_result,
    reason_notes,
)
from .run import load_set

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
"""Fields that `errors` writes of a case; narrative and query are its one turn."""

OutFolderOption = Annotated[
    Path,
    Option(help="Folder of what judges said; a repeated run goes on there."),
]


def list_() -> Result:
    """List the protocols with their options."""
    read_settings()  # Also tells where plugins are
    value, rows = [], []
    for kind in known_protocols().values():
        row = fields_of(kind, ("name", "about", "figure", "asks"))
        row["options"] = kind.model_json_schema().get("properties", {})
        value.append(row)
        options = []
        for name, field in kind.model_fields.items():
            if name not in ("draws", "seed"):
                default = "required" if field.is_required() else field.default
                options.append(f"{name} = {default}: {field.description}")
        rows.append([kind.name, f"{kind.about}; {kind.figure}", options or "none"])
    columns = ["protocol", "what it does, and its figure", "options"]
    return Result(value, [Grid(columns, rows)])


def run(
    name: str,
    graded: GradedRuns,
    out: OutFolderOption = Path("protocols"),
    set_: list[str] | None = None,
    *,
    by: Grading,
) -> Result:
    """Apply a protocol to the runs of one or more models.

    Without --grader the role grader in config/models.toml is asked. Questions with a recorded reply are not asked
    again; --dry-run counts what can be asked now, not questions that build on replies to come. Exit status 1 while
    questions are ungraded, 3 where no call was answered.

    Args:
        name: The protocol; `list` shows them.
        set_: An option of the protocol as NAME=VALUE; repeatable.
    """
    options: dict[str, object] = {}
    for text in set_ or ():
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, not {text!r}")
        try:
            read = json.loads(value) if value.startswith("[") else value
        except ValueError as exc:
            raise UsageError(f"--set {key} is not a JSON list: {exc}") from exc
        options[key.replace("-", "_")] = read
    read_settings()  # Also tells where plugins are
    method = make_protocol(name, options)
    runs, overridden = graded.load_checked()
    budget = _budget(by, out)
    applied = _apply([(name, method, labelled(runs))], out, by, budget)
    if by.calls.dry_run:
        return plans_result(applied.plans)
    (task,) = applied.tasks
    return _result(task, task.tables, overridden, task.notes, budget, applied.asked)


def _budget(by: Grading, out: Path) -> Budget:
    """The budget, which counts what all protocols in the folder `out` have cost already."""
    return by.calls.budget([out / f"{name}.jsonl" for name in known_protocols()])


def _result(
    value: TaskResults | Portfolio,
    tables: Sequence[Table],
    overridden: list[Objection],
    notes: Sequence[str],
    budget: Budget,
    asked: Sequence[QuestionsAsked],
) -> Result:
    """The figures as a result, which fails where questions are ungraded or a budget is spent."""
    remarks = [objection.why for objection in overridden]
    remarks += notes
    for done in asked:
        remarks += reason_notes("ungraded", done.reasons)
    left = sum(done.left for done in asked)
    failure = find_incomplete(left, "questions ungraded", asked)
    whole = value.model_dump(mode="json") | {"spent": budget}
    return Result(whole, describe_tables(tables, overridden), remarks, failure)


class _Applied(NamedTuple):
    """What protocols found, or with --dry-run what they would ask."""

    plans: dict[str, Plan]  # By task, with --dry-run alone
    tasks: list[TaskResults]
    asked: list[QuestionsAsked]  # Of the protocols that ask a judge


def _apply(
    tasks: Iterable[tuple[str, Protocol, Material]],
    out: Path,
    by: Grading,
    budget: Budget,
) -> _Applied:
    """Apply protocols, or plan them; a task is its name, the protocol, and the runs it is applied to."""
    applied = _Applied({}, [], [])
    for task, method, material in tasks:
        done, replies = None, UNASKED
        if method.asks:
            own = task, method.work(material, out)

            def works(_judge: object, own: Work = own) -> Works:
                return [own]

            outcome = plan_or_ask_questions(by, budget, works)
            if isinstance(outcome, dict):
                applied.plans.update(outcome)
                continue
            (done,), judge = outcome
            applied.asked.append(done)
            replies, _ = read_findings(done.path, judge)
        results = method.results(material, replies)
        applied.tasks.append(TaskResults.from_results(task, method, results, done))
    return applied


def all_(
    graded: GradedRuns,
    out: OutFolderOption = Path("protocols"),
    *,
    by: Grading,
) -> Result:
    """Apply every protocol that fits to runs of several models on several sets of cases, and compare the tasks.

    A task is a protocol on the runs of one set of cases. Ranks, and how alike the tasks rank models, come last and go
    to portfolio.json in --out, which `eval report --protocols` shows. Exit status 1 while questions are ungraded.
    """
    read_settings()  # Also tells where plugins are
    runs, overridden = graded.load_checked()
    budget = _budget(by, out)
    applied = _apply(fitting(runs), out, by, budget)
    if by.calls.dry_run:
        return plans_result(applied.plans)
    tasks = applied.tasks
    if not tasks:
        raise UsageError(
            "no protocol fits these runs",
            hint="`eval protocol list` says what each works on",
        )
    whole = Portfolio(
        tasks=tuple(tasks),
        tables=portfolio({task.task: task.figures for task in tasks}),
        overridden=tuple(overridden),
    )
    text = whole.model_dump_json(indent=1) + "\n"
    write_whole(out / PORTFOLIO, utf8(text))
    notes = [f"written: {out / PORTFOLIO}"]
    tables = [table for task in tasks for table in task.tables] + [*whole.tables]
    return _result(whole, tables, overridden, notes, budget, applied.asked)


def errors(
    *,
    cases: CasesOption,
    out: Path,
    seed: Annotated[int, Option(min=0)] = 0,
) -> Result:
    """Plant one error in the advice of cases, for models to find: use `eval run` on them, then protocol active-safety.

    Args:
        out: The file of cases to write, for eval run --cases.
        seed: Chooses the errors.
    """
    refuse_existing(out)
    made, note = plant(load_set(cases, unverified=False).cases, seed=seed)
    if not made:
        raise UsageError(f"no error can be planted in the advice of {cases}")
    lines = ""
    for case in made:
        row = case.row()
        written = {name: row[name] for name in _WRITTEN if row.get(name)}
        lines += canonical_json(written) + "\n"
    write_whole(out, lines.encode("utf-8", "backslashreplace"))
    return Result(out, [str(out)], [note])


def describe_tables(
    tables: Sequence[Table],
    overridden: Sequence[Objection] = (),
) -> Shown:
    """The tables of protocols for people; each title says what was overridden."""
    for table in tables:
        rows = [list(map(format_cell, row)) for row in table.rows]
        yield Grid(table.columns, rows, marked(table.title, overridden))
        if table.note:
            yield table.note
            yield ""
