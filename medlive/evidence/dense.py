"""Nearest passages by inner product of vectors, with FAISS: build and search a dense index.

Kinds, for vectors of dimension d (`DenseKind`):

- `flat`: every vector in single precision; exact; 4d bytes a passage.
- `ivf_pq`: vectors by cells (clusters), 4 bits for every two dimensions, candidates scored again with half-precision
  vectors; d/4 + 2d bytes. Its recall against exact search is measured when it is built (method §7).

An index is one file, made in memory from the stored vectors (`vectors.VectorStore`) and memory-mapped where FAISS
can. FAISS comes with `medlive[dense]`.

`build_dense` writes an index, `DenseIndex` searches it. `measure_weights` and `measure_reranker` measure an encoder's
weight against the words, and whether a reranker helps, on known items: passages that are looked for among all by their
title, or by their first sentence if they have no usable title. An encoder that finds few of them does not know the
language, whatever its name promises, and fusing its results would spoil what words had found.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medlive.errors import IndexCorrupt, MissingExtra

from .encoders.model import Reranker
from .files import whole_file
from .lexical import LexicalIndex
from .manifest import (
    DensePart,
    DenseRecall,
    RerankerEntry,
    SideWeight,
)
from .passage import Passage
from .retriever import DenseSide, IndexRetriever
from .store import PassageStore
from .vectors import Matrix, Ordinals, StoredVectors

try:
    import faiss
except ModuleNotFoundError as exc:
    raise MissingExtra(
        "searching by meaning needs faiss-cpu", hint="install medlive[dense]"
    ) from exc

INDEX = "index.faiss"
FLAT_UP_TO = 50_000
"""Passages up to which an index is flat: on two cores a query then takes 17-20 ms, but 336-400 ms over a million × 768
numbers."""
QUERIES = 256
"""Queries to choose the number of cells on, and as many others to measure the recall on."""
TARGET = 0.95
"""The recall@k against exact search for which enough cells are searched."""
K = 32
"""Neighbours that the recall is measured on."""
TRAINING = 200_000
"""Vectors that cells are made from, at most."""
REFINE = 32
"""Candidates, as a multiple of k, that are scored again with their half-precision vectors."""
_PER_CELL = 40  # Vectors to make a cell from
_ROUNDS = 10  # Of clustering
_SEED = 20230101
_BLOCK = 32_768  # Vectors in memory at once
_COPIED = 1 << 22  # Bytes written at once
_MARGIN = 0.01
"""Recall above the target that the tuning must reach: about one standard error of a mean of 256 recalls."""
_SENTENCE = re.compile(r"\s*.{20,300}?(?:[.!?](?=\s|$)|[。！？])", re.DOTALL)
"""A first sentence, long enough to be no heading or abbreviation."""

ITEMS = 200
"""Known items that are measured a language, at most."""
LEAST_ITEMS = 20
"""Fewer known items measure nothing."""
LEAST_SHARE = 0.5
"""An encoder whose value is below this share of the words' value gets the weight 0."""
RERANKED_ITEMS = 50
"""Known items a language that a reranker is measured on: it reads ten passages for each."""
_LOOKED_FOR = 10  # Hits among which a known item is looked for
_LOOKED_AT = 20_000
"""Passages that are sampled for known items."""
_TITLE = range(6, 300)
"""Characters of a usable title, which somebody might ask for."""


SearchResult = tuple[Matrix, Ordinals]
"""Scores and ordinals, each with a row a query, best first."""


