"""The program's own runs: imports with their problems, and commands that changed something."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive import __version__
from medlive.db.tables.intake import ImportProblemRow, ImportRunRow, RunOutcome
from medlive.db.tables.release import PipelineRunRow

if TYPE_CHECKING:
    from medlive.sources.files import ImportProblem


async def start_import(session: AsyncSession, file: str, *, assumed_posted_at: datetime | None = None) -> int:
    """The number of a new import of a file."""
    added = await session.execute(
        insert(ImportRunRow)
        .values(file=file, assumed_posted_at=assumed_posted_at, outcome=RunOutcome.RUNNING)
        .returning(ImportRunRow.id)
    )
    run_id: int = added.scalar_one()
    return run_id


async def save_problems(
    session: AsyncSession, run_id: int, file: str, problems: Sequence["ImportProblem"]
) -> None:
    """Keep the lines that became no thread, each once."""
    if problems:
        await session.execute(
            upsert(ImportProblemRow).on_conflict_do_nothing(),
            [
                {
                    "run_id": run_id,
                    "line": p.line,
                    "file": file,
                    "reason": p.reason.value,
                    "detail": p.detail,
                    "excerpt": p.excerpt,
                }
                for p in problems
            ],
        )


async def finish_import(
    session: AsyncSession, run_id: int, counts: Mapping[str, int], *, problem: str | None = None
) -> None:
    """End an import: done, or failed with its problem."""
    await session.execute(
        update(ImportRunRow)
        .where(ImportRunRow.id == run_id)
        .values(
            outcome=RunOutcome.DONE if problem is None else RunOutcome.FAILED,
            finished_at=func.now(),
            counts=dict(counts),
            problem=problem,
        )
    )


async def start_run(
    session: AsyncSession, command: str, settings: Mapping[str, Any], *, iso_week: str | None = None
) -> int:
    """The number of a new run of a command. `settings` are the effective ones, secrets masked."""
    added = await session.execute(
        insert(PipelineRunRow)
        .values(
            command=command,
            iso_week=iso_week,
            code_version=__version__,
            settings=dict(settings),
            outcome=RunOutcome.RUNNING,
        )
        .returning(PipelineRunRow.id)
    )
    run_id: int = added.scalar_one()
    return run_id


async def finish_run(
    session: AsyncSession, run_id: int, counts: Mapping[str, Any], *, failed: bool = False
) -> None:
    """End a run. One that was killed stays "running" without an end, which says so."""
    await session.execute(
        update(PipelineRunRow)
        .where(PipelineRunRow.id == run_id)
        .values(
            outcome=RunOutcome.FAILED if failed else RunOutcome.DONE, finished_at=func.now(), counts=dict(counts)
        )
    )


async def latest_runs(session: AsyncSession, iso_week: str) -> dict[str, tuple[RunOutcome, datetime | None]]:
    """Command → the outcome and the end of its latest run for that week."""
    row = PipelineRunRow
    query = select(row.command, row.outcome, row.finished_at).where(row.iso_week == iso_week).order_by(row.id)
    return {command: (outcome, end) for command, outcome, end in await session.execute(query)}


async def load_problems(session: AsyncSession, run_id: int) -> list[ImportProblemRow]:
    """The lines of an import that became no thread, in the file's order."""
    query = select(ImportProblemRow).where(ImportProblemRow.run_id == run_id).order_by(ImportProblemRow.line)
    return list(await session.scalars(query))
