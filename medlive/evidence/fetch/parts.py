"""Half files: bytes that came, and the version of the file that they belong to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from medlive.errors import DiskFull
from medlive.evidence.fetch.model import RemoteFile
from medlive.evidence.files import room_for
from medlive.integrity.paths import create_below, open_below, path_below

FOLDER = "parts"


class PartState(BaseModel):
    """What the bytes of a half file belong to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    mark: str
    # The ETag or the date that the host gave; None: the bytes cannot be gone on with
    validator: str | None
    total: int | None


class Part:
    """The half file of one name in a corpus's folder."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = f"{FOLDER}/{name}"
        self._state_name = f"{self._name}.json"
        self.size = 0
        self.state: PartState | None = None

    @property
    def path(self) -> Path:
        """Where the bytes are."""
        return path_below(self._root, self._name)

    def keep_if(self, file: RemoteFile) -> None:
        """Keep the bytes that are there if they are of this version of the file."""
        self.state = self._read_state()
        state = self.state
        if state is None or (state.url, state.mark) != (file.url, file.mark):
            self.clear()
            return
        with suppress(FileNotFoundError):
            self.size = self.path.stat().st_size
        if state.total is not None and self.size >= state.total:
            # Killed between the last byte and the check; asking beyond the end says nothing.
            self.size = max(0, state.total - 1)
            os.truncate(self.path, self.size)

    def range_headers(self) -> dict[str, str]:
        """The headers that ask for the rest of this version; none: for the whole."""
        if not self.size or self.state is None or not self.state.validator:
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": self.state.validator}

    def begin(self, state: PartState) -> None:
        """Note what the bytes to come belong to. The part must be empty."""
        self.state = state
        with create_below(self._root, self._state_name) as handle:
            handle.write(state.model_dump_json().encode())

    @contextmanager
    def appending(self, expected: int) -> Iterator[FileIO]:
        """Open the part for the bytes to come. Raises DiskFull where `expected` bytes do not fit."""
        stats = os.statvfs(self._root)
        free = stats.f_bavail * stats.f_frsize
        if free < expected:
            raise DiskFull(
                f"{self._root} has {free} bytes free; {expected} are needed for {self._name}",
                hint="free space there, or name another folder with --to",
            )
        with (
            room_for(self.path),
            create_below(self._root, self._name, append=True) as handle,
        ):
            yield handle

    def open(self) -> FileIO:
        """Open the bytes for reading."""
        return open_below(self._root, self._name)

    def clear(self) -> None:
        """Remove the part; its bytes first, so that no state is ever of other bytes."""
        for name in (self._name, self._state_name):
            with suppress(FileNotFoundError):
                path_below(self._root, name).unlink()
        self.size = 0
        self.state = None

    def _read_state(self) -> PartState | None:
        try:
            with open_below(self._root, self._state_name) as handle:
                return PartState.model_validate_json(handle.readall() or b"")
        except (FileNotFoundError, ValidationError):
            return None
