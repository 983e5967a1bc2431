"""Where things lie under MEDLIVE_HOME."""

from pathlib import Path

from medlive.config import Settings
from medlive.snapshot.freeze import folder_name
from medlive.snapshot.model import week_end


def index_path(settings: Settings) -> Path:
    """The evidence index."""
    return settings.home / "evidence" / "default"


def archive_path(settings: Settings) -> Path:
    """The folder of WARC files."""
    return settings.archive.folder or settings.home / "archive"


def snapshots_path(settings: Settings) -> Path:
    """The folder of frozen snapshots."""
    return settings.home / "snapshots"


def runs_path(settings: Settings) -> Path:
    """The folder of evaluation runs made here."""
    return settings.home / "runs"


def snapshot_folder(settings: Settings, version_or_path: str) -> Path:
    """A snapshot's folder by the version of one frozen here, or by its path; the path is not checked."""
    if week_end(version_or_path) is not None:
        return snapshots_path(settings) / folder_name(version_or_path)
    return Path(version_or_path)
