"""Survey a corpus while reading it: its digest, and which of its passages to keep.

The result does not depend on the order of the files. A few short hashes of each passage are collected, in memory
and then in partition files that are sorted one at a time, so that memory grows by only one byte per passage.
"""

import hashlib
import mmap
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from medlive.evidence.passage import Passage

REPEATED_IN = 20
"""A later piece of a section whose text appears under this many titles is the publisher's boilerplate. (A first
piece is kept: "inherited in an autosomal recessive pattern" answers its title.)"""

HELD_BYTES = 32 * 1024 * 1024
"""Bytes of records in memory before they are written to the partition files."""

_KEY = [("k0", ">u8"), ("k1", ">u8")]
_LINE = np.dtype("S32")
_CONTENT = np.dtype([*_KEY, ("line", ">u8"), ("ordinal", ">u8"), ("id", ">u8")])
_IDENTITY = np.dtype([*_KEY, ("c0", ">u8"), ("c1", ">u8"), ("ordinal", ">u8"), ("id", ">u8")])
_LATER = np.dtype([*_KEY, ("under", ">u8"), ("ordinal", ">u8")])
_Records = npt.NDArray[Any]


class _Fate(IntEnum):
    """The decision about a passage."""

    KEPT = 0
    MARKED = 1
    """Kept, with a hash of its text appended to its id."""
    DROPPED = 2


class Survey:
    """Takes every passage of a corpus once, then decides which to keep, by their order."""

    def __init__(self, folder: Path) -> None:
        """`folder` is created if the records exceed memory, and removed by the first result."""
        self._folder = folder
        self._lines = _Partitions(folder / "lines", _LINE)
        self._contents = _Partitions(folder / "contents", _CONTENT)
        self._identities = _Partitions(folder / "identities", _IDENTITY)
        self._later = _Partitions(folder / "later", _LATER)
        self._ids = _Texts(folder / "ids")
        self._count = 0
        self._findings: _Findings | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, passage: Passage) -> None:
        """Add a passage; only before the first result is read."""
        if self._findings is not None:
            raise RuntimeError("add was called after the corpus was read to its end")
        # Without the corpus's name: the same files under another name have the same digest.
        unnamed = passage.id.split(":", 1)[1]
        fields = (unnamed, passage.title, passage.section, passage.text, passage.language)
        dated = "" if passage.published is None else passage.published.isoformat()
        # Fields contain no NUL: the readers remove control characters.
        line = hashlib.sha256("\0".join((*fields, dated, passage.url, passage.licence)).encode()).digest()
        content = _content(passage)
        place = struct.pack(">QQ", self._count, self._ids.add(passage.id))
        self._lines.add(line)
        self._contents.add(content + line[:8] + place)
        self._identities.add(_hash(passage.id) + content + place)
        if _is_later_piece(passage):
            under = _hash(f"{passage.title}\0{passage.text}")
            self._later.add(_hash(passage.text) + under[:8] + place[:8])
        self._count += 1
        if self._count % 1024 == 0 and sum(map(len, self._parts)) > HELD_BYTES:
            self._folder.mkdir(parents=True, exist_ok=True)
            for part in self._parts:
                part.spill()

    @property
    def digest(self) -> str:
        """The digest of all passages, whatever their order."""
        return self._settled().digest

    @property
    def ambiguous_ids(self) -> Sequence[str]:
        """The first thousand ids that the source gave to different texts."""
        return self._settled().ambiguous_ids

    @property
    def ambiguous(self) -> int:
        """The number of ids that the source gave to different texts."""
        return self._settled().ambiguous

    def kept(self, ordinal: int, passage: Passage) -> Passage | None:
        """Return the passage to store, or None for a repetition or the publisher's boilerplate.

        Of passages with equal title, section and text the one with the smallest id is kept. An id that the source
        gave to different texts gets a hash of its text appended.

        Args:
            ordinal: The number of passages added before this one.
            passage: The passage as it was added.
        """
        fate = self._settled().fates[ordinal]
        if fate == _Fate.DROPPED:
            return None
        if fate == _Fate.MARKED:
            return replace(passage, id=f"{passage.id}~{_content(passage).hex()[:8]}")
        return passage

    @property
    def _parts(self) -> tuple["_Partitions | _Texts", ...]:
        return self._lines, self._contents, self._identities, self._later, self._ids

    def _settled(self) -> "_Findings":
        if self._findings is None:
            fates = np.zeros(self._count, dtype=np.uint8)
            with self._ids.opened() as id_at:
                ambiguous, ids = self._mark_ambiguous(fates, id_at)
                self._drop_repeated(fates, id_at)
            self._drop_boilerplate(fates)
            whole = hashlib.sha256()
            for part in self._lines.read():
                whole.update(np.sort(part).tobytes())
            self._findings = _Findings(f"sha256:{whole.hexdigest()}", fates, ambiguous, tuple(ids))
            for held in self._parts:
                held.clear()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._findings

    def _mark_ambiguous(self, fates: npt.NDArray[np.uint8], id_at: Callable[[int], str]) -> tuple[int, list[str]]:
        count = 0
        ids: list[str] = []
        for part in self._identities.read():
            part = _sorted(part, "c1", "c0", "k1", "k0")
            starts, group = _groups(part, "k0", "k1")
            differs = (part["c0"] != part["c0"][starts][group]) | (part["c1"] != part["c1"][starts][group])
            ambiguous = np.zeros(len(starts), dtype=bool)
            ambiguous[group[differs]] = True
            fates[part["ordinal"][ambiguous[group]].astype(np.int64)] = _Fate.MARKED
            count += int(ambiguous.sum())
            ids += [id_at(int(part["id"][n])) for n in starts[ambiguous][: 1000 - len(ids)]]
        return count, ids

    def _drop_repeated(self, fates: npt.NDArray[np.uint8], id_at: Callable[[int], str]) -> None:
        for part in self._contents.read():
            part = _sorted(part, "line", "k1", "k0")
            starts, _ = _groups(part, "k0", "k1")
            for start, end in _spans(starts, len(part), at_least=2):
                # Equal ids have equal content here: they differ in date or address, or not at all.
                ids = [id_at(int(place)) for place in part["id"][start:end]]
                best = start + min(range(end - start), key=ids.__getitem__)
                for n in range(start, end):
                    if n != best:
                        fates[int(part["ordinal"][n])] = _Fate.DROPPED

    def _drop_boilerplate(self, fates: npt.NDArray[np.uint8]) -> None:
        for part in self._later.read():
            part = _sorted(part, "under", "k1", "k0")
            starts, group = _groups(part, "k0", "k1")
            first = np.ones(len(part), dtype=bool)
            first[1:] = (part["under"][1:] != part["under"][:-1]) | (group[1:] != group[:-1])
            titles = np.bincount(group[first], minlength=len(starts))
            fates[part["ordinal"][(titles >= REPEATED_IN)[group]].astype(np.int64)] = _Fate.DROPPED


