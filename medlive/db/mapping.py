"""Rows from dataclasses and back, many rows in one statement, and text that PostgreSQL cannot hold.

PostgreSQL's text and jsonb know neither NUL nor lone surrogates. Both occur in what communities and engines send,
and digests are made from the text as it came, so it must come back unchanged. Each such character becomes a
private one (U+10FFFD), its number in hexadecimal and a semicolon, and that character itself likewise.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, EnumType
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Result,
    Row,
    any_,
    bindparam,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute

T = TypeVar("T")
R = TypeVar("R", bound=DeclarativeBase)
Record = SimpleNamespace | Row[*tuple[Any, ...]]
"""What a query gives, its columns by name."""
_MARK = "\U0010fffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\U0010fffd]")
_STORED = re.compile("\U0010fffd([0-9a-f]{4,6});")


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
    session: AsyncSession, sql: str, values: Mapping[str, Any] | None = None
) -> list[Record]:
    """A query's rows, each with its columns by name."""
    rows = await run_sql(session, sql, **(values or {}))
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
    rows = await read_records(session, sql, values)
    return [read(kind, row) for row in rows]


async def read_value(session: AsyncSession, sql: str, /, **values: Any) -> Any:
    """The first value of a query's first row; None without a row."""
    return (await run_sql(session, sql, **values)).scalar()


async def read_column(session: AsyncSession, sql: str, /, **values: Any) -> list[Any]:
    """The first value of each of a query's rows."""
    return list((await run_sql(session, sql, **values)).scalars())


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
    result = await run_sql(session, statement, rows=dump_json(rows))
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
        values = {name: dump_json(rows) for name, (_, rows) in full.items()}
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


def is_one_of(
    column: InstrumentedAttribute[T], values: Iterable[T]
) -> ColumnElement[bool]:
    """The condition that a column holds one of the values, as one array parameter: `in_` writes a new statement
    for each number of values, which neither SQLAlchemy nor PostgreSQL has prepared."""
    return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))


def _plain(value: Any) -> Any:
    """A value that JSON does not know; PostgreSQL reads numbers and dates from text without loss."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)


def int_array(values: Iterable[int]) -> str:
    """Integers as PostgreSQL writes an array; the driver's own way takes each of them several calls."""
    return "{" + ",".join(map(str, values)) + "}"


class StoredText(str):
    """Text as a column can hold it."""


def to_stored(text: str) -> str:
    """The text as a column can hold it; nearly always the text itself."""
    if isinstance(text, StoredText) or (text.isascii() and "\x00" not in text):
        return text
    return StoredText(_UNSTORABLE.sub(lambda m: f"{_MARK}{ord(m[0]):04x};", text))


def from_stored(text: str) -> str:
    """The text as it came."""
    return _STORED.sub(lambda m: chr(int(m[1], 16)), text) if _MARK in text else text


def dump_json(value: Any) -> StoredText:
    """JSON for a jsonb column. Raises ValueError for NaN and infinities."""
    dumped = _ENCODER.encode(value)
    # json writes NUL as an escape, which may also stand for the six characters; walking decides.
    if "\\u0000" in dumped or (not dumped.isascii() and _UNSTORABLE.search(dumped)):
        dumped = _ENCODER.encode(_walk(json.loads(dumped), to_stored))
    return StoredText(dumped)


def load_json(stored: str | bytes) -> Any:
    """The value that `dump_json` was given (tuples as lists)."""
    dumped = stored if isinstance(stored, str) else stored.decode()
    return (
        _walk(json.loads(dumped), from_stored)
        if _MARK in dumped
        else json.loads(dumped)
    )


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_walk(k, change): _walk(v, change) for k, v in value.items()}
    return (
        [_walk(v, change) for v in value] if isinstance(value, list | tuple) else value
    )
