"""The files of an index: where each is, and whether it is what the manifest says."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from medlive.errors import IndexCorrupt, IndexOutdated
from medlive.evidence import lexical
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.manifest import DenseEntry, IndexManifest, read_manifest
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import Ordinals
from medlive.integrity.digest import digest_file
from medlive.integrity.paths import UnsafePath, path_below

if TYPE_CHECKING:
    from medlive.evidence.dense import DenseIndex

DATA = "data-"
"""Prefix of the names of data folders."""
LEXICAL = "lexical"
DENSE = "dense"
ORDINALS = "ordinals.npy"
"""Beside an encoder's vectors: which passage each is of."""
VECTORS = "vectors"
"""The folder of embeddings, by encoder."""


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """An index on disk, by the manifest that was read from it."""

    path: Path
    manifest: IndexManifest

    @property
    def data(self) -> Path:
        """The folder of its files."""
        return self.path / self.manifest.data

    def place(self, name: str) -> Path:
        """Return where a file lies. Raises IndexCorrupt if the manifest names one elsewhere."""
        try:
            return path_below(self.data, name)
        except UnsafePath as exc:
            raise IndexCorrupt(f"the manifest of {self.path}: {exc.message}") from exc

    def check_sizes(self) -> None:
        """Raise IndexCorrupt if a file is missing or has another size."""
        data = self.manifest.data
        if not data.startswith(DATA) or Path(data).name != data:
            raise IndexCorrupt(
                f"the manifest of {self.path} names {data!r} as its data"
            )
        for entry in self.manifest.files:
            place = self.place(entry.path)
            if not place.is_file():
                raise IndexCorrupt(f"{place} is missing")
            size = place.stat().st_size
            if size != entry.size:
                raise IndexCorrupt(f"{place} has {size} bytes, expected {entry.size}")

    def check_digests(self, name: str | None = None) -> None:
        """Raise IndexCorrupt if a file, or the one of that name, does not have its digest."""
        for entry in self.manifest.files:
            if name not in (None, entry.path):
                continue
            place = self.place(entry.path)
            try:
                digest = digest_file(place)
            except OSError as exc:
                raise IndexCorrupt(f"{place} cannot be read: {exc.strerror}") from exc
            if digest != entry.digest:
                raise IndexCorrupt(f"{place} has {digest}, expected {entry.digest}")

    def check_usable(self) -> None:
        """Check that this medlive can search it, except for its encoder. Raises as `open_index` does."""
        self.check_sizes()
        self.open_words(self.open_store())
        for entry in self.manifest.dense:
            self.open_vectors(entry)

    def open_store(self) -> PassageStore:
        """Open the passages. Raises IndexCorrupt."""
        try:
            return PassageStore(self.data)
        except (OSError, ValueError, TypeError, IndexCorrupt) as exc:
            raise IndexCorrupt(
                f"the passages of {self.path} cannot be read: {exc}"
            ) from exc

    def open_words(self, store: PassageStore) -> LexicalIndex:
        """Open the words' side. Raises IndexOutdated where text is cut in another way now, and IndexCorrupt."""
        current, built = lexical.parameters(), self.manifest.parameters
        if built != current:
            changed = dict(built.items() - current.items())
            libraries = f"{self.manifest.libraries}, now {lexical.libraries()}"
            raise IndexOutdated(
                f"{self.path} was built with other parameters ({changed}; libraries {libraries})",
            )
        return LexicalIndex(self.data / LEXICAL, store)

    def open_vectors(self, entry: DenseEntry) -> "DenseIndex":
        """Open an encoder's vectors. Raises IndexCorrupt."""
        from medlive.evidence.dense import DenseIndex

        return DenseIndex.open(self.data / entry.folder, entry.part)

    def read_ordinals(self, entry: DenseEntry) -> Ordinals:
        """Return which passage each vector of an encoder is of. Raises IndexCorrupt."""
        place = self.data / entry.folder / ORDINALS
        count = entry.part.count
        try:
            ordinals: Ordinals = np.load(place, allow_pickle=False)
            is_whole = ordinals.shape == (count,) and ordinals.dtype == np.int64
            most = self.manifest.passages
            if not is_whole or ordinals.min() < 0 or ordinals.max() >= most:
                raise ValueError(f"expected {count} numbers of passages")
        except (OSError, ValueError) as exc:
            raise IndexCorrupt(f"{place} cannot be read: {exc}") from exc
        return ordinals


def read_index(path: Path) -> IndexFolder:
    """Read the manifest of the index at `path`. Raises as `read_manifest` does."""
    return IndexFolder(path, read_manifest(path))
