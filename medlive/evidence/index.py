"""Open an index on disk for searching (`open_index`), and compare its files with its manifest (`verify_index`)."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from medlive.errors import IndexCorrupt, IndexOutdated, UsageError
from medlive.integrity.digest import digest_file, digest_json
from medlive.integrity.paths import UnsafePath, path_below

from . import lexical
from .encoders.model import Encoder, Reranker
from .encoders.opening import open_encoder, open_reranker
from .encoders.table import EncoderSettings
from .lexical import LexicalIndex
from .manifest import (
    MANIFEST,
    DenseEntry,
    IndexManifest,
    read_manifest,
)
from .passage import IndexIdentity
from .retriever import (
    DEPTH,
    JOINT,
    RRF_K,
    DenseSide,
    IndexRetriever,
    RetrieverName,
)
from .store import LINES, PassageStore
from .vectors import (
    Ordinals,
    VectorStore,
    folder_of,
    keys_digest,
    keys_of,
)

T = TypeVar("T")

DATA = "data-"
"""Prefix of the names of data folders."""
# Subfolders of a data folder: the search by words, and by vectors
LEXICAL = "lexical"
DENSE = "dense"
ORDINALS = "ordinals.npy"
"""The file beside an encoder's vectors with the ordinal of each vector's passage."""
VECTORS = "vectors"
"""The folder of all embeddings, one subfolder an encoder; builds keep it."""


@dataclass(frozen=True)
class IndexFolder:
    """An index on disk, by the manifest that was read from it."""

    path: Path
    manifest: IndexManifest

    @property
    def data(self) -> Path:
        """The folder of its files."""
        return self.path / self.manifest.data

    def check(self, *, whole: bool = False, passages: bool = False) -> None:
        """Compare its files with the manifest: their sizes, and digests where asked for.

        Args:
            whole: Whether to compare the digest of every file.
            passages: Whether to compare that of the passages.

        Raises:
            IndexCorrupt: for the first file that is missing or differs.
        """
        name = self.manifest.data
        if not name.startswith(DATA) or Path(name).name != name:
            raise IndexCorrupt(
                f"the manifest of {self.path} names {name!r} as its data"
            )
        for entry in self.manifest.files:
            place = self.data / entry.path
            try:
                path_below(self.data, entry.path)
                size = place.stat().st_size
                if size != entry.size:
                    raise IndexCorrupt(
                        f"{place} has {size} bytes, expected {entry.size}"
                    )
                digest = entry.digest
                if whole or (passages and entry.path == LINES):
                    digest = digest_file(place)
                if digest != entry.digest:
                    raise IndexCorrupt(f"{place} has {digest}, expected {entry.digest}")
            except (OSError, UnsafePath) as exc:
                raise IndexCorrupt(f"{place} cannot be read: {exc}") from exc

    def open_store(self) -> PassageStore:
        """Open the passages. Raises IndexCorrupt."""
        try:
            return PassageStore(self.data)
        except (OSError, ValueError) as exc:
            raise IndexCorrupt(
                f"the passages of {self.path} cannot be read: {exc}"
            ) from exc

    def open_words(self, store: PassageStore) -> LexicalIndex:
        """Open the search by words. Raises IndexCorrupt, and IndexOutdated if text is cut differently now."""
        current, built = lexical.parameters(), self.manifest.parameters
        if built != current:
            raise IndexOutdated(
                f"{self.path} was built with {built} by {self.manifest.libraries}, now these are {current} and"
                f" {lexical.libraries()}"
            )
        return LexicalIndex(self.data / LEXICAL, store)

    def open_side(self, entry: DenseEntry, encoder: Encoder) -> DenseSide:
        """Open an encoder's vectors. Raises IndexCorrupt."""
        from .dense import DenseIndex

        return DenseSide(
            encoder=encoder,
            index=DenseIndex(self.data / entry.folder, entry.part),
            ordinals=self.read_ordinals(entry),
            weights={weight.language: weight.weight for weight in entry.weights},
        )

    def read_ordinals(self, entry: DenseEntry) -> Ordinals:
        """Return the ordinal of the passage of each vector of an encoder. Raises IndexCorrupt."""
        place = self.data / entry.folder / ORDINALS
        count = entry.part.count
        try:
            ordinals: Ordinals = np.load(place, allow_pickle=False)
            is_whole = ordinals.shape == (count,) and ordinals.dtype == np.int64
            most = self.manifest.passages
            if not is_whole or ordinals.min() < 0 or ordinals.max() >= most:
                raise ValueError(f"expected {count} numbers of passages")
        # NumPy reads the header as Python: a damaged one is any error of its tokenizer, its parser or its sorting.
        except Exception as exc:
            raise IndexCorrupt(f"{place} cannot be read: {exc}") from exc
        return ordinals


def read_index(path: Path) -> IndexFolder:
    """Read the manifest of the index at `path`. Raises as `read_manifest` does."""
    return IndexFolder(path, read_manifest(path))


def _use(path: Path, work: Callable[[IndexFolder], T]) -> T:
    """Return `work` of the index at `path`; if it fails because a build replaced the index meanwhile, do it again."""
    index = read_index(path)
    while True:
        try:
            return work(index)
        except IndexCorrupt:
            current = read_index(path)
            if current.data == index.data:
                raise
            index = current


