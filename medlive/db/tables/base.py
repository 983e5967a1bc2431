"""What table classes are made of: `Base`, their registry, and functions that make columns, keys and CHECKs."""

import inspect
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    DateTime,
    Double,
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
_JSON, _MOMENT = JSONB(none_as_null=True), DateTime(timezone=True)


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
        datetime: _MOMENT,
        list[Any]: _JSON,
        list[str]: ARRAY(Text),
    }

    def __init_subclass__(cls, **options: Any) -> None:
        """Add the CHECKs of annotated columns, and the docstring as the table's comment."""
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


def column(
    comment: str,
    *details: Any,
    **options: Any,
) -> Mapped[Any]:
    """A column; `comment` says what it holds, the rest is as for `mapped_column`."""
    return mapped_column(*details, comment=comment, **options)


def key_column(
    comment: str,
    *details: Any,
    **options: Any,
) -> Mapped[Any]:
    """A column of the primary key."""
    return column(comment, *details, primary_key=True, **options)


_Text = Callable[..., Mapped[str]]
_Whole = Callable[..., Mapped[int]]
_required = partial(column, nullable=False)
# `column` and `key_column` of the usual types; only the `optional_` ones may be NULL. Arguments can override the type,
# such as `type_=SmallInteger`.
text_key: _Text = partial(key_column, type_=Text)
text_column: _Text = partial(_required, type_=Text)
optional_text: Callable[..., Mapped[str | None]] = partial(column, type_=Text)
integer_key: _Whole = partial(key_column, type_=Integer)
integer_column: _Whole = partial(_required, type_=Integer)
optional_integer: Callable[..., Mapped[int | None]] = partial(column, type_=Integer)
float_column: Callable[..., Mapped[float]] = partial(_required, type_=Double)
optional_float: Callable[..., Mapped[float | None]] = partial(column, type_=Double)
flag_column: Callable[..., Mapped[bool]] = partial(_required, type_=Boolean)
optional_flag: Callable[..., Mapped[bool | None]] = partial(column, type_=Boolean)
moment_column: Callable[..., Mapped[datetime]] = partial(_required, type_=_MOMENT)
optional_moment: Callable[..., Mapped[datetime | None]] = partial(column, type_=_MOMENT)
object_column: Callable[..., Mapped[dict[str, Any]]] = partial(_required, type_=_JSON)
optional_object: Callable[..., Mapped[dict[str, Any] | None]] = partial(
    column, type_=_JSON
)
list_column: Callable[..., Mapped[list[Any]]] = partial(_required, type_=_JSON)


def number_column(
    comment: str, name: str | None = None, kind: type[Integer] = Integer
) -> Mapped[int]:
    """The primary key's only column, which the database numbers."""
    return key_column(comment, Identity(always=True), name=name, type_=kind)


def now_column(comment: str) -> Mapped[datetime]:
    """A column that is filled with the transaction's time."""
    return moment_column(comment, server_default=func.now())


def checks(*others: Any, **conditions: str) -> tuple[Any, ...]:
    """The value of `__table_args__`: keys and indexes (`others`), and CHECKs, name=condition."""
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
