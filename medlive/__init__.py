"""medlive: a weekly, checksummed benchmark of real clinical questions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medlive.snapshot.load import load_snapshot

__version__ = "0.1.0"
__all__ = ["__version__", "load_snapshot"]


def __getattr__(name: str) -> object:
    # Imported when it is asked for: `medlive --help` needs none of it.
    if name == "load_snapshot":
        from medlive.snapshot.load import load_snapshot

        return load_snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
