"""What a backup's folder holds, and how its files are read and copied: no link is followed."""

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from medlive.errors import BadInput
from medlive.integrity.folder import TooLong, read_small
from medlive.integrity.paths import create_below, open_below, split_name, walk

DUMP: Final = "database.dump"
"""The database in pg_dump's own format."""
ABOUT: Final = "backup.json"
"""What the backup says of itself."""
TAKEDOWNS: Final = "takedowns.jsonl"
"""The erased threads that must not come back."""
SUMS: Final = "SHA256SUMS"
"""The digests of all other files, in the format of sha256sum."""
SIGNATURE: Final = "SHA256SUMS.minisig"
"""The signature of SHA256SUMS, in minisign's format."""

_NAME: Final = re.compile(
    r"database\.dump|backup\.json|takedowns\.jsonl|(?:archive|snapshots)/.+|keys/[^/]+\.key"
)
"""Every file of a backup besides SHA256SUMS and its signature: what is restored goes to no other place."""
_LINE: Final = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>.+)")
_PIECE: Final = 1024 * 1024


class About(BaseModel):
    """`backup.json`."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    created_at: AwareDatetime
    medlive: str
    """The version of the program that wrote it."""
    schema_revision: str
    """The newest migration of the database."""
    rows: dict[str, int]
    """Table → its rows."""
    archives: dict[str, int]
    """File of raw pages → its bytes that count."""
    snapshots: list[str]
    """The frozen versions."""


class Takedown(BaseModel):
    """A line of `takedowns.jsonl`."""

    model_config = ConfigDict(frozen=True)

    source: str
    thread_id: str
    reason: str


def plain_files(folder: Path) -> set[str]:
    """Return the names of all files below a folder.

    Raises:
        BadInput: if it holds a link or a special file, or cannot be read.
    """
    names: set[str] = set()
    try:
        for entry in walk(folder):
            if entry.is_file:
                names.add(entry.name)
            elif not entry.is_folder:
                raise BadInput(
                    f"{folder}: {entry.name} is a link or a special file, which no backup holds",
                    hint="it was put there by hand: restore another backup",
                )
    except OSError as exc:
        raise BadInput(f"{folder} cannot be read: {exc.strerror or exc}") from exc
    return names


def read_whole(folder: Path, name: str) -> bytes:
    """Return a small file of a backup. Raises BadInput."""
    split_name(name)
    try:
        return read_small(folder / name)
    except (OSError, TooLong) as exc:
        raise BadInput(
            f"{folder}: {name} cannot be read: {exc}", hint="it is not a whole backup"
        ) from exc


def parse_sums(sums: bytes) -> dict[str, str]:
    """Return name → digest of the lines of SHA256SUMS.

    Raises:
        BadInput: if a line is not as sha256sum prints it, a name is unsafe or given twice, or no backup holds it.
    """
    digests: dict[str, str] = {}
    for line in sums.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadInput(
                f"{SUMS} has a line that is not a digest and a name",
                hint="it is not a whole backup",
            )
        name = match["name"]
        split_name(name)
        if name in digests or not _NAME.fullmatch(name):
            raise BadInput(
                f"{SUMS} names {name[:200]!r}, which no backup holds, or names it twice"
            )
        digests[name] = match["digest"]
    return digests


def digest_of(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file. Raises UnsafePath, or OSError."""
    with open_below(folder, name) as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def copy_file(source: Path, name: str, target: Path, new_name: str) -> str:
    """Copy a file between folders, for the owner alone, and return the SHA-256 of what was copied.

    Raises:
        UnsafePath: if a name is unsafe, or something on the way or the file itself is not plain.
        OSError: if the file is missing, or cannot be read or written.
    """
    digest = hashlib.sha256()
    with (
        open_below(source, name) as reading,
        io.BufferedWriter(create_below(target, new_name)) as writing,
    ):
        while piece := reading.read(_PIECE):
            digest.update(piece)
            writing.write(piece)
    return digest.hexdigest()


def format_sums(digests: Mapping[str, str]) -> str:
    """Return the text of SHA256SUMS."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
