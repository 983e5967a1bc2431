"""The sample evidence indexed once, clean and with hostile passages in it."""

import json
from collections.abc import Callable, Mapping

import pytest

from medlive.demo.samples import SampleThread, load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from medlive.evidence.passage import Retriever
from tests.support.attack_list import POISON


@pytest.fixture(scope="session")
def samples() -> Mapping[str, SampleThread]:
    """The sample consultations by their ids."""
    return {t.thread_id: t for t in load_sample_threads()}


@pytest.fixture(scope="session")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Retriever]:
    """`evidence(poisoned)`: the sample evidence, or the same with passages that give orders."""
    folder = tmp_path_factory.mktemp("attacks")
    hostile = [
        {
            "id": a.id,
            "title": "",
            "text": a.words,
            "language": a.language,
            "date": "2025-01-01",
            "url": "",
            "licence": "test",
        }
        for a in POISON
    ]
    clean = sample_evidence_path().read_text(encoding="utf-8").rstrip("\n")
    lines = [json.dumps(row, ensure_ascii=False) for row in hostile]
    found: list[Retriever] = []
    for name, text in (("clean", clean), ("poisoned", "\n".join([clean, *lines]))):
        path = folder / f"{name}.jsonl"
        path.write_text(text + "\n", encoding="utf-8")
        build_index([open_corpus(path, name="demo")], folder / f"index-{name}")
        found.append(open_index(folder / f"index-{name}"))
    return lambda poisoned: found[poisoned]
