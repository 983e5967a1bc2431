"""The program's own runs, as they are recorded: imports, commands, evaluations."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func

from medlive import __version__
from medlive.db.mapping import row_of
from medlive.db.session import Database, Session
from medlive.db.tables.intake import (
    ImportProblemRow,
    ImportRunRow,
    RunOutcome,
)
from medlive.db.tables.release import (
    EvaluationRunRow,
    PipelineRunRow,
)
from medlive.logs import bound, kept_lines

if TYPE_CHECKING:
    from medlive.sources.files import ImportProblem

SCHEDULER = "scheduler"
"""The first word of a step's command in `pipeline_runs`."""
CURATE, FILTER, PRUNE = "curate", "filter", "source prune"
"""The commands in `pipeline_runs` that do by hand, or by cron, what a step does."""
SCHEDULER_LOCK = 0x6D65644C
""" "medL": the advisory lock that the one scheduler of a database holds."""


async def start_import(
    session: Session, file: str, *, assumed_posted_at: datetime | None = None
) -> int:
    """Return the number of a new import of a file."""
    run = ImportRunRow(
        file=file, assumed_posted_at=assumed_posted_at, outcome=RunOutcome.RUNNING
    )
    return (await session.insert(run)).id


async def save_problems(
    session: Session, run_id: int, file: str, problems: Sequence["ImportProblem"]
) -> None:
    """Keep the lines that became no thread, each once."""
    rows = [row_of(ImportProblemRow, p, run_id=run_id, file=file) for p in problems]
    await session.insert_rows(ImportProblemRow, rows, skip_known=True)


async def finish_import(
    session: Session,
    run_id: int,
    counts: Mapping[str, int],
    *,
    problem: str | None = None,
) -> None:
    """End an import: done, or failed with its problem."""
    run = await session.get_one(ImportRunRow, run_id)
    run.outcome = RunOutcome.DONE if problem is None else RunOutcome.FAILED
    run.counts, run.problem = dict(counts), problem
    run.finished_at = func.now()


@asynccontextmanager
async def recorded_run(
    database: Database,
    command: str,
    settings: Mapping[str, Any],
    *,
    iso_week: str | None = None,
) -> AsyncIterator[PipelineRunRow]:
    """Record the block as a run of a command; logs get the run's id.

    The block may set the run's `counts`, and `failed`, or `partial` where something is to be done again.
    `settings` are the effective ones, secrets masked. The run of a block that raises or is killed stays "running".
    """
    run = PipelineRunRow(
        command=command,
        settings=dict(settings),
        week=iso_week,
        code_version=__version__,
        outcome=RunOutcome.RUNNING,
    )
    async with database.begin() as session:
        await session.insert(run)
    with bound(run=run.id), kept_lines() as lines:
        yield run
    run.outcome = RunOutcome.PARTIAL if run.partial else RunOutcome.DONE
    if run.failed:
        run.outcome = RunOutcome.FAILED
    run.log, run.finished_at = list(lines), func.now()
    async with database.begin() as session:
        session.add(run)


async def record_evaluation(
    session: Session,
    *,
    run_digest: str,
    snapshot_version: str,
    model: str,
    grader: str,
    path: str,
    scores: Mapping[str, Any],
) -> int:
    """Record an evaluation's run folder, or bring its record up to date; return its number."""
    run = await session.put(
        EvaluationRunRow,
        {"run_digest": run_digest},
        snapshot_version=snapshot_version,
        model=model,
        grader=grader,
        path=path,
        scores=dict(scores),
    )
    return run.id


async def list_evaluations(session: Session) -> list[EvaluationRunRow]:
    """Every recorded evaluation, the newest snapshot's first, then by model."""
    return await session.rows(
        EvaluationRunRow, "ORDER BY snapshot_version DESC, model, id"
    )
