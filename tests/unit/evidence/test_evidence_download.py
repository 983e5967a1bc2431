"""`medlive evidence models --download medcpt`: its three models from a hub on this machine, at pinned revisions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from medlive.evidence.encoders.folders import check_folder
from medlive.evidence.encoders.table import EncoderSettings
from tests.support.hub import TOKEN, Hub, hub_server
from tests.support.instance import Instance
from tests.unit.evidence.test_evidence_encoder_folders import write_model

REVISIONS = EncoderSettings(models=Path()).find("medcpt").revisions


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with the three models at their pinned commits, and another commit as the head."""
    with hub_server() as running:
        for name, revision in REVISIONS.items():
            folder = write_model(tmp_path / "published" / name.rpartition("/")[2])
            files = {file.name: file.read_bytes() for file in folder.iterdir()}
            files |= {
                "README.md": b"about",
                "pytorch_model.bin": b"the same weights again",
            }
            running.repositories.add(name)
            running.commits[revision] = files
        running.commit("main", {"config.json": b"{}"}, "a later commit")
        yield running


def instance(tmp_path: Path, hub: Hub) -> Instance:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": TOKEN,
    }
    return Instance(
        home,
        None,
        environment | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )


@pytest.mark.thorough
def test_one_command_fetches_the_pinned_models(tmp_path: Path, hub: Hub) -> None:
    here = instance(tmp_path, hub)
    done = here.run("evidence", "models", "medcpt", "--download", "--json")
    assert [row["encoder"] for row in done.json["encoders"]] == ["medcpt"]
    for name in REVISIONS:
        folder = tmp_path / "home" / "models" / name.rpartition("/")[2]
        fetched = {file.name for file in folder.iterdir() if file.is_file()}
        assert fetched == {"config.json", "model.safetensors", "vocab.txt"}
        check_folder(folder)
        assert f"downloaded {folder}" in " ".join(done.err.split())
    requests = len(hub.requests)
    here.run("evidence", "models", "medcpt", "--download")
    assert not [path for _, path in hub.requests[requests:] if "safetensors" in path], (
        "fetched once"
    )


@pytest.mark.thorough
def test_a_hub_that_refuses_is_reported(tmp_path: Path, hub: Hub) -> None:
    hub.repositories.clear()
    done = instance(tmp_path, hub).run(
        "evidence", "models", "medcpt", "--download", status=3
    )
    assert "ncbi/MedCPT-Query-Encoder cannot be downloaded" in " ".join(
        done.err.split()
    )
    assert "by hand" in done.err
