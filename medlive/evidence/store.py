"""Passages on disk, found by their ordinal: canonical JSON lines, and where each begins.

Every kind of index names passages by these ordinals, so that they share one store.
"""

import json
import mmap
from array import array
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from medlive.digest import canonical_json
from medlive.errors import IndexCorrupt
from medlive.evidence.passage import Passage

LINES = "passages.jsonl"
OFFSETS = "offsets.bin"
"""Little-endian unsigned 64-bit numbers: where each line begins and, last, where the file ends."""


def to_line(passage: Passage) -> bytes:
    """The passage as one line of JSON with its line end."""
    row = {
        "id": passage.id,
        "corpus": passage.corpus,
        "title": passage.title,
        "section": passage.section,
        "text": passage.text,
        "language": passage.language,
        "published": None if passage.published is None else passage.published.isoformat(),
        "url": passage.url,
        "licence": passage.licence,
    }
    return canonical_json(row).encode("utf-8", "surrogatepass") + b"\n"


def from_line(line: bytes) -> Passage:
    """The passage of a line. Raises ValueError, KeyError or TypeError when the line is none."""
    row = json.loads(line)
    published = row.pop("published")
    return Passage(published=None if published is None else date.fromisoformat(published), **row)


class StoreWriter:
    """Writes a store; the ordinal of a passage is the count of those before it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines = (folder / LINES).open("wb")
        self._offsets = array("Q", [0])

    def add(self, passage: Passage) -> int:
        """Append a passage; its ordinal."""
        self._offsets.append(self._offsets[-1] + self._lines.write(to_line(passage)))
        return len(self._offsets) - 2

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        np.array(self._offsets, dtype="<u8").tofile(self._folder / OFFSETS)


class PassageStore:
    """Reads a store through memory maps; safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        """Raises IndexCorrupt when the two files do not fit each other, OSError when one is absent."""
        self._place = folder / LINES
        data = (folder / OFFSETS).read_bytes()
        if len(data) % 8 or len(data) < 16:
            raise IndexCorrupt(f"{folder / OFFSETS} has {len(data)} bytes, which is no list of places")
        self._offsets = np.frombuffer(data, dtype="<u8")
        size = self._place.stat().st_size
        if int(self._offsets[-1]) != size:
            raise IndexCorrupt(f"{self._place} has {size} bytes, expected {self._offsets[-1]}")
        with self._place.open("rb") as handle:
            self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def get(self, ordinal: int) -> Passage:
        """The passage of that ordinal. Raises IndexCorrupt when there is none or its line is damaged."""
        if not 0 <= ordinal < len(self):
            raise IndexCorrupt(f"{self._place} has {len(self)} passages, asked for number {ordinal}")
        try:
            return from_line(self._map[int(self._offsets[ordinal]) : int(self._offsets[ordinal + 1])])
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise IndexCorrupt(f"{self._place}, line {ordinal + 1}, is damaged: {exc}") from exc

    def __iter__(self) -> Iterator[Passage]:
        return (self.get(ordinal) for ordinal in range(len(self)))
