"""Open an index, and check its manifest, files, text analysis and the encoder of its vectors."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from medlive.errors import (
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    MedliveError,
    UsageError,
)
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.encoders.opening import open_encoder, open_reranker
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.index_folder import VECTORS, IndexFolder
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
from medlive.evidence.vectors import VectorStore, folder_of, keys_digest, keys_of
from medlive.evidence.verification import Verification
from medlive.integrity.digest import digest_json


def open_index(
    path: Path,
    *,
    settings: EncoderSettings | None = None,
    encoders: Mapping[str, Encoder] = {},
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
    models = settings or EncoderSettings(home=path)

    def open_as_built(index: IndexFolder) -> IndexRetriever:
        name = retriever or index.manifest.retriever
        if name != "bm25" and not index.manifest.dense:
            raise UsageError(
                f"{path} has no vectors, so that only bm25 searches it: {index.manifest.reason}",
                hint="build it with an encoder: medlive evidence build CORPUS... --encoder NAME",
            )
        index.check_sizes()
        store = index.open_store()
        sides = []
        for entry in index.manifest.dense if name != "bm25" else ():
            sides.append(_dense_side(index, entry, encoders, models))
        reads_again = reranker or _measured_reranker(index, models)
        return IndexRetriever(
            store,
            _identity(index.manifest, name, reads_again),
            lexical=None if name == "dense" else index.open_words(store),
            dense=sides,
            reranker=reads_again,
            verification=Verification(lambda: _verify_in_use(index))
            if verify
            else None,
        )

    index = IndexFolder(path, read_manifest(path))
    try:
        return open_as_built(index)
    except IndexCorrupt:
        current = IndexFolder(path, read_manifest(path))
        if current.data == index.data:
            raise
        return open_as_built(current)  # a build replaced the index meanwhile


def _verify_in_use(index: IndexFolder) -> None:
    """Compare every file of an open index with its digest, unless a newer build has replaced it.

    The files of an index that was replaced are gone from the folder; whoever has it open searches it to the end.
    """
    try:
        index.check_digests()
    except IndexCorrupt:
        if read_manifest(index.path).data == index.manifest.data:
            raise


def verify_index(path: Path) -> IndexManifest:
    """Compare every file of the index and the stored embeddings with their digests; return the manifest.

    Raises as `open_index` does, and IndexCorrupt for the first file that differs.
    """
    index = IndexFolder(path, read_manifest(path))
    index.check_sizes()
    index.check_digests()
    store = index.open_store()
    for entry in index.manifest.dense:
        passages = (store.get(int(n)) for n in index.read_ordinals(entry))
        digest = keys_digest(keys_of(passages))
        if digest != entry.part.keys_digest:
            raise IndexCorrupt(
                f"the vectors of {path} are of other passages ({entry.part.keys_digest}) than those"
                f" beside them ({digest})",
            )
        if folder_of(path / VECTORS, entry.encoder.digest).is_dir():
            VectorStore(path / VECTORS, entry.encoder).verify()
    return index.manifest


class ListedIndex(NamedTuple):
    """A folder with an index in it, which may be unreadable."""

    path: Path
    manifest: IndexManifest | None
    problem: str | None  # Why it cannot be read


def list_indexes(folder: Path) -> Iterator[ListedIndex]:
    """Yield the indexes in `folder` and its subfolders by path."""
    for place in [folder, *sorted(f for f in folder.glob("*") if f.is_dir())]:
        with suppress(IndexMissing):
            try:
                yield ListedIndex(place, read_manifest(place), None)
            except (IndexCorrupt, IndexOutdated) as exc:
                yield ListedIndex(place, None, exc.message)


def _dense_side(
    index: IndexFolder,
    entry: DenseEntry,
    encoders: Mapping[str, Encoder],
    settings: EncoderSettings,
) -> DenseSide:
    encoder = encoders.get(entry.encoder.name)
    if encoder is None:
        encoder = open_named_encoder(index.path, entry.encoder, settings)
    if encoder.identity.digest != entry.encoder.digest:
        raise IndexOutdated(
            f"{index.path / MANIFEST}: its vectors were made by encoder {entry.encoder.name} from"
            f" {entry.encoder.where} ({entry.encoder.digest}), and the one at hand is"
            f" {encoder.identity.name} ({encoder.identity.digest})",
            hint="use that encoder, or embed with this one: medlive evidence build CORPUS... --encoder NAME",
        )
    return DenseSide(
        encoder=encoder,
        index=index.open_vectors(entry),
        ordinals=index.read_ordinals(entry),
        weights={weight.language: weight.weight for weight in entry.weights},
    )


def _measured_reranker(
    index: IndexFolder, settings: EncoderSettings
) -> Reranker | None:
    """Open the configured reranker if it was measured to help; None where none, or another, is configured."""
    entry: RerankerEntry | None = index.manifest.reranker
    if entry is None or not entry.helps or settings.reranker != entry.where:
        return None
    reranker = open_reranker(entry.where, settings=settings)
    if reranker.identity.digest != entry.digest:
        raise IndexOutdated(
            f"{index.path / MANIFEST}: reranker {entry.where} was measured as {entry.digest}, and the one at hand is"
            f" {reranker.identity.digest}",
            hint="measure it: medlive evidence build CORPUS..., or leave out [evidence] reranker",
        )
    return reranker


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


def _identity(
    manifest: IndexManifest, name: RetrieverName, reranker: Reranker | None
) -> IndexIdentity:
    """Return what verdicts record as the evidence that they saw.

    An index that is searched in another way than it was built for has another digest there.
    """
    record: dict[str, Any] = {}
    digest = manifest.index_digest
    if name != "bm25":
        record["sides"] = list(map(_side_record, manifest.dense))
    if name == "hybrid":
        record["fusion"] = {"rrf_k": RRF_K, "depth": DEPTH, "joint": JOINT}
    if reranker is not None:
        record["reranker"] = asdict(reranker.identity)
    if name != manifest.retriever or reranker is not None:
        reread = reranker.identity.digest if reranker is not None else None
        searched = {"index": digest, "retriever": name, "reranker": reread}
        digest = digest_json(searched)
    return IndexIdentity(
        retriever=name,
        index_digest=digest,
        corpora=manifest.corpus_digests,
        passages=manifest.passages,
        dense=record or None,
    )


def _side_record(entry: DenseEntry) -> dict[str, Any]:
    fields = {"encoder", "encoder_digest", "kind", "parameters", "recall"}
    weights = {weight.language: weight.weight for weight in entry.weights}
    return entry.part.model_dump(mode="json", include=fields) | {"weights": weights}
