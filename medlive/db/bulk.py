"""Many rows of one table in one statement of constant text."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Text, TextClause, any_, bindparam, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from medlive.db.tables import Base
from medlive.db.unstorable import dump_json


async def insert_rows(
    session: AsyncSession,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],
    *,
    skip_known: bool = False,
    returning: Sequence[str] = (),
) -> Sequence[Any]:
    """Insert rows in their order; each has the same columns as the first. None is NULL, in JSON columns too.

    `skip_known` leaves out rows that a key of the table holds already. The rows travel as one JSON parameter,
    which PostgreSQL reads by the table's own types: one round trip, and one statement to prepare, for all of them.

    Returns:
        The columns `returning` of each row that was inserted, in any order.
    """
    if not rows:
        return []
    statement = _statement(table, tuple(rows[0]), skip_known, tuple(returning))
    result = await session.execute(statement, {"rows": dump_rows(rows)})
    return result.all() if returning else []


def dump_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as one JSON array, for `json_populate_recordset` and its like."""
    return dump_json([{k: _plain(v) for k, v in row.items()} for row in rows])


def is_one_of(column: InstrumentedAttribute[str], values: Iterable[str]) -> ColumnElement[bool]:
    """The condition that a text column holds one of the values, as one array parameter: `in_` writes a new
    statement for each number of values, which neither SQLAlchemy nor PostgreSQL has prepared."""
    return column == any_(bindparam(None, list(values), type_=ARRAY(Text)))


@cache
def _statement(
    table: type[Base], columns: tuple[str, ...], skip_known: bool, returning: tuple[str, ...]
) -> TextClause:
    name, names = table.__tablename__, ", ".join(f'"{column}"' for column in columns)
    return text(
        f'INSERT INTO "{name}" ({names}) SELECT {names} '
        f'FROM json_populate_recordset(NULL::"{name}", CAST(:rows AS json))'
        + (" ON CONFLICT DO NOTHING" if skip_known else "")
        + (f" RETURNING {', '.join(returning)}" if returning else "")
    )


def _plain(value: Any) -> Any:
    """A column's value as JSON has it; PostgreSQL reads numbers and dates from text without loss."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return value
