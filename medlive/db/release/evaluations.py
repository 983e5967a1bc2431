"""Evaluations that were recorded; a run's own folder is its log, and this is where it is found again."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables.release import EvaluationRunRow


async def record_evaluation(
    session: AsyncSession,
    *,
    run_digest: str,
    snapshot_version: str,
    model: str,
    grader: str,
    path: str,
    scores: Mapping[str, Any],
) -> int:
    """Record a run, or bring its record up to date; its number."""
    values = {
        "snapshot_version": snapshot_version,
        "model": model,
        "grader": grader,
        "path": path,
        "scores": dict(scores),
    }
    statement = upsert(EvaluationRunRow).values(run_digest=run_digest, **values)
    done = await session.execute(
        statement.on_conflict_do_update(index_elements=["run_digest"], set_=values).returning(EvaluationRunRow.id)
    )
    number: int = done.scalar_one()
    return number


async def list_evaluations(
    session: AsyncSession, *, snapshot_version: str | None = None
) -> list[EvaluationRunRow]:
    """The recorded runs, newest first, of one snapshot or all."""
    query = select(EvaluationRunRow).order_by(EvaluationRunRow.id.desc())
    if snapshot_version is not None:
        query = query.where(EvaluationRunRow.snapshot_version == snapshot_version)
    return list(await session.scalars(query))
