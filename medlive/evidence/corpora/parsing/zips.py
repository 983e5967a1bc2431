"""The members of a zip archive, read one at a time within bounds and never written anywhere."""

import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from medlive.evidence.corpora.model import ReadLog

_DAMAGE = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    RuntimeError,
    NotImplementedError,
)
_ENCRYPTED = 1


class Member(NamedTuple):
    """A member of an archive."""

    name: str
    data: bytes


def zip_members(
    archive: IO[bytes], place: str, suffix: str, largest: int, log: ReadLog
) -> Iterator[Member]:
    """Yield the members whose names end so, in the archive's order.

    Args:
        archive: The zip file.
        place: Its name for the log.
        suffix: In lower case.
        largest: The most bytes of a member; a larger one is reported and skipped.
        log: Gets what could not be read.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if info.is_dir() or not info.filename.lower().endswith(suffix):
                    continue
                if info.file_size > largest or info.flag_bits & _ENCRYPTED:
                    log.problem(
                        f"{place}/{info.filename}",
                        f"encrypted, or more than the {largest} bytes of a member",
                    )
                    continue
                try:
                    yield Member(info.filename, opened.read(info))
                except _DAMAGE as exc:
                    log.problem(
                        f"{place}/{info.filename}",
                        f"damaged: {exc or type(exc).__name__}",
                    )
    except _DAMAGE as exc:
        log.problem(place, f"not a readable zip archive: {exc or type(exc).__name__}")
