"""Rows from dataclasses and back."""

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
    return tuple(
        (name, columns[name].name) for name in field_names(kind) if name in columns
    )


def read(kind: type[T], row: Any, /, **more: Any) -> T:
    """A dataclass from a row's columns of its fields' names, and `more`, which prevails.

    Arrays become tuples; what a JSON column holds of dataclasses and enums becomes these again.
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
    """The fields whose value has parts that JSON does not know, and what makes them of JSON."""
    adapters = {}
    for name, hint in get_type_hints(kind).items():
        parts = [hint, *get_args(hint)]
        if any(is_dataclass(p) or isinstance(p, EnumType) for p in parts):
            adapters[name] = TypeAdapter(hint)
    return adapters


def as_dict(row: DeclarativeBase) -> dict[str, Any]:
    """A row by the names of its attributes."""
    names = inspect(type(row)).column_attrs.keys()
    return {name: getattr(row, name) for name in names}


def int_array(values: Iterable[int]) -> str:
    """Integers as PostgreSQL writes an array; the driver's own way takes each of them several calls."""
    return "{" + ",".join(map(str, values)) + "}"
