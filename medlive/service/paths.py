"""Where things lie under MEDLIVE_HOME."""

from pathlib import Path

from medlive.config import Settings


def index_path(settings: Settings) -> Path:
    """The evidence index."""
    return settings.home / "evidence" / "default"


def snapshots_path(settings: Settings) -> Path:
    """The folder of frozen snapshots."""
    return settings.home / "snapshots"


def runs_path(settings: Settings) -> Path:
    """The folder of evaluation runs made here."""
    return settings.home / "runs"
