"""`medlive eval audit`: why the lowest-scoring answers of runs went wrong."""

from collections.abc import Iterator

from medlive.cli.output import (
    Grid,
    Result,
    fields_of,
    table_of,
)
from medlive.errors import UsageError
from medlive.evaluation.grading.questions import QuestionsAsked
from medlive.evaluation.penalties import PenaltyUse, count_penalties
from medlive.evaluation.root_causes import (
    AuditTable,
    RootCause,
    audit_work,
    load_audit,
)
from medlive.evaluation.scoring.refusals import Objection, marked
from medlive.evaluation.scoring.score import labelled
from medlive.llm.engine import EngineIdentity
from medlive.text.html import percent

from .options import (
    GradedRuns,
    Grading,
    Works,
    find_incomplete,
    plan_or_ask_questions,
    plans_result,
    reason_notes,
)
from .tables import cases_and_graders


def audit(
    graded: GradedRuns,
    table: bool = False,
    *,
    by: Grading,
) -> Result:
    """Find the root cause of each of the lowest-scoring answers; show counts with an example, and the penalties
    that no model committed.

    Without --grader the role grader in config/models.toml is asked. Recorded causes are not asked for again.
    Exit status 1 while cases are unaudited, 3 where no call was answered.

    Args:
        table: Show the recorded causes; ask nobody.
    """
    if table and (by.grader or by.base_url or by.calls.dry_run):
        raise UsageError(
            "--table asks nobody; leave --grader, --base-url and --dry-run out"
        )
    checked, overridden = graded.load_checked()
    runs = labelled(checked)
    budget = by.calls.budget_of(*graded.runs)
    work: list[QuestionsAsked] = []
    auditor: EngineIdentity | None = None
    if not table:

        def questions(_judge: object) -> Works:
            for run in runs:
                yield f"cases of {run.label}", audit_work(run)

        outcome = plan_or_ask_questions(by, budget, questions)
        if isinstance(outcome, dict):
            return plans_result(outcome)
        work, auditor = outcome
    tables: list[AuditTable] = []
    rows, notes = [], [objection.why for objection in overridden]
    for place, (path, run) in enumerate(zip(graded.runs, runs, strict=True)):
        causes = load_audit(run, auditor=auditor)
        tables.append(causes)
        row: dict[str, object] = {"path": path, **causes.as_json()}
        if work:
            row |= fields_of(work[place], ("calls", "stopped"))
        rows.append(row)
        notes += [f"{path}: {remark}" for remark in _remarks(causes)]
    left = sum(causes.unaudited for causes in tables)
    failure = find_incomplete(left, "cases unaudited", work)
    if failure and table:
        failure.hint = "the same command, without --table, asks again"
    uses = count_penalties(runs)
    value = {
        "penalties": uses,
        "format": "medlive-audit",
        "format_version": 1,
        "overridden": [objection._asdict() for objection in overridden],
        "runs": rows,
        "spent": budget,
    }
    shown = [*_describe(tables, overridden), _describe_idle(uses)]
    return Result(value, shown, notes, failure)


def _describe(
    tables: list[AuditTable], overridden: list[Objection]
) -> tuple[Grid, Grid]:
    """How many of each model's lowest scores have each cause, and an example of each."""
    counts: list[list[object]] = []
    quotes: list[list[object]] = []
    for cause in RootCause:
        row: list[object] = [cause.label]
        for table in tables:
            findings = table.of(cause)
            n = len(findings)
            row.append(f"{n} ({100 * n / table.audited:.1f} %)" if n else "0")
            for case, reply in findings[:1]:
                about = [table.run.label, cause.label, case.case_id]
                score = percent(case.score.score)
                quotes.append([*about, score, reply.quote, reply.reasoning])
        counts.append(row)
    counts.append(["audited", *(table.audited for table in tables)])
    counts.append(["unaudited", *(table.unaudited for table in tables)])
    on = cases_and_graders(table.run for table in tables)
    title = f"root causes of the lowest complete scores on {on}"
    models = [table.run.label for table in tables]
    columns = ["model", "root cause", "case", "score %", "quote of the answer", "why"]
    return (
        Grid(["root cause", *models], counts, marked(title, overridden)),
        Grid(columns, quotes, "examples"),
    )


def _describe_idle(uses: tuple[PenaltyUse, ...]) -> Grid:
    """The penalties that no model committed."""
    idle = [use for use in uses if use.is_idle]
    title = f"{len(idle)} of {len(uses)} penalties that no model committed; medlive snapshot withdraw takes one out"
    names = ("case_id", "criterion_id", "points", "criterion", "models")
    return table_of(idle, names, title)


def _remarks(table: AuditTable) -> Iterator[str]:
    """Notes on the audit of a run."""
    yield from table.notes
    if table.scored < table.bottom:
        yield f"{table.scored} cases have a score, fewer than the {table.bottom} that were wanted"
    yield from reason_notes("unaudited", table.reasons)
    if table.auditor is not None and not table.clinical:
        yield "audited by the rules engine: no clinical judgement was made"
