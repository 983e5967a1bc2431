"""Where the raw text of threads names people and places: found once, when it comes in."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import insert_rows
from medlive.db.tables.intake import IdentifierRow
from medlive.db.threads.threads import SavedThread
from medlive.threads.prepare import FoundIdentifier


async def save_identifiers(
    session: AsyncSession, saved: Sequence[SavedThread], found: Sequence[Sequence[FoundIdentifier]]
) -> int:
    """Keep the identifiers of threads that are new or revised; how many there are."""
    rows = []
    met: set[int] = set()
    for one, identifiers in zip(saved, found, strict=True):
        if one.status == "unchanged" or one.revision_pk in met:
            continue
        met.add(one.revision_pk)
        rows += [
            {
                "revision_id": one.revision_pk,
                "message": 0 if i.message is None else i.message + 1,
                "start_at": i.start,
                "end_at": i.end,
                "kind": i.kind.value,
            }
            for i in identifiers
        ]
    await insert_rows(session, IdentifierRow, rows, skip_known=True)
    return len(rows)


async def count_identifiers(session: AsyncSession, revision_pk: int) -> dict[str, int]:
    """Kind → how many the revision's raw text has."""
    row = IdentifierRow
    query = select(row.kind, func.count()).where(row.revision_id == revision_pk).group_by(row.kind)
    found = await session.execute(query.order_by(row.kind))
    return {kind: count for kind, count in found}  # noqa: C416
