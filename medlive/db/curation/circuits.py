"""Open circuits of the circuit breaker (`medlive.guard.circuit`), shared by all processes of an instance."""

from collections.abc import Collection

from medlive.db.mapping import read, row_of
from medlive.db.session import Database, Session
from medlive.db.tables.release import CircuitRow
from medlive.guard.circuit import Opening


class PostgresCircuits:
    """A `medlive.guard.circuit.CircuitStore` in the database. Both methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        """The caller closes `database`."""
        self._database = database

    async def find(self, key: str) -> Opening | None:
        """See CircuitStore."""
        async with self._database.begin() as session:
            row = await session.get(CircuitRow, key)
        return None if row is None else read(Opening, row)

    async def swap(
        self,
        key: str,
        known: Opening | None,
        new: Opening | None,
    ) -> bool:
        """See CircuitStore."""
        async with self._database.begin() as session:
            row = await session.get(CircuitRow, key, with_for_update=True)
            if (row and row.retry_at) != (known and known.retry_at):
                return False
            if row is not None:
                await session.delete(row)
                await session.flush()
            rows = [] if new is None else [row_of(CircuitRow, new, key=key)]
            # Another process may have opened it at this moment.
            added = await session.insert_rows(
                CircuitRow, rows, skip_known=True, returning=("key",)
            )
            return len(added) == len(rows)


async def list_circuits(session: Session, names: Collection[str]) -> list[Opening]:
    """The open circuits whose key or endpoint is among `names`, the oldest first."""
    openings = []
    for row in await session.rows(CircuitRow, "ORDER BY opened_at, key"):
        if row.key in names or row.endpoint in names:
            openings.append(read(Opening, row))
    return openings


async def reset_circuits(session: Session) -> list[str]:
    """Close every circuit; return the endpoints of the circuits that were open."""
    names = await session.column("DELETE FROM circuits RETURNING endpoint")
    return sorted(set(names))
