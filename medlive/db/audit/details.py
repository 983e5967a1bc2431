"""What the page of a thread or case shows besides its decisions: replies, revisions, snapshots."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.curation.cases import criteria_of
from medlive.db.mapping import is_one_of, read
from medlive.db.tables.decisions import ReplyRow
from medlive.db.tables.release import CaseRevisionRow, SnapshotMemberRow, SnapshotRow
from medlive.rubric.model import Criterion


class CaseRevision(NamedTuple):
    """What a case said from a moment on."""

    row: CaseRevisionRow
    criteria: Sequence[Criterion]


class Membership(NamedTuple):
    """A revision of a case in a snapshot."""

    version: str
    revision: int
    first_release: str | None  # The first snapshot that shows it; None: it is held out
    frozen_at: datetime | None


async def find_replies(
    session: AsyncSession, digests: Iterable[str]
) -> dict[str, ReplyRow]:
    """The replies to some requests, by the request's digest."""
    rows = await session.scalars(
        select(ReplyRow).where(is_one_of(ReplyRow.request_digest, digests))
    )
    return {row.request_digest: row for row in rows}


async def list_revisions(session: AsyncSession, case_id: str) -> list[CaseRevision]:
    """A case's revisions, the first one first."""
    row = CaseRevisionRow
    query = select(row).where(row.case_id == case_id).order_by(row.revision)
    revisions = []
    for revision_row in (await session.scalars(query)).all():
        criteria = await criteria_of(session, case_id, revision_row.revision)
        revisions.append(CaseRevision(revision_row, criteria))
    return revisions


async def list_memberships(session: AsyncSession, case_id: str) -> list[Membership]:
    """The snapshots that hold a case, the newest first."""
    member = SnapshotMemberRow
    query = select(
        member.version, member.revision, member.first_release, SnapshotRow.frozen_at
    )
    query = query.join(SnapshotRow, SnapshotRow.version == member.version).where(
        member.case_id == case_id
    )
    return [
        read(Membership, row)
        for row in await session.execute(query.order_by(member.version.desc()))
    ]
