"""The evidence commands as a user meets them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.model import Reranker
from medlive.evidence.plan import WORDS_ALONE
from tests.support.instance import Instance

pytestmark = pytest.mark.whole

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
        for n in range(60)
    ]
    place = tmp_path_factory.mktemp("corpus") / "notes.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    home = tmp_path_factory.mktemp("home")
    return Instance(home, None, {"HF_HOME": str(home / "cache")})


def test_the_commands_say_which_retriever_runs_and_why(
    instance: Instance, corpus: Path
) -> None:
    built = instance.here("evidence", "build", corpus)
    assert (
        "bm25 without vectors (no encoder for en: medlive evidence models --download medcpt"
        in " ".join(built.err.split())
    )
    assert "60 passages, bm25 without vectors: no encoder" in " ".join(
        built.out.split()
    )
    found = instance.here("evidence", "search", "fever case7", "-k", "2")
    assert "bm25 without vectors: no encoder" in found.err
    assert "notes:7:-.1" in found.out
    assert "lexical 1 (" in found.out
    twice = ("rash", "fever", "rash")
    answer = instance.here("evidence", "search", *twice, "--json").json
    assert answer["index"]["retriever"] == "bm25"
    phrases = {side["phrase"] for hit in answer["hits"] for side in hit["sides"]}
    assert phrases == {0, 1}
    listed = instance.here("evidence", "list", "--json").json
    assert (listed["retriever"], listed["dense"]) == ("bm25", [])
    assert "bm25" in instance.here("evidence", "list").out
    assert "as it was built" in instance.here("evidence", "verify").err


def last_first(query: str, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """Likes the last passage best."""
    return np.arange(len(pairs), dtype=np.float32)


def test_a_list_says_what_was_measured_of_a_reranker(
    tmp_path: Path, corpus: Path
) -> None:
    reranker = Reranker("last", "sha256:" + "d" * 64, last_first)
    plan = WORDS_ALONE._replace(reranker=reranker)
    build_index([open_corpus(corpus)], tmp_path / "evidence" / "default", plan=plan)
    listed = Instance(tmp_path, None).here("evidence", "list").err
    assert "reranker" in listed
    assert "1.000" in listed


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("build", "nowhere.xml"), 2, "nowhere.xml cannot be read"),
        (("search", "fever", "--online", "--index", "x"), 2, "leave out --index"),
        (("search", "fever", "--index", "nowhere"), 3, "medlive evidence build"),
        (("models", "--download"), 2, "--download needs the names of encoders"),
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
