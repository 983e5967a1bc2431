"""The tables, one class each; `Base.metadata` is the schema that migrations must arrive at."""

from . import (  # noqa: F401  (each makes its tables known)
    accounts,
    decisions,
    examinations,
    intake,
    people,
    release,
    work,
)
from .base import Base

__all__ = ["Base"]
