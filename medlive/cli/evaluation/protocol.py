"""`medlive eval protocol`: other papers' methods on runs, with the options, plans and budgets of grading."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from medlive.cli.evaluation.options import (
    Calls,
    Grader,
    JudgeOption,
    RunsArgument,
    check_answered,
    check_complete,
    plan_or_ask,
    print_plan,
)
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import print_result, print_table, progress
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.protocols.model import Cell, Protocol, Results
    from medlive.evaluation.protocols.runner import ProtocolRun
    from medlive.llm.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Evaluate by other papers' methods: coverage, comparison and more.")


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the protocols with their options."""
    from medlive.evaluation.protocols.registry import PROTOCOLS

    rows = [
        [kind.name, kind.about, f"{name} = {field.default!s}", field.description or ""]
        for kind in PROTOCOLS.values()
        for name, field in kind.model_fields.items()
    ]
    value = [
        {"name": kind.name, "about": kind.about, "figure": kind.figure, "asks": kind.asks,
         "options": kind.model_json_schema()["properties"]}
        for kind in PROTOCOLS.values()
    ]  # fmt: skip
    for before, row in zip([[""], *rows], list(rows), strict=False):
        if before[0] == row[0]:
            row[1] = ""
    print_result(value, as_json, lambda: print_table(["protocol", "what it does", "option", "which is"], rows))


@app.command()
@grouped
def run(
    name: Annotated[str, Argument(help="The protocol; `list` shows them.")],
    runs: RunsArgument,
    out: Annotated[Path, Option(help="Folder of what judges said; a repeated run goes on there.")] = Path(
        "protocols"
    ),
    option: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="An option of the protocol.")
    ] = None,
    judge: JudgeOption = None,
    *,
    by: Grader,
    calls: Calls,
    as_json: JsonOption = False,
) -> None:
    """Apply a protocol to the runs of one or more models.

    Without --grader the grader's role in config/models.toml is asked. What is on record is not asked again. Exit
    status 1 while questions are ungraded, 3 where no call was answered.
    """
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.protocols.model import Findings, Subject
    from medlive.evaluation.protocols.registry import make_protocol
    from medlive.evaluation.protocols.runner import plan_protocol, read_findings, run_protocol
    from medlive.evaluation.scoring.graded import load_graded
    from medlive.llm.engine import EngineIdentity

    protocol = make_protocol(name, _options(option or []))
    material = [Subject.of(load_graded(path, judge=judge)) for path in runs]
    if not protocol.asks:
        _report(protocol, protocol.results(material, Findings(EngineIdentity("", ""))), None, as_json)
        return
    budget = calls.budget()

    def plan(engine: "Engine", **how: Any) -> Plan:
        return plan_protocol(protocol, material, out, engine.identity, **how)

    async def ask(engine: "Engine", **how: Any) -> "tuple[ProtocolRun, Results]":
        with progress("questions") as tick:
            done = await run_protocol(protocol, material, out, engine, progress=tick, **how)
        found, _ = read_findings(protocol, out, engine.identity, allow_unpinned=by.allow_unpinned)
        return done, protocol.results(material, found)

    found = plan_or_ask(calls, by, budget, plan, ask)
    if isinstance(found, Plan):
        print_plan(found.about, found, budget, as_json)
        return
    done, results = found
    _report(protocol, results, done, as_json)
    left = done.questions - done.settled
    if left:
        check_answered([done.silence], done.calls)
    check_complete(left, "questions are ungraded", done.stopped, "the same command asks again", always=True)


def _options(given: list[str]) -> dict[str, Any]:
    """NAME=VALUE as a mapping; a name that is given several times has a list. Raises UsageError."""
    found: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, not {one!r}")
        found[name.replace("-", "_")] = json.loads(value) if value.startswith("[") else value
    return found


def _report(protocol: "Protocol", results: "Results", done: "ProtocolRun | None", as_json: bool) -> None:
    value: dict[str, Any] = {
        "format": "medlive-protocol", "format_version": 1, "protocol": protocol.name,
        "options": protocol.model_dump(mode="json"), "figure": protocol.figure, "figures": dict(results.figures),
        "tables": [asdict(table) for table in results.tables],
    }  # fmt: skip
    notes = list(results.notes)
    if done is not None:
        value["questions"] = {"asked": done.questions, "answered": done.settled, "ungraded": dict(done.reasons)}
        value["calls"] = done.calls
        notes += [*done.notes, *(f"ungraded: {n}: {why}" for why, n in done.reasons.items())]

    def show() -> None:
        for table in results.tables:
            rows = [[_cell(cell) for cell in row] for row in table.rows]
            print_table(list(table.columns), rows, title=table.title)
            if table.note:
                typer.echo(table.note + "\n")

    print_result(value, as_json, show, notes=notes)


def _cell(cell: "Cell") -> Any:
    if cell is None:
        return "NA"
    return (
        f"{cell:.3f}"
        if isinstance(cell, float) and abs(cell) < 100
        else f"{cell:.0f}"
        if isinstance(cell, float)
        else cell
    )
