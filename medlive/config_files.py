"""Which folder settings are read from: one that the user named, or the shipped one; never one that merely lies here."""

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from io import FileIO
from pathlib import Path
from typing import Any, Final

from medlive.bounds import CONFIG_BYTES
from medlive.errors import ConfigError
from medlive.home import user_config_folder
from medlive.integrity.folder import TooLong
from medlive.integrity.given import open_given, read_to_end
from medlive.integrity.paths import UnsafePath, open_plain

VARIABLE: Final = "MEDLIVE_CONFIG"
FILES: Final = ("medlive.toml", "sources.toml", "models.toml", "schedule.toml")
UNNAMED: Final = Path("config")
"""A folder that a stranger may have put here: nothing of it is believed."""

_INSTALLED: Final = "_config"
"""The shipped folder in an installed package."""

logger = logging.getLogger(__name__)
_reported: set[Path] = set()


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
        except (ValueError, RecursionError, OSError, TooLong, UnsafePath) as exc:
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
    try:
        read = _top_level(read_tables(folder))
        unread = _top_level(read_tables(UNNAMED, open_plain))
        changed = [name for name in known if read.get(name) != unread.get(name)]
        what = f"it would change {', '.join(changed)}"
    except (ConfigError, RecursionError):
        changed, what = ["all"], "it cannot be read"
    if changed:
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


def _top_level(tables: Iterator[tuple[Path, dict[str, Any]]]) -> dict[str, list[Any]]:
    """Top-level name → what the files hold under it."""
    values: dict[str, list[Any]] = {}
    for _, table in tables:
        for name, value in table.items():
            values.setdefault(name, []).append(value)
    return values
