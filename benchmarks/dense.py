"""What dense indexes cost and find: by kind, against exact search in the same run.

Run `python benchmarks/dense.py [--size 200000] [--spreads 0.6 0.3 1.0] [--kinds flat ivf_pq]`.
The published figures are those of `--size 1000000`.

Synthetic vectors of 768 dimensions: centres drawn from a normal distribution of mean length 1, each vector a
   centre plus normal noise of mean length `spread`. The spread is thus the typical distance of a vector from its
   centre over that of a centre from the origin: two vectors of one cluster are `spread` times as far apart as two
   centres are. A cluster has 1,000 vectors on average. The noise has no structure: within a cluster nothing but
   the vectors themselves tells which are nearest, which is harder on an index than text is. Queries are further
   draws from the same clusters, never vectors of the index.

Each build runs in a process of its own. "Own peak" is its largest anonymous memory (pages of mapped files, which
the system can drop, are not in it) less what it had before it began. Recall is against the exact nearest of the
vectors as drawn. A batch is 256 queries; flat and the other kinds take turns, and the best of 5 counts. Exits 1
when the index that the build chooses is not 10 times as fast as flat, or finds less than 0.95, at spread 0.6; or
when its build's own peak grows by more than four times the index from a quarter of the size to the whole: it is
built in memory (docs/builders/decisions/0009).
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np

from medlive.evidence.dense import (
    FLAT_UP_TO,
    DenseIndex,
    build_dense,
    exact,
    recall,
)
from medlive.evidence.encoders.model import EncoderIdentity
from medlive.evidence.manifest import DenseKind, DensePart
from medlive.evidence.vectors import Matrix, Ordinals, StoredVectors

DIMENSION = 768
PER_CLUSTER = 1000
BATCH = 256
K = 32
RUNS = 5
TARGET_RATIO = 10.0
TARGET_RECALL = 0.95
TARGET_SPREAD = 0.6
ALLOWANCE_MB = 150
"""Buffers of FAISS and the allocator that come and go, which a comparison of peaks must bear."""
_DRAWN = 50_000


class ArraySource(StoredVectors):
    """Vectors in a file."""

    def __init__(self, place: Path, count: int, dimension: int) -> None:
        self.encoder = EncoderIdentity(
            name="drawn", digest="sha256:drawn", dimension=dimension
        )
        self.keys_digest = f"sha256:{place.name}"
        self._vectors = np.memmap(place, dtype="<f2", mode="r").reshape(-1, dimension)[
            :count
        ]

    def __len__(self) -> int:
        return len(self._vectors)

    def rows(self, ordinals: Ordinals) -> Matrix:
        """See `VectorSource`."""
        return self._vectors[ordinals].astype(np.float32)


@dataclass(frozen=True)
class Built:
    """A build, as its process measured it."""

    part: DensePart
    seconds: float
    peak_mb: float
    index_mb: float


def draw(place: Path, size: int, spread: float) -> tuple[Matrix, Matrix]:
    """Write vectors of that spread to `place`; queries to measure and to tune on, from the same clusters."""
    rng = np.random.default_rng(7)
    scale = np.float32(DIMENSION**-0.5)
    centres = (
        rng.standard_normal((max(size // PER_CLUSTER, 1), DIMENSION), dtype=np.float32)
        * scale
    )

    def some(count: int) -> Matrix:
        noise = rng.standard_normal((count, DIMENSION), dtype=np.float32) * (
            scale * np.float32(spread)
        )
        return np.asarray(
            centres[rng.integers(0, len(centres), count)] + noise, dtype=np.float32
        )

    with place.open("wb") as handle:
        for first in range(0, size, _DRAWN):
            handle.write(some(min(_DRAWN, size - first)).astype("<f2").tobytes())
    return some(BATCH), some(2 * BATCH)


def _own_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(
        "the system does not say how much memory a process has of its own"
    )


def build(
    place: str,
    count: int,
    dimension: int,
    kind: str,
    folder: str,
    tune_on: Matrix | None,
) -> tuple[str, float, float]:
    """Build in this process: the part as JSON, seconds, and by how many MB its own memory grew at most."""
    before = highest = _own_mb()
    ended = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not ended.wait(0.02):
            highest = max(highest, _own_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    source = ArraySource(Path(place), count, dimension)
    asked = None if kind == "flat" else tune_on
    part = build_dense(source, Path(folder), asked)
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    return part.model_dump_json(), seconds, highest - before


def built(
    place: Path,
    count: int,
    dimension: int,
    kind: DenseKind,
    folder: Path,
    tune_on: Matrix | None = None,
) -> Built:
    """The build of that kind, in a new process."""
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        arguments = (str(place), count, dimension, kind, str(folder), tune_on)
        part, seconds, peak = pool.submit(build, *arguments).result()
    size = (folder / "index.faiss").stat().st_size / 1e6
    return Built(DensePart.model_validate_json(part), seconds, peak, size)


def timed(index: DenseIndex, queries: Matrix) -> float:
    """Seconds that a batch takes."""
    started = time.perf_counter()
    index.search(queries, K)
    return time.perf_counter() - started


def measured(
    place: Path,
    count: int,
    dimension: int,
    kinds: Sequence[DenseKind],
    queries: Matrix,
    work: Path,
    tune_on: Matrix | None = None,
) -> tuple[dict[DenseKind, float], dict[DenseKind, float], dict[DenseKind, Built]]:
    """Print a line for each kind; its rate over flat's, its recall and its build."""
    source = ArraySource(place, count, dimension)
    expected = exact(source, queries, K)
    flat_folder = work / "flat"
    flat_built = built(place, count, dimension, "flat", flat_folder)
    flat = DenseIndex(flat_folder, flat_built.part)
    print(
        f"  {'kind':8} {'build s':>8} {'own peak MB':>11} {'disk MB':>8} {'recall@32':>9} {'noted':>6}"
        f" {'batch ms':>8} {'query/s':>8} {'× flat':>7} {'one ms':>7}  parameters"
    )
    ratios: dict[DenseKind, float] = {}
    recalls: dict[DenseKind, float] = {}
    builds: dict[DenseKind, Built] = {}
    for kind in kinds:
        folder = work / kind
        made = (
            flat_built
            if kind == "flat"
            else built(place, count, dimension, kind, folder, tune_on)
        )
        index = DenseIndex(folder, made.part)
        found = index.search(queries, K)[1]
        turns = [(timed(flat, queries), timed(index, queries)) for _ in range(RUNS)]
        best_flat, best = (min(column) for column in zip(*turns, strict=True))
        ratios[kind], recalls[kind], builds[kind] = (
            best_flat / best,
            recall(found, expected),
            made,
        )
        ones = sorted(timed(index, queries[n : n + 1]) for n in range(31))
        parameters = made.part.parameters
        tuned = parameters or {}
        disk = made.index_mb
        print(
            f"  {kind:8} {made.seconds:8.1f} {made.peak_mb:11.0f} {disk:8.0f} {recalls[kind]:9.4f}"
            f" {made.part.recall.value:6.4f} {best * 1e3:8.0f} {BATCH / best:8.0f} {ratios[kind]:7.1f}"
            f" {ones[15] * 1e3:7.1f}  {' '.join(f'{name}={value}' for name, value in tuned.items())}",
            flush=True,
        )
        if kind != "flat":
            shutil.rmtree(folder)
    shutil.rmtree(flat_folder)
    return ratios, recalls, builds


