"""The dense index against brute force: what it finds, what it must not find, what it says when it is broken."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, IndexCorrupt, IndexOutdated, ServiceUnavailable, UsageError
from medlive.evidence.dense import index as dense
from medlive.evidence.dense.build import DenseProgress, build_dense, choose_kind
from medlive.evidence.dense.index import DenseIndex
from medlive.evidence.dense.model import DenseKind, DensePart
from medlive.evidence.dense.tune import as_query, exact, recall
from medlive.evidence.dense.vectors import VectorStore, as_keys, keys_digest
from tests.support.embedding import Arrays, CountingEncoder, Identity, clustered, items, key

COUNT, DIMENSION, CLUSTERS, SPREAD = 1500, 16, 15, 0.6
WAIT_S = 300
TESTS = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

Built = dict[DenseKind, tuple[Path, DensePart]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """These indexes are so small that threads would mostly wait for each other."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    return clustered(COUNT, DIMENSION, CLUSTERS, SPREAD, seed=1).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="module")
def queries() -> NDArray[np.float32]:
    return clustered(64, DIMENSION, CLUSTERS, SPREAD, seed=2)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, vectors: NDArray[np.float32]) -> Built:
    root = tmp_path_factory.mktemp("dense")
    return {
        kind: (root / kind, build_dense(Arrays(vectors), root / kind, work=root / "work", kind=kind, shard=400))
        for kind in DenseKind
    }


