"""Where a user's state and settings lie: the one rule that the service and whoever only loads a snapshot share."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

DATABASE_FOLDER: Final = "postgresql"
"""The folder of the embedded PostgreSQL in a home."""

_CLOSED: Final = 0o700
_PASSABLE: Final = 0o711
_SHARED: Final = 0o2770


def default_home() -> Path:
    """The user's data folder; for root a system folder, since PostgreSQL's own user must be able to reach it."""
    import platformdirs

    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/medlive")
    return Path(platformdirs.user_data_dir("medlive"))


def user_config_folder() -> Path:
    """The user's own folder for settings, as `~/.config/medlive`, whether or not it exists."""
    import platformdirs

    return Path(platformdirs.user_config_dir("medlive"))


def home_folder(environment: Mapping[str, str]) -> Path:
    """MEDLIVE_HOME, else `default_home`."""
    return (
        Path(environment.get("MEDLIVE_HOME") or default_home()).expanduser().absolute()
    )


def close_home(home: Path) -> tuple[list[Path], list[Path]]:
    """Take the rights of other users from a home and what lies right below it, where earlier versions left some.

    As root the home and its `postgresql` stay passable: the embedded server runs as another user, and no other
    folder of the home is on its way. A folder that the system shares with a group (setgid, as a volume of
    Kubernetes with `fsGroup`, which would open every file in it again) keeps the group's rights.

    Returns:
        What was closed, and what other users can still read since this process may not change it.
    """
    closed: list[Path] = []
    left: list[Path] = []
    try:
        below = list(home.iterdir())
    except OSError:  # it is missing, or somebody else's: whoever needs it says so
        return [], []
    for path in (home, *below):
        with suppress(FileNotFoundError):  # a draft that was there a moment ago
            status = path.lstat()
            kept = _kept_rights(path, home, status)
            if stat.S_ISLNK(status.st_mode) or not stat.S_IMODE(status.st_mode) & ~kept:
                continue
            try:
                path.chmod(stat.S_IMODE(status.st_mode) & kept)
                closed.append(path)
            except OSError:
                left.append(path)
    return closed, left


def _kept_rights(path: Path, home: Path, status: os.stat_result) -> int:
    if os.geteuid() == 0 and path in (home, home / DATABASE_FOLDER):
        return _PASSABLE
    shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISGID
    return _SHARED if shared else _CLOSED