def open_index(
    path: Path,
    *,
    settings: EncoderSettings | None = None,
    encoders: Mapping[str, Encoder] = {},
    retriever: RetrieverName | None = None,
    verify: bool = False,
) -> IndexRetriever:
    """Open the index at `path` for searching.

    Checks the manifest, the presence and size of every file, the text analysis, and that the encoder is the one
    that made the vectors.

    Args:
        path: The index's folder.
        settings: Where models are looked for; None for `models` below `path`.
        encoders: Encoders that are open already, by the name that the manifest gives them; others are opened.
        retriever: The kind of search; None for the manifest's. "bm25" searches any index without an encoder.
        verify: Whether to compare every file's digest in the background; searches wait for it and raise IndexCorrupt.

    Raises:
        IndexMissing, IndexCorrupt, IndexOutdated: if the index cannot be used.
        EvidenceUnavailable: if a model is missing.
        ConfigError: for an encoder that the settings do not describe any more.
        UsageError: for a dense search of an index without vectors.
    """
    models = settings or EncoderSettings(models=path / "models")

    def open_folder(index: IndexFolder) -> IndexRetriever:
        manifest = index.manifest
        name = retriever or manifest.retriever
        if name != "bm25" and not manifest.dense:
            raise UsageError(
                f"{path} has no vectors, so that only bm25 searches it: {manifest.reason}",
                hint="build it with an encoder: medlive evidence build CORPUS... --encoder NAME",
            )
        index.check()
        store = index.open_store()
        sides = []
        for entry in manifest.dense if name != "bm25" else ():
            encoder = encoders.get(entry.encoder.name)
            if encoder is None:
                where = entry.encoder.where
                encoder = open_encoder(where, settings=models, known=entry.encoder)
            if encoder.identity.digest != entry.encoder.digest:
                raise IndexOutdated(
                    f"{path / MANIFEST}: its vectors were made by encoder {entry.encoder.name} from"
                    f" {entry.encoder.where} ({entry.encoder.digest}), and the one at hand is"
                    f" {encoder.identity.name} ({encoder.identity.digest})",
                    hint="use that encoder, or embed with this one: medlive evidence build CORPUS... --encoder NAME",
                )
            sides.append(index.open_side(entry, encoder))
        reader = _measured_reranker(index, models)
        return IndexRetriever(
            store,
            _identity(manifest, name, reader),
            lexical=None if name == "dense" else index.open_words(store),
            dense=sides,
            reranker=reader,
            verified=_verify_in_background(path) if verify else None,
        )

    return _use(path, open_folder)


def _measured_reranker(
    index: IndexFolder, settings: EncoderSettings
) -> Reranker | None:
    """Open the configured reranker if the index's measurement says that this one helps; else None."""
    entry = index.manifest.reranker
    if entry is None or not entry.helps or settings.reranker != entry.where:
        return None
    reranker = open_reranker(entry.where, settings=settings)
    if reranker.digest != entry.digest:
        raise IndexOutdated(
            f"{index.path / MANIFEST}: reranker {entry.where} was measured as {entry.digest}, and the one at hand is"
            f" {reranker.digest}",
            hint="measure it: medlive evidence build CORPUS..., or leave out [evidence] reranker",
        )
    return reranker


def _verify_in_background(path: Path) -> Future[None]:
    """Compare every file of the index with its digest, in a thread of its own.

    A flipped byte in a column of dates changes which passages a claim meets, and no search notices it.
    """
    result: Future[None] = Future()

    def verify() -> None:
        try:
            # The files of an index that was replaced meanwhile are gone; who has it open can search it to the end.
            _use(path, lambda index: index.check(whole=True))
        except BaseException as exc:
            result.set_exception(exc)
        else:
            result.set_result(None)

    # A daemon: a command that needs no search does not wait for the last gigabyte.
    threading.Thread(target=verify, name="verify-evidence", daemon=True).start()
    return result


def verify_index(path: Path) -> IndexManifest:
    """Compare every file of the index and the stored embeddings with their digests; return the manifest.

    Raises as `open_index` does, and IndexCorrupt for the first file that differs.
    """

    def verify(index: IndexFolder) -> IndexManifest:
        index.check(whole=True)
        store = index.open_store()
        for entry in index.manifest.dense:
            passages = (store.get(int(n)) for n in index.read_ordinals(entry))
            digest = keys_digest(keys_of(passages))
            if digest != entry.part.keys_digest:
                raise IndexCorrupt(
                    f"the vectors of {path} are of other passages ({entry.part.keys_digest}) than those"
                    f" beside them ({digest})"
                )
            if folder_of(path / VECTORS, entry.encoder.digest).is_dir():
                VectorStore(path / VECTORS, entry.encoder).verify()
        return index.manifest

    return _use(path, verify)


def _identity(
    manifest: IndexManifest,
    name: RetrieverName,
    reranker: Reranker | None,
) -> IndexIdentity:
    """Return the evidence as verdicts record it.

    An index that is searched in another way than it was built for has another digest there.
    """
    record: dict[str, Any] = {}
    digest = manifest.index_digest
    if name != "bm25":
        record["sides"] = sides = []
        for entry in manifest.dense:
            side = entry.part.model_dump(include={"kind", "parameters", "recall"})
            side["encoder"] = entry.encoder.name
            side["encoder_digest"] = entry.encoder.digest
            side["weights"] = {w.language: w.weight for w in entry.weights}
            sides.append(side)
    if name == "hybrid":
        record["fusion"] = {"rrf_k": RRF_K, "depth": DEPTH, "joint": JOINT}
    reread = None
    if reranker is not None:
        reread = reranker.digest
        record["reranker"] = {"name": reranker.name, "digest": reread}
    if name != manifest.retriever or reread:
        searched = {"index": digest, "retriever": name, "reranker": reread}
        digest = digest_json(searched)
    return IndexIdentity(
        retriever=name,
        index_digest=digest,
        corpora=manifest.corpus_digests,
        passages=manifest.passages,
        dense=record or None,
    )
