"""Embeddings on disk, by the digest of the text: an encoder never embeds a text twice.

A store is one folder per encoder, with shards: a `.vec` file (the keys of its passages, then their vectors) and a
`.json` that describes it, written last. Vectors are half-precision floats: of the nearest 32 among 200,000
clustered vectors of 768 dimensions, 99.88 to 99.94 % were the same as with single precision, at half the size.

`shard-<n>.plan` lists the keys of a shard still to be made. Any number of processes may embed into one store, on
several machines if they share its folder (see `Claim`): each claims one shard after another, and a kill loses only
the shard in progress.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from medlive.digest import digest_file
from medlive.errors import EvidenceUnavailable, IndexCorrupt, IndexOutdated
from medlive.evidence.dense.files import PART, Claim, whole_file
from medlive.evidence.passage import Passage

SHARD = 20_000
"""Passages per shard: what a kill may lose."""

Keys = NDArray[np.bytes_]
"""Of dtype `KEY`."""
KEY = np.dtype("S16")
_VECTOR = np.dtype("<f2")
_LARGEST = float(np.finfo(np.float16).max)
_GROUP = 4096
_MAX_OPEN = 2
"""Shards whose texts a process collects at once: several only if corpora come in another order than planned."""
_WAIT_S = 0.5


class EncoderIdentity(Protocol):
    """The identity of an encoder."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """`sha256:…`: equal digests, equal vectors."""
        ...

    @property
    def dimension(self) -> int: ...


class PassageEncoder(Protocol):
    """Encodes passages."""

    @property
    def identity(self) -> EncoderIdentity: ...

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Encode (title, text) pairs as vectors of shape (n, dimension), in order."""
        ...


class Item(NamedTuple):
    """A passage as it is embedded."""

    key: bytes
    """16 bytes; see `passage_key`."""
    title: str
    text: str


def passage_key(passage: Passage) -> bytes:
    """Return the first 16 bytes of the digest of the passage's title, section and text."""
    return bytes.fromhex(passage.digest.removeprefix("sha256:")[:32])


def as_keys(keys: Iterable[bytes]) -> Keys:
    """Return the keys as one array."""
    return np.frombuffer(b"".join(keys), dtype=KEY)


def folder_of(root: Path, encoder_digest: str) -> Path:
    """Return the folder of that encoder's vectors below `root`."""
    return root / encoder_digest.removeprefix("sha256:")[:32]