def synthetic(
    size: int, spreads: Sequence[float], kinds: Sequence[DenseKind], work: Path
) -> list[str]:
    """Print the figures of drawn vectors; what is not reached."""
    missed = []
    chosen: DenseKind = "flat" if size <= FLAT_UP_TO else "ivf_pq"
    for spread in spreads:
        place = work / "vectors"
        queries, tune_on = draw(place, size, spread)
        some = kinds if spread == TARGET_SPREAD else [chosen]
        print(
            f"\n{size:,} × {DIMENSION}, spread {spread}, {size // PER_CLUSTER:,} clusters; chosen: {chosen}"
        )
        ratios, recalls, builds = measured(
            place, size, DIMENSION, some, queries, work, tune_on
        )
        if spread != TARGET_SPREAD or chosen not in ratios:
            continue
        if ratios[chosen] < TARGET_RATIO or recalls[chosen] < TARGET_RECALL:
            missed.append(
                f"{chosen} at spread {spread}: {ratios[chosen]:.1f} × flat, {recalls[chosen]:.4f}"
            )
        quarter = built(place, size // 4, DIMENSION, chosen, work / "quarter", tune_on)
        shutil.rmtree(work / "quarter")
        whole = builds[chosen]
        index_mb = [quarter.index_mb, whole.index_mb]
        print(
            f"  memory of building {chosen}: own peak {quarter.peak_mb:.0f} MB for {size // 4:,} (index"
            f" {index_mb[0]:.0f} MB), {whole.peak_mb:.0f} MB for {size:,} (index {index_mb[1]:.0f} MB)"
        )
        if (
            whole.peak_mb - quarter.peak_mb
            > 4 * (index_mb[1] - index_mb[0]) + ALLOWANCE_MB
        ):
            missed.append(
                f"building {chosen}: own peak grows by more than four times the index"
            )
    return missed


def main() -> None:
    """Print the figures; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description="What dense indexes cost and find.")
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument(
        "--spreads", type=float, nargs="*", default=[TARGET_SPREAD, 0.3, 1.0]
    )
    parser.add_argument(
        "--kinds",
        choices=("flat", "ivf_pq"),
        nargs="*",
        default=["flat", "ivf_pq"],
    )
    arguments = parser.parse_args()
    threads = faiss.omp_get_max_threads()
    print(
        f"FAISS {faiss.__version__}, {threads} threads on {os.cpu_count()} cores, batches of {BATCH}"
    )
    with tempfile.TemporaryDirectory() as folder:
        missed = synthetic(
            arguments.size, arguments.spreads, arguments.kinds, Path(folder)
        )
    for line in missed:
        print(f"MISSED: {line}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
