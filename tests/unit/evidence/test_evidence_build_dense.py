"""Building vectors beside words: only what is new is embedded, no death of a build changes the index in force."""

import asyncio
import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from medlive.errors import (
    ConfigError,
    DiskFull,
    EvidenceUnavailable,
    IndexCorrupt,
)
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.index import open_index, verify_index
from medlive.evidence.manifest import (
    MANIFEST,
    IndexManifest,
    describe_retriever,
    read_manifest,
)
from medlive.evidence.passage import Hit
from medlive.evidence.plan import WORDS_ALONE, IndexPlan, plan_index
from medlive.evidence.vectors import VectorStore
from tests.support.hashing_encoder import HashingEncoder, index_plan, named
from tests.support.instance import REPOSITORY

pytestmark = pytest.mark.whole


def corpus_file(
    folder: Path, name: str, count: int, *, first: int = 0, word: str = "gout"
) -> Path:
    place = folder / f"{name}.jsonl"
    rows = [
        {
            "id": str(n),
            "title": f"Page {n}",
            "text": f"{word} number {n} eased by drug{n % 7} in {n % 11}.",
        }
        for n in range(first, first + count)
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


plan = index_plan


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medlive.evidence.vectors.SHARD", 50)


def found(index: Path, query: str, encoder: HashingEncoder) -> list[Hit]:
    return asyncio.run(
        open_index(index, encoders=named(encoder)).search([(query,)], k=5)
    )[0]


@pytest.mark.thorough
def test_a_second_corpus_embeds_only_its_own_and_a_changed_one_only_the_change(
    tmp_path: Path,
) -> None:
    index, encoder = tmp_path / "index", HashingEncoder()
    a, b = (
        corpus_file(tmp_path, "a", 120),
        corpus_file(tmp_path, "b", 30, word="asthma"),
    )

    def build(*paths: Path) -> tuple[IndexManifest, int]:
        encoder.passages.clear()
        manifest = build_index(
            [open_corpus(p) for p in paths], index, plan=plan(encoder)
        )
        return manifest, len(encoder.passages)

    assert build(a)[1] == 120
    both, embedded = build(b)
    assert (embedded, both.passages) == (30, 150)
    again, embedded = build(b)
    assert (again.index_digest, embedded) == (both.index_digest, 0)
    corpus_file(tmp_path, "a", 121)
    assert build(a)[1] == 1
    assert found(index, "asthma number 3", encoder)[0].passage.corpus == "b"
    # The same passages at once give the same index.
    other = HashingEncoder()
    at_once = build_index(
        [open_corpus(a), open_corpus(b)], tmp_path / "other", plan=plan(other)
    )
    assert at_once.index_digest == read_manifest(index).index_digest


@pytest.mark.thorough
def test_the_index_digest_follows_encoder_kind_and_corpora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = open_corpus(corpus_file(tmp_path, "a", 60))
    plans = {
        "words": WORDS_ALONE,
        "hashing": plan(HashingEncoder()),
        "salted": plan(HashingEncoder(salt="x")),
    }
    built = {
        name: build_index([a], tmp_path / name, plan=p) for name, p in plans.items()
    }
    # Another kind of the same encoder is another index.
    monkeypatch.setattr("medlive.evidence.dense.FLAT_UP_TO", 59)
    compressed = build_index([a], tmp_path / "more", plan=plan(HashingEncoder()))
    assert compressed.dense[0].part.kind == "ivf_pq"
    assert built["words"].dense == ()
    digests = {manifest.index_digest for manifest in built.values()}
    assert len(digests | {compressed.index_digest}) == 4


def test_vectors_of_other_encoders_stay(tmp_path: Path) -> None:
    index = tmp_path / "index"
    a = open_corpus(corpus_file(tmp_path, "a", 20))
    first, second = HashingEncoder(), HashingEncoder(salt="second")
    for encoder in (first, second, first):
        build_index([a], index, plan=plan(encoder))
    assert len(first.passages) == 20


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.support.hashing_encoder import HashingEncoder, index_plan, named
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence import dense, vectors
vectors.SHARD, dense.FLAT_UP_TO = 100, 0
class Slow(HashingEncoder):
    def encode_passages(self, pairs):
        time.sleep(0.01)
        return super().encode_passages(pairs)
def tell(passages):
    print(passages, flush=True)
build_index([open_corpus(sys.argv[1])], Path(sys.argv[2]), tell,
            plan=index_plan(Slow()))
"""


@pytest.mark.thorough
def test_killed_at_any_moment_the_old_index_answers_and_the_next_build_goes_on(
    tmp_path: Path,
) -> None:
    index, encoder = tmp_path / "index", HashingEncoder()
    old = build_index(
        [open_corpus(corpus_file(tmp_path, "small", 30))], index, plan=plan(encoder)
    )
    big = corpus_file(tmp_path, "big", 700, word="asthma")
    chance = random.Random(5)
    reached: list[str] = []
    before = -1
    for wanted in ("100", "100"):  # The first shard is embedded
        with subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                str(big),
                str(index),
                str(REPOSITORY / "tests"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            counts = [line.strip() for line in _until(child.stdout, wanted)]
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
        reached += counts[-1:]
        # A build may be quicker than its murderer.
        if read_manifest(index) != old:
            break
        assert found(index, "gout number 3", encoder)[0].passage.title == "Page 3"
        verify_index(index)
        stored = len(VectorStore(index / "vectors", encoder.identity))
        assert stored >= before, "a finished shard is never redone"
        before = stored
    assert "100" in reached
    counting = HashingEncoder()
    new = build_index([open_corpus(big)], index, plan=plan(counting))
    assert new.passages == 730
    assert len(counting.passages) == 730 - before
    assert verify_index(index) == new
    assert found(index, "asthma number 634", counting)[0].passage.title == "Page 634"
    inside = {place.name for place in index.iterdir()}
    assert inside == {".lock", MANIFEST, "vectors", new.data}


def _until(lines: object, wanted: str) -> list[str]:
    seen: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        seen.append(line)
        if line.strip() == wanted:
            break
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("room", "dense"), [(60_000, False), (450_000, True), (1_500_000, True)]
)
def test_a_disk_that_fills_names_the_file_and_leaves_the_old_index(
    tmp_path: Path, room: int, dense: bool
) -> None:
    index, encoder = tmp_path / "index", HashingEncoder(dimension=512)
    old = build_index(
        [open_corpus(corpus_file(tmp_path, "small", 20))], index, plan=plan(encoder)
    )
    big = open_corpus(corpus_file(tmp_path, "big", 1500, word="asthma"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file that may not grow is to a program what a full disk is.
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(DiskFull) as caught:
            build_index([big], index, plan=plan(encoder) if dense else None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_status == 3
    assert str(index) in caught.value.message
    assert "make room" in (caught.value.hint or "")
    assert "still in force" in (caught.value.hint or "")
    assert read_manifest(index) == old
    assert found(index, "gout number 3", encoder)[0].passage.title == "Page 3"
    assert not [
        place for place in index.iterdir() if place.name.startswith("building-")
    ]
    assert build_index([big], index, plan=plan(encoder)).passages == 1520


def test_vectors_of_other_passages_are_found_by_verification(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for index, word in ((one, "gout"), (two, "lupi")):
        folder = tmp_path / word
        folder.mkdir()
        corpus = open_corpus(corpus_file(folder, "a", 20, word=word))
        build_index([corpus], index, plan=plan(HashingEncoder()))
    manifests = [json.loads((index / MANIFEST).read_text()) for index in (one, two)]
    vectors = "dense/0/index.faiss"
    (one / manifests[0]["data"] / vectors).write_bytes(
        (two / manifests[1]["data"] / vectors).read_bytes()
    )
    with pytest.raises(IndexCorrupt):
        verify_index(one)
    # With the account changed to fit, the passages still tell.
    manifests[0]["dense"] = manifests[1]["dense"]
    manifests[0]["files"] = [
        next(f for f in manifests[1]["files"] if f["path"] == vectors)
        if f["path"] == vectors
        else f
        for f in manifests[0]["files"]
    ]
    (one / MANIFEST).write_text(json.dumps(manifests[0]))
    with pytest.raises(IndexCorrupt):
        verify_index(one)


def test_a_damaged_vector_that_is_kept_for_the_next_build_is_found_by_verification(
    tmp_path: Path,
) -> None:
    index, encoder = tmp_path / "index", HashingEncoder()
    build_index(
        [open_corpus(corpus_file(tmp_path, "a", 20))], index, plan=plan(encoder)
    )
    verify_index(index)
    place = next((index / "vectors").rglob("*.vec"))
    data = bytearray(place.read_bytes())
    data[-2] ^= 1
    place.write_bytes(data)
    with pytest.raises(IndexCorrupt):
        verify_index(index)


def test_a_manifest_that_names_another_encoder_is_refused(tmp_path: Path) -> None:
    index, other = tmp_path / "index", HashingEncoder(salt="other")
    build_index(
        [open_corpus(corpus_file(tmp_path, "a", 20))],
        index,
        plan=plan(HashingEncoder()),
    )
    manifest = json.loads((index / MANIFEST).read_text())
    manifest["dense"][0]["encoder"]["digest"] = other.identity.digest
    (index / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(IndexCorrupt):
        open_index(index, encoders={"hashing": other})


@pytest.mark.parametrize("part", ["index.faiss", "gone"])
def test_a_damaged_dense_part_is_named(tmp_path: Path, part: str) -> None:
    index, encoder = tmp_path / "index", HashingEncoder()
    corpus = open_corpus(corpus_file(tmp_path, "a", 20))
    manifest = build_index([corpus], index, plan=plan(encoder))
    place = index / manifest.data / "dense" / "0" / "index.faiss"
    if part == "gone":
        place.unlink()
    else:
        place.write_bytes(b"#" * place.stat().st_size)
    with pytest.raises(IndexCorrupt) as caught:
        open_index(index, encoders=named(encoder))
    assert "medlive evidence build" in (caught.value.hint or "")
    build_index([corpus], index, plan=plan(encoder), fresh=True)
    assert found(index, "gout number 3", encoder)


def settings(home: Path) -> EncoderSettings:
    return EncoderSettings(models=home / "models")


def test_without_models_the_plan_is_words_alone_and_says_why(tmp_path: Path) -> None:
    index = tmp_path / "index"
    plan = plan_index(index, (), settings(tmp_path))
    assert plan.sides == ()
    assert "no encoder for en: medlive evidence models --download medcpt" in plan.reason
    assert "no encoder for zh: medlive evidence models --download bge-m3" in plan.reason
    corpus = open_corpus(corpus_file(tmp_path, "a", 5))
    manifest = build_index([corpus], index, plan=plan)
    assert (manifest.retriever, manifest.reason) == ("bm25", plan.reason)
    wanted = plan_index(index, ("none",), settings(tmp_path))
    assert (wanted.sides, wanted.reason) == ((), "no encoder was wanted")
    with pytest.raises(EvidenceUnavailable):
        plan_index(index, ("medcpt",), settings(tmp_path))
    configured = settings(tmp_path).model_copy(update={"encoders": {"en": "medcpt"}})
    with pytest.raises(EvidenceUnavailable):
        plan_index(index, (), configured)
    configured = settings(tmp_path).model_copy(update={"encoders": {"zh": "medcpt"}})
    with pytest.raises(ConfigError, match="does not read 'zh'"):
        plan_index(index, (), configured)


def test_the_retriever_is_described_in_a_line(tmp_path: Path) -> None:
    index, corpus = tmp_path / "default", open_corpus(corpus_file(tmp_path, "a", 20))
    assert describe_retriever(index).startswith("none: there is no evidence index at")
    day = f"{build_index([corpus], index).built_at:%Y-%m-%d}"
    words = f"index default of {day}, bm25 without vectors: no encoder was given"
    assert describe_retriever(index) == words
    build_index([corpus], index, plan=index_plan(HashingEncoder()))
    assert describe_retriever(index, "bm25").endswith(
        "bm25 without vectors, as asked for"
    )
    assert describe_retriever(index).startswith(
        f"index default of {day}, hybrid: hashing, flat, recall@32 1.000 (exact); en"
    )


CHINESE = ("小儿发热的处理", "高血压的用药选择", "胃食管反流的治疗")


def bilingual(folder: Path) -> Path:
    place = folder / "both.jsonl"
    rows = []
    for n in range(60):
        rows.append({"id": f"e{n}", "title": f"Disease number{n}", "text": "a drug"})
        chinese = {"id": f"z{n}", "title": f"{CHINESE[n % 3]}之{n}", "language": "zh"}
        rows.append(chinese | {"text": f"{CHINESE[n % 3]}，口服药物。"})
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return place


class Deaf(HashingEncoder):
    """Gives Chinese phrases one and the same vector, whatever it promises."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().encode_queries(texts)
        vectors[["之" in text for text in texts]] = np.eye(64, dtype=np.float32)[0]
        return vectors


def test_a_side_counts_what_it_finds_of_known_items_in_each_language(
    tmp_path: Path,
) -> None:
    encoder = Deaf()
    manifest = build_index(
        [open_corpus(bilingual(tmp_path))], tmp_path / "index", plan=plan(encoder)
    )
    english, chinese = manifest.dense[0].weights
    assert (english.language, english.items, chinese.language) == ("en", 60, "zh")
    assert english.weight > 0.5
    assert (chinese.weight, chinese.items) == (0.0, 60)
    encoder.query_batches.clear()
    retriever = open_index(tmp_path / "index", encoders=named(encoder))
    queries = [("小儿发热的处理之0",), ("Disease number7",)]
    zh, en = asyncio.run(retriever.search(queries, k=3))
    assert encoder.query_batches == [["Disease number7"]]
    assert zh[0].passage.id.startswith("both:z0:")
    assert en[0].passage.id.startswith("both:e7:")


def test_each_language_has_an_encoder_and_no_vector_of_another(tmp_path: Path) -> None:
    english = HashingEncoder("english", 512, languages=("en",))
    chinese = HashingEncoder("chinese", 512, salt="zh", languages=("zh",))
    sides = (*plan(english).sides, *plan(chinese).sides)
    index = tmp_path / "index"
    corpus = open_corpus(bilingual(tmp_path))
    manifest = build_index([corpus], index, plan=IndexPlan(sides, "a test"))
    assert [entry.part.count for entry in manifest.dense] == [60, 60]
    assert (len(english.passages), len(chinese.passages)) == (60, 60)
    verify_index(index)
    english.query_batches.clear()
    chinese.query_batches.clear()
    encoders = named(english) | named(chinese)
    retriever = open_index(index, encoders=encoders, retriever="dense")
    queries = [(f"{CHINESE[1]}之1",), ("Disease number7",)]
    zh, en = asyncio.run(retriever.search(queries, k=60))
    assert (english.query_batches, chinese.query_batches) == (
        [["Disease number7"]],
        [[f"{CHINESE[1]}之1"]],
    )
    assert {hit.passage.language for hit in zh} == {"zh"}
    assert en[0].passage.id.startswith("both:e7:")
