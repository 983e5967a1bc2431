"""The dense index against brute force: what it finds, what it must not find, what it says when it is broken."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from medlive.errors import IndexCorrupt
from medlive.evidence.dense import (
    DenseIndex,
    as_query,
    build_dense,
    exact,
    recall,
)
from medlive.evidence.manifest import DensePart
from medlive.evidence.vectors import VectorStore, keys_digest
from tests.support.embedding import Arrays, CountingEncoder, clustered, items, keys

COUNT, DIMENSION, CLUSTERS, SPREAD = 1500, 16, 15, 0.6
WAIT_S = 300
TESTS = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

TUNING = clustered(512, DIMENSION, CLUSTERS, SPREAD, seed=4)
KINDS = ("flat", "ivf_pq")
Built = dict[str, tuple[Path, DensePart]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """These indexes are so small that threads would mostly wait for each other."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    return (
        clustered(COUNT, DIMENSION, CLUSTERS, SPREAD, seed=1)
        .astype(np.float16)
        .astype(np.float32)
    )


@pytest.fixture(scope="module")
def queries() -> NDArray[np.float32]:
    return clustered(64, DIMENSION, CLUSTERS, SPREAD, seed=2)


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, vectors: NDArray[np.float32]
) -> Built:
    root = tmp_path_factory.mktemp("dense")
    return {
        kind: (
            root / kind,
            build_dense(Arrays(vectors), root / kind, queries=queries),
        )
        for kind, queries in zip(KINDS, (None, TUNING), strict=True)
    }


