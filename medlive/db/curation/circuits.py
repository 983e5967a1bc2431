"""Open circuits, shared by all processes of an instance."""

from collections.abc import Collection

from sqlalchemy import delete, update

from medlive.db.mapping import read, row_of
from medlive.db.session import Database, Session
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
                row = row_of(CircuitRow, new, key=key)
                added = await session.insert_rows(
                    CircuitRow, [row], skip_known=True, returning=("key",)
                )
                return bool(added)
            same = (CircuitRow.key == key, CircuitRow.retry_at == known.retry_at)
            if new is None:
                removed = delete(CircuitRow).where(*same).returning(CircuitRow.key)
                return await session.scalar(removed) is not None
            changed = update(CircuitRow).where(*same).values(row_of(CircuitRow, new))
            return await session.scalar(changed.returning(CircuitRow.key)) is not None


async def list_circuits(
    session: Session, names: Collection[str] | None = None
) -> list[Opening]:
    """The open circuits of these keys or endpoints (None: every one), the oldest first."""
    openings = []
    for row in await session.rows(CircuitRow, "ORDER BY opened_at, key"):
        if names is None or row.key in names or row.endpoint in names:
            openings.append(read(Opening, row))
    return openings


async def reset_circuits(session: Session, endpoints: Collection[str]) -> list[str]:
    """Close the circuits of these endpoints, whatever their key; the endpoints of those that were open."""
    names = await session.column(
        "DELETE FROM circuits WHERE endpoint = ANY (:endpoints) RETURNING endpoint",
        endpoints=list(endpoints),
    )
    return sorted(set(names))
