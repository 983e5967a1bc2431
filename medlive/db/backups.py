"""What a backup asks of the database."""

from sqlalchemy import quoted_name, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables.intake import TakedownRow

_TABLES = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")


async def export_snapshot(session: AsyncSession) -> str:
    """Fix what this session sees, before its first query, and return the name by which pg_dump sees the same."""
    await session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    found: str = (await session.execute(text("SELECT pg_export_snapshot()"))).scalar_one()
    return found


async def count_rows(session: AsyncSession) -> dict[str, int]:
    """Table → its rows; empty for a database without tables."""
    names = [quoted_name(name, True) for name in await session.scalars(_TABLES)]
    return {str(n): await session.scalar(text(f'SELECT count(*) FROM "{n}"')) or 0 for n in names}


async def list_takedowns(session: AsyncSession) -> list[tuple[str, str, str]]:
    """(source, thread id, reason) of every erased thread that must not come back."""
    row = TakedownRow
    query = select(row.source, row.thread_id, row.reason).where(row.lifted_at.is_(None))
    query = query.order_by(row.source, row.thread_id)
    return [(source, thread_id, reason) for source, thread_id, reason in await session.execute(query)]


async def server_version(session: AsyncSession) -> int:
    """The server's major version."""
    return int(await session.scalar(text("SHOW server_version_num"))) // 10_000