def brute(
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Every product, in numpy alone."""
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    if allowed is not None:
        products[:, ~allowed] = -np.inf
    order = np.argsort(-products, axis=1)[:, :k]
    scores = np.take_along_axis(products, order, 1).astype(np.float32)
    return scores, np.where(np.isfinite(scores), order, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_finds_what_its_account_says(
    built: Built,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    kind: str,
) -> None:
    folder, part = built[kind]
    index = DenseIndex(folder, part)
    scores, ordinals = index.search(queries, 32)
    expected_scores, expected = brute(vectors, queries, 32)
    assert (scores.shape, scores.dtype, ordinals.dtype) == (
        (64, 32),
        np.float32,
        np.int64,
    )
    assert (np.diff(scores, axis=1) <= 0).all(), "best first"
    found = recall(ordinals, expected)
    if kind == "flat":
        assert found == 1
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    else:
        assert part.recall.value >= 0.95
        assert part.recall.queries == 256
        assert found >= 0.93, "these are new draws"
    true = np.take_along_axis(queries @ vectors.T, ordinals, 1)
    np.testing.assert_allclose(
        scores, true, rtol=2e-3, atol=2e-3, err_msg="a score is the product"
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.0, 0.0004, 0.01, 0.3, 0.9, 1.0]),
    k=st.integers(1, 40),
)
def test_nothing_that_is_not_allowed_is_found(
    built: Built,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    kind: str,
    seed: int,
    share: float,
    k: int,
) -> None:
    allowed = np.random.default_rng(seed).random(COUNT) < share
    folder, part = built[kind]
    index = DenseIndex(folder, part)
    scores, ordinals = index.search(queries[:4], k, allowed)
    assert ordinals.shape == scores.shape == (4, k)
    found = ordinals[ordinals >= 0]
    assert allowed[found].all()
    assert np.isfinite(scores[ordinals >= 0]).all()
    for row in ordinals:
        held = row[row >= 0]
        assert len(set(held.tolist())) == len(held), "a passage is found once"
    if kind == "flat":
        assert (
            recall(ordinals, brute(vectors, queries[:4], k, allowed)[1]) == 1
            or not allowed.any()
        )
    elif 0 < int(allowed.sum()) <= 32 and share < 0.3:
        assert recall(ordinals, brute(vectors, queries[:4], k, allowed)[1]) > 0.9


def test_more_asked_for_than_there_is(
    built: Built, queries: NDArray[np.float32]
) -> None:
    folder, part = built["flat"]
    scores, ordinals = DenseIndex(folder, part).search(queries[:2], COUNT + 5)
    assert scores.shape == ordinals.shape == (2, COUNT)
    assert (np.sort(ordinals[0]) == np.arange(COUNT)).all()


def test_no_query_gives_no_row(built: Built) -> None:
    for folder, part in built.values():
        scores, ordinals = DenseIndex(folder, part).search(
            np.empty((0, DIMENSION), dtype=np.float32), 5
        )
        assert scores.shape == ordinals.shape == (0, 5)


def test_threads_share_an_index(built: Built, queries: NDArray[np.float32]) -> None:
    folder, part = built["ivf_pq"]
    index = DenseIndex(folder, part)
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
    built: Built,
    queries: NDArray[np.float32],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for kind, (folder, part) in built.items():
        expected = DenseIndex(folder, part).search(queries, 5)[1]
        moved = tmp_path / kind
        moved.mkdir()
        (moved / "index.faiss").write_bytes((folder / "index.faiss").read_bytes())
        np.testing.assert_array_equal(
            DenseIndex(moved, part).search(queries, 5)[1], expected
        )
    assert capfd.readouterr() == ("", "")


def test_a_part_survives_json(built: Built) -> None:
    for _, part in built.values():
        assert DensePart.model_validate_json(part.model_dump_json()) == part


def test_exact_agrees_with_brute_force(
    vectors: NDArray[np.float32], queries: NDArray[np.float32]
) -> None:
    np.testing.assert_array_equal(
        exact(Arrays(vectors), queries, 40), brute(vectors, queries, 40)[1]
    )


@pytest.mark.thorough
def test_an_unreachable_target_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    source = Arrays(rng.standard_normal((2000, 64)).astype(np.float32))
    given = rng.standard_normal((50, 64)).astype(np.float32)
    monkeypatch.setattr("medlive.evidence.dense.TARGET", 1.0)
    part = build_dense(source, tmp_path, given)
    assert part.parameters is not None
    assert (part.recall.target, part.recall.queries) == (1.0, 25)
    assert part.parameters["nprobe"] == part.parameters["nlist"], (
        "all cells are searched"
    )
    monkeypatch.setattr("medlive.evidence.dense.TARGET", 0.5)
    part = build_dense(source, tmp_path, given)
    assert part.parameters is not None
    assert part.parameters["nprobe"] < part.parameters["nlist"]
    assert 0.4 < part.recall.value < 1, "a lower target is met at a lower cost"


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named(built: Built, tmp_path: Path, kind: str) -> None:
    _, part = built[kind]
    (tmp_path / "index.faiss").write_bytes(b"\0" * 1000)
    with pytest.raises(IndexCorrupt) as caught:
        DenseIndex(tmp_path, part)
    assert "medlive evidence build" in (caught.value.hint or "")


def test_a_foreign_index_is_refused(built: Built) -> None:
    folder, part = built["flat"]
    with pytest.raises(IndexCorrupt):
        DenseIndex(folder, part.model_copy(update={"count": 1499}))


def test_one_passage(tmp_path: Path) -> None:
    few = clustered(3, DIMENSION, CLUSTERS, SPREAD, seed=7)
    part = build_dense(Arrays(few[:1]), tmp_path)
    assert DenseIndex(tmp_path, part).search(few, 2)[1].tolist() == [[0]] * 3


def test_an_odd_dimension_has_product_codes(tmp_path: Path) -> None:
    vectors = clustered(200, 7, 5, SPREAD, seed=8)
    part = build_dense(Arrays(vectors), tmp_path, queries=vectors[::4])
    assert part.recall.value > 0.9


def test_an_index_over_stored_vectors(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    store = VectorStore(tmp_path / "store", encoder.identity)
    store.embed_missing(items(range(90)), encoder, shard_size=25)
    order = keys(range(89, -1, -1))
    source = store.vectors(order)
    rows = source.rows(np.arange(90))
    part = build_dense(source, tmp_path / "out", queries=rows)
    assert part.keys_digest == keys_digest(order) != keys_digest(np.sort(order))
    index = DenseIndex(tmp_path / "out", part)
    assert recall(index.search(rows, 1)[1], brute(rows, rows, 1)[1]) >= 0.95


_FULL = """
import resource, sys
from pathlib import Path
from medlive.errors import DiskFull
from medlive.evidence.dense import build_dense
from tests.support.embedding import Arrays, clustered
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    build_dense(Arrays(clustered(1500, 16, 15, 0.6, seed=1)), Path(sys.argv[1]))
except DiskFull as exc:
    print(exc.message, exc.hint)
"""


@pytest.mark.thorough
def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FULL, str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=TESTS,
        env=ENVIRONMENT,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    for words in ("index.faiss", "no space is left", "run this again"):
        assert words in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_query_is_made_of_a_passage() -> None:
    text = "Metformin lowers glucose in adults. It is taken twice a day."
    assert as_query("Metformin", text) == "Metformin lowers glucose in adults."
    assert as_query(
        "二甲双胍", "糖尿病患者应当控制饮食并坚持运动，同时按时按量服用药物。第二句。"
    ).startswith("糖尿病")
    assert as_query("Metformin", "Short.") == "Metformin"
    assert as_query("", "") == ""
    assert as_query("title", "x" * 1_000_000) == "title"
