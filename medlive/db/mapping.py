"""Rows from dataclasses and back, and many rows in one statement."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import EnumType
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from psycopg.types.json import Json
from pydantic import TypeAdapter
from sqlalchemy import (
    Result,
    Row,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase

T = TypeVar("T")
R = TypeVar("R", bound=DeclarativeBase)
Record = SimpleNamespace | Row[*tuple[Any, ...]]
"""What a query gives, its columns by name."""


def row_of(table: type[DeclarativeBase], value: Any, /, **more: Any) -> dict[str, Any]:
    """A dataclass as a row, by columns: the fields that the table has, and `more`, which prevails."""
    columns = _shared_columns(table, type(value))  # type: ignore[arg-type]
    return {column: getattr(value, name) for name, column in columns} | more


@cache
def _shared_columns(
    table: type[DeclarativeBase], kind: Any
) -> tuple[tuple[str, str], ...]:
    """A field's name and the column's, for each field that is an attribute of the table."""
    columns = inspect(table).columns
    return tuple((name, columns[name].name) for name in _names(kind) if name in columns)


def read(kind: type[T], row: Any, /, **more: Any) -> T:
    """A dataclass from a row's columns of its fields' names, and `more`, which prevails.

    Arrays become tuples; what a JSON column holds of dataclasses and enums becomes these again.
    """
    adapters = _adapters(kind)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name in _names(kind):  # type: ignore[arg-type]
        if name in more:
            continue
        value = getattr(row, name)
        if name in adapters:
            value = adapters[name].validate_python(value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values, **more)


@cache
def _adapters(kind: Any) -> dict[str, TypeAdapter[Any]]:
    """The fields whose value has parts that JSON does not know, and what makes them of JSON."""
    adapters = {}
    for name, hint in get_type_hints(kind).items():
        parts = [hint, *get_args(hint)]
        if any(is_dataclass(p) or isinstance(p, EnumType) for p in parts):
            adapters[name] = TypeAdapter(hint)
    return adapters


async def read_records(
    session: AsyncSession, sql: str, /, **values: Any
) -> list[Record]:
    """A query's rows, each with its columns by name."""
    rows = await run_sql(session, sql, **values)
    return [SimpleNamespace(**row) for row in rows.mappings()]


async def find_rows(
    session: AsyncSession, table: type[R], which: str, /, **values: Any
) -> list[R]:
    """A table's rows of which SQL says `which`, from WHERE or ORDER BY on, as they stand in the database now."""
    every = text(f"SELECT * FROM {table.__tablename__} {which}")
    rows = select(table).from_statement(every)
    stored = {"populate_existing": True}
    return list(await session.scalars(rows, values, execution_options=stored))


async def find_row(
    session: AsyncSession, table: type[R], which: str, /, **values: Any
) -> R | None:
    """The first of the rows that `find_rows` finds; None if there is none."""
    return next(iter(await find_rows(session, table, which, **values)), None)


async def read_as(
    session: AsyncSession, kind: type[T], sql: str, /, **values: Any
) -> list[T]:
    """A query's rows as instances of a class, by its fields' names."""
    rows = await run_sql(session, sql, **values)
    return [read(kind, row) for row in rows]


async def read_value(session: AsyncSession, sql: str, /, **values: Any) -> Any:
    """The first value of a query's first row; None without a row."""
    return (await run_sql(session, sql, **values)).scalar()


async def read_column(session: AsyncSession, sql: str, /, **values: Any) -> list[Any]:
    """The first value of each of a query's rows."""
    return list((await run_sql(session, sql, **values)).scalars())


async def read_map(session: AsyncSession, sql: str, /, **values: Any) -> dict[Any, Any]:
    """The first value of each of a query's rows → the second."""
    rows = await run_sql(session, sql, **values)
    return {row[0]: row[1] for row in rows}


async def run_sql(
    session: AsyncSession, sql: str, /, **values: Any
) -> Result[*tuple[Any, ...]]:
    """Run a statement."""
    return await session.execute(text(sql), values)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass or a NamedTuple."""
    named: tuple[str, ...] = getattr(kind, "_fields", ())
    return named or tuple(field.name for field in fields(kind))


def as_dict(row: DeclarativeBase) -> dict[str, Any]:
    """A row by the names of its attributes."""
    names = inspect(type(row)).column_attrs.keys()
    return {name: getattr(row, name) for name in names}


async def add_row(session: AsyncSession, row: T) -> T:
    """Insert a row; return it with what the database filled in."""
    session.add(row)
    await session.flush()
    return row


async def put_row(
    session: AsyncSession, table: type[R], key: Mapping[str, Any], **values: Any
) -> R:
    """Insert a row, or give the one of this key these values; return it."""
    statement = upsert(table).values(**key, **values)
    statement = statement.on_conflict_do_update(index_elements=list(key), set_=values)
    returned = statement.returning(table)
    fresh = {"populate_existing": True}
    return (await session.scalars(returned, execution_options=fresh)).one()


async def insert_rows(
    session: AsyncSession,
    table: type[DeclarativeBase],
    rows: Sequence[Mapping[str, Any]],
    *,
    skip_known: bool = False,
    returning: Sequence[str] = (),
) -> Sequence[Any]:
    """Insert rows in their order; each has the same columns as the first. None is NULL, in JSON columns too.

    `skip_known` leaves out rows whose key the table has already. The rows travel as one JSON parameter, which
    PostgreSQL reads by the table's own types: one round trip and one statement for all of them. Returns the
    columns `returning` of each row that was inserted, in any order.
    """
    if not rows:
        return []
    statement = _insertion(table, rows[0], "rows", skip_known=skip_known)
    statement += f" RETURNING {', '.join(returning)}" if returning else ""
    result = await run_sql(session, statement, rows=Json(rows))
    return result.all() if returning else []


async def insert_parts(
    session: AsyncSession,
    parts: Mapping[type[DeclarativeBase], Sequence[Mapping[str, Any]]],
    *,
    known: Collection[type[DeclarativeBase]],
) -> None:
    """Insert the rows of several tables, each as `insert_rows` does, in one statement; of the tables `known` those
    that they do not have."""
    full = {table.__tablename__: (table, rows) for table, rows in parts.items() if rows}
    steps = [
        f"in_{name} AS ({_insertion(table, rows[0], name, skip_known=table in known)})"
        for name, (table, rows) in full.items()
    ]
    if steps:
        values = {name: Json(rows) for name, (_, rows) in full.items()}
        await run_sql(session, f"WITH {', '.join(steps)} SELECT", **values)


def _insertion(
    table: type[DeclarativeBase],
    row: Mapping[str, Any],
    parameter: str,
    *,
    skip_known: bool,
) -> str:
    name, names = table.__tablename__, ", ".join(f'"{column}"' for column in row)
    return (
        f'INSERT INTO "{name}" ({names}) SELECT {names} '
        f'FROM json_populate_recordset(NULL::"{name}", CAST(:{parameter} AS json))'
    ) + (" ON CONFLICT DO NOTHING" if skip_known else "")


def int_array(values: Iterable[int]) -> str:
    """Integers as PostgreSQL writes an array; the driver's own way takes each of them several calls."""
    return "{" + ",".join(map(str, values)) + "}"