class ShardEntry(BaseModel):
    """A finished shard, as described by its `.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str
    encoder_digest: str
    dimension: int
    count: int
    digest: str
    """Of the `.vec` file."""


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """The progress of an embedding."""

    shard: str
    embedded: int
    """Passages embedded by this process so far, the shard in progress included."""
    missing: int
    """Passages that had no vector when this process began."""


@dataclass(frozen=True, slots=True)
class EmbedReport:
    """The result of an embedding."""

    present: int
    """Texts that had a vector before."""
    embedded: int
    """Texts embedded by this process; other processes did the rest."""
    shards: tuple[str, ...]
    """Shards finished by this process."""


class VectorStore:
    """The vectors of one encoder, of any corpora."""

    def __init__(self, root: Path, encoder: EncoderIdentity) -> None:
        """Open the encoder's folder below `root`, and create it if necessary.

        Raises:
            IndexCorrupt: if a shard is damaged.
            IndexOutdated: if a shard was made by another encoder.
        """
        self.encoder = encoder
        self.folder = folder_of(root, encoder.digest)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._shards: dict[str, _Shard] = {}
        self._keys: Keys = np.empty(0, dtype=KEY)
        self._places: NDArray[np.int64] = np.empty((0, 2), dtype=np.int64)
        self.refresh()

    def __len__(self) -> int:
        """Count the vectors in finished shards."""
        return len(self._keys)

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the finished shards."""
        return tuple(self._shards)

    def refresh(self) -> None:
        """Open the shards that were finished since."""
        names = sorted(place.stem for place in self.folder.glob("shard-*.json"))
        if names == list(self._shards):
            return
        self._shards = {name: self._shards.get(name) or _Shard(self.folder, name, self.encoder) for name in names}
        keys = np.concatenate([np.empty(0, dtype=KEY), *(shard.keys for shard in self._shards.values())])
        order = np.argsort(keys, kind="stable")
        counts = [len(shard.keys) for shard in self._shards.values()]
        places = np.empty((len(keys), 2), dtype=np.int64)
        places[:, 0] = np.repeat(np.arange(len(counts)), counts)
        places[:, 1] = np.arange(len(keys)) - np.repeat(np.cumsum([0, *counts])[:-1], counts)
        self._keys, self._places = keys[order], places[order]

    def has(self, keys: Keys) -> NDArray[np.bool_]:
        """Return for each key whether a finished shard contains it."""
        return _positions(self._keys, keys) >= 0

    def verify(self) -> None:
        """Compare every shard with its digest. Raises IndexCorrupt for the first that differs."""
        for shard in self._shards.values():
            found = digest_file(shard.place)
            if found != shard.entry.digest:
                raise _damaged(shard.place, f"has {found}, expected {shard.entry.digest}")

    def vectors(self, keys: Keys) -> "StoredVectors":
        """Return the vectors of these passages. Raises EvidenceUnavailable if one is not embedded."""
        found = _positions(self._keys, keys)
        absent = int((found < 0).sum())
        if absent:
            raise EvidenceUnavailable(
                f"{absent} of {len(keys)} passages have no vector of {self.encoder.name} in {self.folder}",
                hint="embed them: medlive evidence build CORPUS... (see medlive evidence build --help)",
            )
        return StoredVectors(self.encoder, keys, list(self._shards.values()), self._places[found])

    def embed_missing(
        self,
        items: Callable[[], Iterable[Item]],
        encoder: PassageEncoder,
        *,
        shard_size: int = SHARD,
        batch: int = 256,
        progress: Callable[[EmbedProgress], None] | None = None,
    ) -> EmbedReport:
        """Embed what no finished shard contains, and return when every item has a vector.

        Waits for what other processes have claimed. Memory: the texts of one shard, a batch, and 32 bytes for
        every vector of the store.

        Args:
            items: Returns the passages, in the same order at each call.
            encoder: The store's encoder.
            shard_size: Passages per shard.
            batch: Passages encoded at a time.
            progress: Called after each batch.

        Raises:
            EvidenceUnavailable: if the encoder returns something other than finite vectors.
            DiskFull: if a shard does not fit; the finished ones stay.
            ValueError: if the encoder is not the store's.
        """
        if encoder.identity.digest != self.encoder.digest:
            raise ValueError(f"expected encoder {self.encoder.name}, found {encoder.identity.name}")
        work = _Work(self, items, encoder, shard_size, batch, progress or (lambda _: None))
        return work.run()


class StoredVectors:
    """Vectors in the order of an index's passages."""

    def __init__(
        self, encoder: EncoderIdentity, keys: Keys, shards: "Sequence[_Shard]", places: NDArray[np.int64]
    ) -> None:
        self.encoder = encoder
        self.keys_digest = keys_digest(keys)
        self._shards = shards
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    def half(self, start: int, stop: int) -> NDArray[np.float16]:
        """Return the vectors of ordinals `start` to `stop` (excluded), of shape (n, dimension)."""
        return self._gather(self._places[start:stop])

    def rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of these ordinals."""
        return self._gather(self._places[ordinals]).astype(np.float32)

    def _gather(self, places: NDArray[np.int64]) -> NDArray[np.float16]:
        out = np.empty((len(places), self.dimension), dtype=np.float16)
        for number in np.unique(places[:, 0]):
            rows = places[:, 0] == number
            out[rows] = self._shards[int(number)].vectors[places[rows, 1]]
        return out


def keys_digest(keys: Keys) -> str:
    """Return the digest of an index's passages: of their keys in the order of their ordinals."""
    return "sha256:" + hashlib.sha256(keys.tobytes()).hexdigest()