def brute(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Every product, in numpy alone."""
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    if allowed is not None:
        products[:, ~allowed] = -np.inf
    order = np.argsort(-products, axis=1)[:, :k]
    scores = np.take_along_axis(products, order, 1).astype(np.float32)
    return scores, np.where(np.isfinite(scores), order, -1)


@pytest.mark.parametrize("kind", DenseKind)
def test_a_kind_finds_what_its_account_says(
    built: Built, vectors: NDArray[np.float32], queries: NDArray[np.float32], kind: DenseKind
) -> None:
    folder, part = built[kind]
    index = DenseIndex.open(folder, part, keys_digest="sha256:arrays", encoder_digest=Identity().digest)
    scores, ordinals = index.search(queries, 32)
    expected_scores, expected = brute(vectors, queries, 32)
    assert (scores.shape, scores.dtype, ordinals.dtype) == ((64, 32), np.float32, np.int64)
    assert (np.diff(scores, axis=1) <= 0).all(), "best first"
    found = recall(ordinals, expected)
    if kind is DenseKind.FLAT:
        assert found == 1
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    else:
        assert part.recall.value >= 0.95
        assert (part.recall.queries, part.recall.tuned_on, part.recall.sampled) == (256, 256, "passages")
        assert found >= 0.93, "the account is of passages as queries; these are new draws"
    true = np.take_along_axis(queries @ vectors.T, ordinals, 1)
    np.testing.assert_allclose(scores, true, rtol=2e-3, atol=2e-3, err_msg="a score is the product")


@pytest.mark.parametrize("kind", DenseKind)
@pytest.mark.parametrize("few", [0, dense.FEW], ids=["selected", "scored one by one"])
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.0004, 0.01, 0.3, 0.9, 1.0]), k=st.integers(1, 40)
)
def test_nothing_that_is_not_allowed_is_found(
    built: Built,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    kind: DenseKind,
    few: int,
    seed: int,
    share: float,
    k: int,
) -> None:
    allowed = np.random.default_rng(seed).random(COUNT) < share
    folder, part = built[kind]
    index = DenseIndex.open(folder, part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "FEW", few)
        scores, ordinals = index.search(queries[:4], k, allowed)
    assert ordinals.shape == scores.shape == (4, k)
    found = ordinals[ordinals >= 0]
    assert allowed[found].all()
    assert np.isneginf(scores[ordinals < 0]).all()
    assert np.isfinite(scores[ordinals >= 0]).all()
    for row in ordinals:
        held = row[row >= 0]
        assert len(set(held.tolist())) == len(held), "a passage is found once"
    if few or kind is DenseKind.FLAT:
        expected = brute(vectors, queries[:4], k, allowed)[1]
        whole = share in {1.0} or allowed.all()
        if not whole or kind is DenseKind.FLAT:
            assert recall(ordinals, expected) == 1 or not allowed.any()
            assert ((ordinals >= 0).sum(axis=1) == min(k, int(allowed.sum()))).all()


def test_more_asked_for_than_there_is(built: Built, queries: NDArray[np.float32]) -> None:
    folder, part = built[DenseKind.FLAT]
    scores, ordinals = DenseIndex.open(folder, part).search(queries[:2], COUNT + 5)
    assert ordinals.shape == (2, COUNT + 5)
    assert (np.sort(ordinals[0])[5:] == np.arange(COUNT)).all()
    assert np.isneginf(scores[:, -5:]).all()


def test_no_query_gives_no_row(built: Built) -> None:
    for folder, part in built.values():
        scores, ordinals = DenseIndex.open(folder, part).search(np.empty((0, DIMENSION), dtype=np.float32), 5)
        assert scores.shape == ordinals.shape == (0, 5)


def test_threads_share_an_index(built: Built, queries: NDArray[np.float32]) -> None:
    folder, part = built[DenseKind.IVF_SQ8]
    index = DenseIndex.open(folder, part)
    masks = [np.random.default_rng(n).random(COUNT) < 0.5 for n in range(8)]
    alone = [index.search(queries, 10, mask)[1] for mask in masks]
    start = threading.Barrier(8)

    def search(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        start.wait(WAIT_S)
        return index.search(queries, 10, mask)[1]

    with ThreadPoolExecutor(8) as pool:
        for got, expected in zip(pool.map(search, masks), alone, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_an_index_may_be_moved_and_says_nothing(
    built: Built, queries: NDArray[np.float32], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for kind, (folder, part) in built.items():
        expected = DenseIndex.open(folder, part).search(queries, 5)[1]
        moved = tmp_path / kind
        moved.mkdir()
        for file in part.files:
            (moved / file.name).write_bytes((folder / file.name).read_bytes())
        np.testing.assert_array_equal(DenseIndex.open(moved, part).search(queries, 5)[1], expected)
    assert capfd.readouterr() == ("", "")


def test_a_part_survives_json(built: Built) -> None:
    for _, part in built.values():
        assert DensePart.model_validate_json(part.model_dump_json()) == part


def test_exact_agrees_with_brute_force(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(exact(Arrays(vectors), queries, 40)[1], brute(vectors, queries, 40)[1])


def test_an_unreachable_target_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    source = Arrays(rng.standard_normal((2000, 64)).astype(np.float32))
    part = build_dense(source, tmp_path / "out", work=tmp_path / "work", kind=DenseKind.HNSW, target=1.0)
    assert part.recall.target == 1.0
    assert part.recall.value < 1.0 or part.parameters.ef_search is not None
    given = rng.standard_normal((50, 64)).astype(np.float32)
    part = build_dense(
        source, tmp_path / "out", work=tmp_path / "work", kind=DenseKind.IVF_FLAT, target=0.5, queries=given
    )
    assert (part.recall.sampled, part.recall.queries, part.recall.tuned_on) == ("given", 25, 25)
    assert (part.parameters.nprobe or 0) < (part.parameters.nlist or 0)
    assert 0.4 < part.recall.value < 1, "a lower target is met at a lower cost"


_CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from medlive.evidence.dense.index import DenseKind
from medlive.evidence.dense.build import build_dense
from tests.support.embedding import Arrays, clustered
root, kind = Path(sys.argv[1]), DenseKind(sys.argv[2])

class Stopping(Arrays):
    def half(self, start, stop):
        if start >= 1000:
            (root / "mark").touch()
            time.sleep(600)
        return super().half(start, stop)

source = Stopping(clustered(1500, 16, 15, 0.6, seed=1))
build_dense(source, root / "out", work=root / "work", kind=kind, shard=250)
"""


@pytest.mark.parametrize("kind", [DenseKind.IVF_SQ8, DenseKind.HNSW])
def test_a_killed_build_goes_on_where_it_was(
    tmp_path: Path, vectors: NDArray[np.float32], queries: NDArray[np.float32], kind: DenseKind
) -> None:
    command = [sys.executable, "-c", _CHILD, str(tmp_path), kind.value]
    with subprocess.Popen(command, cwd=TESTS, env=ENVIRONMENT) as process:
        until = time.monotonic() + WAIT_S
        while not (tmp_path / "mark").exists():
            assert process.poll() is None, "the build ended too early"
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()

    def stamps() -> dict[str, tuple[int, int]]:
        places = (tmp_path / "work").glob("dense-*/*.faiss")
        return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in places}

    before, after = stamps(), dict[str, tuple[int, int]]()
    seen: list[int] = []

    def progress(moment: DenseProgress) -> None:
        if moment.stage == "adding":
            seen.append(moment.done)
            after.update(stamps())

    source = Arrays(vectors)
    part = build_dense(source, tmp_path / "out", work=tmp_path / "work", kind=kind, shard=250, progress=progress)
    assert len(before) == (1 if kind is DenseKind.HNSW else 5), "the cells and four parts, or the last graph"
    assert before.items() <= after.items(), "what was finished is not made again"
    assert seen == [1250, 1500]
    assert [place.name for place in (tmp_path / "work").iterdir()] == ["lock"]
    plain = build_dense(source, tmp_path / "plain", work=tmp_path / "work2", kind=kind, shard=250)
    found = [
        DenseIndex.open(tmp_path / name, made).search(queries, 32)[1]
        for name, made in (("out", part), ("plain", plain))
    ]
    if kind is DenseKind.HNSW:
        # A graph that was kept begins its levels anew: another graph, as good.
        assert min(part.recall.value, plain.recall.value) >= 0.95
        assert recall(found[0], found[1]) > 0.9
        return
    assert part.model_dump(exclude={"build_seconds"}) == plain.model_dump(exclude={"build_seconds"})
    np.testing.assert_array_equal(found[0], found[1])


