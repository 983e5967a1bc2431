"""What several migrations do, in one place."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op


def know(table: str, name: str, values: Iterable[str]) -> None:
    """Let a column hold these values and no others."""
    listed = ", ".join(f"'{value}'" for value in values)
    replace_check(table, f"{name}_known", f"{name} IN ({listed})")


def know_reasons(reasons: str) -> None:
    """Let decisions and holds have these reasons, which spaces part."""
    for table in ("curations", "holds"):
        know(table, "reason", reasons.split())


def replace_check(table: str, name: str, condition: str) -> None:
    """Put another condition in the place of a CHECK's."""
    check = op.f(f"ck_{table}_{name}")
    op.drop_constraint(check, table)
    op.create_check_constraint(check, table, condition)


def add(
    table: str, name: str, kind: sa.types.TypeEngine[Any], default: str, comment: str
) -> None:
    """Add a column that earlier rows have the default in."""
    column = sa.Column(
        name, kind, nullable=False, server_default=default, comment=comment
    )
    op.add_column(table, column)
