"""The manifest of a corpus's folder: what was fetched from where, when, and under which digests."""

import os
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from medlive.errors import BadInput, first_fault
from medlive.evidence.fetch.model import Selection
from medlive.evidence.files import room_for
from medlive.integrity.digest import digest_json
from medlive.integrity.folder import sync
from medlive.integrity.paths import create_below, open_below

LEDGER = "fetched.json"
FORMAT_VERSION = 1


class FetchedFile(BaseModel):
    """A file as it was fetched."""

    model_config = ConfigDict(frozen=True)

    name: str
    url: str
    mark: str  # What the publisher's list said of this version
    size: int  # As published
    digest: str  # As published: `sha256:…`
    # The publisher's, which it has: `md5:…`; None where none is published
    checksum: str | None
    kept_size: int  # As it is here, after the selection
    kept_digest: str
    fetched_at: datetime


class Ledger(BaseModel):
    """The whole account of a fetched corpus."""

    model_config = ConfigDict(frozen=True)

    format_version: int = FORMAT_VERSION
    source: str
    address: str
    licence: str
    selection: Selection = Selection()
    files: dict[str, FetchedFile] = {}  # By name
    complete: bool = False  # Whether every file that the publisher lists is here
    checked_at: datetime | None = None  # When the publisher's list was read last

    @property
    def digest(self) -> str:
        """The identity of the files that are here."""
        return digest_json(
            {name: file.kept_digest for name, file in self.files.items()}
        )

    @property
    def fetched_at(self) -> datetime | None:
        """When the newest file was fetched."""
        return max((file.fetched_at for file in self.files.values()), default=None)


def read_ledger(folder: Path) -> Ledger | None:
    """Read a folder's ledger; None where nothing was fetched. Raises BadInput for a damaged one."""
    try:
        with open_below(folder, LEDGER) as handle:
            text = handle.readall() or b""
    except FileNotFoundError:
        return None
    hint = "move the folder away and fetch the corpus again"
    try:
        ledger = Ledger.model_validate_json(text)
    except ValidationError as exc:
        raise BadInput(
            f"{folder / LEDGER} is not a valid ledger: {first_fault(exc)}", hint=hint
        ) from exc
    if ledger.format_version != FORMAT_VERSION:
        raise BadInput(
            f"{folder / LEDGER} has format {ledger.format_version}; expected 1",
            hint=hint,
        )
    return ledger


def write_ledger(folder: Path, ledger: Ledger) -> None:
    """Replace the folder's ledger in one step. Raises DiskFull."""
    new = f"{LEDGER}.new"
    with room_for(folder / LEDGER), create_below(folder, new) as handle:
        handle.write(ledger.model_dump_json(indent=1).encode())
        os.fsync(handle.fileno())
    (folder / new).replace(folder / LEDGER)
    sync(folder)
