"""Rows from dataclasses and back, by the names that a table's columns share with their fields."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from medlive.db.tables import Base

T = TypeVar("T")


def row_of(table: type[Base], value: Any, /, **more: Any) -> dict[str, Any]:
    """A dataclass as a row of a table: the fields that are columns too, and `more`, which prevails."""
    columns = table.__table__.columns
    shared = {field.name: getattr(value, field.name) for field in fields(value) if field.name in columns}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in shared.items()} | more


def read(kind: type[T], row: Any, /, **more: Any) -> T:
    """A dataclass from a row's columns of its fields' names, and `more`, which prevails; arrays become tuples."""
    names = [field.name for field in fields(kind) if field.name not in more]  # type: ignore[arg-type]
    values = {name: getattr(row, name) for name in names}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}, **more)
