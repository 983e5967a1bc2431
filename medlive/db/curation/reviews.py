"""What people decide: held cases and their reviews, overruled rejections, disputes, and scans for identifiers."""

from collections.abc import Sequence

from sqlalchemy import ARRAY, Text, cast, exists, func, select, update
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from medlive.curation.model import Outcome, Reason
from medlive.db.audit_log import record
from medlive.db.curation.cases import is_latest_case
from medlive.db.mapping import Record, add_row
from medlive.db.tables.decisions import CurationRow, OverruleRow
from medlive.db.tables.examinations import HoldRow
from medlive.db.tables.intake import ThreadRevisionRow, ThreadRow
from medlive.db.tables.people import Act
from medlive.db.tables.release import (
    CaseRevisionRow,
    CaseRow,
    CaseStatus,
    DisputeRow,
    IdentifierScanRow,
    ReviewAction,
    ReviewRow,
)
from medlive.errors import CheckFailed, UsageError


async def list_held(
    session: AsyncSession,
    *,
    reason: Reason | None = None,
    language: str | None = None,
    limit: int | None = None,
) -> Sequence[Record]:
    """The cases that wait for a person, longest first; those held for `reason`, or in `language`, where given.

    At most `limit`. Each has case_id, revision, curation_id, language, source, query, reasons (of its holds; empty
    where something else holds it: a dispute's outcome, a thread decided anew), status_reason and held_since.
    """
    row = CaseRevisionRow
    in_order = aggregate_order_by(cast(HoldRow.reason, Text), HoldRow.position)
    held_for = select(func.array_agg(in_order)).where(
        HoldRow.curation_id == row.curation_id
    )
    reasons = func.coalesce(held_for.scalar_subquery(), cast([], ARRAY(Text)))
    query = (
        select(
            row.case_id,
            row.revision,
            row.curation_id,
            row.language,
            row.source,
            row.query,
            reasons.label("reasons"),
            CaseRow.status_reason,
            row.created_at.label("held_since"),
        )
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.status == CaseStatus.HELD, is_latest_case())
        .order_by(row.created_at, row.case_id)
        .limit(limit)
    )
    if language is not None:
        query = query.where(row.language == language)
    if reason is not None:
        holds = (HoldRow.curation_id == row.curation_id, HoldRow.reason == reason)
        query = query.where(exists().where(*holds))
    cases: Sequence[Record] = (await session.execute(query)).all()
    return cases


async def add_review(
    session: AsyncSession,
    case_id: str,
    revision: int,
    action: ReviewAction,
    reason: str,
    *,
    element_id: str | None = None,
    decided_by: str | None = None,
    act: Act | None = None,
) -> ReviewRow:
    """Record a person's decision, logged as `act` (default: the action); its effect is `apply_review`'s."""
    row = ReviewRow(
        case_id=case_id,
        revision=revision,
        action=action,
        element_id=element_id,
        reason=reason,
        decided_by=decided_by,
    )
    await add_row(session, row)
    await record(
        session,
        act or Act(action),
        f"case:{case_id}",
        reason,
        by=decided_by,
        review=row.number,
        revision=revision,
        **({"element": element_id} if element_id else {}),
    )
    return row


async def reviews_of(session: AsyncSession, case_id: str) -> list[ReviewRow]:
    """What people decided about a case, in order."""
    query = (
        select(ReviewRow).where(ReviewRow.case_id == case_id).order_by(ReviewRow.number)
    )
    return list(await session.scalars(query))


async def add_overrule(
    session: AsyncSession,
    thread: str,
    revision_id: int,
    curation_id: int | None,
    overruled: str,
    reason: str,
    by: str | None,
    people: int,
) -> OverruleRow:
    """Record that somebody overrules a rejection of `thread` (SOURCE/ID), which takes so many people.

    Curating it again is the caller's.
    """
    row = OverruleRow(
        revision_id=revision_id,
        curation_id=curation_id,
        overruled=overruled,
        reason=reason,
        decided_by=by,
        people=people,
    )
    await add_row(session, row)
    await record(
        session,
        Act.OVERRULE,
        f"thread:{thread}",
        reason,
        by=by,
        decision=curation_id,
        overruled=overruled,
    )
    return row


async def overrules_of(session: AsyncSession, revision_id: int) -> list[OverruleRow]:
    """The overruled rejections of a thread's revision, in order."""
    query = (
        select(OverruleRow)
        .where(OverruleRow.revision_id == revision_id)
        .order_by(OverruleRow.number)
    )
    return list(await session.scalars(query))


def in_force(overrules: Sequence[OverruleRow]) -> list[OverruleRow]:
    """The overrules of a thread's revision that as many people agree on as each takes."""
    people: dict[int | None, set[str | None]] = {}
    for row in overrules:
        people.setdefault(row.curation_id, set()).add(row.decided_by)
    return [row for row in overrules if len(people[row.curation_id]) >= row.people]


async def find_veto_reason(session: AsyncSession, revision_id: int) -> str | None:
    """Why people overruled the confirmed veto of a revision; None where they did not."""
    reasons = []
    for row in in_force(await overrules_of(session, revision_id)):
        if row.overruled == Reason.CONTRADICTED:
            reasons.append(row.reason)
    return "; ".join(dict.fromkeys(reasons)) or None


