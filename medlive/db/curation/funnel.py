"""Where every thread stands: each counts once, so that the counts add up to the threads."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, case, func, literal, null, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased
from sqlalchemy.types import Text

from medlive.curation.model import Outcome
from medlive.db.tables.decisions import CurationRow, FilterResultRow
from medlive.db.tables.intake import ThreadRevisionRow, ThreadRow
from medlive.db.tables.release import CaseRow, CaseStatus
from medlive.db.threads.threads import is_latest

STAGES = ("filters", "screener", "validator", "controller", "rubric", "case")


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """How many threads stand at one place."""

    stage: str
    """One of STAGES."""
    outcome: str
    """pending, rejected, failed, held, kept or withdrawn."""
    reason: str | None
    """The reason, for filters the failing rule's; None where there is none."""
    count: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed and has not been followed by a decision."""

    revision_pk: int
    source: str
    thread_id: str
    stage: str
    reason: str
    detail: str
    attempt: int
    finished_at: datetime


async def funnel(
    session: AsyncSession, *, chain_digest: str | None = None, pipeline_digest: str | None = None
) -> list[FunnelRow]:
    """The places where threads stand, in the order of the stages, largest first.

    Of each thread its latest revision, of that the latest filter result and the latest attempt (of one chain or
    pipeline where a digest is given).
    """
    revision, result, curation = ThreadRevisionRow, FilterResultRow, CurationRow
    results = select(result).ext(distinct_on(result.revision_id))
    results = results.order_by(result.revision_id, result.decided_at.desc(), result.chain_digest)
    attempts = select(curation).ext(distinct_on(curation.revision_id))
    attempts = attempts.order_by(curation.revision_id, curation.id.desc())
    if chain_digest is not None:
        results = results.where(result.chain_digest == chain_digest)
    if pipeline_digest is not None:
        attempts = attempts.where(curation.pipeline_digest == pipeline_digest)
    last_result = aliased(result, results.subquery())
    last_attempt = aliased(curation, attempts.subquery())

    place = case(
        (last_result.revision_id.is_(None), literal("filters")),
        (~last_result.passed, literal("filters")),
        (last_attempt.id.is_(None), literal("screener")),
        (CaseRow.status == CaseStatus.WITHDRAWN, literal("case")),
        else_=last_attempt.stage.cast(Text),
    )
    outcome = case(
        (last_result.revision_id.is_(None), literal("pending")),
        (~last_result.passed, literal("rejected")),
        (last_attempt.id.is_(None), literal("pending")),
        (CaseRow.status == CaseStatus.WITHDRAWN, literal("withdrawn")),
        else_=last_attempt.outcome.cast(Text),
    )
    reason = case(
        (last_result.revision_id.is_(None), null()),
        (~last_result.passed, last_result.reason),
        (last_attempt.id.is_(None), null()),
        (CaseRow.status == CaseStatus.WITHDRAWN, CaseRow.status_reason),
        else_=last_attempt.reason.cast(Text),
    )
    places = (
        select(place.label("stage"), outcome.label("outcome"), reason.label("reason"))
        .select_from(revision)
        .outerjoin(last_result, last_result.revision_id == revision.id)
        .outerjoin(last_attempt, last_attempt.revision_id == revision.id)
        .outerjoin(CaseRow, and_(CaseRow.thread_id == revision.thread_id, last_attempt.outcome == Outcome.KEPT))
        .where(is_latest())
        .subquery()
    )
    query = select(places.c.stage, places.c.outcome, places.c.reason, func.count().label("threads")).group_by(
        places.c.stage, places.c.outcome, places.c.reason
    )
    rows = [FunnelRow(*row) for row in await session.execute(query)]
    return sorted(rows, key=lambda r: (STAGES.index(r.stage), -r.count, r.outcome, r.reason or ""))


async def recent_failures(session: AsyncSession, *, limit: int = 20) -> list[Failure]:
    """The latest revisions whose latest attempt failed, newest first."""
    row, later = CurationRow, aliased(CurationRow)
    newer = select(later.id).where(later.revision_id == row.revision_id, later.id > row.id).exists()
    query = (
        select(row, ThreadRow.source, ThreadRow.thread_id)
        .join(ThreadRevisionRow, ThreadRevisionRow.id == row.revision_id)
        .join(ThreadRow, ThreadRow.id == ThreadRevisionRow.thread_id)
        .where(row.outcome == Outcome.FAILED, ~newer, is_latest())
        .order_by(row.id.desc())
        .limit(limit)
    )
    return [
        Failure(
            c.revision_id, source, thread_id, c.stage.value, str(c.reason), c.detail,
            c.attempt, c.finished_at,
        )
        for c, source, thread_id in await session.execute(query)
    ]  # fmt: skip