class DenseIndex:
    """A dense index, opened for searching; safe to share between threads."""

    def __init__(self, folder: Path, part: DensePart) -> None:
        """Open the index of `folder` that `part` describes. Raises IndexCorrupt if it is not that."""
        try:
            index = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as exc:
            cause = str(exc).strip().splitlines()[-1]
            raise IndexCorrupt(
                f"the dense index at {folder}, written by FAISS {part.faiss}, cannot be read by FAISS"
                f" {faiss.__version__}: {cause}",
            ) from exc
        if (index.ntotal, index.d) != (part.count, part.dimension):
            raise IndexCorrupt(
                f"{folder / INDEX} contains {index.ntotal} vectors of dimension {index.d},"
                f" expected {part.count} of {part.dimension}",
            )
        self.part = part
        self._index: Any = index

    def search(
        self,
        queries: Matrix,
        k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> SearchResult:
        """The k nearest passages to each query; all queries at once cost far less than one by one.

        Args:
            queries: float32 of shape (n, dimension).
            k: At least 1.
            allowed: One truth value an ordinal, the passages that may be found.

        Returns:
            Scores and ordinals, best first, with k columns or as many as there are passages; ordinal -1, whose score
            says nothing, where fewer were found.
        """
        parameters = self.part.parameters
        # Candidates are a multiple of k: a k below the measured one must not shrink them.
        wide = min(max(k, self.part.recall.k), self.part.count)
        nprobe = parameters["nprobe"] if parameters else None
        scores, ordinals = _search(self._index, queries, wide, nprobe, allowed)
        return scores[:, :k], ordinals[:, :k]


def _search(
    index: Any,
    queries: Matrix,
    k: int,
    nprobe: int | None,
    allowed: NDArray[np.bool_] | None = None,
) -> SearchResult:
    """Search `nprobe` cells of a compressed index, or all of a flat one (None)."""
    count, selector = index.ntotal, None
    if allowed is not None and not allowed.all():
        count = int(np.count_nonzero(allowed))
        selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    if nprobe is None:
        parameters = faiss.SearchParameters(sel=selector)
    else:
        # The fewer passages are allowed, the more cells their nearest are spread over.
        wider = int(np.ceil(nprobe * index.ntotal / max(count, 1)))
        cells = faiss.SearchParametersIVF(
            nprobe=min(wider, faiss.extract_index_ivf(index).nlist), sel=selector
        )
        parameters = faiss.IndexRefineSearchParameters(
            k_factor=REFINE, base_index_params=cells
        )
    contiguous = np.ascontiguousarray(queries, dtype=np.float32)
    scores, ordinals = index.search(contiguous, k, params=parameters)
    return scores, ordinals


def build_dense(
    source: StoredVectors,
    out: Path,
    queries: Matrix | None = None,
) -> DensePart:
    """Build the index of all vectors of the source, and return its description.

    Args:
        source: The vectors, in the order of their ordinals.
        out: The folder that gets the file.
        queries: For the compressed kind: half to choose the cells to search, half to measure; None for the flat kind.

    Returns:
        The description, with the recall that was measured.

    Raises:
        DiskFull: if the file does not fit.
    """
    count, dimension = len(source), source.encoder.dimension
    parameters = None
    index: Any = faiss.IndexFlatIP(dimension)
    recalled = DenseRecall(k=K, value=1.0, queries=0, target=TARGET)
    if queries is not None:
        # Making cells, and finding each vector's cell, costs in proportion to their number: this is the least of the
        # field's rule, two to eight times the root of the count. A cell needs vectors to be made from.
        cells = max(1, min(round(2 * count**0.5), count // _PER_CELL))
        parameters = {
            "nlist": cells,
            "trained_on": min(count, max(cells * _PER_CELL, 10_000), TRAINING),
            # Two dimensions to a code; an odd dimension, or one that FAISS's blocks do not divide, takes one each.
            "sub_quantisers": dimension // 2 if dimension % 4 == 0 else dimension,
            "refine": REFINE,
        }
        index = _trained(source, parameters)
    for _, block in _blocks(source):
        index.add(block)
    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / INDEX) as handle:
        faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write, _COPIED))
    if parameters is not None and queries is not None:
        nearest = exact(source, queries, min(K, count))
        parameters["nprobe"], recalled = _measured(index, queries, nearest)
    return DensePart(
        kind="flat" if queries is None else "ivf_pq",
        parameters=parameters,
        dimension=dimension,
        count=count,
        keys_digest=source.keys_digest,
        recall=recalled,
        faiss=faiss.__version__,
    )


def _trained(source: StoredVectors, parameters: dict[str, int]) -> Any:
    """Return the trained compressed index, without vectors."""
    index = faiss.index_factory(
        source.encoder.dimension,
        f"IVF{parameters['nlist']},PQ{parameters['sub_quantisers']}x4fs,Refine(SQfp16)",
        faiss.METRIC_INNER_PRODUCT,
    )
    clustering = faiss.extract_index_ivf(index).cp
    clustering.niter, clustering.seed = _ROUNDS, _SEED
    # The vectors at hand are what there is: FAISS would print a warning about small corpora.
    clustering.min_points_per_centroid = 1
    rng = np.random.default_rng(_SEED)
    sample = rng.choice(len(source), parameters["trained_on"], replace=False)
    threads = faiss.omp_get_max_threads()
    # Hundreds of small codebooks: with several threads most of the time goes into waiting for each other.
    faiss.omp_set_num_threads(1)
    try:
        index.train(source.rows(np.sort(sample)))
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _blocks(source: StoredVectors) -> Iterator[tuple[int, Matrix]]:
    """The vectors by blocks, each with its first ordinal."""
    for first in range(0, len(source), _BLOCK):
        end = min(first + _BLOCK, len(source))
        yield first, source.rows(np.arange(first, end))


def exact(source: StoredVectors, queries: Matrix, k: int) -> Ordinals:
    """The k vectors nearest to each query, by comparing all; memory: one block."""
    nearest = faiss.ResultHeap(len(queries), k, keep_max=True)
    for first, block in _blocks(source):
        wanted = min(k, len(block))
        near = faiss.knn(queries, block, wanted, metric=faiss.METRIC_INNER_PRODUCT)
        nearest.add_result(near[0], near[1] + first)
    nearest.finalize()
    ordinals: Ordinals = nearest.I
    return ordinals


def recall(retrieved: Ordinals, expected: Ordinals) -> float:
    """The mean over rows of the share of expected ordinals that were retrieved; -1 is no ordinal."""
    shares = []
    for got, want in zip(retrieved, expected, strict=True):
        wanted = want[want >= 0]
        shares.append(np.isin(wanted, got).sum() / max(len(wanted), 1))
    return float(np.mean(shares))


