"""`medlive eval audit`: why the lowest-scoring answers of runs went wrong."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.cli.evaluation.figures import percent, rests_on
from medlive.cli.evaluation.options import (
    AllowOption,
    Calls,
    Grading,
    JudgeOption,
    RunsArgument,
    UnpinnedOption,
    find_incomplete,
    load_checked,
    plan_or_ask,
    plans_result,
    reason_notes,
)
from medlive.cli.output import Grid, Result, counted, fields_of, progress, shortened
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.questions import (
    QuestionsAsked,
    ask_questions,
    plan_questions,
)
from medlive.evaluation.penalties import PenaltyUse, count_penalties
from medlive.evaluation.root_causes import (
    AuditTable,
    RootCause,
    audit_work,
    load_audit,
)
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.llm.engine import Engine

_SHOWN = 120
"""Characters of a quote in a table."""


def audit(
    runs: RunsArgument,
    auditor: str | None = None,
    base_url: str | None = None,
    bottom: Annotated[int, Option(min=1)] = 100,
    metric: Annotated[Metric, Option(help="Of the lowest scores.")] = Metric.COMPLETE,
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
    which: dict[str, Any] = {"bottom": bottom, "metric": metric.equation_1}
    if (auditor is None) != (base_url is None):
        raise UsageError(
            "--auditor and --base-url belong together; without both the configured grader is asked"
        )
    if table_only and (auditor is not None or calls.dry_run):
        raise UsageError(
            "--table asks nobody; leave --auditor, --base-url and --dry-run out"
        )
    graded, overridden = load_checked(runs, judge, allow)
    budget = calls.budget(*runs)

    def plan(engine: Engine, **how: Any) -> dict[str, Plan]:
        plans = {}
        for path, run in zip(runs, graded, strict=True):
            work = audit_work(run, **which)
            plans[str(path)] = plan_questions(*work, engine.identity, **how)
        return plans

    async def ask(engine: Engine, **how: Any) -> list[QuestionsAsked]:
        done = []
        for run in graded:
            with progress(f"cases of {run.label}") as tick:
                done.append(
                    await ask_questions(
                        *audit_work(run, **which),
                        engine,
                        role="auditor",
                        progress=tick,
                        **how,
                    )
                )
        which["auditor"] = engine.identity
        return done

    work: list[QuestionsAsked] = []
    if not table_only:
        how = {field.name: getattr(calls, field.name) for field in fields(calls)}
        by = Grading(
            **how,
            grader=auditor,
            base_url=base_url,
            allow_unpinned=allow_unpinned,
        )
        outcome = plan_or_ask(by, budget, plan, ask)
        if isinstance(outcome, dict):
            return plans_result(outcome, budget)
        work = outcome
    tables = [load_audit(run, **which) for run in graded]
    result = _describe(tables, work, runs, overridden, examples)
    if not table_only:
        assert isinstance(result.value, dict)
        result.value["spent"] = budget.as_json()
    return result


def _describe(
    tables: list[AuditTable],
    work: list[QuestionsAsked],
    paths: list[Path],
    overridden: list[Objection],
    examples: int,
) -> Result:
    rows: list[dict[str, object]] = []
    notes = [objection.why for objection in overridden]
    for place, (path, table) in enumerate(zip(paths, tables, strict=True)):
        row = {"path": path, **table.as_json(examples)}
        if work:
            row |= fields_of(work[place], ("calls", "stopped"))
        rows.append(row)
        notes += [f"{path}: {remark}" for remark in _remarks(table)]
    uses = count_penalties([table.run for table in tables])
    value: dict[str, object] = {
        "penalties": [use.as_json() for use in uses],
        "format": "medlive-audit",
        "format_version": 1,
        "overridden": [objection._asdict() for objection in overridden],
        "runs": rows,
    }
    failure = find_incomplete(
        sum(table.unaudited for table in tables),
        "case is unaudited",
        "cases are unaudited",
        work,
        "the same command, without --table, asks again",
        always=True,
    )
    shown: list[Grid | str] = []
    for grid in _tables(tables, paths, examples):
        title = marked(grid.title or "", overridden)
        shown.append(Grid(grid.columns, grid.rows, title))
    idle = [use for use in uses if use.is_idle]
    if idle:
        shown += _describe_idle(idle, len(uses))
    return Result(value, shown, notes, failure)


def _describe_idle(idle: list[PenaltyUse], of_all: int) -> Iterator[Grid | str]:
    """The penalties that no model committed, and how they leave the case's next revision."""
    rows = []
    for use in idle:
        models = len(set(use.models))
        rows.append([use.case_id, f"{use.points:+g}", use.criterion, models])
    title = f"{len(idle)} of {of_all} penalties that no model committed"
    yield Grid(["case", "points", "penalty", "models"], rows, title)
    yield "Each of these takes one out, of the case's next revision too:"
    yield from (use.command for use in idle)


def _tables(
    tables: list[AuditTable],
    paths: list[Path],
    examples: int,
) -> Iterator[Grid]:
    labels = [table.run.label for table in tables]
    names = []
    for label, path in zip(labels, paths, strict=True):
        names.append(label if labels.count(label) == 1 else f"{label} ({path.name})")
    counts = []
    findings = []
    for cause in RootCause:
        row = [cause.label]
        for name, table in zip(names, tables, strict=True):
            of_cause = table.of(cause)
            n = len(of_cause)
            row.append(f"{n} ({100 * n / table.audited:.1f} %)" if n else "0")
            for finding in of_cause[:examples]:
                case, reply = finding.candidate, finding.reply
                quote = shortened(reply.quote, _SHOWN)
                about = [name, cause.label, case.case_id, percent(case.score.score)]
                findings.append([*about, quote, reply.reasoning])
        counts.append(row)
    for state in ("audited", "unaudited"):
        counts.append([state, *(str(getattr(table, state)) for table in tables)])
    on = rests_on(table.run for table in tables)
    metric = tables[0].bottom.metric
    title = f"root causes of the lowest scores ({metric} metric) on {on}"
    yield Grid(["root cause", *names], counts, title)
    if findings:
        columns = ["model", "root cause", "case", "score %", "quote of the answer"]
        yield Grid([*columns, "why"], findings, "examples")


def _remarks(table: AuditTable) -> Iterator[str]:
    bottom = table.bottom
    yield from table.notes
    if bottom.scored < bottom.asked:
        yield f"{bottom.scored} cases have a score, fewer than the {bottom.asked} that were wanted"
    if bottom.without_error:
        yield f"{len(bottom.without_error)} of the lowest-scoring cases hold no error: nothing to audit"
    for state, n in bottom.left_out.items():
        yield f"{counted(n, 'case is', 'cases are')} {state.replace('_', ' ')}: no candidates"
    yield from reason_notes("unaudited", table.reasons)
    if table.auditor is not None and not table.clinical:
        yield "audited by the rules engine: no clinical judgement was made"
