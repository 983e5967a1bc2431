"""The tables, one class each; `Base.metadata` is the schema that migrations must arrive at."""

from medlive.db.tables import (  # noqa: F401  (each makes its tables known)
    accounts,
    decisions,
    examinations,
    intake,
    people,
    release,
    work,
)
from medlive.db.tables.base import Base

__all__ = ["Base"]
