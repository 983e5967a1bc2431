"""Build a dense index in resumable steps: train cells, add vectors shard by shard, merge, tune.

The work folder is named by the digest of everything that determines the index. A killed build continues with its
finished parts, and the index is the one of an undisturbed build (a graph draws its levels anew and is as good).
Memory beside the index: the training vectors (at most `TRAINING`), a part's codes and a block of vectors. Lists
are merged on disk.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medlive.digest import digest_json
from medlive.errors import ServiceUnavailable, UsageError
from medlive.evidence.dense.files import PART, Claim, whole_file
from medlive.evidence.dense.index import INDEX, LISTS, VECTORS, Searcher, faiss
from medlive.evidence.dense.model import DenseFile, DenseKind, DenseParameters, DensePart, DenseRecall, Matrix
from medlive.evidence.dense.tune import BLOCK, Trial, VectorSource, blocks, exact, sample_ordinals, tune

FLAT_UP_TO = 50_000
"""Passages. One query over a million × 768 takes flat 336-400 ms on two cores: 17-20 ms over so many."""
SQ8_UP_TO = 8_000_000
"""Passages. Beyond, lists of 768 bytes a passage no longer fit the memory of a common machine."""
SHARD = 100_000
"""Vectors to a part."""
LEAST = 40
"""Passages for a kind other than flat, and queries to tune on and measure."""
QUERIES = 256
"""Queries that parameters are tuned on, and again as many that the recall is measured on."""
TRAINING = 200_000
"""Vectors that cells are made from, at most."""

_PER_CELL = 40
_ROUNDS = 10
_LINKS = 32
_EF_CONSTRUCTION = 80
_SEED = 20230101
_COPIED = 1 << 22


@dataclass(frozen=True, slots=True)
class DenseProgress:
    """The progress of a build."""

    stage: Literal["training", "adding", "merging", "copying", "measuring"]
    done: int
    """Vectors of `total`, where the stage counts them."""
    total: int


def choose_kind(count: int) -> DenseKind:
    """Choose the kind for a number of passages: exact while fast, 8 bits while they fit, then product codes."""
    if count <= FLAT_UP_TO:
        return DenseKind.FLAT
    return DenseKind.IVF_SQ8 if count <= SQ8_UP_TO else DenseKind.IVF_PQ


def build_dense(
    source: VectorSource,
    out: Path,
    *,
    work: Path,
    kind: DenseKind | None = None,
    target: float = 0.95,
    k: int = 32,
    queries: Matrix | None = None,
    shard: int = SHARD,
    progress: Callable[[DenseProgress], None] | None = None,
) -> DensePart:
    """Build the index of all vectors of the source, and return its description.

    Args:
        source: The vectors.
        out: The folder to write the index into.
        work: The folder of unfinished parts: the same call continues with them.
        kind: The kind of index; None for `choose_kind`.
        target: The recall@k against exact search that the search is tuned to. If the kind cannot reach it, the
            description gives the recall that it reached.
        k: The depth of that recall.
        queries: Twice `QUERIES`, half to tune and half to measure on, real or made by `as_query`. None for
            passages, which overestimates the recall of questions.
        shard: Vectors per part.
        progress: Called during each stage.

    Raises:
        DiskFull: if a file does not fit.
        ServiceUnavailable: while another process builds in `work`.
        UsageError: if there are too few passages for the kind.
        ValueError: for no vectors or too few queries.
    """
    if not len(source):
        raise ValueError("expected at least one vector")
    started = time.monotonic()
    chosen = kind or choose_kind(len(source))
    if chosen is not DenseKind.FLAT and len(source) < LEAST:
        raise UsageError(
            f"{len(source)} passages are too few for an index of kind {chosen.value}: at least {LEAST} are needed",
            hint=f"build one of kind {DenseKind.FLAT.value}",
        )
    if queries is not None and len(queries) < LEAST:
        raise ValueError(f"expected at least {LEAST} queries to tune on, found {len(queries)}")
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    claim = Claim.take(work / "lock")
    if claim is None:
        raise ServiceUnavailable(f"another process is building in {work}", hint="wait until it has ended")
    try:
        build = _Build(source, out, work, chosen, shard, progress or (lambda _: None))
        searcher, parameters = build.make()
        report = progress or (lambda _: None)
        measured = _measure(source, searcher, parameters, target, k, queries, report)
        part = DensePart(
            kind=chosen,
            parameters=measured[0],
            metric="inner_product",
            dimension=source.dimension,
            encoder=source.encoder.name,
            encoder_digest=source.encoder.digest,
            count=len(source),
            keys_digest=source.keys_digest,
            recall=measured[1],
            build_seconds=round(time.monotonic() - started, 3),
            faiss=faiss.__version__,
            files=tuple(
                DenseFile(name=name, size=(out / name).stat().st_size)
                for name in (INDEX, LISTS, VECTORS)
                if (out / name).exists()
            ),
        )
        build.remove_work()
        return part
    finally:
        claim.release()


class _Build:
    """The steps of a build."""

    def __init__(
        self,
        source: VectorSource,
        out: Path,
        work: Path,
        kind: DenseKind,
        shard: int,
        report: Callable[[DenseProgress], None],
    ) -> None:
        self._source = source
        self._out = out
        self._kind = kind
        self._shard = shard
        self._report = report
        self._parameters = _fixed_parameters(kind, len(source), source.dimension)
        name = digest_json(
            {
                "keys": source.keys_digest,
                "encoder": source.encoder.digest,
                "kind": kind,
                "parameters": self._parameters.model_dump(mode="json"),
                "shard": shard,
                "faiss": faiss.__version__,
            }
        ).removeprefix("sha256:")
        self._work = work / f"dense-{name[:32]}"
        for other in work.glob("dense-*"):
            if other != self._work:
                shutil.rmtree(other)
        self._work.mkdir(exist_ok=True)
        for unfinished in self._work.glob(f"*{PART}"):
            unfinished.unlink()

    def make(self) -> tuple[Searcher, DenseParameters]:
        """Write the files, and return the index and its parameters before tuning."""
        for name in (INDEX, LISTS, VECTORS):
            (self._out / name).unlink(missing_ok=True)
        if self._kind.inverted:
            self._train()
            parts = [self._build_part(first) for first in range(0, len(self._source), self._shard)]
            self._merge_parts(parts)
        elif self._kind is DenseKind.HNSW:
            self._build_graph()
        else:
            self._write_flat(self._out / INDEX, faiss.IndexFlatIP(self._source.dimension), single=True)
        if self._kind.refined:
            half_precision, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
            empty = faiss.IndexScalarQuantizer(self._source.dimension, half_precision, inner)
            self._write_flat(self._out / VECTORS, empty, single=False)
        return Searcher.read(self._out, self._kind), self._parameters

    def remove_work(self) -> None:
        """Remove what only a resumed build needs."""
        shutil.rmtree(self._work)

    @property
    def _trained(self) -> Path:
        return self._work / "trained.faiss"

    def _train(self) -> None:
        if self._trained.exists():
            return
        count, trained_on = len(self._source), self._parameters.trained_on or 0
        self._report(DenseProgress("training", 0, trained_on))
        sample = np.sort(np.random.default_rng(_SEED).choice(count, trained_on, replace=False))
        vectors = self._source.rows(sample.astype(np.int64))
        index = _untrained_index(self._kind, self._parameters, self._source.dimension)
        _train(index, vectors)
        _write(index, self._trained)
        self._report(DenseProgress("training", trained_on, trained_on))

    def _build_part(self, first: int) -> Path:
        """Build the part of the vectors from `first` on."""
        place = self._work / f"part-{first:012d}.faiss"
        stop = min(first + self._shard, len(self._source))
        if not place.exists():
            index = faiss.read_index(str(self._trained))
            for start, block in blocks(self._source, first, stop):
                index.add_with_ids(block, np.arange(start, start + len(block), dtype=np.int64))
                self._report(DenseProgress("adding", start + len(block), len(self._source)))
            _write(index, place)
        return place

    def _merge_parts(self, parts: list[Path]) -> None:
        self._report(DenseProgress("merging", 0, len(self._source)))
        index = faiss.read_index(str(self._trained))
        if self._kind is DenseKind.IVF_PQ:
            # Fast-scan lists are interleaved, so not for mapping; they are an eighth of the vectors' size.
            for place in parts:
                index.merge_from(faiss.read_index(str(place)), 0)
            _write(faiss.IndexIVFPQFastScan(index), self._out / INDEX)
        else:
            _write_lists(parts, self._out / LISTS)
            _write(index, self._out / INDEX)
        self._report(DenseProgress("merging", len(self._source), len(self._source)))

    def _build_graph(self) -> None:
        """Add to one graph, saved after each shard, since graphs cannot be merged."""
        count = len(self._source)
        previous = sorted(self._work.glob("grown-*.faiss"))
        if previous:
            index = faiss.read_index(str(previous[-1]))
        else:
            half_precision, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
            index = faiss.IndexHNSWSQ(self._source.dimension, half_precision, _LINKS, inner)
            index.hnsw.efConstruction = _EF_CONSTRUCTION
        while index.ntotal < count:
            stop = min(index.ntotal + self._shard, count)
            for start, block in blocks(self._source, index.ntotal, stop):
                index.add(block)
                self._report(DenseProgress("adding", start + len(block), count))
            if stop < count:
                _write(index, self._work / f"grown-{stop:012d}.faiss")
                for old in previous:
                    old.unlink()
                previous = [self._work / f"grown-{stop:012d}.faiss"]
        _write(index, self._out / INDEX)

    def _write_flat(self, place: Path, empty: Any, single: bool) -> None:
        """Write the index that `empty` would be with all vectors, in single or half precision, by blocks.

        FAISS's file of such an index is a header, with the count in its bytes 8 to 16 and the number of codes (of
        floats, in single precision) in its last 8, and then the vectors.
        """
        count = len(self._source)
        numbers = count * self._source.dimension
        header = bytearray(faiss.serialize_index(empty).tobytes())
        header[8:16] = count.to_bytes(8, "little")
        header[-8:] = (numbers if single else numbers * 2).to_bytes(8, "little")
        with whole_file(place) as handle:
            handle.write(header)
            for first in range(0, count, BLOCK):
                stop = min(first + BLOCK, count)
                vectors = self._source.half(first, stop)
                handle.write(vectors.astype("<f4" if single else "<f2").tobytes())
                self._report(DenseProgress("copying", stop, count))


def _fixed_parameters(kind: DenseKind, count: int, dimension: int) -> DenseParameters:
    """Return the parameters that depend on size alone."""
    if kind is DenseKind.FLAT:
        return DenseParameters(storage="float32")
    if kind is DenseKind.HNSW:
        return DenseParameters(storage="float16", links=_LINKS, ef_construction=_EF_CONSTRUCTION)
    # Making cells, and finding each vector's cell, costs in proportion to their number: this is the least of the
    # field's rule, two to eight times the root of the count. A cell needs vectors to be made from.
    nlist = max(1, min(round(2 * count**0.5), count // _PER_CELL))
    trained_on = min(count, max(nlist * _PER_CELL, 10_000), TRAINING)
    if kind is DenseKind.IVF_PQ:
        # Two dimensions to a code; an odd dimension, or one of which FAISS's blocks do not divide, takes one each.
        codes = dimension // 2 if dimension % 4 == 0 else dimension
        return DenseParameters(storage="pq4", nlist=nlist, trained_on=trained_on, sub_quantisers=codes)
    storage: Literal["float16", "sq8"] = "float16" if kind is DenseKind.IVF_FLAT else "sq8"
    return DenseParameters(storage=storage, nlist=nlist, trained_on=trained_on)


def _train(index: Any, vectors: Matrix) -> None:
    """Make the cells, then the codes within them."""
    cells = faiss.IndexIVFFlat(index.quantizer, index.d, index.nlist, faiss.METRIC_INNER_PRODUCT)
    cells.own_fields = False
    cells.cp.niter, cells.cp.seed = _ROUNDS, _SEED
    # The vectors at hand are what there is: FAISS would print a warning about small corpora.
    cells.cp.min_points_per_centroid = 1
    cells.train(vectors)
    # Hundreds of small codebooks: with several threads most of the time goes into waiting for each other.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index.train(vectors)
    finally:
        faiss.omp_set_num_threads(threads)


def _untrained_index(kind: DenseKind, parameters: DenseParameters, dimension: int) -> Any:
    """Return an untrained index of that kind."""
    inner = faiss.METRIC_INNER_PRODUCT
    cells, nlist = faiss.IndexFlatIP(dimension), parameters.nlist or 1
    if kind is DenseKind.IVF_PQ:
        index = faiss.IndexIVFPQ(cells, dimension, nlist, parameters.sub_quantisers, 4, inner)
    else:
        sq8, half_precision = faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16
        quantizer = sq8 if kind is DenseKind.IVF_SQ8 else half_precision
        # Half-precision vectors are kept as they are, so that scores are those of the vectors and not of sums.
        index = faiss.IndexIVFScalarQuantizer(cells, dimension, nlist, quantizer, inner, kind is DenseKind.IVF_SQ8)
    return index


def _write_lists(parts: list[Path], place: Path) -> None:
    """Write the parts' lists into one file: see `dense.LISTS`.

    FAISS's own merge writes through a map of a sparse file, which on a full disk ends the process.
    """
    indexes = [faiss.read_index(str(part), faiss.IO_FLAG_MMAP) for part in parts]
    opened = [index.invlists for index in indexes]  # Each lives as long as its index does.
    lengths = np.array([[part.list_size(cell) for cell in range(part.nlist)] for part in opened], dtype="<u8")
    with whole_file(place) as handle:
        handle.write(lengths.sum(axis=0).tobytes())
        for cell in range(lengths.shape[1]):
            filled = [(part, int(length)) for part, length in zip(opened, lengths[:, cell], strict=True) if length]
            for part, length in filled:
                handle.write(faiss.rev_swig_ptr(part.get_codes(cell), length * part.code_size).data)
            for part, length in filled:
                handle.write(faiss.rev_swig_ptr(part.get_ids(cell), length).data)


def _write(index: Any, place: Path) -> None:
    with whole_file(place) as handle:
        writer = faiss.PyCallbackIOWriter(handle.write, _COPIED)
        faiss.write_index(index, writer)


def _measure(
    source: VectorSource,
    searcher: Searcher,
    parameters: DenseParameters,
    target: float,
    k: int,
    queries: Matrix | None,
    report: Callable[[DenseProgress], None],
) -> tuple[DenseParameters, DenseRecall]:
    """Tune the parameters, and measure their recall on other queries."""
    if searcher.kind is DenseKind.FLAT:
        exact_recall = DenseRecall(k=k, value=1.0, queries=0, sampled="exact", target=target, tuned_on=0)
        return parameters, exact_recall
    own = None
    if queries is None:
        own = sample_ordinals(len(source), 2 * QUERIES)
        tuning_queries = source.rows(own)
    else:
        tuning_queries = queries[: 2 * QUERIES]
    wide = min(k + (own is not None), len(source))
    total = len(source)
    expected = exact(source, tuning_queries, wide, lambda done: report(DenseProgress("measuring", done, total)))[1]
    trials = [
        Trial(tuning_queries[start::2], expected[start::2], k, None if own is None else own[start::2])
        for start in (0, 1)
    ]
    effort, refine = tune(searcher, trials[0], target, k, parameters.nlist)
    measured_recall = DenseRecall(
        k=k,
        value=round(trials[1].recall(searcher, effort, refine), 4),
        queries=len(tuning_queries[1::2]),
        sampled="given" if own is None else "passages",
        target=target,
        tuned_on=len(tuning_queries[0::2]),
    )
    tuned = {"nprobe": effort} if searcher.kind.inverted else {"ef_search": effort}
    if searcher.kind.refined:
        tuned["refine"] = refine
    return parameters.model_copy(update=tuned), measured_recall
