"""Latent semantics: what stands together comes near, in any language; a damaged folder is never searched."""

import json
import random
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medlive.errors import BadInput, EvidenceUnavailable, IndexCorrupt, IndexOutdated
from medlive.evidence.encoder import EncoderSettings, open_encoder

# Looked for and not imported: every worker collects this file, one runs it, and the import takes a second.
if find_spec("sklearn") is None:
    pytest.skip("medlive[medcpt] is not installed: make medcpt", allow_module_level=True)

LsaEncoder: Any
LsaParameters: Any
fit_lsa: Any


@pytest.fixture(scope="module", autouse=True)
def _heavy() -> None:
    global LsaEncoder, LsaParameters, fit_lsa
    lsa = import_module("medlive.evidence.encoders.lsa")
    LsaEncoder, LsaParameters, fit_lsa = lsa.LsaEncoder, lsa.LsaParameters, lsa.fit_lsa


TOPICS = {
    "heart": ["infarction", "troponin", "stent", "angina", "coronary", "statin", "ischemia", "thrombus"],
    "lung": ["asthma", "wheeze", "spirometry", "inhaler", "bronchus", "salbutamol", "airway", "eosinophil"],
    "高血压": ["硝苯地平", "血压", "氨氯地平", "动脉", "降压", "头晕", "利尿剂", "卡托普利"],
}


def corpus(size: int = 120) -> list[tuple[str, str]]:
    """Passages of one topic each; each holds half of its topic's words."""
    chance = random.Random(0)
    topics = list(TOPICS)
    return [
        (topics[n % 3], " ".join(chance.sample(TOPICS[topics[n % 3]], 4)) + f" case{n % 7}") for n in range(size)
    ]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lsa") / "encoder"
    fit_lsa(iter(corpus()), folder, LsaParameters(dimension=3))
    return folder


def test_words_that_stand_together_come_near_without_being_shared(fitted: Path) -> None:
    encoder = LsaEncoder.open(fitted)
    passages = corpus()
    vectors = encoder.encode_passages(passages)
    assert vectors.shape == (120, encoder.identity.dimension) == (120, 3)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for place, (topic, words) in enumerate(TOPICS.items()):
        for word in words:
            scores = (encoder.encode_queries([word]) @ vectors.T)[0]
            own = np.array([n % 3 == place for n in range(len(passages))])
            unshared = np.array([word not in text for _, text in passages]) & own
            assert scores[unshared].mean() > scores[~own].mean() + 0.3, (topic, word)


def test_a_text_has_one_vector_whatever_stands_beside_it(fitted: Path) -> None:
    encoder = LsaEncoder.open(fitted)
    whole = encoder.encode_passages(corpus())
    alone = np.concatenate([encoder.encode_passages([pair]) for pair in corpus()[:9]])
    np.testing.assert_allclose(whole[:9], alone, atol=1e-6)


def test_any_text_is_taken_and_one_without_known_words_is_near_nothing(fitted: Path) -> None:
    encoder = LsaEncoder.open(fitted)
    texts = ["", "zzz", "lone \ud800 surrogate", "\x00", "😀", "stent " * 400_000]
    vectors = encoder.encode_queries(texts)
    np.testing.assert_array_equal(vectors[:2], 0)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors[5]) == pytest.approx(1, abs=1e-5)
    assert encoder.encode_passages([(text, text) for text in texts]).shape == (6, 3)
    assert encoder.encode_queries([]).shape == (0, 3)
    assert encoder.encode_passages([]).shape == (0, 3)


def test_the_same_corpus_gives_the_same_encoder_and_another_gives_another(fitted: Path, tmp_path: Path) -> None:
    first = LsaEncoder.open(fitted).identity
    again = fit_lsa(corpus(), tmp_path / "again", LsaParameters(dimension=3))
    assert (again.digest, again.backend, again.metric) == (first.digest, "lsa", "inner_product")
    other = fit_lsa(corpus(121), tmp_path / "other", LsaParameters(dimension=3))
    weighted = fit_lsa(corpus(), tmp_path / "weighted", LsaParameters(dimension=3, saturation=2))
    assert len({first.digest, other.digest, weighted.digest}) == 3
    settings = EncoderSettings(home=tmp_path)
    by_name, by_folder = open_encoder(f"lsa:{fitted}", settings=settings), open_encoder(fitted, settings=settings)
    assert by_name.identity == by_folder.identity == first


def test_the_fit_reads_once_and_keeps_no_more_than_its_sample(tmp_path: Path) -> None:
    taken = 0

    def passages() -> Iterator[tuple[str, str]]:
        nonlocal taken
        for pair in corpus(600):
            taken += 1
            yield pair

    fit_lsa(passages(), tmp_path / "lsa", LsaParameters(dimension=3, sample=60))
    assert taken == 600
    manifest = json.loads((tmp_path / "lsa" / "lsa.json").read_text())
    assert (manifest["passages"], manifest["sampled"]) == (600, 60)
    assert LsaEncoder.open(tmp_path / "lsa").fitted_on == 60


def test_a_corpus_that_is_too_small_is_said_to_be(tmp_path: Path) -> None:
    for pairs in ([], [("", "")] * 9, [("fever", "cough")], [("a", "alone"), ("b", "apart"), ("c", "other")]):
        with pytest.raises(BadInput, match="too few to analyse"):
            fit_lsa(pairs, tmp_path / "lsa")
    assert list(tmp_path.iterdir()) == []


def test_another_folder_is_not_overwritten_and_an_old_encoder_is(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(EvidenceUnavailable, match="mine holds something else"):
        fit_lsa(corpus(), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    old = Path(shutil.copytree(fitted, tmp_path / "old"))
    new = fit_lsa(corpus(90), old)
    assert LsaEncoder.open(old).identity == new
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "old"]
    (tmp_path / "file").write_text("")
    with pytest.raises(EvidenceUnavailable, match="under cannot be written"):
        fit_lsa(corpus(), tmp_path / "file" / "under")


@pytest.mark.parametrize("name", ["terms.json", "rarity.npy", "directions.npy"])
def test_a_damaged_file_is_named(fitted: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(fitted, tmp_path / "copy"))
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(IndexCorrupt, match=name.replace(".", r"\.")):
        LsaEncoder.open(folder)
    (folder / name).unlink()
    with pytest.raises(IndexCorrupt, match="is missing"):
        LsaEncoder.open(folder)


def test_a_folder_that_is_no_encoder_or_of_other_terms_is_refused(fitted: Path, tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnavailable, match=r"there is no .*lsa\.json"):
        LsaEncoder.open(tmp_path)
    folder = Path(shutil.copytree(fitted, tmp_path / "copy"))
    manifest = json.loads((folder / "lsa.json").read_text())
    (folder / "lsa.json").write_text(json.dumps(manifest | {"analyzer": "sha256:0"}))
    with pytest.raises(IndexOutdated, match="terms cut otherwise"):
        LsaEncoder.open(folder)
    (folder / "lsa.json").write_text(json.dumps(manifest | {"files": {"../../secret": "sha256:0"}}))
    with pytest.raises(IndexCorrupt, match="no description of an encoder"):
        LsaEncoder.open(folder)
    (folder / "lsa.json").write_text("{")
    with pytest.raises(IndexCorrupt, match="no description of an encoder"):
        LsaEncoder.open(folder)
