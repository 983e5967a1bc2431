"""Where a user's state and settings lie, and which folder of settings is read.

The folder that the user named, else the user's own, else the shipped one; never `./config` only because it is there.
"""

import logging
import os
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from io import FileIO
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .guard.bounds import CONFIG_BYTES
from .integrity.folder import open_given, read_to_end
from .integrity.paths import UnsafePath, open_plain

VARIABLE = "MEDLIVE_CONFIG"
FILES = ("medlive.toml", "sources.toml", "models.toml", "schedule.toml")
UNNAMED = Path("config")
"""`./config` may be a stranger's: it is not used unless --config or MEDLIVE_CONFIG names it."""

_INSTALLED = "_config"
"""The shipped folder in an installed package."""
DATABASE_FOLDER = "postgresql"
"""The folder of the embedded PostgreSQL in a home."""

# The most rights that `close_home` leaves: the owner alone; others may also pass through; a group shares the folder
_CLOSED = 0o700
_PASSABLE = 0o711
_SHARED = 0o2770

logger = logging.getLogger(__name__)
_reported: set[Path] = set()


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
            mode = stat.S_IMODE(status.st_mode)
            kept = _CLOSED
            if os.geteuid() == 0 and path in (home, home / DATABASE_FOLDER):
                kept = _PASSABLE
            elif stat.S_ISDIR(status.st_mode) and mode & stat.S_ISGID:
                kept = _SHARED
            if stat.S_ISLNK(status.st_mode) or not mode & ~kept:
                continue
            try:
                path.chmod(mode & kept)
                closed.append(path)
            except OSError:
                left.append(path)
    return closed, left


def config_folder(environment: Mapping[str, str]) -> Path:
    """MEDLIVE_CONFIG, which `--config` sets; else the user's own folder if it has one of FILES; else the shipped one.

    Of a source checkout the shipped folder is `config/` beside the package.
    Raises ConfigError when the folder that was named does not exist.
    """
    if named := environment.get(VARIABLE):
        folder = Path(named).absolute()
        if not folder.is_dir():
            raise ConfigError(f"--config or {VARIABLE}: {named} is not a folder")
        return folder
    own = user_config_folder()
    return own if _has_files(own) else _shipped()


def own_folder(environment: Mapping[str, str]) -> Path:
    """The folder in which the user may write settings, whether or not it exists; for messages."""
    folder = config_folder(environment)
    return user_config_folder() if _in_package(folder) else folder


def models_file(environment: Mapping[str, str]) -> Path:
    """The path of the models.toml that the user may write, whether or not it exists; for messages."""
    return own_folder(environment) / "models.toml"


def origin_of(path: Path) -> str:
    """How people see where a value is from: a path, unless it is within the installed package."""
    return f"shipped {path.name}" if _in_package(path.parent) else str(path)


def read_tables(
    folder: Path, open_file: Callable[[Path], FileIO] = open_given
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each file of FILES and what it holds; one that the folder lacks is the shipped one.

    Args:
        folder: The folder.
        open_file: What opens a file of it.

    Raises:
        ConfigError: If a file cannot be read or is not TOML.
    """
    for name in FILES:
        path = folder / name
        if not path.exists():
            path = _shipped() / name
        try:
            with open_file(path) as handle:
                text = read_to_end(handle, name, CONFIG_BYTES).decode()
            table = tomllib.loads(text)
        except (ValueError, RecursionError, OSError, UnsafePath) as exc:
            raise ConfigError(f"{origin_of(path)} cannot be read: {exc}") from exc
        yield path, table


def report_unnamed(
    environment: Mapping[str, str], folder: Path, known: Iterable[str]
) -> None:
    """Log once that `./config` is not read and what it would change, where it would change anything.

    Args:
        environment: Environment variables; where they name a folder there is nothing to say.
        folder: The folder that is read.
        known: The top-level names of settings.
    """
    here = UNNAMED.absolute()
    if environment.get(VARIABLE) or here in _reported or not _has_files(UNNAMED):
        return
    _reported.add(here)
    what = "it cannot be read"
    with suppress(ConfigError, RecursionError):
        changed: set[str] = set()
        tables = zip(read_tables(folder), read_tables(UNNAMED, open_plain), strict=True)
        for (_, own), (_, other) in tables:
            changed |= {name for name in known if own.get(name) != other.get(name)}
        if not changed:
            return
        what = f"it would change {', '.join(sorted(changed))}"
    logger.warning(
        "%s is not read, as nobody named it; %s. If you trust it: medlive --config ./config",
        here,
        what,
    )


def _shipped() -> Path:
    package = Path(str(files("medlive")))
    installed = package / _INSTALLED
    return installed if installed.is_dir() else package.parent / "config"


def _in_package(folder: Path) -> bool:
    return folder == Path(str(files("medlive"))) / _INSTALLED


def _has_files(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILES)