class _Shard:
    """A finished shard, memory-mapped."""

    def __init__(self, folder: Path, name: str, encoder: EncoderIdentity) -> None:
        self.place = folder / f"{name}.vec"
        description = folder / f"{name}.json"
        try:
            self.entry = ShardEntry.model_validate_json(description.read_bytes())
        except ValidationError as exc:
            raise _damaged(description, f"is not a valid shard description: {exc.errors()[0]['msg']}") from exc
        if (self.entry.encoder_digest, self.entry.dimension) != (encoder.digest, encoder.dimension):
            raise IndexOutdated(
                f"{description} is of encoder {self.entry.encoder} ({self.entry.encoder_digest}, dimension"
                f" {self.entry.dimension}), not of {encoder.name} ({encoder.digest}, {encoder.dimension})",
                hint=f"move {description} and {self.place} away and build again: medlive evidence build CORPUS...",
            )
        count, dimension = self.entry.count, self.entry.dimension
        expected = count * (KEY.itemsize + dimension * _VECTOR.itemsize)
        size = self.place.stat().st_size if self.place.is_file() else None
        if size != expected:
            raise _damaged(self.place, "is missing" if size is None else f"has {size} bytes, expected {expected}")
        if not count:
            raise _damaged(description, "describes an empty shard")
        self.keys: Keys = np.memmap(self.place, dtype=KEY, mode="r", shape=(count,))
        self.vectors: NDArray[np.float16] = np.memmap(
            self.place, dtype=_VECTOR, mode="r", offset=count * KEY.itemsize, shape=(count, dimension)
        )


class _Gathering:
    """A claimed shard whose texts are being collected."""

    def __init__(self, name: str, keys: Keys, claim: Claim) -> None:
        self.name = name
        self.keys = keys
        self.claim = claim
        self._texts: list[tuple[str, str] | None] = [None] * len(keys)
        self._absent = len(keys)

    def add(self, row: int, item: Item) -> bool:
        """Add the item's text; True if no text is missing any more."""
        if self._texts[row] is None:
            self._texts[row] = (item.title, item.text)
            self._absent -= 1
        return not self._absent

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [pair for pair in self._texts if pair is not None]


