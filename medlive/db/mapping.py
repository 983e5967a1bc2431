"""Dataclasses as table rows (`row_of`) and rows as dataclasses (`read`), by the names of fields and columns."""

from collections.abc import Iterable
from dataclasses import is_dataclass
from enum import EnumType
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter
from sqlalchemy import Row, inspect
from sqlalchemy.orm import DeclarativeBase

from .adapters import field_names

T = TypeVar("T")
Record = SimpleNamespace | Row[*tuple[Any, ...]]
"""A query's row, its columns as attributes."""


def row_of(table: type[DeclarativeBase], value: Any, /, **more: Any) -> dict[str, Any]:
    """A dataclass as a row, column → value: the fields that the table has, and `more`, which prevails."""
    columns = _shared_columns(table, type(value))  # type: ignore[arg-type]
    return {column: getattr(value, name) for name, column in columns} | more


@cache
def _shared_columns(
    table: type[DeclarativeBase], kind: Any
) -> tuple[tuple[str, str], ...]:
    """(field's name, column's name) for each field of the dataclass `kind` that the table has."""
    columns = inspect(table).columns
    return tuple(
        (name, columns[name].name) for name in field_names(kind) if name in columns
    )


def read(kind: type[T], row: Any, /, **more: Any) -> T:
    """A dataclass of class `kind` from the row's columns with its fields' names, and `more`, which prevails.

    Arrays become tuples; dataclasses and enums are made again of their JSON.
    """
    adapters = _adapters(kind)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name in field_names(kind):  # type: ignore[arg-type]
        if name in more:
            continue
        value = getattr(row, name)
        if name in adapters:
            value = adapters[name].validate_python(value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values, **more)


@cache
def _adapters(kind: Any) -> dict[str, TypeAdapter[Any]]:
    """Field → what makes its value of JSON, for fields with dataclasses or enums in them."""
    adapters = {}
    for name, hint in get_type_hints(kind).items():
        parts = [hint, *get_args(hint)]
        if any(is_dataclass(p) or isinstance(p, EnumType) for p in parts):
            adapters[name] = TypeAdapter(hint)
    return adapters


def as_dict(row: DeclarativeBase) -> dict[str, Any]:
    """A row's values by the names of its attributes."""
    names = inspect(type(row)).column_attrs.keys()
    return {name: getattr(row, name) for name in names}


def int_array(values: Iterable[int]) -> str:
    """Integers as the text of a PostgreSQL array, which is faster than the driver's own conversion."""
    return "{" + ",".join(map(str, values)) + "}"
