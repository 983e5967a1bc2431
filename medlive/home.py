"""Where a user's state lies: the one rule that the service and whoever only loads a snapshot share."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_home() -> Path:
    """The user's data folder; for root a system folder, since PostgreSQL's own user must be able to reach it."""
    import platformdirs

    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/medlive")
    return Path(platformdirs.user_data_dir("medlive"))


def home_folder(environment: Mapping[str, str]) -> Path:
    """MEDLIVE_HOME, else `default_home`."""
    return Path(environment.get("MEDLIVE_HOME") or default_home()).expanduser().absolute()
