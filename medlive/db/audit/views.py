"""Saved views: table pages that an account goes back to."""

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import put_row, to_stored
from medlive.db.tables.audit import SavedViewRow
from medlive.errors import UsageError
from medlive.guard.bounds import VIEW_CHARS, VIEW_TITLE_CHARS, VIEWS


async def list_views(session: AsyncSession, account_id: int) -> list[SavedViewRow]:
    """An account's views by title."""
    row = SavedViewRow
    query = select(row).where(row.account_id == account_id).order_by(row.title, row.id)
    return list(await session.scalars(query))


async def save_view(
    session: AsyncSession, account_id: int, title: str, table: str, query: str
) -> None:
    """Keep a view; one of the same title is replaced.

    Raises:
        UsageError: for no title, an address that is too long, or too many views.
    """
    if not (title := to_stored(title.strip()[:VIEW_TITLE_CHARS])):
        raise UsageError("a view needs a name")
    if len(query) > VIEW_CHARS:
        raise UsageError(
            f"a view's address has at most {VIEW_CHARS:,} characters, and this has {len(query):,}"
        )
    row = SavedViewRow
    kept = await session.scalar(
        select(func.count()).where(row.account_id == account_id, row.title != title)
    )
    if kept is not None and kept >= VIEWS:
        raise UsageError(f"an account keeps {VIEWS} views at most")
    key = {"account_id": account_id, "title": title}
    await put_row(session, row, key, table_name=table, query=to_stored(query))


async def forget_view(session: AsyncSession, account_id: int, view_id: int) -> None:
    """Delete a view, if it is the account's own."""
    await session.execute(
        delete(SavedViewRow).where(
            SavedViewRow.id == view_id, SavedViewRow.account_id == account_id
        )
    )
