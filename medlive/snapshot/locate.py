"""Finding a snapshot's folder by its path, by its version, or the latest one."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from medlive.errors import BadInput
from medlive.home import home_folder

from .model import folder_name, version_of

LATEST = "latest"


def find_snapshot(
    path_or_version: str | Path, environment: Mapping[str, str] | None = None
) -> Path:
    """Find the folder of a snapshot.

    Args:
        path_or_version: The folder's path, a version ("2026.W47", "medlive-2026.W47"), or "latest". A path that exists
            comes first; a version is looked up in the working folder, then in `snapshots` under the home.
        environment: Environment variables, by default those of the process.

    Raises:
        BadInput: If there is no such snapshot; the message names what was searched and found.
    """
    text = os.fspath(path_or_version)
    if text and os.path.isfile(os.path.join(text, "manifest.json")):
        return Path(text)
    here = Path()
    if environment is None:
        environment = os.environ
    kept = home_folder(environment) / "snapshots"
    versions = dict(versions_in(kept)) | dict(versions_in(here))
    version = text.removeprefix(folder_name(""))
    if text == LATEST:
        version = max(versions, default="")
    if version not in versions or isinstance(path_or_version, Path):
        raise BadInput(
            f"{text!r} is neither a snapshot's folder (it has no manifest.json) nor a version in {here.absolute()}, "
            f"{kept}; found {', '.join(sorted(versions)) or 'none'}",
            hint="give the folder itself, or set MEDLIVE_HOME to the folder whose snapshots/ has it",
        )
    return versions[version]


def versions_in(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the snapshots of a folder as (version, folder), the oldest first."""
    for manifest in sorted(root.glob(f"{folder_name('*')}/manifest.json")):
        folder = manifest.parent
        if (version := version_of(folder.name)) is not None:
            yield version, folder
