"""What only the machine knows: room on its disks, and its evidence index."""

import os
import shutil
from pathlib import Path

from medlive.config import Settings
from medlive.errors import IndexMissing, MedliveError
from medlive.instance.paths import archive_path, index_path
from medlive.integrity.digest import digest_json
from medlive.service.watch.model import Disk, LocalFacts


def read_local(settings: Settings, data_directory: str | None) -> LocalFacts | None:
    """What this machine knows; None where it does not hold MEDLIVE_HOME.

    `data_directory` is the database's, which may lie on another machine.
    """
    from medlive.evidence.index import read_index  # imports NumPy

    if not settings.home.is_dir():
        return None
    index, missing, corrupt = index_path(settings), None, None
    try:
        read_index(index).check()
    except IndexMissing as error:
        missing = error.message
    except MedliveError as error:
        corrupt = error.message
    return LocalFacts(
        disks=_disks(settings, data_directory),
        evidence_missing=missing,
        evidence_corrupt=corrupt,
        evidence_state=_state_of(index),
    )


def verify_evidence(settings: Settings) -> str | None:
    """What is wrong with the evidence index, every file compared with its digest; None: nothing."""
    from medlive.evidence.index import verify_index

    try:
        verify_index(index_path(settings))
    except MedliveError as error:
        return error.message
    return None


def _disks(settings: Settings, data_directory: str | None) -> list[Disk]:
    """The file systems that are written to, each once, by the first of its places."""
    places = {
        "home": settings.home,
        "archive": archive_path(settings),
        "backup": settings.backup.folder,
    }
    places["database"] = None if data_directory is None else Path(data_directory)
    disks: list[Disk] = []
    devices: set[int] = set()
    for place, path in places.items():
        if path is None or not path.is_dir():
            continue
        device = os.stat(path).st_dev
        if device not in devices:
            devices.add(device)
            usage = shutil.disk_usage(path)
            disks.append(
                Disk(place=place, path=str(path), free=usage.free, size=usage.total)
            )
    return disks


def _state_of(index: Path) -> str:
    """Names, sizes and times of an index's files as one digest: it changes when a file is written."""
    files = []
    for path in sorted(index.rglob("*")):
        if path.is_file():
            stat = path.stat()
            files.append([str(path.relative_to(index)), stat.st_size, stat.st_mtime_ns])
    return digest_json(files)
