"""Nearest passages by inner product of vectors, with FAISS: build, tune and search a dense index.

Kinds, for vectors of dimension d (`DenseKind`):

- `flat`: every vector in single precision; exact; 4d bytes a passage.
- `hnsw`: a graph over half-precision vectors; 2d + 272 bytes; the fastest for one query, the slowest to build.
- `ivf_flat`: half-precision vectors in lists by cell; 2d bytes.
- `ivf_sq8`: 8 bits a dimension in lists, candidates scored again with half-precision vectors; 3d bytes.
- `ivf_pq`: 4 bits for every two dimensions, candidates scored again; d/4 + 2d bytes.

An index is one file, made in memory from the stored vectors (`vectors.VectorStore`) and memory-mapped where FAISS
can. FAISS comes with `medlive[medcpt]`.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, IndexCorrupt, MissingExtra, UsageError
from medlive.evidence.files import whole_file
from medlive.evidence.manifest import (
    HINT,
    DenseKind,
    DenseParameters,
    DensePart,
    DenseRecall,
)
from medlive.evidence.vectors import Matrix, Ordinals, StoredVectors

try:
    import faiss
except ModuleNotFoundError as exc:
    raise MissingExtra(
        "searching by meaning needs faiss-cpu", hint="install medlive[medcpt]"
    ) from exc

INDEX = "index.faiss"
FLAT_UP_TO = 50_000
"""Passages. One query over a million × 768 takes flat 336-400 ms on two cores: 17-20 ms over so many."""
SQ8_UP_TO = 8_000_000
"""Passages. Beyond, lists of 768 bytes a passage no longer fit the memory of a common machine."""
LEAST = 40
"""Passages for a kind other than flat, and queries to tune on and measure."""
QUERIES = 256
"""Queries that parameters are tuned on, and again as many that the recall is measured on."""
TRAINING = 200_000
"""Vectors that cells are made from, at most."""
_SPECIFICATIONS = {
    DenseKind.FLAT: "Flat",
    DenseKind.HNSW: "HNSW{links},SQfp16",
    DenseKind.IVF_FLAT: "IVF{nlist},SQfp16",
    DenseKind.IVF_SQ8: "IVF{nlist},SQ8,Refine(SQfp16)",
    DenseKind.IVF_PQ: "IVF{nlist},PQ{sub_quantisers}x4fs,Refine(SQfp16)",
}
"""For `faiss.index_factory`."""
_PER_CELL = 40
_ROUNDS = 10
_LINKS = 32
_EF_CONSTRUCTION = 80
_SEED = 20230101
_BLOCK = 32_768
_FEW = 1_000
_COPIED = 1 << 22
_STEPS = tuple(sorted({round(2 ** (half / 2)) for half in range(34)}))
_MARGIN = 0.01
"""Above the target on the queries that are tuned on: about one standard error of a mean of 256 recalls."""
_REFINES: dict[DenseKind, tuple[int, ...]] = {
    DenseKind.IVF_SQ8: (1, 2, 4),
    DenseKind.IVF_PQ: (4, 8, 16, 32, 64),
}
_CODE_BYTES = {DenseKind.IVF_FLAT: 2.0, DenseKind.IVF_SQ8: 1.0, DenseKind.IVF_PQ: 0.25}
_EF = (16, 4096)
"""The least and the most candidates that HNSW is tried with."""
_SENTENCE = re.compile(r"\s*.{20,300}?(?:[.!?](?=\s|$)|[。！？])", re.DOTALL)
"""At least some words long, so that a heading or an abbreviation is no sentence."""


class DenseIndex:
    """A dense index, opened for searching; safe to share between threads."""

    def __init__(self, index: Any, part: DensePart) -> None:
        self.part = part
        self._index = index

    @classmethod
    def open(cls, folder: Path, part: DensePart) -> "DenseIndex":
        """The index of `folder` that `part` describes. Raises IndexCorrupt if it is not that."""
        try:
            index = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as exc:
            cause = str(exc).strip().splitlines()[-1]
            raise IndexCorrupt(
                f"the dense index at {folder}, written by FAISS {part.faiss}, cannot be read by FAISS"
                f" {faiss.__version__}: {cause}",
                hint=HINT,
            ) from exc
        if (index.ntotal, index.d) != (part.count, part.dimension):
            raise IndexCorrupt(
                f"{folder / INDEX} contains {index.ntotal} vectors of dimension {index.d},"
                f" expected {part.count} of {part.dimension}",
                hint=HINT,
            )
        return cls(index, part)

    def search(
        self, queries: Matrix, k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[Matrix, Ordinals]:
        """The k nearest passages to each query; all queries at once cost far less than one by one.

        Args:
            queries: float32 of shape (n, dimension).
            k: At least 1.
            allowed: One truth value an ordinal, the passages that may be found.

        Returns:
            Scores and ordinals, each of shape (n, k), best first; ordinal -1 (and score -inf) where fewer than k
            were found.

        Raises:
            EvidenceUnavailable: for queries of another dimension or not finite.
        """
        if queries.ndim != 2 or queries.shape[1] != self.part.dimension:
            raise EvidenceUnavailable(
                f"queries have shape {queries.shape}, expected dimension {self.part.dimension}",
                hint=f"use the encoder that made the index: {self.part.encoder}",
            )
        if not np.isfinite(queries).all():
            raise EvidenceUnavailable(
                f"encoder {self.part.encoder} returned a query vector that is not finite"
            )
        tuned = self.part.parameters
        # The tuned candidates are a multiple of the tuned k: a smaller k must not shrink them.
        wide = min(max(k, self.part.recall.k), self.part.count)
        effort, refine = tuned.nprobe or tuned.ef_search or 1, tuned.refine or 1
        scores, ordinals = _search(
            self._index, self.part.kind, queries, wide, effort, refine, allowed
        )
        missing = ((0, 0), (0, max(k - wide, 0)))
        scores = np.pad(scores, missing)[:, :k]
        ordinals = np.pad(ordinals, missing, constant_values=-1)[:, :k]
        scores[ordinals < 0] = -np.inf
        return scores, ordinals


def _search(
    index: Any,
    kind: DenseKind,
    queries: Matrix,
    k: int,
    effort: int,
    refine: int,
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[Matrix, Ordinals]:
    """Search with `effort` as nprobe or efSearch, and `refine` as in `DenseParameters`."""
    count, selector = index.ntotal, None
    if allowed is not None and not allowed.all():
        count = int(np.count_nonzero(allowed))
        selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    # What is allowed lies that much thinner, so that its nearest lie in so many more cells.
    wider = int(np.ceil(effort * index.ntotal / max(count, 1)))
    if kind.inverted:
        nlist = faiss.extract_index_ivf(index).nlist
        parameters = faiss.SearchParametersIVF(nprobe=min(wider, nlist), sel=selector)
    elif kind is DenseKind.HNSW and count <= _FEW < index.ntotal:
        # A graph does not lead to a few allowed vectors: look at every one.
        index, parameters = index.storage, faiss.SearchParameters(sel=selector)
    elif kind is DenseKind.HNSW:
        parameters = faiss.SearchParametersHNSW(
            efSearch=min(wider, index.ntotal), sel=selector
        )
    else:
        parameters = faiss.SearchParameters(sel=selector)
    if kind.refined:
        parameters = faiss.IndexRefineSearchParameters(
            k_factor=refine, base_index_params=parameters
        )
    scores, ordinals = index.search(
        np.ascontiguousarray(queries, dtype=np.float32), k, params=parameters
    )
    return scores, ordinals


def choose_kind(count: int) -> DenseKind:
    """Choose the kind for a number of passages: exact while fast, 8 bits while they fit, then product codes."""
    if count <= FLAT_UP_TO:
        return DenseKind.FLAT
    return DenseKind.IVF_SQ8 if count <= SQ8_UP_TO else DenseKind.IVF_PQ


def build_dense(
    source: StoredVectors,
    out: Path,
    *,
    kind: DenseKind,
    queries: Matrix | None = None,
    target: float = 0.95,
    k: int = 32,
    progress: Callable[[int], None] = lambda _: None,
) -> DensePart:
    """Build the index of all vectors of the source, and return its description.

    `queries` are twice `QUERIES`, half to tune and half to measure on, needed for kinds other than flat. The
    search is tuned to a recall@k of `target` against exact search; the description gives the recall that it
    reached.

    Raises:
        DiskFull: if the file does not fit.
        UsageError: if there are too few passages for the kind.
    """
    started = time.monotonic()
    if kind is not DenseKind.FLAT and len(source) < LEAST:
        raise UsageError(
            f"{len(source)} passages are too few for an index of kind {kind.value}: at least {LEAST} are needed",
            hint=f"build one of kind {DenseKind.FLAT.value}",
        )
    parameters = _fixed_parameters(kind, len(source), source.encoder.dimension)
    index = _empty_index(source, kind, parameters)
    for first, block in _blocks(source):
        index.add(block)
        progress(first + len(block))
    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / INDEX) as handle:
        faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write, _COPIED))
    recalled = DenseRecall(
        k=k, value=1.0, queries=0, sampled="exact", target=target, tuned_on=0
    )
    if queries is not None and kind is not DenseKind.FLAT:
        parameters, recalled = _tuned(
            source, index, kind, parameters, queries[: 2 * QUERIES], target, k
        )
    return DensePart(
        kind=kind,
        parameters=parameters,
        metric="inner_product",
        dimension=source.encoder.dimension,
        encoder=source.encoder.name,
        encoder_digest=source.encoder.digest,
        count=len(source),
        keys_digest=source.keys_digest,
        recall=recalled,
        build_seconds=round(time.monotonic() - started, 3),
        faiss=faiss.__version__,
    )


def _fixed_parameters(kind: DenseKind, count: int, dimension: int) -> DenseParameters:
    """Return the parameters that depend on size alone."""
    if kind is DenseKind.FLAT:
        return DenseParameters(storage="float32")
    if kind is DenseKind.HNSW:
        return DenseParameters(
            storage="float16", links=_LINKS, ef_construction=_EF_CONSTRUCTION
        )
    # Making cells, and finding each vector's cell, costs in proportion to their number: this is the least of the
    # field's rule, two to eight times the root of the count. A cell needs vectors to be made from.
    nlist = max(1, min(round(2 * count**0.5), count // _PER_CELL))
    trained_on = min(count, max(nlist * _PER_CELL, 10_000), TRAINING)
    if kind is DenseKind.IVF_PQ:
        # Two dimensions to a code; an odd dimension, or one of which FAISS's blocks do not divide, takes one each.
        codes = dimension // 2 if dimension % 4 == 0 else dimension
        return DenseParameters(
            storage="pq4", nlist=nlist, trained_on=trained_on, sub_quantisers=codes
        )
    storage = "sq8" if kind is DenseKind.IVF_SQ8 else "float16"
    return DenseParameters.model_validate(
        {"storage": storage, "nlist": nlist, "trained_on": trained_on}
    )


def _empty_index(
    source: StoredVectors, kind: DenseKind, parameters: DenseParameters
) -> Any:
    """Return the trained index without vectors."""
    specification = _SPECIFICATIONS[kind].format(**parameters.model_dump())
    index = faiss.index_factory(
        source.encoder.dimension, specification, faiss.METRIC_INNER_PRODUCT
    )
    if kind is DenseKind.HNSW:
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    if kind.inverted:
        cells = faiss.extract_index_ivf(index)
        cells.cp.niter, cells.cp.seed = _ROUNDS, _SEED
        # The vectors at hand are what there is: FAISS would print a warning about small corpora.
        cells.cp.min_points_per_centroid = 1
        # Half-precision vectors are kept as they are, so that scores are those of the vectors and not of sums.
        cells.by_residual = kind is not DenseKind.IVF_FLAT
    if not index.is_trained:
        count = len(source)
        sample = np.random.default_rng(_SEED).choice(
            count, parameters.trained_on or min(count, 1000), replace=False
        )
        threads = faiss.omp_get_max_threads()
        # Hundreds of small codebooks: with several threads most of the time goes into waiting for each other.
        faiss.omp_set_num_threads(1 if kind is DenseKind.IVF_PQ else threads)
        try:
            index.train(source.rows(np.sort(sample)))
        finally:
            faiss.omp_set_num_threads(threads)
    return index


def _blocks(source: StoredVectors) -> Iterator[tuple[int, Matrix]]:
    """The vectors by blocks, each with its first ordinal."""
    for first in range(0, len(source), _BLOCK):
        yield first, source.rows(np.arange(first, min(first + _BLOCK, len(source))))


def exact(source: StoredVectors, queries: Matrix, k: int) -> Ordinals:
    """The k nearest of all vectors to each query, by looking at every one; memory: one block."""
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ordinals = np.full((len(queries), k), -1, dtype=np.int64)
    for first, block in _blocks(source):
        best, at = faiss.knn(
            queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT
        )
        both = np.concatenate([scores, best], axis=1)
        places = np.concatenate([ordinals, at + first], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :k]
        scores, ordinals = (
            np.take_along_axis(both, order, 1),
            np.take_along_axis(places, order, 1),
        )
    return ordinals


def recall(found: Ordinals, expected: Ordinals) -> float:
    """The mean share of the expected ordinals of a row that are found in it; -1 stands for none."""
    shares = [
        len(np.intersect1d(got[got >= 0], want[want >= 0]))
        / max(int((want >= 0).sum()), 1)
        for got, want in zip(found, expected, strict=True)
    ]
    return float(np.mean(shares))


def sample_ordinals(count: int, size: int) -> Ordinals:
    """Ordinals drawn evenly, each once; the same at each call."""
    return np.random.default_rng(_SEED + 1).permutation(count)[:size].astype(np.int64)


def as_query(title: str, text: str) -> str:
    """What somebody might ask or claim whom this passage answers: its first sentence, or its title without one.

    For queries to tune and measure on where real ones are few: a query lies farther from the passages than they
    lie from each other, and an index tuned on passages finds fewer of its neighbours.
    """
    first = _SENTENCE.match(text)
    return (first[0] if first else title).strip() or title


def _tuned(
    source: StoredVectors,
    index: Any,
    kind: DenseKind,
    parameters: DenseParameters,
    queries: Matrix,
    target: float,
    k: int,
) -> tuple[DenseParameters, DenseRecall]:
    """Tune the search on every second query, and measure its recall on the others."""
    k = min(k, len(source))
    expected = exact(source, queries, k)

    def recall_at(half: int, refine: int, effort: int) -> float:
        found = _search(index, kind, queries[half::2], k, effort, refine)[1]
        return recall(found, expected[half::2])

    effort, refine = _cheapest(
        index, kind, parameters.nlist, k, partial(recall_at, 0), target
    )
    tuned = {"nprobe": effort} if kind.inverted else {"ef_search": effort}
    if kind.refined:
        tuned["refine"] = refine
    measured = DenseRecall(
        k=k,
        value=round(recall_at(1, refine, effort), 4),
        queries=len(queries[1::2]),
        sampled="given",
        target=target,
        tuned_on=len(queries[0::2]),
    )
    return parameters.model_copy(update=tuned), measured


def _cheapest(
    index: Any,
    kind: DenseKind,
    nlist: int | None,
    k: int,
    recall_at: Callable[[int, int], float],
    target: float,
) -> tuple[int, int]:
    """The cheapest (effort, refine) that reaches the target with a margin; if none does, the one of best recall.

    Cost is counted, not timed, so that a build gives the same index on a busy machine: bytes read from lists and
    for scoring again. More effort finds no less, so that each refinement's least effort is found by halving.
    """
    least, limit = _EF if nlist is None else (1, nlist)
    steps = [step for step in _STEPS if least <= step < limit] + [limit]
    goal = min(target + _MARGIN, 1.0)
    trials: list[tuple[float, int, int]] = []
    for refine in _REFINES.get(kind, (1,)):
        effort = steps[bisect_left(steps[:-1], goal, key=partial(recall_at, refine))]
        reached = min(recall_at(refine, effort), goal)
        listed = (
            effort / (nlist or 1) * index.ntotal * index.d * _CODE_BYTES.get(kind, 1.0)
        )
        # A candidate's vector is read from a place of its own, at about four times the cost of a list's next.
        cost = listed + refine * k * index.d * 2 * 4
        trials.append((reached if reached < goal else 1 + 1 / cost, effort, refine))
    _, effort, refine = max(trials)
    return effort, refine
