"""Where a user's state lies: the one rule that the service and whoever only loads a snapshot share."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DATABASE_FOLDER: Final = "postgresql"
"""The folder of the embedded PostgreSQL in a home."""

_CLOSED: Final = 0o700
_PASSABLE: Final = 0o711


def default_home() -> Path:
    """The user's data folder; for root a system folder, since PostgreSQL's own user must be able to reach it."""
    import platformdirs

    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/medlive")
    return Path(platformdirs.user_data_dir("medlive"))


def home_folder(environment: Mapping[str, str]) -> Path:
    """MEDLIVE_HOME, else `default_home`."""
    return Path(environment.get("MEDLIVE_HOME") or default_home()).expanduser().absolute()


def close_home(home: Path) -> tuple[list[Path], list[Path]]:
    """Take the rights of other users from a home and what lies right below it, where earlier versions left some.

    As root the home and its `postgresql` stay passable: the embedded server runs as another user, and no other
    folder of the home is on its way.

    Returns:
        What was closed, and what other users can still read since this process may not change it.
    """
    closed: list[Path] = []
    left: list[Path] = []
    try:
        below = list(home.iterdir())
    except FileNotFoundError:
        return [], []
    for path in (home, *below):
        mode = stat.S_IMODE(path.lstat().st_mode)
        kept = _PASSABLE if path in (home, home / DATABASE_FOLDER) and os.geteuid() == 0 else _CLOSED
        if mode & ~kept and not path.is_symlink():
            try:
                path.chmod(mode & kept)
                closed.append(path)
            except OSError:
                left.append(path)
    return closed, left
