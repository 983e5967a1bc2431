"""An evidence index's `manifest.json`: its corpora, encoders and files; `read_manifest` reads and checks it."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from medlive.errors import (
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    first_fault,
)
from medlive.integrity.digest import digest_json
from medlive.integrity.folder import TooLong, read_small

from .corpora.model import Fetched
from .encoders.model import EncoderIdentity

MANIFEST = "manifest.json"
FORMAT_VERSION = 4


DenseKind = Literal["flat", "ivf_pq"]
"""How vectors are stored: `flat` whole, for exact search; `ivf_pq` compressed."""


class CorpusEntry(BaseModel, frozen=True):
    """A corpus as it was when it was read."""

    name: str
    kind: str  # Of its reader: `Reader.kind`
    digest: str  # Of all passages that were read, whatever the order of the files
    licence: str
    documents: int
    passages: int  # Passages in the index
    repeated: int  # Passages left out because the corpus holds the same text again, or prints it under many titles
    # What else was left out: see `ReadLog.left_out`; None: read by a version that counted it in parts
    left_out: int | None = None
    problems: int  # Members that could not be read
    built_at: datetime
    # None for a corpus that `evidence fetch` did not fetch
    fetched: Fetched | None = None


class DenseRecall(BaseModel, frozen=True, extra="forbid"):
    """How many of the exact k nearest passages an index finds, on queries that were not used to tune it."""

    k: int
    value: float  # Mean share, 0 to 1
    queries: int  # 0: the kind is exact, and nothing was measured
    target: float


class DensePart(BaseModel, frozen=True):
    """A file of vectors, and how they are arranged."""

    kind: DenseKind
    parameters: dict[str, int] | None
    """What decides a compressed index's results beside its vectors; None for the flat kind. `nlist`: cells (clusters
    of vectors); `trained_on`: vectors that the cells were made from; `sub_quantisers`: 4-bit codes a vector;
    `refine`: candidates that are scored again, as a multiple of k; `nprobe`: cells searched for the target recall."""
    dimension: int
    count: int
    keys_digest: str  # Of the passages' keys in the order of their ordinals: see `vectors.keys_digest`
    recall: DenseRecall
    faiss: str  # FAISS's version


class FileEntry(BaseModel, frozen=True, extra="forbid"):
    """A file of the index, by its path within the data folder."""

    path: str
    size: int
    digest: str


class SideWeight(BaseModel, frozen=True, extra="forbid"):
    """The weight of an encoder's ranking against search by words, in one language, measured on known items.

    A known item is a passage of the index that is looked for by its title, or by its first sentence if it has no
    usable title. A ranking's value is the mean reciprocal rank of these passages (0 beyond the tenth).
    """

    language: str
    weight: float  # 0 to 1: value of vectors over words; 0 below `dense.LEAST_SHARE`
    items: int  # Known items; fewer than `dense.LEAST_ITEMS` are not measured, and the weight is 1
    words: float | None = None  # Mean reciprocal rank by words
    vectors: float | None = None  # The same by vectors


class DenseEntry(BaseModel, frozen=True, extra="forbid"):
    """One encoder of an index: which phrases it reads, and its vectors."""

    encoder: EncoderIdentity  # Queries must be encoded by the same
    languages: tuple[str, ...]  # Whose phrases it reads
    reason: str  # Why the index has these encoders
    folder: str  # Of its files, within the data folder
    part: DensePart
    weights: tuple[SideWeight, ...]  # One a language


class RerankerEntry(BaseModel, frozen=True, extra="forbid"):
    """A cross-encoder, and whether it ranks the index's known items better (see `SideWeight`)."""

    where: str  # How it is opened again: a name or a folder
    digest: str
    items: int
    before: float  # Mean reciprocal rank in the order that it is given
    after: float  # The same in its own order

    @property
    def helps(self) -> bool:
        """Whether it was measured to find more."""
        return self.after > self.before


