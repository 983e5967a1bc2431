"""Measures against outside oracles, and the evidence commands as a user meets them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from medlive.cli.evidence import mean_and_interval
from medlive.evidence.build import DensePlan, build_index, vectors_of
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.manifest import DenseKind, read_manifest
from medlive.evidence.measure import dense_recall, known_items
from medlive.evidence.open_index import open_index, open_store
from tests.support.hashing_encoder import HashingEncoder
from tests.support.instance import Instance

WORDS = (
    "fever",
    "pain",
    "rash",
    "cough",
    "dose",
    "gout",
    "asthma",
    "eczema",
    "sleep",
    "diet",
    "iron",
    "zinc",
    "salt",
    "milk",
    "tea",
    "rest",
    "walk",
    "heat",
    "cold",
    "wind",
)


def test_an_interval_holds_the_mean_and_shrinks_with_queries() -> None:
    few, many = (
        mean_and_interval([float(n % 4 == 0) for n in range(count)])
        for count in (40, 4000)
    )
    for measure in (few, many):
        assert measure["low"] < measure["mean"] == 0.25 < measure["high"]
    assert many["high"] - many["low"] < (few["high"] - few["low"]) / 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(3)
    rows = [
        {
            "id": str(n),
            "title": f"Page {n}",
            "date": str(2000 + n % 20),
            "text": " ".join(chance.choices(WORDS, k=12)).capitalize()
            + f" for case{n}.",
        }
        for n in range(200)
    ]
    place = tmp_path_factory.mktemp("corpus") / "notes.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


def test_known_items_are_words_of_their_passage_and_the_same_twice(
    tmp_path: Path, corpus: Path
) -> None:
    build_index([open_corpus(corpus)], tmp_path)
    store = open_store(tmp_path, read_manifest(tmp_path))
    items = known_items(store, 50)
    assert items == known_items(store, 50)
    assert len({item.passage for item in items}) == 50
    text_of = {passage.id: passage.text for passage in store}
    for item in items:
        assert item.query.split() == text_of[item.passage].split()[1::2]
    assert len(known_items(store, 1000)) == 200


def test_a_dense_side_is_measured_against_exact_search(
    tmp_path: Path, corpus: Path
) -> None:
    means = {}
    for kind in (DenseKind.FLAT, DenseKind.IVF_PQ):
        encoder = HashingEncoder()
        plan = DensePlan(encoder, "no-such-model", "a test's choice", kind)
        manifest = build_index([open_corpus(corpus)], tmp_path / kind, dense=plan)
        side = open_index(tmp_path / kind, encoder=encoder).dense
        part = side.index.part
        if part.parameters is not None:
            careless = part.parameters.model_copy(update={"nprobe": 1})
            side.index.part = part.model_copy(update={"parameters": careless})
        store = open_store(tmp_path / kind, manifest)
        queries = [item.query for item in known_items(store, 40)]
        shares = dense_recall(
            side, vectors_of(tmp_path / kind, manifest), store, queries, 10
        )
        assert len(shares) == 40
        means[kind] = float(np.mean(shares))
    # Vectors that tie at the tenth place may be any of the tied.
    assert means[DenseKind.FLAT] > 0.98
    assert means[DenseKind.FLAT] > means[DenseKind.IVF_PQ] > 0.2


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    home = tmp_path_factory.mktemp("home")
    return Instance(home, None, {"HF_HOME": str(home / "cache")})


def test_the_commands_say_which_retriever_runs_and_why(
    instance: Instance, corpus: Path, tmp_path: Path
) -> None:
    built = instance.here("evidence", "build", corpus)
    assert "bm25 only (no encoder: ncbi/MedCPT-Query-Encoder and" in built.err
    assert "200 passages, bm25 only: no encoder" in " ".join(built.out.split())
    found = instance.here("evidence", "search", "fever case7", "-k", "2")
    assert "bm25 only: no encoder" in found.err
    assert "notes:7:-.1" in found.out
    assert "lexical 1 (" in found.out
    asked = (
        "evidence",
        "search",
        "rash",
        "fever",
        "--not-after",
        "2005-12-31",
        "--corpus",
        "notes",
        "--json",
    )
    answer = instance.here(*asked).json
    assert answer["retriever"] == "bm25"
    assert {found["phrase"] for hit in answer["hits"] for found in hit["found_by"]} == {
        0,
        1,
    }
    assert all(hit["published"] <= "2005-12-31" for hit in answer["hits"])
    listed = instance.here("evidence", "list", "--json").json
    assert [(i["manifest"]["retriever"], i["manifest"]["dense"]) for i in listed] == [
        ("bm25", None)
    ]
    assert "bm25" in instance.here("evidence", "list").out
    assert "as they were built" in instance.here("evidence", "verify").err
    measured = instance.here("evidence", "bench", "--queries", "20", "--json").json
    assert measured["index_digest"] == listed[0]["manifest"]["index_digest"]
    assert [row["retriever"] for row in measured["retrievers"]] == ["bm25"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("search", "fever", "--corpus", "leaflets"), 2, "expected one of notes"),
        (("search", "fever", "--retriever", "hybrid"), 2, "--encoder NAME"),
        (("build", "nowhere.xml"), 2, "there is no nowhere.xml"),
        (
            ("search", "fever", "--rerank", "medcpt"),
            3,
            "MedCPT-Cross-Encoder was not found",
        ),
        (("search", "fever", "--index", "nowhere"), 3, "medlive evidence build"),
        (("models", "--require"), 3, "models --download fetches the models"),
    ],
)
def test_what_cannot_be_done_exits_with_the_way_out(
    instance: Instance, corpus: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    if not (instance.home / "evidence").exists():
        instance.here("evidence", "build", corpus, "--encoder", "none")
    assert said in " ".join(
        instance.here("evidence", *arguments, status=status).err.split()
    )


def test_a_build_says_which_corpus_it_replaces(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    for number, said in (
        (1, None),
        (2, "notes: 2 passages in the place of the 1 there were"),
        (2, None),
    ):
        (tmp_path / "notes" / f"{number}.txt").write_text(
            f"Fever number {number} passes.", encoding="utf-8"
        )
        built = instance.here(
            "evidence",
            "build",
            tmp_path / "notes",
            "--index",
            tmp_path / "index",
            "--encoder",
            "none",
        )
        assert (said or "notes") in built.err + built.out
        assert ("in the place of" in built.err) is (said is not None)


def test_an_index_without_a_sentence_to_ask_by_is_not_measured(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text(
        "高血压患者应限制钠盐摄入。", encoding="utf-8"
    )
    index = tmp_path / "index"
    instance.here(
        "evidence", "build", tmp_path / "notes", "--index", index, "--encoder", "none"
    )
    told = instance.here("evidence", "bench", "--index", index, status=2)
    assert "sentence of 8 words" in told.err
