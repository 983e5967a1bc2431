"""Cases as releases know them: locked by id, near ids, and which revisions are frozen."""

from difflib import get_close_matches

from sqlalchemy import func, or_, select

from medlive.db.session import Session
from medlive.db.tables.release import CaseRow, CaseStatus, SnapshotMemberRow, SnapshotRow, SnapshotState
from medlive.errors import UsageError

_MOST_NEAR = 2_000
"""Ids that near matches are looked for among."""


async def lock_case(session: Session, case_id: str) -> CaseStatus:
    """A case's status, its row locked until the transaction ends. Raises UsageError for no case, with near ids."""
    status: CaseStatus | None = await session.scalar(
        select(CaseRow.status).where(CaseRow.id == case_id).with_for_update()
    )
    if status is None:
        near = await _near(session, case_id)
        raise UsageError(
            f"there is no case {case_id[:100]!r}",
            hint=f"did you mean {' or '.join(near)}?" if near else "a case's id stands in data/cases.jsonl",
        )
    return status


async def shown_revisions(session: Session, case_id: str) -> list[int]:
    """The case's revisions that frozen snapshots show, newest first."""
    member = SnapshotMemberRow
    query = (
        select(member.revision)
        .join(SnapshotRow, SnapshotRow.version == member.version)
        .where(SnapshotRow.state == SnapshotState.FROZEN)
        .where(member.case_id == case_id, member.first_release.is_not(None))
    )
    return list(await session.scalars(query.distinct().order_by(member.revision.desc())))


async def _near(session: Session, case_id: str) -> list[str]:
    """Ids like one that is none: a wrong character leaves either its beginning or its end as it was."""
    query = select(CaseRow.id).where(
        or_(func.left(CaseRow.id, 8) == case_id[:8], func.right(CaseRow.id, 5) == case_id[-5:])
    )
    ids = list(await session.scalars(query.order_by(CaseRow.id).limit(_MOST_NEAR)))
    return get_close_matches(case_id[:200], ids, n=3, cutoff=0.7)