def test_parts_of_other_passages_are_not_used(tmp_path: Path, queries: NDArray[np.float32]) -> None:
    vectors = clustered(800, DIMENSION, CLUSTERS, SPREAD, seed=5)

    class Failing(Arrays):
        def half(self, start: int, stop: int) -> NDArray[np.float16]:
            if start >= 400:
                raise RuntimeError("stopped")
            return super().half(start, stop)

    arguments = {"work": tmp_path / "work", "kind": DenseKind.IVF_FLAT, "shard": 200}
    with pytest.raises(RuntimeError, match="stopped"):
        build_dense(Failing(vectors[::-1].copy(), "reversed"), tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert len(list((tmp_path / "work").glob("dense-*/part-*.faiss"))) == 2
    part = build_dense(Arrays(vectors), tmp_path / "out", **arguments)  # type: ignore[arg-type]
    found = DenseIndex.open(tmp_path / "out", part).search(queries, 5, np.ones(800, dtype=bool))[1]
    assert recall(found, brute(vectors, queries, 5)[1]) > 0.9


def test_one_build_at_a_time(tmp_path: Path) -> None:
    source = Arrays(clustered(100, DIMENSION, CLUSTERS, SPREAD, seed=6))
    refused: list[str] = []

    def progress(_: DenseProgress) -> None:
        with pytest.raises(ServiceUnavailable) as caught:
            build_dense(source, tmp_path / "second", work=tmp_path / "work")
        refused.append(caught.value.message)

    build_dense(source, tmp_path / "first", work=tmp_path / "work", progress=progress)
    assert "another process is building" in refused[0]


@pytest.mark.parametrize("kind", DenseKind)
def test_a_file_that_is_cut_short_or_missing_is_named(built: Built, tmp_path: Path, kind: DenseKind) -> None:
    folder, part = built[kind]
    for file in part.files:
        for other in part.files:
            (tmp_path / other.name).write_bytes((folder / other.name).read_bytes())
        (tmp_path / file.name).write_bytes((folder / file.name).read_bytes()[:-1])
        with pytest.raises(IndexCorrupt, match=f"{file.name} has {file.size - 1} bytes") as caught:
            DenseIndex.open(tmp_path, part)
        assert "medlive evidence build" in (caught.value.hint or "")
        (tmp_path / file.name).unlink()
        with pytest.raises(IndexCorrupt, match=f"{file.name} is missing"):
            DenseIndex.open(tmp_path, part)
        (tmp_path / file.name).write_bytes(b"\0" * file.size)
        if file.name != "vectors.faiss" or kind.refined:
            with pytest.raises(IndexCorrupt, match=r"lists\.ivfdata does not hold|cannot be read"):
                DenseIndex.open(tmp_path, part)


def test_a_foreign_index_is_refused(built: Built) -> None:
    folder, part = built[DenseKind.FLAT]
    with pytest.raises(IndexOutdated, match="of other passages"):
        DenseIndex.open(folder, part, keys_digest="sha256:others")
    with pytest.raises(IndexOutdated, match="made by encoder counting") as caught:
        DenseIndex.open(folder, part, encoder_digest="sha256:other")
    assert "medlive evidence build" in (caught.value.hint or "")
    with pytest.raises(IndexCorrupt, match="contains 1500 vectors of dimension 16, expected 1499"):
        DenseIndex.open(folder, part.model_copy(update={"count": 1499}))
    index = folder / "index.faiss"
    old = part.model_copy(update={"faiss": "0.0"})
    whole = index.read_bytes()
    try:
        index.write_bytes(b"\0" * len(whole))
        with pytest.raises(IndexOutdated, match=r"was written by FAISS 0\.0"):
            DenseIndex.open(folder, old)
    finally:
        index.write_bytes(whole)


def test_queries_that_are_none_are_refused(built: Built, queries: NDArray[np.float32]) -> None:
    folder, part = built[DenseKind.FLAT]
    index = DenseIndex.open(folder, part)
    with pytest.raises(EvidenceUnavailable, match=r"shape \(64, 5\).*dimension 16"):
        index.search(queries[:, :5], 5)
    broken = queries.copy()
    broken[3, 3] = np.nan
    with pytest.raises(EvidenceUnavailable, match="not finite"):
        index.search(broken, 5)
    with pytest.raises(ValueError, match="truth values"):
        index.search(queries, 5, np.ones(5, dtype=bool))
    with pytest.raises(ValueError, match="k must be positive"):
        index.search(queries, 0)


def test_too_few_passages(tmp_path: Path) -> None:
    few = clustered(3, DIMENSION, CLUSTERS, SPREAD, seed=7)
    with pytest.raises(UsageError, match="3 passages are too few for an index of kind ivf_pq"):
        build_dense(Arrays(few), tmp_path / "out", work=tmp_path / "work", kind=DenseKind.IVF_PQ)
    with pytest.raises(ValueError, match="at least one vector"):
        build_dense(Arrays(few[:0]), tmp_path / "out", work=tmp_path / "work")
    part = build_dense(Arrays(few[:1]), tmp_path / "out", work=tmp_path / "work")
    assert part.kind is DenseKind.FLAT
    assert DenseIndex.open(tmp_path / "out", part).search(few, 2)[1].tolist() == [[0, -1]] * 3


def test_an_odd_dimension_has_product_codes(tmp_path: Path) -> None:
    source = Arrays(clustered(200, 7, 5, SPREAD, seed=8))
    part = build_dense(source, tmp_path / "out", work=tmp_path / "work", kind=DenseKind.IVF_PQ)
    assert part.recall.value > 0.9


def test_size_chooses_the_kind() -> None:
    sizes = [1, 50_000, 50_001, 1_000_000, 8_000_001, 40_000_000]
    flat, sq8, pq = DenseKind.FLAT, DenseKind.IVF_SQ8, DenseKind.IVF_PQ
    assert [choose_kind(size) for size in sizes] == [flat, flat, sq8, sq8, pq, pq]


def test_an_index_over_stored_vectors(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    store = VectorStore(tmp_path / "store", encoder.identity)
    store.embed_missing(items(range(90)), encoder, shard_size=25)
    keys = as_keys(key(n) for n in range(89, -1, -1))
    source = store.vectors(keys)
    part = build_dense(source, tmp_path / "out", work=tmp_path / "work", kind=DenseKind.IVF_FLAT, shard=40)
    assert part.keys_digest == keys_digest(keys) != keys_digest(np.sort(keys))
    index = DenseIndex.open(tmp_path / "out", part, keys_digest=keys_digest(keys))
    rows = source.rows(np.arange(90))
    assert recall(index.search(rows, 1)[1], brute(rows, rows, 1)[1]) >= 0.95


_FULL = """
import json, resource, sys
from pathlib import Path
from medlive.errors import DiskFull
from medlive.evidence.dense.index import DenseKind
from medlive.evidence.dense.build import build_dense
from tests.support.embedding import Arrays, clustered
root, kind, limit = Path(sys.argv[1]), DenseKind(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    source = Arrays(clustered(1500, 16, 15, 0.6, seed=1))
    build_dense(source, root / "out", work=root / "work", kind=kind, shard=500)
except DiskFull as exc:
    print(json.dumps([exc.message, exc.hint, len(list(root.glob("work/dense-*/part-*.faiss")))]))
"""


@pytest.mark.parametrize(
    ("kind", "limit", "file", "parts"),
    [(DenseKind.IVF_SQ8, 30_000, "lists.ivfdata", 3), (DenseKind.FLAT, 60_000, "index.faiss", 0)],
)
def test_a_full_disk_is_said(tmp_path: Path, kind: DenseKind, limit: int, file: str, parts: int) -> None:
    command = [sys.executable, "-c", _FULL, str(tmp_path), kind.value, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS, env=ENVIRONMENT, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    message, hint, finished = json.loads(done.stdout)
    assert file in message
    assert "File too large" in message
    assert "finished shard stays" in hint
    assert finished == parts
    assert not list(tmp_path.rglob("*.part"))


def test_a_query_is_made_of_a_passage() -> None:
    text = "Metformin lowers glucose in adults. It is taken twice a day."
    assert as_query("Metformin", text) == "Metformin lowers glucose in adults."
    assert as_query("二甲双胍", "糖尿病患者应当控制饮食并坚持运动，同时按时按量服用药物。第二句。").startswith(
        "糖尿病"
    )
    assert as_query("Metformin", "Short.") == "Metformin"
    assert as_query("", "") == ""
    assert as_query("title", "x" * 1_000_000) == "title"
