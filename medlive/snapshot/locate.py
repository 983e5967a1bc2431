"""Finding a snapshot's folder by its path, by its version, or the latest one."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from medlive.errors import BadInput
from medlive.home import home_folder
from medlive.snapshot.model import week_end

VARIABLE: Final = "MEDLIVE_SNAPSHOTS"
"""Names the folders to look for versions in, as PATH names those of programs."""
LATEST: Final = "latest"
_NAME: Final = re.compile(r"(?:medlive-)?(?P<version>\d{4}\.W\d{2})")


def snapshot_roots(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where snapshots lie: the folders of MEDLIVE_SNAPSHOTS, else this one and `snapshots` under the home."""
    if named := environment.get(VARIABLE):
        return tuple(Path(part).expanduser() for part in named.split(os.pathsep) if part)
    return (Path(), home_folder(environment) / "snapshots")


def find_snapshot(path_or_version: str | Path, environment: Mapping[str, str] | None = None) -> Path:
    """The folder of a snapshot: a path, a version ("2026.W47", "medlive-2026.W47"), or "latest".

    What exists as a path is taken as one; a version is looked up in `snapshot_roots`, the first that has it wins.
    Raises BadInput naming what was looked for, where, and what is there.
    """
    env = os.environ if environment is None else environment
    text = os.fspath(path_or_version)
    place = Path(text)
    if text and "\0" not in text and _holds_manifest(place):
        return place
    wanted = _NAME.fullmatch(text) if isinstance(path_or_version, str) else None
    version = wanted["version"] if wanted and week_end(wanted["version"]) else None
    if version is None and path_or_version != LATEST:
        raise BadInput(
            f"{text!r} holds no snapshot: there is no manifest.json in that folder, and it names no version",
            hint='give a snapshot\'s folder, a version such as "2026.W47", or "latest"',
        )
    roots = snapshot_roots(env)
    there: dict[str, Path] = {}
    for root in reversed(roots):
        there |= dict(_versions(root))
    chosen = version or max(there, default=None)
    if chosen in there:
        return there[chosen]
    looked = ", ".join(str(root.absolute()) for root in roots)
    found = f"there are {', '.join(sorted(there))}" if there else "no snapshot is there"
    raise BadInput(
        f"no snapshot {text!r} in {looked}; {found}",
        hint=f"give the folder itself, or name the folder that holds it in {VARIABLE}",
    )


def _versions(root: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(root.iterdir())
    except OSError:  # a folder that is not there holds none; the error names where was looked
        return
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match and entry.name.startswith("medlive-") and week_end(match["version"]) and _holds_manifest(entry):
            yield match["version"], entry


def _holds_manifest(folder: Path) -> bool:
    try:
        return (folder / "manifest.json").is_file()
    except (OSError, ValueError):  # a name too long or with a NUL is no folder's
        return False