class _Work:
    """One process's part in embedding the missing passages."""

    def __init__(
        self,
        store: VectorStore,
        items: Callable[[], Iterable[Item]],
        encoder: PassageEncoder,
        shard_size: int,
        batch: int,
        progress: Callable[[EmbedProgress], None],
    ) -> None:
        self._store = store
        self._folder = store.folder
        self._items = items
        self._encoder = encoder
        self._shard_size = shard_size
        self._batch = batch
        self._progress = progress
        self._present = 0
        self._missing: int | None = None
        self._embedded = 0
        self._finished: list[str] = []

    def run(self) -> EmbedReport:
        while planned := self._plan():
            before = len(self._finished)
            self._make_shards(planned)
            if len(self._finished) == before:
                self._wait(planned)
        return EmbedReport(self._present, self._embedded, tuple(self._finished))

    def _plan(self) -> dict[str, Keys]:
        """Return the unfinished shards with keys of the items; keys in no shard are planned into new ones.

        A shard planned for a corpus that has changed since, so that the items no longer have all its keys, is
        abandoned unless a process works on it, and its remaining keys are planned anew.
        """
        with FileLock(self._folder / "plan.lock"):
            read: dict[str, Keys] = {}
            for place in sorted(self._folder.glob("shard-*.plan")):
                with suppress(FileNotFoundError):
                    read[place.stem] = np.fromfile(place, dtype=KEY)
            # After the plans: what another process finishes meanwhile is seen as a plan, a shard, or both.
            self._store.refresh()
            planned = {name: keys for name, keys in read.items() if name not in self._store.shards}
            table = _Table(planned)
            seen, new_keys, present = table.unseen(), bytearray(), 0
            for group in _groups(self._items()):
                keys = as_keys(item.key for item in group)
                stored = self._store.has(keys)
                at = table.find(keys)
                seen[at[at >= 0]] = True
                present += int(stored.sum())
                new_keys += keys[~stored & (at < 0)].tobytes()
            to_plan = [np.frombuffer(new_keys, dtype=KEY)]
            unfinished: dict[str, Keys] = {}
            for name, keys, needed in table.shards(seen):
                if needed.all() or not self._abandon(name):
                    if needed.any():
                        unfinished[name] = keys
                else:
                    to_plan.append(keys[needed])
            unfinished |= self._plan_shards(np.concatenate(to_plan))
            if self._missing is None:
                self._present = present
                self._missing = sum(map(len, unfinished.values()))
            return unfinished

    def _abandon(self, name: str) -> bool:
        claim = Claim.take(self._folder / f"{name}.lock")
        if claim is None:
            return False
        for suffix in (".plan", ".vec", f".vec{PART}"):
            (self._folder / f"{name}{suffix}").unlink(missing_ok=True)
        claim.release(remove=True)
        return True

    def _plan_shards(self, new_keys: Keys) -> dict[str, Keys]:
        """Plan new shards of these keys, each key once, in order."""
        first = np.sort(np.unique(new_keys, return_index=True)[1])
        keys = new_keys[first]
        numbers = [
            int(place.stem.removeprefix("shard-"))
            for place in self._folder.glob("shard-*")
            if place.suffix in {".json", ".plan"}
        ]
        number = max(numbers, default=-1) + 1
        added: dict[str, Keys] = {}
        for start in range(0, len(keys), self._shard_size):
            name = f"shard-{number:06d}"
            with whole_file(self._folder / f"{name}.plan") as handle:
                handle.write(keys[start : start + self._shard_size].tobytes())
            added[name] = keys[start : start + self._shard_size]
            number += 1
        return added

    def _make_shards(self, planned: dict[str, Keys]) -> None:
        """Read the items once, and make every shard that can be claimed."""
        table = _Table(planned)
        names = list(planned)
        open_shards: dict[int, _Gathering] = {}
        done: set[int] = set()
        try:
            for group in _groups(self._items()):
                at = table.find(as_keys(item.key for item in group))
                for position in np.flatnonzero(at >= 0):
                    number, row = table.place(int(at[position]))
                    if number in done:
                        continue
                    shard = open_shards.get(number)
                    if shard is None:
                        if len(open_shards) == _MAX_OPEN:
                            continue
                        shard = self._claim(names[number], planned[names[number]])
                        if shard is None:
                            done.add(number)
                            continue
                        open_shards[number] = shard
                    if shard.add(row, group[position]):
                        self._make(shard)
                        done.add(number)
                        del open_shards[number]
                        shard.claim.release(remove=True)
        finally:
            for shard in open_shards.values():
                shard.claim.release()

    def _claim(self, name: str, keys: Keys) -> _Gathering | None:
        """Claim a shard; None if another process is making it, or has made or abandoned it."""
        claim = Claim.take(self._folder / f"{name}.lock")
        if claim is None:
            return None
        if (self._folder / f"{name}.json").exists() or not (self._folder / f"{name}.plan").exists():
            claim.release(remove=True)
            return None
        return _Gathering(name, keys, claim)

    def _make(self, shard: _Gathering) -> None:
        place = self._folder / f"{shard.name}.vec"
        digest = hashlib.sha256()
        with whole_file(place) as handle:
            for data in (shard.keys.tobytes(), *self._embedded_batches(shard)):
                digest.update(data)
                handle.write(data)
        identity = self._store.encoder
        entry = ShardEntry(
            encoder=identity.name,
            encoder_digest=identity.digest,
            dimension=identity.dimension,
            count=len(shard.keys),
            digest="sha256:" + digest.hexdigest(),
        )
        with whole_file(self._folder / f"{shard.name}.json") as handle:
            handle.write(entry.model_dump_json().encode() + b"\n")
        (self._folder / f"{shard.name}.plan").unlink(missing_ok=True)
        self._finished.append(shard.name)

    def _embedded_batches(self, shard: _Gathering) -> Iterator[bytes]:
        pairs = shard.pairs
        for start in range(0, len(pairs), self._batch):
            group = pairs[start : start + self._batch]
            vectors = self._as_half_precision(self._encoder.encode_passages(group), group)
            self._embedded += len(group)
            self._progress(EmbedProgress(shard.name, self._embedded, self._missing or 0))
            yield vectors.tobytes()

    def _as_half_precision(
        self, vectors: NDArray[np.float32], pairs: Sequence[tuple[str, str]]
    ) -> NDArray[np.float16]:
        identity = self._store.encoder
        if vectors.shape != (len(pairs), identity.dimension):
            raise EvidenceUnavailable(
                f"encoder {identity.name} returned vectors of shape {vectors.shape} for {len(pairs)} passages, the"
                f" first of them {pairs[0][0]!r}; expected {(len(pairs), identity.dimension)}",
                hint="see what the encoder is and where it was read from: medlive evidence models",
            )
        # A vector beyond the range of half precision would be stored as infinite.
        bad = ~(np.abs(vectors) <= _LARGEST).all(axis=1)
        if bad.any():
            title, text = pairs[int(np.flatnonzero(bad)[0])]
            raise EvidenceUnavailable(
                f"encoder {identity.name} returned a vector that is not finite, or beyond {_LARGEST:.0f},"
                f" for passage {title!r}: {text[:80]!r}",
                hint="see what the encoder is and where it was read from: medlive evidence models",
            )
        return vectors.astype(_VECTOR)

    def _wait(self, planned: dict[str, Keys]) -> None:
        """Return when a shard claimed by another process is finished or released."""
        while True:
            for name in planned:
                if (self._folder / f"{name}.json").exists() or not (self._folder / f"{name}.plan").exists():
                    return
                claim = Claim.take(self._folder / f"{name}.lock")
                if claim is not None:
                    claim.release()
                    return
            time.sleep(_WAIT_S)


