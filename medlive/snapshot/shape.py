"""The shape of a snapshot: the columns of its tables, and the values of its enumerations.

From format 4 on the manifest states both. A reader accepts columns and values that the manifest names and it does
not know, and says so; only a changed meaning needs another format number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, JsonValue, StringConstraints

from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Difficulty,
    Origin,
    Register,
    Theme,
    Tier,
)
from medlive.snapshot.model import (
    FIELDS,
    OPTIONAL,
    TABLES,
    Table,
)

FORMAT_VERSION: Final = 4
"""The format that is written. A new column or value needs no new format: see `OPTIONAL` and `ENUMERATIONS`."""

OLDEST_FORMAT: Final = 2

JsonType = type[str] | type[int] | type[float]
TYPES: Final[Mapping[str, JsonType]] = {"string": str, "integer": int, "number": float}
"""The types of columns as a manifest names them. `posted_at` is a string in JSON and a date in parquet."""

ENUMERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "language": ("en", "zh"),
    "theme": tuple(Theme),
    "specialty": (*SPECIALTIES, UNKNOWN_SPECIALTY),
    "difficulty": tuple(Difficulty),
    "dialogue_register": tuple(Register),
    "axis": tuple(Axis),
    "origin": tuple(Origin),
    "tier": tuple(Tier),
}
"""Column → the values that it may have. New values and new enumerations are added here."""

_NEW_IN_FORMAT_3: Final = ("ceiling", "floor", "separation", "origin", "source")

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class Column(BaseModel):
    """A column as a manifest states it."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
    )

    name: Name
    type: str  # One of `TYPES`; a column of another type is not compared with parquet
    optional: bool = False  # Whether a snapshot may lack it
    default: JsonValue = None  # The value of rows without it; with None it may be null

    @property
    def nullable(self) -> bool:
        """Whether a row may hold null."""
        return self.optional and self.default is None

    @property
    def kind(self) -> "JsonType | None":
        """The type of its JSON value; None where this medlive does not know the type."""
        return TYPES.get(self.type)


@dataclass(frozen=True)
class Shape:
    """The columns and enumerations of one snapshot."""

    format_version: int
    columns: Mapping[Table, tuple[Column, ...]]  # By table, in order
    enumerations: Mapping[str, tuple[str, ...]]  # By column

    def absent(self, table: Table) -> list[Column]:
        """Return the known columns that this snapshot lacks; its rows have their defaults."""
        names = {column.name for column in self.columns[table]}
        return [c for c in shape_of().columns[table] if c.name not in names]

    @cached_property
    def unknown(self) -> dict[Table, dict[str, Any]]:
        """Table → the columns that this medlive does not know, with their defaults."""
        unknown: dict[Table, dict[str, Any]] = {table: {} for table in TABLES}
        for table in TABLES:
            for column in self.columns[table]:
                if column.name not in FIELDS[table]:
                    unknown[table][column.name] = column.default
        return unknown

    def unknown_names(self) -> Iterator[str]:
        """Yield what the snapshot may hold and this medlive does not know, in words."""
        for table, columns in self.unknown.items():
            for name in columns:
                yield f"column {name!r} of {table}"
        for name, values in self.enumerations.items():
            for value in values:
                if value not in ENUMERATIONS.get(name, ()):
                    yield f"{name} {value!r}"

    def row_fault(
        self,
        row: object,
        table: Table,
    ) -> str | None:
        """Return why a parsed JSON value is not a row of a table, or None if it is one."""
        if not isinstance(row, dict):
            return f"expected an object, got {type(row).__name__}"
        columns = self.columns[table]
        if missing := [c.name for c in columns if c.name not in row]:
            return f"missing fields {', '.join(missing)}"
        if len(row) > len(columns):
            extra = sorted(str(name) for name in row.keys() - {c.name for c in columns})
            return f"unknown fields {', '.join(extra)}"
        for column in columns:
            value = row[column.name]
            if column.kind is None or (value is None and column.nullable):
                continue
            if type(value) is not column.kind:
                expected = column.kind.__name__
                got = type(value).__name__
                return f"{column.name}: expected {expected}, got {got}"
        return None


def shape_of(format_version: int = FORMAT_VERSION) -> Shape:
    """Return the shape that a format has in this medlive."""
    columns: dict[Table, tuple[Column, ...]] = {}
    for table, fields in FIELDS.items():
        listed = []
        for name, kind in fields.items():
            optional = name in OPTIONAL[table]
            # Formats 2 and 3 are closed.
            is_new = name not in _NEW_IN_FORMAT_3 or format_version < 3
            if optional and format_version < 4 and is_new:
                continue
            default = OPTIONAL[table].get(name)
            column = Column(name=name, type=kind, optional=optional, default=default)
            listed.append(column)
        columns[table] = tuple(listed)
    return Shape(format_version, columns, ENUMERATIONS)


def columns_fault(table: Table, columns: Sequence[Column]) -> str | None:
    """Return why these cannot be a table's columns: a known column keeps its meaning, and those of before exist."""
    stated = {column.name: column for column in columns}
    if len(stated) < len(columns):
        return f"columns of {table} are named twice"
    for known in shape_of().columns[table]:
        column = stated.get(known.name)
        if column is None and not known.optional:
            return f"columns of {table} lack {known.name}"
        if column is not None and known_part(column) != known_part(known):
            return f"column {known.name} of {table}: expected {known_part(known)}"
    return None


def known_part(value: object) -> object:
    """Return a model's fields without what a later version adds to them; any other value as it is."""
    if isinstance(value, BaseModel):
        return value.model_dump(include=set(type(value).model_fields))
    return value
