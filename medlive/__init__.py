"""medlive: a weekly, checksummed benchmark of real clinical questions."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import frames
    from .api import (
        ability,
        answer,
        compare,
        contamination,
        grade,
        load_bundle,
        load_run,
        load_snapshot,
        open_judge,
        power,
        protocol,
        read_harm,
        score,
    )

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "ability",
    "answer",
    "compare",
    "contamination",
    "frames",
    "grade",
    "load_bundle",
    "load_run",
    "load_snapshot",
    "open_judge",
    "power",
    "protocol",
    "read_harm",
    "score",
]


def __getattr__(name: str) -> object:
    # Imported when it is asked for: `medlive --help` needs none of it.
    if name == "frames":
        return import_module(f"medlive.{name}")
    if name in __all__:
        return getattr(import_module("medlive.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
