"""What every table is made of: the registry, and columns whose type says what may stand in them."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, DateTime, MetaData, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql import func
from sqlalchemy.types import TypeDecorator

from medlive.db.mapping import from_stored, to_stored


class AnyText(TypeDecorator[str]):
    """Text of whatever characters; NUL and lone surrogates go in and come out again."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else to_stored(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else from_stored(value)


class EnumText(TypeDecorator[StrEnum]):
    """An enum stored by its value; a CHECK (`one_of`) keeps other values out."""

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
    """The registry of tables; the docstring of each is its comment in the database."""

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
        str: AnyText(),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
    }

    def __init_subclass__(cls, **options: Any) -> None:
        comment = {"comment": (cls.__doc__ or "").removesuffix(".")}
        cls.__table_args__ = (*getattr(cls, "__table_args__", ()), comment)
        super().__init_subclass__(**options)


def column(comment: str, *details: Any, **options: Any) -> Mapped[Any]:
    """A column; `comment` says what it holds, the rest is as for `mapped_column`."""
    return mapped_column(*details, comment=comment, **options)


def now_column(comment: str) -> Mapped[datetime]:
    """A column that is filled with the transaction's time."""
    return mapped_column(
        DateTime(timezone=True), server_default=func.now(), comment=comment
    )


def one_of(column: str, values: type[StrEnum] | tuple[str, ...]) -> CheckConstraint:
    """The CHECK that a column holds one of these values (or NULL where it may)."""
    names = [v.value for v in values] if isinstance(values, type) else list(values)
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def is_digest(column: str) -> CheckConstraint:
    """The CHECK that a column holds a digest that names its algorithm."""
    return CheckConstraint(
        f"{column} ~ '^sha256:[0-9a-f]{{64}}$'", name=f"{column}_is_digest"
    )
