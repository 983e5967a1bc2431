"""Nearest passages by inner product of vectors, with FAISS: what a dense index is, and how it is searched.

Kinds, for vectors of dimension d (`DenseKind`):

- `flat`: every vector in single precision; exact; 4d bytes a passage.
- `hnsw`: a graph over half-precision vectors; 2d + 256 bytes; the fastest for one query, the slowest to build.
- `ivf_flat`: half-precision vectors in lists by cell; 2d bytes.
- `ivf_sq8`: 8 bits a dimension in lists, candidates scored again with half-precision vectors; 3d bytes, of which
  2d are read only for candidates.
- `ivf_pq`: 4 bits for every two dimensions, candidates scored again; d/4 + 2d bytes, of which d/4 are in memory.

All else is memory-mapped. A kind is chosen by `choose_kind` in `dense.build`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, IndexCorrupt, IndexOutdated, MissingExtra
from medlive.evidence.dense.model import DenseKind, DensePart, Matrix, Ordinals

try:
    import faiss as faiss
except ModuleNotFoundError as exc:
    raise MissingExtra("searching by meaning needs faiss-cpu", hint="install medlive[medcpt]") from exc

INDEX = "index.faiss"
LISTS = "lists.ivfdata"
"""The inverted lists of `ivf_flat` and `ivf_sq8`: little-endian unsigned 64-bit lengths of all lists, then list by
list its codes and its ordinals (64 bits each). `INDEX` then holds the cells only."""
VECTORS = "vectors.faiss"
"""Half-precision vectors by ordinal, for scoring candidates again."""
REBUILD_HINT = "build it again: medlive evidence build CORPUS... (see medlive evidence build --help)"

FEW = 10_000
"""Of so few allowed passages every one is scored: it costs less than looking for them in an index."""


class Searcher:
    """An index in memory or mapped, of any kind."""

    def __init__(self, kind: DenseKind, index: Any, vectors: Any | None) -> None:
        """`vectors` are those of `VECTORS`, for the kinds that score candidates again."""
        self.kind = kind
        self.count: int = index.ntotal
        self.dimension: int = index.d
        self._index = index
        self._vectors = vectors
        self._refined = None if vectors is None else faiss.IndexRefine(index, vectors)

    @classmethod
    def read(cls, folder: Path, kind: DenseKind) -> "Searcher":
        """The index of that folder. Raises RuntimeError, as FAISS does, when a file is no index."""
        index = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC)
        if kind in {DenseKind.IVF_FLAT, DenseKind.IVF_SQ8}:
            _map_inverted_lists(index, folder / LISTS)
        if not kind.refined:
            return cls(kind, index, None)
        return cls(kind, index, faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC))

    def rows(self, ordinals: Ordinals) -> Matrix:
        """The stored vectors of these ordinals; only for kinds other than `ivf_flat`."""
        source = self._index if self._vectors is None else self._vectors
        return np.asarray(source.reconstruct_batch(np.ascontiguousarray(ordinals)), dtype=np.float32)

    def search(
        self, queries: Matrix, k: int, effort: int, refine: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[Matrix, Ordinals]:
        """The k best ordinals a query, -1 where there are none left, and their scores.

        `effort` is nprobe or efSearch; `refine` as in `DenseParameters`. `allowed`: one truth value an ordinal.
        """
        selector, share = None, 1.0
        if allowed is not None:
            count = int(np.count_nonzero(allowed))
            if not count:
                return _empty_result(len(queries), k)
            share = count / self.count
            if share < 1:
                if count <= FEW and self.kind not in {DenseKind.FLAT, DenseKind.IVF_FLAT}:
                    return self._search_exactly(queries, k, np.flatnonzero(allowed))
                # An exact answer over few comes from looking into every list.
                effort = self._index.nlist if count <= FEW and self.kind is DenseKind.IVF_FLAT else effort
                selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        parameters = self._parameters(effort, share, selector)
        if self._refined is None:
            found = self._index.search(queries, k, params=parameters)
        else:
            wide = faiss.IndexRefineSearchParameters(k_factor=refine, base_index_params=parameters)
            found = self._refined.search(queries, k, params=wide)
        return found[0], found[1]

    def _parameters(self, effort: int, share: float, selector: Any | None) -> Any:
        # What is allowed lies `share` times as thick, so that its nearest lie in so many more cells.
        wider = int(np.ceil(effort / share))
        if self.kind.inverted:
            return faiss.SearchParametersIVF(nprobe=min(wider, self._index.nlist), sel=selector)
        if self.kind is DenseKind.HNSW:
            return faiss.SearchParametersHNSW(efSearch=min(wider, self.count), sel=selector)
        return faiss.SearchParameters(sel=selector)

    def _search_exactly(self, queries: Matrix, k: int, ordinals: Ordinals) -> tuple[Matrix, Ordinals]:
        scores, places = _empty_result(len(queries), k)
        count_to_find = min(k, len(ordinals))
        best, at = faiss.knn(queries, self.rows(ordinals), count_to_find, metric=faiss.METRIC_INNER_PRODUCT)
        scores[:, :count_to_find], places[:, :count_to_find] = best, ordinals[at]
        return scores, places


class DenseIndex:
    """A dense index on disk, opened for searching; safe to share between threads."""

    def __init__(self, searcher: Searcher, part: DensePart) -> None:
        self.part = part
        self._searcher = searcher

    @classmethod
    def open(
        cls, folder: Path, part: DensePart, *, keys_digest: str | None = None, encoder_digest: str | None = None
    ) -> "DenseIndex":
        """The index of `folder` that `part` describes.

        `keys_digest` and `encoder_digest` are those of the passages and the encoder it is to be used with.
        Raises IndexOutdated for the index of other passages or another encoder, IndexCorrupt for a file that is
        missing, cut short or not what `part` says.
        """
        if keys_digest is not None and keys_digest != part.keys_digest:
            raise IndexOutdated(
                f"the dense index at {folder} is of other passages ({part.keys_digest}) than the corpora beside it"
                f" ({keys_digest})",
                hint=REBUILD_HINT,
            )
        if encoder_digest is not None and encoder_digest != part.encoder_digest:
            raise IndexOutdated(
                f"the dense index at {folder} was made by encoder {part.encoder} ({part.encoder_digest}), not by"
                f" the one configured ({encoder_digest})",
                hint=f"configure that encoder, or {REBUILD_HINT}",
            )
        for file in part.files:
            place = folder / file.name
            size = place.stat().st_size if place.is_file() else None
            if size != file.size:
                found = "is missing" if size is None else f"has {size} bytes, expected {file.size}"
                raise IndexCorrupt(f"{place} {found}", hint=REBUILD_HINT)
        try:
            searcher = Searcher.read(folder, part.kind)
        except (RuntimeError, AttributeError) as exc:
            cause = str(exc).strip().splitlines()[-1]
            if part.faiss != faiss.__version__:
                raise IndexOutdated(
                    f"the dense index at {folder} was written by FAISS {part.faiss}, this is {faiss.__version__},"
                    f" which does not read it: {cause}",
                    hint=REBUILD_HINT,
                ) from exc
            raise IndexCorrupt(f"the dense index at {folder} cannot be read: {cause}", hint=REBUILD_HINT) from exc
        if (searcher.count, searcher.dimension) != (part.count, part.dimension):
            raise IndexCorrupt(
                f"{folder / INDEX} contains {searcher.count} vectors of dimension {searcher.dimension}, expected"
                f" {part.count} of {part.dimension}",
                hint=REBUILD_HINT,
            )
        return cls(searcher, part)

    def search(self, queries: Matrix, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[Matrix, Ordinals]:
        """The k nearest passages to each query.

        `queries`: float32 of shape (n, dimension); `allowed`: one truth value an ordinal, the passages that may
        be found. Returns scores and ordinals, each of shape (n, k), best first; ordinal -1 (and score -inf) where
        fewer than k were found. All queries at once cost far less than one by one. Raises EvidenceUnavailable for
        queries of another dimension or not finite, ValueError for an `allowed` of another length.
        """
        if queries.ndim != 2 or queries.shape[1] != self.part.dimension:
            raise EvidenceUnavailable(
                f"queries have shape {queries.shape}, expected dimension {self.part.dimension}",
                hint=f"use the encoder that made the index: {self.part.encoder}",
            )
        if not np.isfinite(queries).all():
            raise EvidenceUnavailable(f"encoder {self.part.encoder} returned a query vector that is not finite")
        if allowed is not None and allowed.shape != (self.part.count,):
            raise ValueError(f"expected {self.part.count} truth values, found {allowed.shape}")
        if k < 1:
            raise ValueError(f"k must be positive, found {k}")
        parameters = self.part.parameters
        # The tuned candidates are a multiple of the tuned k: a smaller k must not shrink them.
        count_to_find = min(max(k, self.part.recall.k), self.part.count)
        scores, ordinals = _empty_result(len(queries), max(k, count_to_find))
        if len(queries):
            found = self._searcher.search(
                np.ascontiguousarray(queries, dtype=np.float32),
                count_to_find,
                max(parameters.nprobe or parameters.ef_search or 1, 1),
                parameters.refine or 1,
                allowed,
            )
            scores[:, :count_to_find], ordinals[:, :count_to_find] = found
        scores[ordinals < 0] = -np.inf
        return scores[:, :k], ordinals[:, :k]


def _empty_result(queries: int, k: int) -> tuple[Matrix, Ordinals]:
    return np.full((queries, k), -np.inf, dtype=np.float32), np.full((queries, k), -1, dtype=np.int64)


def _map_inverted_lists(index: Any, place: Path) -> None:
    """Give the index its lists from that file.

    FAISS's own reading of lists beside an index prints a line on standard output whenever the folder was moved.
    """
    size = place.stat().st_size
    lengths = np.fromfile(place, dtype="<u8", count=index.nlist)
    starts = index.nlist * 8 + np.cumsum(lengths) * (index.code_size + 8)
    if len(lengths) != index.nlist or int(starts[-1]) != size:
        raise RuntimeError(f"{place} does not hold {index.nlist} lists of {index.code_size} bytes a vector")
    table = faiss.OnDiskOneListVector()
    for length, end in zip(lengths.tolist(), starts.tolist(), strict=True):
        one = faiss.OnDiskOneList()
        one.size = one.capacity = length
        one.offset = end - length * (index.code_size + 8)
        table.push_back(one)
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(place))
    lists.lists, lists.totsize, lists.read_only = table, size, True
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()
    index.ntotal = int(lengths.sum())
