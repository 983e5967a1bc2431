"""Held cases, what people decide about them, and the looks for identifiers: all of it added, nothing changed."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import exists, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import Reason
from medlive.db.curation.cases import is_latest_case
from medlive.db.mapping import read
from medlive.db.tables.decisions import HoldRow
from medlive.db.tables.release import (
    CaseRevisionRow,
    CaseRow,
    CaseStatus,
    IdentifierScanRow,
    ReviewAction,
    ReviewRow,
)


@dataclass(frozen=True, slots=True)
class HeldCase:
    """A case that waits for a person."""

    case_id: str
    revision: int
    curation_id: int
    language: str
    source: str
    query: str
    reasons: tuple[Reason, ...]
    """Of its holds; empty where something else holds it (a dispute's outcome, a thread decided anew)."""
    status_reason: str
    held_since: datetime


@dataclass(frozen=True, slots=True)
class Review:
    """A person's decision about a revision of a case."""

    number: int
    case_id: str
    revision: int
    action: ReviewAction
    element_id: str | None
    reason: str
    decided_by: str | None
    decided_at: datetime


async def list_held(
    session: AsyncSession, *, reason: Reason | None = None, language: str | None = None
) -> list[HeldCase]:
    """The cases that wait for a person, longest first; those held for `reason`, or in `language`, where given."""
    row = CaseRevisionRow
    query = (
        select(row, CaseRow.status_reason)
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.status == CaseStatus.HELD, is_latest_case())
        .order_by(row.created_at, row.case_id)
    )
    if language is not None:
        query = query.where(row.language == language)
    if reason is not None:
        query = query.where(exists().where(HoldRow.curation_id == row.curation_id, HoldRow.reason == reason))
    found = (await session.execute(query)).all()
    holds = select(HoldRow.curation_id, HoldRow.reason).order_by(HoldRow.curation_id, HoldRow.position)
    holds = holds.where(HoldRow.curation_id.in_([r.curation_id for r, _ in found]))
    reasons: dict[int, list[Reason]] = {}
    for curation_id, held_for in await session.execute(holds):
        reasons.setdefault(curation_id, []).append(held_for)
    return [
        read(
            HeldCase,
            r,
            reasons=tuple(reasons.get(r.curation_id, ())),
            status_reason=status_reason or "",
            held_since=r.created_at,
        )
        for r, status_reason in found
    ]


async def add_review(
    session: AsyncSession,
    case_id: str,
    revision: int,
    action: ReviewAction,
    reason: str,
    *,
    element_id: str | None = None,
    decided_by: str | None = None,
) -> Review:
    """Record a person's decision; its effect on the case is `apply_review`'s."""
    row = await session.scalar(
        insert(ReviewRow)
        .values(
            case_id=case_id,
            revision=revision,
            action=action,
            element_id=element_id,
            reason=reason,
            decided_by=decided_by,
        )
        .returning(ReviewRow)
    )
    if row is None:
        raise RuntimeError("the database returned no row of an insert")
    return read(Review, row, number=row.id)


async def reviews_of(session: AsyncSession, case_id: str) -> list[Review]:
    """What people decided about a case, in order."""
    rows = await session.scalars(select(ReviewRow).where(ReviewRow.case_id == case_id).order_by(ReviewRow.id))
    return [read(Review, row, number=row.id) for row in rows]


async def save_scan(session: AsyncSession, case_id: str, revision: int, scanner: str, *, found: int) -> None:
    """Record that a case revision was looked through for identifiers; a second look by the same is the first."""
    values = {"case_id": case_id, "revision": revision, "scanner": scanner, "found": found}
    await session.execute(upsert(IdentifierScanRow).values(values).on_conflict_do_nothing())


async def unscanned_cases(session: AsyncSession, scanner: str) -> list[str]:
    """The ready cases whose latest revision this scanner has not looked through, by id."""
    row = CaseRevisionRow
    scanned = exists().where(
        IdentifierScanRow.case_id == row.case_id,
        IdentifierScanRow.revision == row.revision,
        IdentifierScanRow.scanner == scanner,
    )
    query = (
        select(row.case_id)
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.status == CaseStatus.READY, is_latest_case(), ~scanned)
        .order_by(row.case_id)
    )
    return list(await session.scalars(query))
