"""What the page of a thread or case shows besides its decisions: replies, revisions, snapshots."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.curation.cases import criteria_of
from medlive.db.mapping import is_one_of, read
from medlive.db.tables.decisions import ReplyRow
from medlive.db.tables.release import CaseRevisionRow, SnapshotMemberRow, SnapshotRow
from medlive.rubric.model import Criterion, Difficulty, Register, Theme


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A reply as it came, and what it took."""

    request_digest: str
    text: str
    finish: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None  # None: its price is unknown
    latency_ms: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CaseRevision:
    """What a case said from a moment on."""

    revision: int
    curation_id: int
    created_at: datetime
    narrative: str
    query: str
    advice: str
    theme: Theme
    specialty: str
    difficulty: Difficulty
    dialogue_register: Register
    publishable: bool
    unpublishable_reason: str | None
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """A revision of a case in a snapshot."""

    version: str
    revision: int
    first_release: str | None  # The first snapshot that shows it; None: it is held out
    frozen_at: datetime | None


async def find_replies(
    session: AsyncSession, digests: Iterable[str]
) -> dict[str, StoredReply]:
    """The replies to some requests, by the request's digest."""
    rows = await session.scalars(
        select(ReplyRow).where(is_one_of(ReplyRow.request_digest, digests))
    )
    return {row.request_digest: read(StoredReply, row) for row in rows}


async def list_revisions(session: AsyncSession, case_id: str) -> list[CaseRevision]:
    """A case's revisions, the first one first."""
    row = CaseRevisionRow
    found = []
    for one in await session.scalars(
        select(row).where(row.case_id == case_id).order_by(row.revision)
    ):
        criteria = tuple(await criteria_of(session, case_id, one.revision))
        found.append(read(CaseRevision, one, criteria=criteria))
    return found


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
