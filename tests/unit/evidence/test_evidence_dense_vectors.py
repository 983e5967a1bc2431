"""Embeddings on disk: what is embedded once is never embedded again, killed or not."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from medlive.errors import EvidenceUnavailable, IndexCorrupt
from medlive.evidence.vectors import VectorStore
from tests.support.embedding import CountingEncoder, identity, items, keys, vector

WAIT_S = 300
TESTS = Path(__file__).parents[2]


def stamps(store: VectorStore) -> dict[str, tuple[int, int]]:
    return {
        place.name: (place.stat().st_ino, place.stat().st_mtime_ns)
        for place in store.folder.iterdir()
        if place.suffix in {".vec", ".json"}
    }


def check_holds(root: Path, numbers: Sequence[int]) -> None:
    store = VectorStore(root, identity())
    found = store.vectors(keys(numbers))
    expected = np.stack([vector(f"text {n}") for n in numbers]).astype(np.float16)
    np.testing.assert_array_equal(found.rows(np.arange(len(numbers))), expected)
    store.verify()
    assert len(store) == len(set(store._keys.tolist())), "a passage is stored twice"


def test_vectors_come_back_in_the_order_asked_for(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    store = VectorStore(tmp_path, encoder.identity)
    seen: list[int] = []
    store.embed_missing(items(range(50)), encoder, shard_size=20, progress=seen.append)
    assert (seen, len(store)) == ([20, 40, 50], 50)
    order = np.random.default_rng(1).permutation(50).tolist()
    check_holds(tmp_path, order)
    rows = store.vectors(keys(order)).rows(np.array([3, 0, 3]))
    np.testing.assert_array_equal(
        rows,
        np.stack([vector(f"text {order[n]}") for n in (3, 0, 3)]).astype(np.float16),
    )


def test_only_what_is_new_is_embedded(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    store = VectorStore(tmp_path, encoder.identity)
    store.embed_missing(items(range(30)), encoder, shard_size=20)
    before, encoder.texts = stamps(store), []
    store.embed_missing(items(range(10, 45)), encoder, shard_size=20)
    assert encoder.texts == [f"text {n}" for n in range(30, 45)]
    assert before.items() <= stamps(store).items()
    encoder.texts = []
    store.embed_missing(items(range(45)), encoder, shard_size=20)
    assert encoder.texts == []
    check_holds(tmp_path, range(45))


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    corpora=st.lists(st.lists(st.integers(0, 40), max_size=40), min_size=1, max_size=4),
    shard_size=st.integers(1, 12),
)
def test_any_series_of_corpora_is_embedded_once(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[list[int]], shard_size: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    encoder = CountingEncoder()
    store = VectorStore(root, encoder.identity)
    for corpus in corpora:
        store.embed_missing(items(corpus), encoder, shard_size=shard_size)
        check_holds(root, corpus) if corpus else None
    asked = {n for corpus in corpora for n in corpus}
    assert sorted(encoder.texts) == sorted(f"text {n}" for n in asked)
    shutil.rmtree(root)


_CHILD = """
import time, sys
from pathlib import Path
from medlive.evidence.vectors import VectorStore
from tests.support.embedding import CountingEncoder, items
root, stop_after, mark = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

class Stopping(CountingEncoder):
    def encode_passages(self, pairs):
        if len(self.texts) >= stop_after:
            mark.touch()
            time.sleep(600)
        time.sleep(0.002)
        return super().encode_passages(pairs)

