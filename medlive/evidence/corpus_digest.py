"""What one reading of a corpus showed: its digest, and which of its passages are worth keeping.

The decisions rest on the whole corpus and not on the order of its files: the same passages are kept, under
the same ids, however they are shuffled. Of each passage a few short hashes are held, in memory while they are
few and in partition files from there on; they are sorted one partition at a time, so that memory does not grow
with the corpus but for one byte a passage.
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
"""A later piece of a section whose text stands under this many titles is the publisher's, not the page's.
(A first piece is kept: "inherited in an autosomal recessive pattern" is the statement its title asks for.)"""

HELD_BYTES = 32 * 1024 * 1024
"""Records in memory before they are moved to the partition files."""

_KEY = [("k0", ">u8"), ("k1", ">u8")]
_LINE = np.dtype("S32")
_CONTENT = np.dtype([*_KEY, ("line", ">u8"), ("ordinal", ">u8"), ("id", ">u8")])
_IDENTITY = np.dtype([*_KEY, ("c0", ">u8"), ("c1", ">u8"), ("ordinal", ">u8"), ("id", ">u8")])
_LATER = np.dtype([*_KEY, ("under", ">u8"), ("ordinal", ">u8")])
_Records = npt.NDArray[Any]


class _Fate(IntEnum):
    """What becomes of a passage."""

    KEPT = 0
    MARKED = 1
    """Kept, under an id with a mark of its text."""
    LEFT_OUT = 2


class Survey:
    """Fed every passage of one corpus once; then tells which to keep, by their place in that order."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made when there is more than memory should hold, and removed by the first question."""
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
        """Take note of a passage; not to be called after a question was asked."""
        if self._findings is not None:
            raise RuntimeError("add was called after the corpus was read to its end")
        # The corpus's name is no content: the same files under another name have the same digest.
        unnamed = passage.id.split(":", 1)[1]
        fields = (unnamed, passage.title, passage.section, passage.text, passage.language)
        dated = "" if passage.published is None else passage.published.isoformat()
        # No field holds a NUL: the readers take control characters out.
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
        """The digest of everything the reading gave, whatever its order."""
        return self._settled().digest

    @property
    def ambiguous_ids(self) -> Sequence[str]:
        """The first thousand ids that the source gave to different texts, in an order of their own."""
        return self._settled().ambiguous_ids

    @property
    def ambiguous(self) -> int:
        """How many ids the source gave to different texts."""
        return self._settled().ambiguous

    def kept(self, ordinal: int, passage: Passage) -> Passage | None:
        """The passage as it is to be stored, or None when it is a repetition or the publisher's boilerplate.

        `ordinal` counts the passages in the order in which they were added, from 0. Of passages with one
        title, section and text the one with the smallest id is kept; an id that the source gave to different
        texts gets a mark of its text.
        """
        fate = self._settled().fates[ordinal]
        if fate == _Fate.LEFT_OUT:
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
                self._leave_out_repeated(fates, id_at)
            self._leave_out_boilerplate(fates)
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

    def _leave_out_repeated(self, fates: npt.NDArray[np.uint8], id_at: Callable[[int], str]) -> None:
        for part in self._contents.read():
            part = _sorted(part, "line", "k1", "k0")
            starts, _ = _groups(part, "k0", "k1")
            for start, end in _spans(starts, len(part), at_least=2):
                # Equal ids have one content here: their lines differ in date or address, or not at all.
                ids = [id_at(int(place)) for place in part["id"][start:end]]
                best = start + min(range(end - start), key=ids.__getitem__)
                for n in range(start, end):
                    if n != best:
                        fates[int(part["ordinal"][n])] = _Fate.LEFT_OUT

    def _leave_out_boilerplate(self, fates: npt.NDArray[np.uint8]) -> None:
        for part in self._later.read():
            part = _sorted(part, "under", "k1", "k0")
            starts, group = _groups(part, "k0", "k1")
            first = np.ones(len(part), dtype=bool)
            first[1:] = (part["under"][1:] != part["under"][:-1]) | (group[1:] != group[:-1])
            titles = np.bincount(group[first], minlength=len(starts))
            fates[part["ordinal"][(titles >= REPEATED_IN)[group]].astype(np.int64)] = _Fate.LEFT_OUT


@dataclass(frozen=True, slots=True)
class _Findings:
    digest: str
    fates: npt.NDArray[np.uint8]
    ambiguous: int
    ambiguous_ids: tuple[str, ...]


class _Partitions:
    """Records of one length, parted by their first byte: in memory, and in a file each once spilled."""

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
        """The partitions that are not empty, in the order of their first byte."""
        for number, held in enumerate(self._held):
            file = self._folder / f"{number:02x}"
            data = (file.read_bytes() if self._spilled and file.exists() else b"") + held
            if data:
                yield np.frombuffer(data, dtype=self._dtype)

    def clear(self) -> None:
        self._held = [bytearray() for _ in range(256)]
        self._size = 0


class _Texts:
    """Short texts, found again by the place that `add` gave them."""

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
        """What tells the text at a place."""
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
    """By the last of the keys, then by the one before it."""
    return part[np.lexsort([part[key] for key in keys])]


def _groups(part: _Records, *keys: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of sorted records: where each group of equal keys begins, and each record's group."""
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