@dataclass(frozen=True, slots=True)
class _Findings:
    digest: str
    fates: npt.NDArray[np.uint8]
    ambiguous: int
    ambiguous_ids: tuple[str, ...]


class _Partitions:
    """Records of one length, partitioned by their first byte: in memory, and in files once spilled."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._folder = folder
        self._dtype = dtype
        self._held = [bytearray() for _ in range(256)]
        self._size = 0
        self._spilled = False

    def __len__(self) -> int:
        return self._size

    def add(self, record: bytes) -> None:
        self._held[record[0]] += record
        self._size += len(record)

    def spill(self) -> None:
        self._folder.mkdir(exist_ok=True)
        for number, held in enumerate(self._held):
            if held:
                with (self._folder / f"{number:02x}").open("ab") as handle:
                    handle.write(held)
        self._spilled = True
        self.clear()

    def read(self) -> Iterator[_Records]:
        """Iterate over the partitions with records, in order of their first byte."""
        for number, held in enumerate(self._held):
            file = self._folder / f"{number:02x}"
            data = (file.read_bytes() if self._spilled and file.exists() else b"") + held
            if data:
                yield np.frombuffer(data, dtype=self._dtype)

    def clear(self) -> None:
        self._held = [bytearray() for _ in range(256)]
        self._size = 0


class _Texts:
    """Short texts by the offset that `add` returned."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held = bytearray()
        self._spilled = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, text: str) -> int:
        place = self._spilled + len(self._held)
        data = text.encode()
        self._held += struct.pack(">I", len(data)) + data
        return place

    def spill(self) -> None:
        with self._file.open("ab") as handle:
            handle.write(self._held)
        self._spilled += len(self._held)
        self.clear()

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], str]]:
        """Return a function from offset to text."""
        if not self._spilled:
            yield lambda place: _text(self._held, place)
            return
        self.spill()
        with self._file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield lambda place: _text(data, place)

    def clear(self) -> None:
        self._held = bytearray()


def _text(data: bytearray | mmap.mmap, place: int) -> str:
    (size,) = struct.unpack_from(">I", data, place)
    return data[place + 4 : place + 4 + size].decode()


def _sorted(part: _Records, *keys: str) -> _Records:
    """Sort by the last of the keys, then by the one before it."""
    return part[np.lexsort([part[key] for key in keys])]


def _groups(part: _Records, *keys: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each group of equal keys begins in sorted records, and each record's group."""
    new = np.zeros(len(part), dtype=bool)
    new[0] = True
    for key in keys:
        new[1:] |= part[key][1:] != part[key][:-1]
    return np.flatnonzero(new), np.cumsum(new) - 1


def _spans(starts: npt.NDArray[np.int64], size: int, *, at_least: int) -> Iterator[tuple[int, int]]:
    ends = np.append(starts[1:], size)
    large = ends - starts >= at_least
    return zip(starts[large].tolist(), ends[large].tolist(), strict=True)


def _is_later_piece(passage: Passage) -> bool:
    return not passage.id.endswith(".1")


def _content(passage: Passage) -> bytes:
    return _hash(f"{passage.title}\0{passage.section}\0{passage.text}")


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
