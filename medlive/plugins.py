"""Plugins: adapters of sites, readers of corpora and protocols from other packages or a folder (`load_plugins`).

A package names them as entry points of the groups `medlive.sites`, `medlive.corpora` and `medlive.protocols`. A module
of the folder of the setting `plugins` names one as SITE, READER or PROTOCOL. Both are code, run with medlive's rights:
a folder that others may write to is refused.
"""

import os
import stat
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from .errors import ConfigError

Group = Literal["sites", "corpora", "protocols"]
NAMES: dict[Group, str] = {
    "sites": "SITE",
    "corpora": "READER",
    "protocols": "PROTOCOL",
}
"""Group → the name by which a module of the folder offers its plugin."""

_folder: Path | None = None


def use_plugins(folder: Path | None) -> None:
    """From now on `load_plugins` loads the modules of this folder too; None: entry points alone."""
    global _folder
    _folder = folder


def load_plugins(group: Group) -> tuple[Any, ...]:
    """What packages and the folder add to a group, in the order of their names.

    Raises ConfigError for what cannot be loaded, and for a folder that others may write to.
    """
    loaded = list(_entry_points(group))
    for module in () if _folder is None else _modules(_folder):
        if hasattr(module, NAMES[group]):
            loaded.append(getattr(module, NAMES[group]))
    return tuple(loaded)


@cache
def _entry_points(group: Group) -> tuple[Any, ...]:
    loaded = []
    for entry in sorted(entry_points(group=f"medlive.{group}"), key=lambda e: e.name):
        try:
            loaded.append(entry.load())
        except Exception as error:
            raise _unusable(f"the entry point {entry.value}", error) from error
    return tuple(loaded)


@cache
def _modules(folder: Path) -> tuple[ModuleType, ...]:
    """The modules of a folder, by name."""
    if not folder.is_dir():
        raise ConfigError(f"plugins: {folder} is not a folder")
    modules = []
    # Editors leave hidden files beside a module.
    paths = sorted(folder.glob("[!.]*.py"))
    for path in (folder, *paths):
        status = path.stat()
        is_ours = status.st_uid in (0, os.geteuid())
        if not is_ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"plugins: others may write to {path}, and its code runs with medlive's rights",
                hint="chmod go-w, and let it belong to you or to root",
            )
    for path in paths:
        spec = spec_from_file_location(f"medlive_plugin_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        # As an import does: dataclasses look their module up there.
        module = sys.modules[spec.name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise _unusable(str(path), error) from error
        modules.append(module)
    return tuple(modules)


def _unusable(what: str, error: Exception) -> ConfigError:
    return ConfigError(f"{what} cannot be loaded: {type(error).__name__}: {error}")
