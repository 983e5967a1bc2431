"""Open an index, and check its manifest, files, text analysis and the encoder of its vectors."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medlive.errors import (
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    MedliveError,
    UsageError,
)
from medlive.evidence import lexical
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.encoders.opening import open_encoder, open_reranker
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.manifest import (
    MANIFEST,
    DenseEntry,
    EncoderEntry,
    IndexManifest,
    RerankerEntry,
    read_manifest,
)
from medlive.evidence.passage import IndexIdentity
from medlive.evidence.retriever import (
    DEPTH,
    JOINT,
    RRF_K,
    DenseSide,
    IndexRetriever,
    RetrieverName,
)
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import (
    Ordinals,
    VectorStore,
    folder_of,
    keys_digest,
    keys_of,
)
from medlive.evidence.verification import Verification
from medlive.integrity.digest import digest_file, digest_json
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


def open_index(
    path: Path,
    *,
    settings: EncoderSettings | None = None,
    encoders: Mapping[str, Encoder] | None = None,
    reranker: Reranker | None = None,
    retriever: RetrieverName | None = None,
    verify: bool = False,
) -> IndexRetriever:
    """Open the index at `path` for searching.

    Checks the manifest, the presence and size of every file, the text analysis, and that the encoder is the one
    that made the vectors.

    Args:
        path: The index's folder.
        settings: Where models are looked for; None for below `path` and the Hugging Face cache.
        encoders: Encoders that are open already, by the name that the manifest gives them; others are opened.
        reranker: A cross-encoder that is used whatever was measured; None for the one of `settings`, where the build
            measured that it helps.
        retriever: The kind of search; None for the manifest's. "bm25" searches any index without an encoder.
        verify: Whether a search waits until every file has had its digest, and raises IndexCorrupt otherwise.

    Raises:
        IndexMissing, IndexCorrupt, IndexOutdated: if the index cannot be used.
        EvidenceUnavailable: if a model is missing.
        UsageError: for a dense search of an index without vectors.
    """
    open_with = partial(
        _open,
        path,
        settings or EncoderSettings(home=path),
        encoders or {},
        reranker,
        retriever,
        verify,
    )
    manifest = read_manifest(path)
    try:
        return open_with(manifest)
    except IndexCorrupt:
        current = read_manifest(path)
        if current.data == manifest.data:
            raise
        return open_with(current)  # a build replaced the index meanwhile


def _open(
    path: Path,
    settings: EncoderSettings,
    encoders: Mapping[str, Encoder],
    reranker: Reranker | None,
    retriever: RetrieverName | None,
    verify: bool,
    manifest: IndexManifest,
) -> IndexRetriever:
    name = retriever or manifest.retriever
    if name != "bm25" and not manifest.dense:
        raise UsageError(
            f"{path} has no vectors, so that only bm25 searches it: {manifest.reason}",
            hint="build it with an encoder: medlive evidence build CORPUS... --encoder NAME",
        )
    check_sizes(path, manifest)
    store = open_store(path, manifest)
    lexical_index = None if name == "dense" else _lexical_side(path, manifest, store)
    sides = []
    for entry in manifest.dense if name != "bm25" else ():
        sides.append(_dense_side(path, manifest, entry, encoders, settings))
    if reranker is None and manifest.reranker and manifest.reranker.helps:
        reranker = _measured_reranker(path, manifest.reranker, settings)
    identity = IndexIdentity(
        retriever=name,
        index_digest=_search_digest(manifest, name, reranker),
        corpora=manifest.corpus_digests,
        passages=manifest.passages,
        dense=_dense_record(manifest, name, reranker),
    )
    return IndexRetriever(
        store,
        identity,
        lexical=lexical_index,
        dense=sides,
        reranker=reranker,
        verification=Verification(partial(_verify_in_use, path, manifest))
        if verify
        else None,
    )


def _verify_in_use(path: Path, manifest: IndexManifest) -> None:
    """Compare every file of an open index with its digest, unless a newer build has replaced it.

    The files of an index that was replaced are gone from the folder; whoever has it open searches it to the end.
    """
    try:
        check_digests(path, manifest)
    except IndexCorrupt:
        if read_manifest(path).data == manifest.data:
            raise


def verify_index(path: Path) -> IndexManifest:
    """Compare every file of the index and the stored embeddings with their digests; return the manifest.

    Raises as `open_index` does, and IndexCorrupt for the first file that differs.
    """
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    check_digests(path, manifest)
    for entry in manifest.dense:
        store, ordinals = open_store(path, manifest), ordinals_of(path, manifest, entry)
        digest = keys_digest(keys_of(store.get(int(n)) for n in ordinals))
        if digest != entry.part.keys_digest:
            raise IndexCorrupt(
                f"the vectors of {path} are of other passages ({entry.part.keys_digest}) than those"
                f" beside them ({digest})",
            )
        if folder_of(path / VECTORS, entry.encoder.digest).is_dir():
            VectorStore(path / VECTORS, entry.encoder).verify()
    return manifest


def list_indexes(folder: Path) -> list[tuple[Path, IndexManifest | str]]:
    """List the indexes in `folder` and its subfolders by path, each with its manifest or why it is unreadable."""
    found: list[tuple[Path, IndexManifest | str]] = []
    for place in [folder, *sorted(f for f in folder.glob("*") if f.is_dir())]:
        with suppress(IndexMissing):
            try:
                found.append((place, read_manifest(place)))
            except (IndexCorrupt, IndexOutdated) as exc:
                found.append((place, exc.message))
    return found


def check_index(path: Path, manifest: IndexManifest) -> None:
    """Check that this medlive can search the index, except for its encoder. Raises as `open_index` does."""
    check_sizes(path, manifest)
    _lexical_side(path, manifest, open_store(path, manifest))
    for entry in manifest.dense:
        _open_vectors(path, manifest, entry)


def _lexical_side(
    path: Path, manifest: IndexManifest, store: PassageStore
) -> LexicalIndex:
    current = lexical.parameters()
    if manifest.parameters != current:
        changed = dict(manifest.parameters.items() - current.items())
        libraries = f"{manifest.libraries}, now {lexical.libraries()}"
        raise IndexOutdated(
            f"{path} was built with other parameters ({changed}; libraries {libraries})",
        )
    return LexicalIndex(path / manifest.data / LEXICAL, store)


def _dense_side(
    path: Path,
    manifest: IndexManifest,
    entry: DenseEntry,
    encoders: Mapping[str, Encoder],
    settings: EncoderSettings,
) -> DenseSide:
    encoder = encoders.get(entry.encoder.name)
    if encoder is None:
        encoder = open_named_encoder(path, entry.encoder, settings)
    if encoder.identity.digest != entry.encoder.digest:
        raise IndexOutdated(
            f"{path / MANIFEST}: its vectors were made by encoder {entry.encoder.name} from"
            f" {entry.encoder.where} ({entry.encoder.digest}), and the one at hand is"
            f" {encoder.identity.name} ({encoder.identity.digest})",
            hint="use that encoder, or embed with this one: medlive evidence build CORPUS... --encoder NAME",
        )
    return DenseSide(
        encoder=encoder,
        index=_open_vectors(path, manifest, entry),
        ordinals=ordinals_of(path, manifest, entry),
        weights={weight.language: weight.weight for weight in entry.weights},
    )


def _measured_reranker(
    path: Path, entry: RerankerEntry, settings: EncoderSettings
) -> Reranker | None:
    """Open the configured reranker if it is the one that was measured; None where none, or another, is configured."""
    if settings.reranker != entry.where:
        return None
    reranker = open_reranker(entry.where, settings=settings)
    if reranker.identity.digest != entry.digest:
        raise IndexOutdated(
            f"{path / MANIFEST}: reranker {entry.where} was measured as {entry.digest}, and the one at hand is"
            f" {reranker.identity.digest}",
            hint="measure it: medlive evidence build CORPUS..., or leave out [evidence] reranker",
        )
    return reranker


def _open_vectors(
    path: Path, manifest: IndexManifest, entry: DenseEntry
) -> "DenseIndex":
    from medlive.evidence.dense import DenseIndex

    return DenseIndex.open(path / manifest.data / entry.folder, entry.part)


def ordinals_of(path: Path, manifest: IndexManifest, entry: DenseEntry) -> Ordinals:
    """Return which passage each vector of an encoder is of. Raises IndexCorrupt."""
    place = path / manifest.data / entry.folder / ORDINALS
    try:
        ordinals: Ordinals = np.load(place, allow_pickle=False)
        whole = ordinals.shape == (entry.part.count,) and ordinals.dtype == np.int64
        if not whole or ordinals.min() < 0 or ordinals.max() >= manifest.passages:
            raise ValueError(f"expected {entry.part.count} numbers of passages")
    except (OSError, ValueError) as exc:
        raise IndexCorrupt(f"{place} cannot be read: {exc}") from exc
    return ordinals


def open_named_encoder(
    path: Path, entry: EncoderEntry, settings: EncoderSettings
) -> Encoder:
    """Open the encoder that an index names. Raises EvidenceUnavailable, MissingExtra or IndexCorrupt."""
    try:
        return open_encoder(entry.where, settings=settings, known=entry)
    except MedliveError as exc:
        way = "or do without it: --retriever bm25 to search, --encoder none to build"
        # The index, not the caller, names the missing encoder.
        kind = EvidenceUnavailable if type(exc) is UsageError else type(exc)
        raise kind(
            f"the index at {path} was built with encoder {entry.name}, which cannot be opened: {exc.message}",
            hint=f"{exc.hint}; {way}" if exc.hint else way,
        ) from exc


def _search_digest(
    manifest: IndexManifest, name: RetrieverName, reranker: Reranker | None
) -> str:
    """Return the index's digest, or another one if it is searched in another way than it was built for.

    Verdicts record it as the evidence that they saw."""
    if name == manifest.retriever and reranker is None:
        return manifest.index_digest
    reread = reranker.identity.digest if reranker is not None else None
    return digest_json(
        {"index": manifest.index_digest, "retriever": name, "reranker": reread}
    )


def _dense_record(
    manifest: IndexManifest, name: RetrieverName, reranker: Reranker | None
) -> dict[str, Any] | None:
    """Return what verdicts record of the dense side and the reranker; None for words alone."""
    record: dict[str, Any] = {}
    if name != "bm25" and manifest.dense:
        fields = {"encoder", "encoder_digest", "kind", "parameters", "recall"}
        record["sides"] = [
            entry.part.model_dump(mode="json", include=fields)
            | {"weights": {w.language: w.weight for w in entry.weights}}
            for entry in manifest.dense
        ]
    if name == "hybrid":
        record["fusion"] = {"rrf_k": RRF_K, "depth": DEPTH, "joint": JOINT}
    if reranker is not None:
        record["reranker"] = asdict(reranker.identity)
    return record or None


def open_store(path: Path, manifest: IndexManifest) -> PassageStore:
    """Open the passages of an index. Raises IndexCorrupt."""
    try:
        return PassageStore(path / manifest.data)
    except (OSError, ValueError, TypeError, IndexCorrupt) as exc:
        raise IndexCorrupt(f"the passages of {path} cannot be read: {exc}") from exc


def check_digests(path: Path, manifest: IndexManifest, name: str | None = None) -> None:
    """Raise IndexCorrupt if a file of the index, or the one of that name, does not have its digest."""
    for entry in manifest.files:
        if name not in (None, entry.path):
            continue
        place = _place(path, manifest, entry.path)
        try:
            digest = digest_file(place)
        except OSError as exc:
            raise IndexCorrupt(f"{place} cannot be read: {exc.strerror}") from exc
        if digest != entry.digest:
            raise IndexCorrupt(f"{place} has {digest}, expected {entry.digest}")


def _place(path: Path, manifest: IndexManifest, name: str) -> Path:
    """Return where a file of the index lies. Raises IndexCorrupt if the manifest names one elsewhere."""
    try:
        return path_below(path / manifest.data, name)
    except UnsafePath as exc:
        raise IndexCorrupt(f"the manifest of {path}: {exc.message}") from exc


def check_sizes(path: Path, manifest: IndexManifest) -> None:
    """Raise IndexCorrupt if a file of the index is missing or has another size."""
    if not manifest.data.startswith(DATA) or Path(manifest.data).name != manifest.data:
        raise IndexCorrupt(
            f"the manifest of {path} names {manifest.data!r} as its data"
        )
    for entry in manifest.files:
        place = _place(path, manifest, entry.path)
        size = place.stat().st_size if place.is_file() else None
        if size is None:
            raise IndexCorrupt(f"{place} is missing")
        if size != entry.size:
            raise IndexCorrupt(f"{place} has {size} bytes, expected {entry.size}")