def sample_ordinals(count: int, size: int) -> Ordinals:
    """Up to `size` ordinals below `count`, drawn evenly, each once; the same at each call."""
    order = np.random.default_rng(_SEED + 1).permutation(count)
    return order[:size].astype(np.int64)


def as_query(title: str, text: str) -> str:
    """A query that the passage answers: its first sentence, or its title if it has none.

    For tuning and measuring where real queries are few: a query lies farther from the passages than they lie from
    each other, and an index tuned on passages finds fewer of a query's neighbours.
    """
    first = _SENTENCE.match(text)
    return (first[0] if first else title).strip() or title


def _measured(
    index: Any,
    queries: Matrix,
    expected: Ordinals,
) -> tuple[int, DenseRecall]:
    """Return the number of cells to search, chosen on every second query, and the recall on the others.

    Cells are doubled until the target is reached with a margin, or all are searched. Recall is counted, not timed,
    so that a build gives the same index on a busy machine.
    """
    chosen_on, measured_on = slice(0, None, 2), slice(1, None, 2)
    cells, k = faiss.extract_index_ivf(index).nlist, expected.shape[1]

    def recall_at(nprobe: int, half: slice) -> float:
        _, ordinals = _search(index, queries[half], k, nprobe)
        return recall(ordinals, expected[half])

    nprobe = 1
    while nprobe < cells and recall_at(nprobe, chosen_on) < TARGET + _MARGIN:
        nprobe = min(2 * nprobe, cells)
    measured = DenseRecall(
        k=k,
        value=round(recall_at(nprobe, measured_on), 4),
        queries=len(queries[measured_on]),
        target=TARGET,
    )
    return nprobe, measured


def measure_weights(
    store: PassageStore,
    lexical: LexicalIndex,
    side: DenseSide,
    languages: Sequence[str],
) -> tuple[SideWeight, ...]:
    """Measure an encoder's weight against the words, in each of the languages (ISO 639) whose phrases it reads.

    `store` has all passages of the index, `lexical` searches them by words, `side` by the encoder's vectors.
    """
    weights = []
    questions = _questions(store, side.ordinals)
    for language in languages:
        asked = questions.get(language, [])[:ITEMS]
        items = len(asked)
        if items < LEAST_ITEMS:
            weights.append(SideWeight(language=language, weight=1.0, items=items))
            continue
        by_words, by_vectors = [], []
        for question, near in zip(asked, side.nearest(asked, _LOOKED_FOR), strict=True):
            hits = lexical.search(question, _LOOKED_FOR, None)
            by_words.append(_reciprocal_rank(question, (store.get(n) for n, _ in hits)))
            passages = (store.get(n) for n, _ in near)
            by_vectors.append(_reciprocal_rank(question, passages))
        words, vectors = float(np.mean(by_words)), float(np.mean(by_vectors))
        share = min(1.0, vectors / words) if words else 1.0
        weights.append(
            SideWeight(
                language=language,
                weight=round(share, 3) if share >= LEAST_SHARE else 0.0,
                items=items,
                words=round(words, 3),
                vectors=round(vectors, 3),
            )
        )
    return tuple(weights)


def measure_reranker(reranker: Reranker, retriever: IndexRetriever) -> RerankerEntry:
    """Measure whether a cross-encoder finds known items better than the order that `retriever` gives it."""
    before, after, store = [], [], retriever.store
    for asked in _questions(store, np.arange(len(store))).values():
        for question in asked[:RERANKED_ITEMS]:
            [hits] = retriever.search_now([(question,)], _LOOKED_FOR, None)
            passages = [hit.passage for hit in hits]
            pairs = [passage.title_and_text for passage in passages]
            order = np.argsort(-reranker.score(question, pairs), kind="stable")
            before.append(_reciprocal_rank(question, passages))
            after.append(_reciprocal_rank(question, [passages[n] for n in order]))
    return RerankerEntry(
        where=reranker.name,
        digest=reranker.digest,
        items=len(before),
        before=round(float(np.mean(before)), 3),
        after=round(float(np.mean(after)), 3),
    )


def _questions(store: PassageStore, ordinals: Ordinals) -> dict[str, list[str]]:
    """Language → the queries of its known items, each once, from a sample of the passages of `ordinals`."""
    questions: dict[str, dict[str, None]] = {}
    for at in sample_ordinals(len(ordinals), _LOOKED_AT):
        passage = store.get(int(ordinals[at]))
        questions.setdefault(passage.language, {})[_question(passage)] = None
    return {language: list(asked) for language, asked in questions.items()}


def _question(passage: Passage) -> str:
    """The query of a known item: its title if that is usable, else its first sentence."""
    if len(passage.title) in _TITLE:
        return passage.title
    return as_query("", passage.text)


def _reciprocal_rank(question: str, passages: Iterable[Passage]) -> float:
    """One over the rank of the first passage whose query is `question`; 0 without one."""
    for rank, passage in enumerate(passages, start=1):
        if _question(passage) == question:
            return 1 / rank
    return 0.0
