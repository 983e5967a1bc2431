"""Open circuits, shared by all processes of an instance."""

from collections.abc import Collection

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import insert_rows, read, row_of
from medlive.db.session import Database
from medlive.db.tables.release import CircuitRow
from medlive.llm.circuit import Opening


class PostgresCircuits:
    """A `medlive.llm.circuit.CircuitStore` in the database. Both methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        """`database` stays its owner's."""
        self._database = database

    async def find(self, key: str) -> Opening | None:
        """See CircuitStore."""
        async with self._database.begin() as session:
            row = await session.get(CircuitRow, key)
        return None if row is None else read(Opening, row)

    async def swap(self, key: str, known: Opening | None, new: Opening | None) -> bool:
        """See CircuitStore."""
        async with self._database.begin() as session:
            if known is None:
                if new is None:
                    return True
                rows = [row_of(CircuitRow, new, key=key)]
                inserted = await insert_rows(
                    session, CircuitRow, rows, skip_known=True, returning=["key"]
                )
                return bool(inserted)
            same = (CircuitRow.key == key, CircuitRow.retry_at == known.retry_at)
            change = (
                update(CircuitRow).values(row_of(CircuitRow, new))
                if new
                else delete(CircuitRow)
            )
            return bool(
                (
                    await session.execute(change.where(*same).returning(CircuitRow.key))
                ).first()
            )


async def list_circuits(session: AsyncSession) -> list[Opening]:
    """Every open circuit, the oldest first."""
    rows = await session.scalars(
        select(CircuitRow).order_by(CircuitRow.opened_at, CircuitRow.key)
    )
    return [read(Opening, row) for row in rows]


async def reset_circuits(
    session: AsyncSession, endpoints: Collection[str]
) -> list[str]:
    """Close the circuits of these endpoints, whatever their key; the endpoints of those that were open."""
    statement = (
        delete(CircuitRow)
        .where(CircuitRow.endpoint.in_(endpoints))
        .returning(CircuitRow.endpoint)
    )
    return sorted(set(await session.scalars(statement)))


async def open_circuits(session: AsyncSession, names: Collection[str]) -> list[Opening]:
    """The open circuits of these keys or endpoints, the oldest first."""
    rows = await session.scalars(select(CircuitRow).order_by(CircuitRow.opened_at))
    return [
        read(Opening, row) for row in rows if row.key in names or row.endpoint in names
    ]
