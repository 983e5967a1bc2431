"""What every table is made of: the registry, and columns whose type says what may stand in them."""

import inspect
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Integer,
    MetaData,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql import func
from sqlalchemy.types import TypeDecorator

WEEK_FORM = r"^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$"
"""An ISO week as PostgreSQL's regular expressions have it, such as 2026.W47."""
Digest = Annotated[str, "names its algorithm"]
"""A column of this type gets the CHECK that it holds `sha256:` and 64 hexadecimal digits."""


class EnumText(TypeDecorator[StrEnum]):
    """An enum stored by its value; a CHECK keeps other values out."""

    impl = Text
    cache_ok = True

    def __init__(self, enum: type[StrEnum]) -> None:
        super().__init__()
        self.enum = enum

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:
        return None if value is None else self.enum(value).value

    def process_result_value(
        self, value: str | None, dialect: Dialect
    ) -> StrEnum | None:
        return None if value is None else self.enum(value)


class Base(DeclarativeBase):
    """The registry of tables; the docstring of each is its comment in the database.

    A column annotated with a StrEnum, Literal or Digest gets its type and its CHECK by that.
    """

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        str: Text(),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text),
    }

    def __init_subclass__(cls, **options: Any) -> None:
        typed: list[CheckConstraint] = []
        for name, annotation in inspect.get_annotations(cls).items():
            column = vars(cls)[name].column.name or name
            [kind_held] = get_args(annotation)  # Of Mapped[…]
            for kind in (kind_held, *get_args(kind_held)):
                if kind == Digest:
                    digest = f"{column} ~ '^sha256:[0-9a-f]{{64}}$'"
                    typed += checks(**{f"{column}_is_digest": digest})
                elif get_origin(kind) is Literal:
                    cls.registry.update_type_annotation_map({kind: Text()})
                    typed.append(one_of(column, get_args(kind)))
                elif isinstance(kind, type) and issubclass(kind, StrEnum):
                    cls.registry.update_type_annotation_map({kind: EnumText(kind)})
                    typed.append(one_of(column, kind))
        comment = {"comment": (cls.__doc__ or "").removesuffix(".")}
        others = getattr(cls, "__table_args__", ())
        cls.__table_args__ = (*others, *typed, comment)
        super().__init_subclass__(**options)


def column(comment: str, *details: Any, **options: Any) -> Mapped[Any]:
    """A column; `comment` says what it holds, the rest is as for `mapped_column`."""
    return mapped_column(*details, comment=comment, **options)


def key_column(comment: str, *details: Any, **options: Any) -> Mapped[Any]:
    """A column of the primary key."""
    return column(comment, *details, primary_key=True, **options)


def number_column(
    comment: str, name: str | None = None, kind: type[Integer] = Integer
) -> Mapped[int]:
    """The primary key's only column, which the database numbers."""
    return key_column(comment, Identity(always=True), name=name, type_=kind)


def now_column(comment: str) -> Mapped[datetime]:
    """A column that is filled with the transaction's time."""
    moment = DateTime(timezone=True)
    return column(comment, moment, server_default=func.now(), nullable=False)


def checks(*others: Any, **conditions: str) -> tuple[Any, ...]:
    """A table's CHECKs by their names, and what else it has: keys and indexes."""
    named = conditions.items()
    own = (CheckConstraint(condition, name=name) for name, condition in named)
    return (*others, *own)


def refers_to(
    table: str, *names: str, ondelete: str | None = None
) -> ForeignKeyConstraint:
    """The foreign key of columns that another table has by the same names."""
    keys = [f"{table}.{name}" for name in names]
    return ForeignKeyConstraint(names, keys, ondelete=ondelete)


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """The CHECK that a column holds one of these values (or NULL where it may)."""
    listed = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")