class _Table:
    """Finds the planned shard and row of a key."""

    def __init__(self, planned: dict[str, Keys]) -> None:
        self._planned = planned
        keys = np.concatenate([np.empty(0, dtype=KEY), *planned.values()])
        self._order = np.argsort(keys, kind="stable")
        self._sorted: Keys = keys[self._order]
        self._starts = np.cumsum([0, *map(len, planned.values())])

    def unseen(self) -> NDArray[np.bool_]:
        return np.zeros(len(self._order), dtype=bool)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Return each key's position among all planned keys, or -1."""
        found = _positions(self._sorted, keys)
        return np.where(found >= 0, self._order[found] if len(self._order) else -1, -1)

    def place(self, position: int) -> tuple[int, int]:
        """Return the number of the shard, in order of planning, and the row within it."""
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return number, position - int(self._starts[number])

    def shards(self, flags: NDArray[np.bool_]) -> Iterator[tuple[str, Keys, NDArray[np.bool_]]]:
        for number, (name, keys) in enumerate(self._planned.items()):
            yield name, keys, flags[self._starts[number] : self._starts[number + 1]]


def _positions(table: Keys, keys: Keys) -> NDArray[np.int64]:
    """Return each key's position in the sorted table, or -1."""
    if not len(table):
        return np.full(len(keys), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return np.where(table[at] == keys, at, -1)


def _groups(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while group := list(islice(rest, _GROUP)):
        yield group


def _damaged(place: Path, what: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"{place} {what}",
        hint=f"remove {place.with_suffix('.json')} and {place.with_suffix('.vec')} and build again, which embeds"
        " its passages anew: medlive evidence build CORPUS...",
    )
