"""Where models are looked for and what is wrong with them, without loading one: no torch is needed to say it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import EvidenceUnavailable, MissingExtra
from medlive.evidence.encoders.folders import (
    PACKAGES,
    EncoderSettings,
    FoundModel,
    Role,
    find_models,
    hugging_face_cache,
    open_folder,
)
from medlive.evidence.encoders.opening import open_encoder, open_reranker

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
    return EncoderSettings(
        home=tmp_path / "home", environment={"HF_HOME": str(tmp_path / "hf")}, **more
    )


def found(role: Role, settings: EncoderSettings) -> FoundModel:
    return next(model for model in find_models(settings) if model.role is role)


def test_all_that_is_needed_and_every_place_is_named_when_there_is_nothing(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path, models=tmp_path / "mine")
    models = find_models(settings)
    assert [model.role.repository for model in models] == [
        "ncbi/MedCPT-Query-Encoder",
        "ncbi/MedCPT-Article-Encoder",
        "ncbi/MedCPT-Cross-Encoder",
    ]
    with pytest.raises(EvidenceUnavailable) as caught:
        open_encoder("medcpt", settings=settings)
    assert caught.value.message == models[0].problem
    for place in ("mine", "home/models", "hf/hub"):
        assert str(tmp_path / place) in models[0].problem
    assert str(tmp_path / "mine" / Role.QUERY.value) in (caught.value.hint or "")
    with pytest.raises(EvidenceUnavailable):
        open_reranker("medcpt", settings=settings)


def test_the_first_place_that_holds_something_counts(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, models=tmp_path / "mine")
    write_model(tmp_path / "home" / "models" / Role.QUERY.value)
    at_home = found(Role.QUERY, settings)
    assert at_home.model is not None
    assert at_home.model.folder == tmp_path / "home" / "models" / Role.QUERY.value
    write_model(tmp_path / "mine" / Role.QUERY.value, hidden_size=16)
    configured = found(Role.QUERY, settings)
    assert configured.model is not None
    assert configured.model.folder == tmp_path / "mine" / Role.QUERY.value
    assert (configured.model.dimension, at_home.model.dimension) == (16, 8)
    assert configured.model.digest != at_home.model.digest
    # A damaged one is said to be damaged, not passed over for another model.
    (tmp_path / "mine" / Role.QUERY.value / "config.json").unlink()
    damaged = found(Role.QUERY, settings)
    assert damaged.model is None
    assert "lacks config.json" in damaged.problem
    with pytest.raises(EvidenceUnavailable):
        open_encoder("medcpt", settings=settings)


def test_the_cache_is_where_the_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    everything = {"XDG_CACHE_HOME": "/x", "HF_HOME": "/h", "HF_HUB_CACHE": "/new"}
    places = []
    while everything:
        places.append(str(hugging_face_cache(everything)))
        everything.popitem()
    assert places == ["/new", "/h/hub", "/x/huggingface/hub"]
    assert hugging_face_cache({}) == tmp_path / ".cache" / "huggingface" / "hub"


def test_a_pinned_revision_is_taken_rather_than_main(tmp_path: Path) -> None:
    cache = tmp_path / "hf" / "hub" / "models--ncbi--MedCPT-Query-Encoder"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("b" * 40 + "\n")
    write_model(cache / "snapshots" / ("b" * 40), hidden_size=8)
    model = found(Role.QUERY, settings_of(tmp_path)).model
    assert model is not None
    assert model.dimension == 8
    write_model(cache / "snapshots" / Role.QUERY.revision, hidden_size=4)
    model = found(Role.QUERY, settings_of(tmp_path)).model
    assert model is not None
    assert model.dimension == 4


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "m")
    open_folder(folder, Role.QUERY)
    (folder / name).unlink()
    with pytest.raises(EvidenceUnavailable) as caught:
        open_folder(folder, Role.QUERY)
    assert name in caught.value.message
    assert str(folder) in caught.value.message
    assert "ncbi/MedCPT-Query-Encoder" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "role", "message"),
    [
        ({"model_type": "gpt2"}, Role.QUERY, "is not the configuration of a BERT"),
        ({"hidden_size": None}, Role.QUERY, "is not the configuration of a BERT"),
        (
            {"architectures": ["BertForSequenceClassification"]},
            Role.ARTICLE,
            "scores pairs and does not embed",
        ),
        ({}, Role.CROSS, "embeds texts and does not score pairs"),
    ],
)
def test_another_model_s_folder_is_refused(
    tmp_path: Path, changes: dict[str, Any], role: Role, message: str
) -> None:
    folder = write_model(tmp_path / "m", **changes)
    with pytest.raises(EvidenceUnavailable, match=message) as caught:
        open_folder(folder, role)
    assert str(folder) in caught.value.message
    folder.rename(tmp_path / role.value)
    model = found(role, settings_of(tmp_path, models=tmp_path))
    assert message.split()[-1] in model.problem


@pytest.mark.parametrize("text", ["", "[]", "{", "\udcff", "[" * 100_000])
@pytest.mark.parametrize("name", ["config.json"])
def test_files_that_are_not_json_are_named(
    tmp_path: Path, name: str, text: str
) -> None:
    folder = write_model(tmp_path / "m")
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(EvidenceUnavailable, match=name.replace(".", r"\.")):
        open_folder(folder, Role.QUERY)


@pytest.mark.parametrize(
    "damage", ["cut", "longer", "empty", "no header", "not JSON", "odd header"]
)
def test_damaged_weights_are_named(tmp_path: Path, damage: str) -> None:
    folder = write_model(tmp_path / "m")
    file = folder / "model.safetensors"
    data = file.read_bytes()
    damaged = {
        "cut": data[:-1],
        "longer": data + b"\0",
        "empty": b"",
        "no header": b"\xff" * 64,
        "not JSON": struct.pack("<Q", 4) + b"nope",
        "odd header": struct.pack("<Q", 9) + b'{"w": []}',
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(EvidenceUnavailable) as caught:
        open_folder(folder, Role.QUERY)
    assert str(folder) in (caught.value.hint or "")


def test_the_digest_is_of_every_file_that_makes_a_vector_and_of_no_other(
    tmp_path: Path,
) -> None:
    folder = write_model(tmp_path / "m")
    digests = [open_folder(folder, Role.QUERY).digest]
    (folder / "README.md").write_text("about")
    assert open_folder(folder, Role.QUERY).digest == digests[0]
    changed = bytearray((folder / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (folder / "model.safetensors").write_bytes(changed)
    digests.append(open_folder(folder, Role.QUERY).digest)
    (folder / "vocab.txt").write_text("\n".join(reversed(TOKENS)))
    digests.append(open_folder(folder, Role.QUERY).digest)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    digests.append(open_folder(folder, Role.QUERY).digest)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"layer_norm_eps": 1e-5}))
    digests.append(open_folder(folder, Role.QUERY).digest)
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

    for name in [
        name for name in sys.modules if name.startswith("medlive.evidence.encoders.")
    ]:
        if not name.endswith("folders"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    write_model(tmp_path / Role.QUERY.value)
    write_model(tmp_path / Role.ARTICLE.value)
    with pytest.raises(MissingExtra) as caught:
        open_encoder(tmp_path, settings=settings_of(tmp_path))
    assert caught.value.hint == "pip install 'medlive[medcpt]'"
