"""Helpers for migrations: replace a CHECK or the values that it lists, and add a column with a default."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op


def know(table: str, name: str, values: Iterable[str]) -> None:
    """Let a column hold these values and no others."""
    listed = ", ".join(f"'{value}'" for value in values)
    replace_check(table, f"{name}_known", f"{name} IN ({listed})")


def know_reasons(reasons: str) -> None:
    """Let `reason` of curations and of holds have these values, given in one text with spaces between them."""
    for table in ("curations", "holds"):
        know(table, "reason", reasons.split())


def replace_check(table: str, name: str, condition: str) -> None:
    """Give a table's CHECK another condition; `name` without the prefix `ck_TABLE_`."""
    check = op.f(f"ck_{table}_{name}")
    op.drop_constraint(check, table)
    op.create_check_constraint(check, table, condition)


def add(
    table: str, name: str, kind: sa.types.TypeEngine[Any], default: str, comment: str
) -> None:
    """Add a column; rows that exist get the default."""
    column = sa.Column(
        name, kind, nullable=False, server_default=default, comment=comment
    )
    op.add_column(table, column)
