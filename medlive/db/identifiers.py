"""Where the raw text of threads names people and places: found once, when it comes in."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.bulk import insert_rows
from medlive.db.tables import IdentifierRow
from medlive.db.threads import SavedThread
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers


async def save_identifiers(session: AsyncSession, saved: Sequence[SavedThread], threads: Sequence[Thread]) -> int:
    """Find and keep the identifiers of what is new or revised; how many there are."""
    rows = []
    met: set[int] = set()
    for one, thread in zip(saved, threads, strict=True):
        if one.status == "unchanged" or one.revision_pk in met:
            continue
        met.add(one.revision_pk)
        rows += [
            {
                "revision_id": one.revision_pk,
                "message": 0 if found.message is None else found.message + 1,
                "start_at": found.start,
                "end_at": found.end,
                "kind": found.kind.value,
            }
            for found in thread_identifiers(thread)
        ]
    await insert_rows(session, IdentifierRow, rows, skip_known=True)
    return len(rows)


async def count_identifiers(session: AsyncSession, revision_pk: int) -> dict[str, int]:
    """Kind → how many the revision's raw text has."""
    row = IdentifierRow
    query = select(row.kind, func.count()).where(row.revision_id == revision_pk).group_by(row.kind)
    found = await session.execute(query.order_by(row.kind))
    return dict(found.tuples().all())
