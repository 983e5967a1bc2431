"""`medlive evidence models --download`: MedCPT's three models from a hub on this machine, at pinned revisions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medlive.evidence.encoders.folders import EncoderSettings, Role, find_models
from tests.support.hub import TOKEN, Hub, hub_server
from tests.support.instance import Instance
from tests.unit.evidence.test_evidence_encoder_folders import write_model


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with the three models at their pinned commits, and another commit as the head."""
    with hub_server() as running:
        for role in Role:
            kind = (
                {}
                if role.gives_vectors
                else {"architectures": ["BertForSequenceClassification"]}
            )
            folder = write_model(tmp_path / "published" / role.value, **kind)
            files = {file.name: file.read_bytes() for file in folder.iterdir()}
            files |= {
                "README.md": b"about",
                "pytorch_model.bin": b"the same weights again",
            }
            running.repositories.add(role.repository)
            running.commits[role.revision] = files
        running.commit("main", {"config.json": b"{}"}, "a later commit")
        yield running


def instance(tmp_path: Path, hub: Hub) -> Instance:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "0",
    }
    return Instance(
        home,
        None,
        environment | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )


@pytest.mark.thorough
def test_one_command_fetches_the_pinned_models(tmp_path: Path, hub: Hub) -> None:
    here = instance(tmp_path, hub)
    done = here.run("evidence", "models", "--download", "--json")
    for model, role in zip(done.json["models"], Role, strict=True):
        folder = tmp_path / "home" / "models" / role.value
        assert (model["role"], model["folder"]) == (role.value, str(folder))
        fetched = {file.name for file in folder.iterdir() if file.is_file()}
        assert fetched == {"config.json", "model.safetensors", "vocab.txt"}
        assert f"downloaded {folder}" in " ".join(done.err.split())
    found: list[Any] = find_models(
        EncoderSettings(
            tmp_path / "home", environment={"HF_HOME": str(tmp_path / "hf")}
        )
    )
    assert [model.model.dimension for model in found] == [8, 8, 8]
    requests = len(hub.requests)
    here.run("evidence", "models", "--download")
    assert not [path for _, path in hub.requests[requests:] if "safetensors" in path], (
        "fetched once"
    )


def test_a_hub_that_refuses_is_reported(tmp_path: Path, hub: Hub) -> None:
    hub.repositories.clear()
    done = instance(tmp_path, hub).run("evidence", "models", "--download", status=3)
    assert "ncbi/MedCPT-Query-Encoder cannot be downloaded" in " ".join(
        done.err.split()
    )
    assert "by hand" in done.err
