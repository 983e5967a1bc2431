"""`medlive eval audit`: why the lowest-scoring answers of runs went wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict, Unpack

from typer import Option

from medlive.cli.evaluation.options import (
    AllowOption,
    AskArguments,
    Calls,
    Grader,
    JudgeOption,
    PlanArguments,
    RunsArgument,
    UnpinnedOption,
    find_incomplete,
    load_checked,
    plan_or_ask,
    plans_result,
)
from medlive.cli.evaluation.records import records, rests_on
from medlive.cli.options import one_of
from medlive.cli.output import Grid, Result, fields_of, progress, shortened
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.grading.questions import QuestionsAsked
    from medlive.evaluation.root_causes import AuditTable
    from medlive.evaluation.scoring.metrics import Metric
    from medlive.evaluation.scoring.refusals import Objection
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine, EngineIdentity

_SHOWN = 120
"""Characters of a quote in a table."""


def audit(
    runs: RunsArgument,
    auditor: str | None = None,
    base_url: str | None = None,
    bottom: Annotated[int, Option(min=1)] = 100,
    metric: Annotated[str, Option(help="complete or paper.")] = "complete",
    table_only: Annotated[bool, Option("--table")] = False,
    examples: Annotated[int, Option(min=0)] = 1,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    allow_unpinned: UnpinnedOption = False,
    *,
    calls: Calls,
) -> Result:
    """Find the root cause of each of the lowest-scoring answers; counts with examples, and which penalties nobody
    committed.

    Without --auditor the role of the grader in config/models.toml is asked. What is on record is not asked again.
    Exit status 1 while cases are unaudited, 3 where no call was answered.

    Args:
        auditor: The auditor's model id.
        base_url: The auditor's endpoint.
        bottom: How many of the lowest-scoring cases.
        table_only: Show what is on record; ask nobody.
        examples: Examples of each cause.
    """
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.root_causes import audit_run, load_audit, plan_audit
    from medlive.evaluation.scoring.metrics import Metric

    which: _Bottom = {
        "bottom": bottom,
        "metric": one_of("--metric", Metric, metric).equation_1,
    }
    _check_options(auditor, base_url, table_only, calls.dry_run)
    graded, overridden = load_checked(runs, judge, allow)
    shown = _Shown(runs, overridden, examples)
    if table_only:
        tables = [load_audit(run, **which) for run in graded]
        return _describe_audit(tables, None, None, shown)
    budget = calls.budget(*runs)

    def plan(engine: "Engine", **how: Unpack[PlanArguments]) -> dict[str, Plan]:
        plans = {}
        for path, run in zip(runs, graded, strict=True):
            plans[str(path)] = plan_audit(run, engine.identity, **which, **how)
        return plans

    async def ask(engine: "Engine", **how: Unpack[AskArguments]) -> _Audited:
        done = []
        for run in graded:
            with progress(f"cases of {run.label}") as tick:
                done.append(await audit_run(run, engine, progress=tick, **which, **how))
        return _Audited(engine.identity, done)

    by = Grader(grader=auditor, base_url=base_url, allow_unpinned=allow_unpinned)
    outcome = plan_or_ask(calls, by, budget, plan, ask)
    if isinstance(outcome, dict):
        return plans_result(outcome, budget)
    tables = [load_audit(run, auditor=outcome.auditor, **which) for run in graded]
    return _describe_audit(tables, outcome.work, budget, shown)


class _Bottom(TypedDict):
    """Which cases are audited."""

    bottom: int
    metric: "Metric"


class _Audited(NamedTuple):
    """Who was asked, and the outcome for each run."""

    auditor: "EngineIdentity"
    work: "list[QuestionsAsked]"


class _Shown(NamedTuple):
    """How an audit is shown."""

    paths: list[Path]
    overridden: "list[Objection]"
    examples: int
    """Of each cause."""


def _check_options(
    auditor: str | None, base_url: str | None, table_only: bool, dry_run: bool
) -> None:
    if (auditor is None) != (base_url is None):
        raise UsageError(
            "--auditor and --base-url belong together; without both the configured grader is asked"
        )
    if table_only and auditor is not None:
        raise UsageError("--table asks nobody; leave --auditor and --base-url out")
    if table_only and dry_run:
        raise UsageError("--table and --dry-run exclude each other")


def _describe_audit(
    tables: "list[AuditTable]",
    results: "list[QuestionsAsked] | None",
    budget: "Budget | None",
    shown: _Shown,
) -> Result:
    rows: list[dict[str, object]] = []
    notes = [objection.why for objection in shown.overridden]
    for place, (path, table) in enumerate(zip(shown.paths, tables, strict=True)):
        row = {"path": path, **table.as_json(shown.examples)}
        if results:
            row |= fields_of(results[place], ("calls", "stopped"))
        rows.append(row)
        notes += [f"{path}: {remark}" for remark in _remarks(table)]
    value: dict[str, object] = {
        "format": "medlive-audit",
        "format_version": 1,
        "overridden": [objection._asdict() for objection in shown.overridden],
        "runs": rows,
    }
    if budget is not None:
        value["spent"] = budget.as_json()
    hint = "the same command, without --table, asks again"
    unaudited = sum(table.unaudited for table in tables)
    failure = find_incomplete(
        unaudited, "cases are unaudited", results or (), hint, always=True
    )
    return Result(value, _tables(tables, shown), notes, failure)


def _tables(tables: "list[AuditTable]", shown: _Shown) -> Iterator[Grid]:
    from medlive.evaluation.root_causes import RootCause
    from medlive.evaluation.scoring.refusals import marked

    names = []
    for table, path in zip(tables, shown.paths, strict=True):
        names.append(_name(table, path, tables))
    counts = []
    findings = []
    for cause in RootCause:
        row = [cause.label]
        for name, table in zip(names, tables, strict=True):
            of_cause = table.of(cause)
            row.append(_share(len(of_cause), table.audited))
            findings += [
                (name, cause, finding) for finding in of_cause[: shown.examples]
            ]
        counts.append(row)
    for state in ("audited", "unaudited"):
        counts.append([state, *(str(getattr(table, state)) for table in tables)])
    on = rests_on([table.run for table in tables])
    metric = tables[0].bottom.metric.value
    title = f"root causes of the lowest scores ({metric} metric) on {on}"
    yield Grid(["root cause", *names], counts, marked(title, shown.overridden))
    if findings:
        yield records(
            marked("examples", shown.overridden),
            findings,
            {
                "model": lambda row: row[0],
                "root cause": lambda row: row[1].label,
                "case": lambda row: row[2].candidate.case_id,
                "score %": lambda row: _percent(row[2].candidate.score.score),
                "quote of the answer": lambda row: shortened(
                    row[2].reply.quote, _SHOWN
                ),
                "why": lambda row: row[2].reply.reasoning,
            },
        )


def _remarks(table: "AuditTable") -> list[str]:
    bottom = table.bottom
    remarks = list(table.notes)
    if bottom.scored < bottom.asked:
        remarks.append(
            f"{bottom.scored} cases have a score, fewer than the {bottom.asked} that were wanted"
        )
    if bottom.without_error:
        remarks.append(
            f"{len(bottom.without_error)} of the lowest-scoring cases hold no error: nothing to audit"
        )
    for state, n in bottom.left_out.items():
        remarks.append(f"{n} cases are {state.replace('_', ' ')}: no candidates")
    for reason, n in table.reasons.items():
        remarks.append(f"unaudited: {n}: {reason}")
    if table.auditor is not None and not table.clinical:
        remarks.append("audited by the rules engine: no clinical judgement was made")
    return remarks


def _name(table: "AuditTable", path: Path, tables: "list[AuditTable]") -> str:
    alone = sum(1 for other in tables if other.run.label == table.run.label) == 1
    return table.run.label if alone else f"{table.run.label} ({path.name})"


def _share(n: int, total: int) -> str:
    return f"{n} ({100 * n / total:.1f} %)" if n else "0"


def _percent(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.1f}"