class IndexManifest(BaseModel, frozen=True, extra="forbid"):
    """The whole account of an index; two indexes of the same corpora and parameters share `index_digest`."""

    format_version: int = FORMAT_VERSION
    retriever: Literal["bm25", "hybrid"]
    """What searches it unless another is asked for: "hybrid" with vectors, "bm25" without."""
    reason: str  # Why this retriever, in a sentence
    parameters: dict[str, float | int | str]  # Of the search by words
    libraries: dict[str, str]  # Those that cut and search words → version
    corpora: tuple[CorpusEntry, ...]  # By name
    passages: int
    languages: tuple[str, ...]  # Of its passages (ISO 639)
    dense: tuple[DenseEntry, ...] = ()  # One an encoder
    reranker: RerankerEntry | None = None  # The one that was configured at the build
    index_digest: str
    data: str  # The folder of the files, beside the manifest
    files: tuple[FileEntry, ...]
    built_at: datetime

    @property
    def corpus_digests(self) -> dict[str, str]:
        """Corpus name → corpus digest."""
        return {entry.name: entry.digest for entry in self.corpora}

    @property
    def fetched_digests(self) -> dict[str, str]:
        """Corpus name → the digest of its files, of those that were fetched."""
        return {
            entry.name: entry.fetched.digest for entry in self.corpora if entry.fetched
        }

    def describe(self, retriever: str | None = None) -> str:
        """Describe in a line what searches the index, and why if no vectors do; `retriever` is the configured one."""
        if not self.dense:
            return f"bm25 without vectors: {self.reason}"
        if retriever == "bm25":
            return "bm25 without vectors, as asked for"
        sides = []
        for entry in self.dense:
            recall = entry.part.recall
            measured = f"{recall.queries} queries" if recall.queries else "exact"
            counts = [
                f"{part.language} counts {part.weight:g}" for part in entry.weights
            ]
            sides.append(
                f"{entry.encoder.name}, {entry.part.kind}, recall@{recall.k} {recall.value:.3f} ({measured});"
                f" {', '.join(counts)}"
            )
        return f"{retriever or self.retriever}: {'; '.join(sides)}"


def index_digest(
    parameters: Mapping[str, float | int | str],
    corpora: Mapping[str, str],
    dense: Sequence[DenseEntry],
) -> str:
    """Return the identity of an index: what was indexed and how, without the engines' own files.

    `corpora` is corpus name → corpus digest; `parameters` are those of the search by words.
    """
    known: dict[str, Any] = {"parameters": dict(parameters), "corpora": dict(corpora)}
    if dense:
        known["dense"] = []
    for entry in dense:
        side = {
            "encoder": entry.encoder.digest,
            "languages": entry.languages,
            "kind": entry.part.kind,
            "parameters": entry.part.parameters,
            "weights": [[w.language, w.weight] for w in entry.weights],
        }
        known["dense"].append(side)
    return digest_json(known)


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest of the index in `folder`.

    Raises IndexMissing when there is none, IndexOutdated for one of another format, IndexCorrupt for anything
    else that is no manifest.
    """
    place = folder / MANIFEST
    try:
        text = read_small(place)
    except FileNotFoundError as exc:
        raise IndexMissing(f"there is no evidence index at {folder}") from exc
    except (OSError, TooLong) as exc:
        raise IndexCorrupt(f"{place} cannot be read: {exc}") from exc
    stated = re.search(rb'"format_version"\s*:\s*(\d{1,9})', text)
    version = int(stated[1]) if stated else FORMAT_VERSION
    if version != FORMAT_VERSION:
        raise IndexOutdated(
            f"{place} has format {version}, this medlive reads format {FORMAT_VERSION}"
        )
    try:
        manifest = IndexManifest.model_validate_json(text)
    except ValidationError as exc:
        raise IndexCorrupt(
            f"{place} is not a valid index manifest: {first_fault(exc)}"
        ) from exc
    expected = index_digest(
        manifest.parameters,
        manifest.corpus_digests,
        manifest.dense,
    )
    if manifest.index_digest != expected:
        raise IndexCorrupt(
            f"{place} gives the index digest {manifest.index_digest}, its corpora and parameters give {expected}",
        )
    return manifest


def describe_retriever(folder: Path, retriever: str | None = None) -> str:
    """Return in a line what searches the index in `folder`; `retriever` is the configured one, None for its own."""
    try:
        manifest = read_manifest(folder)
    except EvidenceUnavailable as exc:
        return f"none: {exc.message}"
    built = f"index {folder.name} of {manifest.built_at:%Y-%m-%d}"
    return f"{built}, {manifest.describe(retriever)}"
