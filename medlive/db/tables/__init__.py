"""The tables, one class each; `Base.metadata` is the schema that migrations must arrive at."""

from medlive.db.tables import (
    accounts,
    audit,
    decisions,
    intake,
    people,
    release,
    watch,
    weeks,
    work,
)
from medlive.db.tables.base import Base

__all__ = [
    "Base",
    "accounts",
    "audit",
    "decisions",
    "intake",
    "people",
    "release",
    "watch",
    "weeks",
    "work",
]
