"""What the page of a thread or case shows besides its decisions: replies, revisions, snapshots."""

from collections.abc import Iterable, Sequence

from medlive.db.curation.cases import criteria_of
from medlive.db.mapping import Record
from medlive.db.session import Session
from medlive.db.tables.decisions import ReplyRow
from medlive.db.tables.release import CaseRevisionRow
from medlive.rubric.model import Criterion

CaseRevision = tuple[CaseRevisionRow, Sequence[Criterion]]
"""What a case said from a moment on."""


async def find_replies(session: Session, digests: Iterable[str]) -> dict[str, ReplyRow]:
    """The replies to some requests, by the request's digest."""
    rows = await session.rows(
        ReplyRow, "WHERE request_digest = ANY (:digests)", digests=list(digests)
    )
    return {row.request_digest: row for row in rows}


async def list_revisions(session: Session, case_id: str) -> list[CaseRevision]:
    """A case's revisions, the first one first."""
    own = "WHERE case_id = :case_id ORDER BY revision"
    revisions: list[CaseRevision] = []
    for row in await session.rows(CaseRevisionRow, own, case_id=case_id):
        criteria = await criteria_of(session, case_id, row.revision)
        revisions.append((row, criteria))
    return revisions


async def list_memberships(session: Session, case_id: str) -> Sequence[Record]:
    """The snapshots that hold a case, the newest first: version, revision, first_release (the first snapshot that
    shows it; None: it is held out), frozen_at."""
    query = """
        SELECT version, revision, first_release, frozen_at FROM snapshot_members JOIN snapshots USING (version)
        WHERE case_id = :case_id ORDER BY version DESC
    """
    return await session.records(query, case_id=case_id)