async def list_waiting_overrules(session: AsyncSession) -> Sequence[Record]:
    """The vetoes that too few people overruled so far, oldest first: source, thread_id, reason, decided_by,
    decided_at."""
    row, revision = OverruleRow, ThreadRevisionRow
    others = aliased(OverruleRow)
    agreed = (
        select(func.count(others.decided_by.distinct()))
        .where(
            others.revision_id == row.revision_id,
            others.curation_id == row.curation_id,
        )
        .scalar_subquery()
    )
    later = aliased(CurationRow)
    decided = exists().where(
        later.revision_id == row.revision_id,
        later.outcome != Outcome.FAILED,
        later.id > row.curation_id,
    )
    query = (
        select(
            ThreadRow.source,
            ThreadRow.thread_id,
            row.reason,
            row.decided_by,
            row.decided_at,
        )
        .join(revision, revision.id == row.revision_id)
        .join(ThreadRow, ThreadRow.id == revision.thread_id)
        .where(row.people > agreed, ~decided)
        .order_by(row.number)
    )
    return (await session.execute(query)).all()


async def overruled_revisions(session: AsyncSession) -> list[int]:
    """The revisions whose rejection was overruled and that have not been decided since, oldest first."""
    row, since = OverruleRow, CurationRow
    decided = exists().where(
        since.revision_id == row.revision_id,
        since.outcome != Outcome.FAILED,
        since.id > func.coalesce(row.curation_id, 0),
    )
    names = func.count(func.coalesce(row.decided_by, "").distinct())
    query = (
        select(row.revision_id)
        .where(~decided)
        .group_by(row.revision_id, row.curation_id)
        .having(names >= func.max(row.people))
        .order_by(row.revision_id)
    )
    return list(dict.fromkeys(await session.scalars(query)))


async def save_scan(
    session: AsyncSession, case_id: str, revision: int, scanner: str, *, found: int
) -> None:
    """Record that a case revision was scanned for identifiers; a second scan by the same changes nothing."""
    values = {
        "case_id": case_id,
        "revision": revision,
        "scanner": scanner,
        "found": found,
    }
    await session.execute(
        upsert(IdentifierScanRow).values(values).on_conflict_do_nothing()
    )


async def unscanned_cases(session: AsyncSession, scanner: str) -> list[str]:
    """The ready cases whose latest revision this scanner has not scanned, by id."""
    row, scan = CaseRevisionRow, IdentifierScanRow
    scanned = exists().where(
        scan.case_id == row.case_id,
        scan.revision == row.revision,
        scan.scanner == scanner,
    )
    query = (
        select(row.case_id)
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.status == CaseStatus.READY, is_latest_case(), ~scanned)
        .order_by(row.case_id)
    )
    return list(await session.scalars(query))


async def open_dispute(
    session: AsyncSession,
    case_id: str,
    reason: str,
    *,
    criterion_id: str | None = None,
    opened_by: str | None = None,
) -> DisputeRow:
    """Dispute an existing case, or a criterion of it; the same objection that is open already is returned.

    The session has locked the case's row, so that two who object at once do not both open it.
    """
    row = await session.scalar(
        select(DisputeRow).where(
            DisputeRow.case_id == case_id,
            DisputeRow.criterion_id.is_not_distinct_from(criterion_id),
            DisputeRow.reason == reason,
            DisputeRow.opened_by.is_not_distinct_from(opened_by),
            DisputeRow.closed_at.is_(None),
        )
    )
    if row is None:
        row = DisputeRow(
            case_id=case_id,
            criterion_id=criterion_id,
            reason=reason,
            opened_by=opened_by,
        )
        await add_row(session, row)
        about = {"dispute": row.number, "criterion": criterion_id}
        await record(
            session, Act.DISPUTE, f"case:{case_id}", reason, by=opened_by, **about
        )
    return row


async def close_dispute(
    session: AsyncSession, number: int, resolution: str, *, closed_by: str | None = None
) -> DisputeRow:
    """Close a dispute with its resolution. Raises UsageError for no dispute and CheckFailed for a closed one."""
    row = await session.scalar(
        update(DisputeRow)
        .where(DisputeRow.number == number, DisputeRow.closed_at.is_(None))
        .values(closed_at=func.now(), closed_by=closed_by, resolution=resolution)
        .returning(DisputeRow)
        .execution_options(populate_existing=True)
    )
    if row is not None:
        await record(
            session,
            Act.RESOLVE,
            f"case:{row.case_id}",
            resolution,
            by=closed_by,
            dispute=number,
        )
        return row
    if (known := await session.get(DisputeRow, number)) is None:
        raise UsageError(
            f"unknown dispute {number}", hint="medlive review disputes --all lists them"
        )
    raise CheckFailed(f"dispute {number} was closed already: {known.resolution}")


async def list_disputes(
    session: AsyncSession, *, closed: bool = False
) -> list[DisputeRow]:
    """The open disputes, oldest first; with `closed` every one."""
    query = select(DisputeRow).order_by(DisputeRow.number)
    if not closed:
        query = query.where(DisputeRow.closed_at.is_(None))
    return list(await session.scalars(query))
