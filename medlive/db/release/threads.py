"""Which thread revisions the cases of a snapshot were made from."""

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables.decisions import CurationRow
from medlive.db.tables.release import CaseRevisionRow, SnapshotMemberRow


async def revisions_of(session: AsyncSession, version: str, case_ids: Iterable[str]) -> dict[str, int]:
    """Case → the thread revision that it was made from as it stands in that snapshot; cases that are not in it
    have none."""
    query = (
        select(SnapshotMemberRow.case_id, CurationRow.revision_id)
        .join(
            CaseRevisionRow,
            (CaseRevisionRow.case_id == SnapshotMemberRow.case_id)
            & (CaseRevisionRow.revision == SnapshotMemberRow.revision),
        )
        .join(CurationRow, CurationRow.id == CaseRevisionRow.curation_id)
        .where(SnapshotMemberRow.version == version)
    )
    wanted = set(case_ids)
    return {case_id: revision for case_id, revision in await session.execute(query) if case_id in wanted}
