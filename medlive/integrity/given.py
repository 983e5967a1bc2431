"""Files that a user names on the command line: they may be links, or pipes such as `<(…)`, but must end.

Files that are found in a folder, which a stranger may have filled, are opened by `integrity.paths`.
"""

import errno
import io
import os
import stat
from pathlib import Path

from medlive.guard.bounds import GIVEN_BYTES
from medlive.integrity.folder import TooLong


def open_given(path: Path) -> io.FileIO:
    """Open a file that a user named; links are followed, and a pipe is read until its writer ends.

    Raises:
        OSError: If it cannot be opened, or is a folder or a device, which may never end.
    """
    handle = io.FileIO(path)
    mode = os.fstat(handle.fileno()).st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return handle
    handle.close()
    raise OSError(errno.EINVAL, "it is a device, expected a file or a pipe", str(path))


def read_given(path: Path, most: int = GIVEN_BYTES) -> bytes:
    """Return the bytes of a file that a user named. Raises OSError, as `open_given` and TooLong."""
    with open_given(path) as handle:
        return read_to_end(handle, path.name, most)


def read_to_end(
    handle: io.FileIO,
    name: str,
    most: int,
) -> bytes:
    """Return what is left of a file. Raises OSError, as TooLong."""
    data = bytearray()
    while block := handle.read(min(1 << 20, most + 1 - len(data))):
        data += block
        if len(data) > most:
            raise TooLong(f"{name} has more than {most} bytes")
    return bytes(data)
