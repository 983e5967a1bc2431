"""Where models are looked for and what is wrong with them, without loading one: no torch is needed to say it."""

import json
import struct
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx2
import numpy as np
import pytest

from medlive.errors import (
    EvidenceUnavailable,
    MissingExtra,
    ServiceUnavailable,
    UsageError,
)
from medlive.evidence.encoders.folders import (
    PACKAGES,
    check_folder,
    download_models,
    find_folder,
    find_problem,
    folder_digest,
)
from medlive.evidence.encoders.opening import open_encoder, open_reranker
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings

QUERY = "ncbi/MedCPT-Query-Encoder"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "fever"]
CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 8,
    "vocab_size": len(TOKENS),
}


def write_model(folder: Path, **changes: Any) -> Path:
    """What a model folder looks like from outside: weights of two numbers with a true header."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    ).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + b"\0" * 8
    )
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return folder


def settings_of(tmp_path: Path, **more: Any) -> EncoderSettings:
    return EncoderSettings(models=tmp_path / "models", **more)


def test_the_place_is_named_when_there_is_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    place = tmp_path / "models" / "MedCPT-Query-Encoder"
    problem = find_problem(settings.find("medcpt"), settings)
    with pytest.raises(EvidenceUnavailable) as caught:
        find_folder(QUERY, settings)
    assert caught.value.message == problem == f"{QUERY} was not found in {place}"
    assert write_model(place) == find_folder(QUERY, settings)
    (place / "config.json").unlink()
    with pytest.raises(EvidenceUnavailable, match=r"config\.json cannot be read"):
        find_folder(QUERY, settings)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "m")
    check_folder(folder)
    (folder / name).unlink()
    with pytest.raises(EvidenceUnavailable) as caught:
        check_folder(folder)
    assert name.replace("model.", "*.") in caught.value.message
    assert str(folder) in caught.value.message


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    remote = write_model(tmp_path / "a", auto_map={"AutoModel": "modeling.Evil"})
    with pytest.raises(EvidenceUnavailable, match="auto_map"):
        check_folder(remote)
    module = write_model(tmp_path / "b")
    modules = [{"idx": 0, "path": "", "type": "custom_st.Transformer"}]
    (module / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EvidenceUnavailable, match="custom_st"):
        check_folder(module)


def test_a_folder_that_lacks_its_pooling_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EvidenceUnavailable, match="1_Pooling"):
        check_folder(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    check_folder(folder)


@pytest.mark.parametrize("text", ["", "{", "\udcff", "[" * 100_000, "5", '["a"]'])
@pytest.mark.parametrize("name", ["config.json", "modules.json"])
def test_files_that_are_not_json_are_named(
    tmp_path: Path, name: str, text: str
) -> None:
    folder = write_model(tmp_path / "m")
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(EvidenceUnavailable, match=name.replace(".", r"\.")):
        check_folder(folder)


def test_the_digest_is_of_every_file_that_makes_a_vector_and_of_no_other(
    tmp_path: Path,
) -> None:
    folder = write_model(tmp_path / "m")
    digests = [folder_digest(folder)]
    (folder / "README.md").write_text("about")
    assert folder_digest(folder) == digests[0]
    changed = bytearray((folder / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (folder / "model.safetensors").write_bytes(changed)
    digests.append(folder_digest(folder))
    (folder / "vocab.txt").write_text("\n".join(reversed(TOKENS)))
    digests.append(folder_digest(folder))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    digests.append(folder_digest(folder))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"layer_norm_eps": 1e-5}))
    digests.append(folder_digest(folder))
    assert len(set(digests)) == 5
    assert all(digest.startswith("sha256:") for digest in digests)


def test_without_the_extra_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in PACKAGES:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(
        sys.modules, "medlive.evidence.encoders.sentence", raising=False
    )
    monkeypatch.setattr(builtins, "__import__", refuse)
    for name in ("MedCPT-Query-Encoder", "MedCPT-Article-Encoder"):
        write_model(tmp_path / "models" / name)
    with pytest.raises(MissingExtra) as caught:
        open_encoder("medcpt", settings=settings_of(tmp_path))
    assert caught.value.hint == "pip install 'medlive[dense]'"


def test_an_entry_of_ones_own_replaces_one_of_the_table(tmp_path: Path) -> None:
    own = {"medcpt": EncoderModel(query="somebody/else", languages=("zh",))}
    settings = settings_of(tmp_path, own_encoders=own)
    assert settings.find("medcpt").query == "somebody/else"
    assert next(iter(settings.table())) == "medcpt"
    with pytest.raises(UsageError, match="bge-m3"):
        settings.find("no-such-name")
    with pytest.raises(UsageError, match="no reranker"):
        open_reranker("multilingual-e5-small", settings=settings)


def test_a_reranker_may_be_a_folder_by_its_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="'mine' has no reranker"):
        open_reranker("mine", settings=settings_of(tmp_path))
    (tmp_path / "mine").mkdir()
    with pytest.raises(EvidenceUnavailable, match=r"mine/config\.json cannot be read"):
        open_reranker("mine", settings=settings_of(tmp_path))


def test_a_download_that_fails_without_words_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def time_out(*_: object, **__: object) -> None:
        raise httpx2.ReadTimeout("")

    monkeypatch.setattr(hub, "snapshot_download", time_out)
    monkeypatch.setattr(hub, "set_client_factory", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="cannot be downloaded: ReadTimeout"):
        download_models(EncoderModel(query="org/model"), settings_of(tmp_path))


class OneModel:
    """Notes how long a text it would read each time."""

    def __init__(self) -> None:
        self.max_seq_length = 512
        self.prompts: dict[str, str] = {}
        self.lengths: list[int] = []

    def get_embedding_dimension(self) -> int:
        return 2

    def encode_query(self, texts: list[str], **_: object) -> np.ndarray:
        self.lengths.append(self.max_seq_length)
        return np.ones((len(texts), 2), dtype=np.float32)

    encode_document = encode_query


def test_the_length_of_queries_is_not_that_of_passages_by_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "torch",
        "safetensors",
        "sentence_transformers",
        "sentence_transformers.sentence_transformer.modules",
        "transformers",
        "transformers.utils",
    ):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    name = "medlive.evidence.encoders.sentence"
    monkeypatch.delitem(sys.modules, name, raising=False)
    sentence = import_module(name)
    sys.modules.pop(name)
    loaded = OneModel()
    monkeypatch.setattr(sentence, "_load", lambda *_: loaded)
    monkeypatch.setattr(sentence, "folder_digest", str)
    model = EncoderModel(query="one", query_tokens=64)
    encoder = sentence.SentenceEncoder("one", model, settings_of(tmp_path), [tmp_path])
    encoder.encode_queries(["fever"])
    encoder.encode_passages([("fever", "cough")])
    encoder.encode_queries(["fever"])
    assert loaded.lengths == [64, 512, 64]
