"""Store an index's passages on disk: `store_passages` writes a store, `PassageStore` reads it.

A passage's ordinal is its number in the store, from 0; every kind of index refers to passages by it. A store has the
passages as canonical JSON lines, the lines' offsets, and the days by which passages are filtered.
"""

import json
import mmap
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import date
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medlive.errors import IndexCorrupt
from medlive.integrity.digest import canonical_json
from medlive.integrity.paths import open_plain

from .passage import Passage

LINES = "passages.jsonl"
OFFSETS = "offsets.bin"
"""Little-endian unsigned 64-bit numbers: where each line begins and, last, where the file ends."""
DAYS = "days.bin"
"""Little-endian signed 32-bit numbers: each passage's day (1 is 1 January of year 1), 0 when it has none."""

_UNDATED = 0
Order = Sequence[tuple[int, float]]
"""Passages as (ordinal, score), mostly the best first."""


def to_line(passage: Passage) -> bytes:
    """The passage as one line of JSON with its line end."""
    published = None if passage.published is None else passage.published.isoformat()
    row = asdict(passage) | {"published": published}
    return canonical_json(row).encode("utf-8", "surrogatepass") + b"\n"


def from_line(line: bytes) -> Passage:
    """Parse a line. Raises ValueError, KeyError or TypeError if it is not a passage."""
    row = json.loads(line)
    published = row.pop("published")
    return Passage(
        published=None if published is None else date.fromisoformat(published), **row
    )


def store_passages(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Write a store, and yield each passage when it is written; its ordinal is the number of passages before it."""
    offsets, days = array("Q", [0]), array("i")
    with (folder / LINES).open("wb") as lines:
        for passage in passages:
            offsets.append(offsets[-1] + lines.write(to_line(passage)))
            day = passage.published
            days.append(_UNDATED if day is None else day.toordinal())
            yield passage
    np.asarray(offsets, dtype="<u8").tofile(folder / OFFSETS)
    np.asarray(days, dtype="<i4").tofile(folder / DAYS)


class PassageStore:
    """Reads a store through memory maps; safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        """Map the files; their sizes are not checked here. Raises OSError or ValueError if they cannot be mapped."""
        self._place = folder / LINES
        # As plain arrays: to slice a `memmap` takes three times as long.
        self._offsets = np.asarray(np.memmap(folder / OFFSETS, dtype="<u8", mode="r"))
        self._days = np.asarray(np.memmap(folder / DAYS, dtype="<i4", mode="r"))
        self._newest = int(self._days.max())
        with open_plain(self._place) as handle:
            self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def get(self, ordinal: int) -> Passage:
        """Return the passage of an ordinal. Raises IndexCorrupt if it does not exist or is damaged."""
        try:
            start, end = map(int, self._offsets[ordinal : ordinal + 2])
            return from_line(self._map[start:end])
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise IndexCorrupt(
                f"{self._place}, line {ordinal + 1}, is damaged: {exc}"
            ) from exc

    def __iter__(self) -> Iterator[Passage]:
        return (self.get(ordinal) for ordinal in range(len(self)))

    def find(self, ids: Collection[str]) -> Iterator[Passage]:
        """Yield the passages that have these ids, in the order of the store. Raises IndexCorrupt."""
        names = {canonical_json(name).encode("utf-8", "surrogatepass") for name in ids}
        # Quotes within a text are escaped, so that only the field `id` matches, and no text.
        for match in re.finditer(rb'"id":("(?:[^"\\]|\\.)*")', self._map):
            if match[1] in names:
                start = np.uint64(match.start())
                place = np.searchsorted(self._offsets, start, side="right")
                yield self.get(int(place) - 1)

    def ordered(
        self,
        scored: Order,
        k: int,
    ) -> Order:
        """Return the k best of (ordinal, score), highest score first, equal scores by passage id."""
        ranked = sorted(scored, key=lambda pair: -pair[1])
        result: list[tuple[int, float]] = []
        for _, group in groupby(ranked, key=lambda pair: pair[1]):
            if len(result) >= k:
                break
            tied = list(group)
            if len(tied) > 1:
                tied.sort(key=lambda pair: self.get(pair[0]).id)
            result += tied
        return result[:k]

    def younger_than(self, day: date) -> bool:
        """Whether any passage was published after that day."""
        return self._newest > day.toordinal()

    def allowed(self, not_after: date | None) -> NDArray[np.bool_] | None:
        """Return per ordinal whether its passage is undated or published by `not_after`; None if all may be found."""
        if not_after is None or not self.younger_than(not_after):
            return None
        mask: NDArray[np.bool_] = self._days <= not_after.toordinal()
        return mask
