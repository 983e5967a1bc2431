"""The folders and files of an instance, most of them under MEDLIVE_HOME, and the address of its site."""

import os
from contextlib import suppress
from pathlib import Path

from medlive.config import Settings
from medlive.evidence.encoders.table import EncoderSettings
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import folder_name, week_end

_ADDRESS_FILE = "web.address"


def index_path(settings: Settings) -> Path:
    """The evidence index."""
    return settings.home / "evidence" / "default"


def corpora_path(settings: Settings) -> Path:
    """The folder of fetched corpora, one folder each."""
    return settings.home / "corpora"


def encoder_settings(settings: Settings) -> EncoderSettings:
    """Where encoder models are searched for, and how they are run."""
    evidence = settings.evidence
    return evidence.model_copy(update={"models": settings.home / evidence.models})


def archive_path(settings: Settings) -> Path:
    """The folder of WARC files."""
    return settings.archive.folder or settings.home / "archive"


def snapshots_path(settings: Settings) -> Path:
    """The folder of frozen snapshots."""
    return settings.home / "snapshots"


def runs_path(settings: Settings) -> Path:
    """The folder of evaluation runs made here."""
    return settings.home / "runs"


def report_path(settings: Settings, version: str) -> Path:
    """The folder of the report on a snapshot, which the site shows to everybody."""
    return settings.home / "reports" / version


def snapshot_folder(settings: Settings, version_or_path: str) -> Path:
    """A snapshot's folder by its path, by a version frozen here, or by `find_snapshot`, in this order.

    Raises BadInput if none is found.
    """
    place = Path(version_or_path)
    if version_or_path and "\0" not in version_or_path and os.path.lexists(place):
        return place
    version = version_or_path.removeprefix(folder_name(""))
    frozen = snapshots_path(settings) / folder_name(version)
    if week_end(version) is not None and frozen.is_dir():
        return frozen
    environment = {**os.environ, "MEDLIVE_HOME": str(settings.home)}
    return find_snapshot(version_or_path, environment)


def site_address(settings: Settings) -> str:
    """Where people reach the site: `[web] base_url` where it is set, else where `serve` listened last."""
    file = settings.home / _ADDRESS_FILE
    if "base_url" in settings.web.model_fields_set or not file.is_file():
        return settings.web.base_url
    return file.read_text("utf-8").strip()


def keep_site_address(settings: Settings, address: str) -> None:
    """Keep where `serve` listens, for the links of invitations; every address of the machine is kept as loopback."""
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        address = address.replace(everywhere, "//127.0.0.1:")
    with suppress(OSError):  # A home that is only read: [web] base_url names the site
        (settings.home / _ADDRESS_FILE).write_text(address + "\n", "utf-8")