encoder = Stopping()
VectorStore(root, encoder.identity).embed_missing(items(range(100)), encoder, shard_size=20)
print(*encoder.texts, sep="\\n")
"""


def child(root: Path, stop_after: int, mark: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _CHILD, str(root), str(stop_after), str(mark)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS)


def wait_for(mark: Path) -> None:
    until = time.monotonic() + WAIT_S
    while not mark.exists():
        assert time.monotonic() < until, f"{mark} never came"
        time.sleep(0.01)


@pytest.mark.thorough
def test_a_killed_process_loses_its_shard_and_no_other(tmp_path: Path) -> None:
    root, mark = tmp_path / "store", tmp_path / "mark"
    with child(root, 40, mark) as process:
        wait_for(mark)
        process.send_signal(signal.SIGKILL)
    store = VectorStore(root, identity())
    assert len(store) == 40, (
        "two shards of 20 were finished when the third was under way"
    )
    before = stamps(store)
    encoder = CountingEncoder()
    (store.folder / "shard-a.vec.part").write_bytes(b"half")
    store.embed_missing(items(range(100)), encoder, shard_size=20)
    assert encoder.texts == [f"text {n}" for n in range(40, 100)]
    assert before.items() <= stamps(store).items()
    check_holds(root, range(100))
    assert {place.suffix for place in store.folder.iterdir()} == {".vec", ".json"}


@pytest.mark.thorough
def test_a_corpus_that_changed_after_a_kill_is_planned_anew(tmp_path: Path) -> None:
    root, mark = tmp_path / "store", tmp_path / "mark"
    with child(root, 40, mark) as process:
        wait_for(mark)
        process.send_signal(signal.SIGKILL)
    store = VectorStore(root, identity())
    encoder = CountingEncoder()
    numbers = [*range(0, 100, 2), 200, 201]
    store.embed_missing(items(numbers), encoder, shard_size=20)
    assert sorted(encoder.texts) == sorted(f"text {n}" for n in numbers if n >= 40)
    check_holds(root, numbers)


@pytest.mark.parametrize(
    "wrong",
    [np.nan, np.inf, 1e6],
    ids=["not a number", "infinite", "beyond half precision"],
)
def test_a_vector_that_is_none_names_its_passage(tmp_path: Path, wrong: float) -> None:
    class Broken(CountingEncoder):
        def encode_passages(
            self, pairs: Sequence[tuple[str, str]]
        ) -> NDArray[np.float32]:
            vectors = super().encode_passages(pairs)
            vectors[[text == "text 13" for _, text in pairs], 2] = wrong
            return vectors

    store = VectorStore(tmp_path, identity())
    with pytest.raises(EvidenceUnavailable, match="title 13") as caught:
        store.embed_missing(items(range(30)), Broken(), shard_size=10)
    assert caught.value.hint
    assert len(VectorStore(tmp_path, identity())) == 10
    store.embed_missing(items(range(30)), CountingEncoder(), shard_size=10)
    check_holds(tmp_path, range(30))


def test_vectors_of_another_shape_are_refused(tmp_path: Path) -> None:
    class Short(CountingEncoder):
        def encode_passages(
            self, pairs: Sequence[tuple[str, str]]
        ) -> NDArray[np.float32]:
            return super().encode_passages(pairs)[1:]

    with pytest.raises(EvidenceUnavailable):
        VectorStore(tmp_path, identity()).embed_missing(items(range(5)), Short())


def test_passages_without_a_vector_are_counted(tmp_path: Path) -> None:
    store = VectorStore(tmp_path, identity())
    store.embed_missing(items(range(5)), CountingEncoder())
    with pytest.raises(EvidenceUnavailable, match="2 of 4"):
        store.vectors(keys([3, 4, 5, 6]))


def test_damage_names_the_file(tmp_path: Path) -> None:
    store = VectorStore(tmp_path, identity())
    store.embed_missing(items(range(5)), CountingEncoder())
    [place] = store.folder.glob("*.vec")
    whole = place.read_bytes()
    place.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IndexCorrupt, match=place.name):
        VectorStore(tmp_path, identity()).verify()
    place.write_bytes(whole[:-1])
    with pytest.raises(IndexCorrupt) as caught:
        VectorStore(tmp_path, identity())
    assert "medlive evidence build" in (caught.value.hint or "")
    place.unlink()
    with pytest.raises(IndexCorrupt):
        VectorStore(tmp_path, identity())
    place.with_suffix(".json").write_text("{}")
    with pytest.raises(IndexCorrupt):
        VectorStore(tmp_path, identity())


_FULL = """
import resource, sys
from pathlib import Path
from medlive.errors import DiskFull
from medlive.evidence.vectors import VectorStore
from tests.support.embedding import CountingEncoder, items
root, limit = Path(sys.argv[1]), int(sys.argv[2])
encoder = CountingEncoder()
store = VectorStore(root, encoder.identity)
store.embed_missing(items(range(20)), encoder, shard_size=20)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    store.embed_missing(items(range(4_000)), encoder, shard_size=3_000)
except DiskFull as exc:
    store = VectorStore(root, encoder.identity)
    left = [p.name for p in store.folder.iterdir() if p.name.endswith(".part")]
    print(exc.message, "|", exc.hint, "|", len(store), "|", left, "|", exc.exit_status)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["limit", "disk"])
def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, kind: str) -> None:
    limit = "60000" if kind == "limit" else "0"
    command = [sys.executable, "-c", _FULL, str(tmp_path), limit]
    if kind == "disk":
        mount = 'mount -t tmpfs -o size=100k none "$1" && shift && exec "$@"'
        unshare = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mount,
            "sh",
            str(tmp_path),
        ]
        if (
            shutil.which("unshare") is None
            or subprocess.run([*unshare, "true"], capture_output=True).returncode
        ):
            pytest.skip("this system lets nobody mount a small disk of his own")
        command = [*unshare, *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, cwd=TESTS
    )
    assert done.returncode == 0, done.stderr
    message, hint, stored, parts, status = done.stdout.strip().split(" | ")
    assert "/shard-" in message
    assert "no space is left" in message
    assert "run this again" in hint
    assert (stored, parts, status) == ("20", "[]", "3")
    if kind == "limit":
        encoder = CountingEncoder()
        VectorStore(tmp_path, identity()).embed_missing(items(range(100)), encoder)
        assert len(encoder.texts) == 80


def test_another_failure_is_not_called_a_full_disk(tmp_path: Path) -> None:
    store = VectorStore(tmp_path, identity())
    shutil.rmtree(store.folder)
    store.folder.write_text("a file", encoding="utf-8")
    with pytest.raises(OSError, match=r"store|exists|directory"):
        store.embed_missing(items(range(3)), CountingEncoder())
