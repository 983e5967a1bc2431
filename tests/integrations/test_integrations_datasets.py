"""`datasets.load_dataset` reads a snapshot's folder as it is, and what was published to the hub."""

import json
from pathlib import Path

import pytest

from medlive import load_snapshot
from medlive.publishing.huggingface import HubRepository
from tests.integrations.conftest import run
from tests.support.hub import TOKEN, hub_server
from tests.support.publishing import a_snapshot, prepared

READ = """
import json, sys
from datasets import load_dataset
for name in ("cases", "criteria"):
    rows = load_dataset(sys.argv[1], name, split="test")
    print(json.dumps([rows[i] for i in range(len(rows))], default=str))
"""


def test_load_dataset_reads_the_rows_that_we_read(
    harness_bin: Path, snapshot: Path, tmp_path: Path
) -> None:
    printed = run(
        harness_bin / "python", "-c", READ, snapshot, home=tmp_path, check=True
    )
    cases, criteria = (json.loads(line) for line in printed.splitlines()[-2:])
    loaded = load_snapshot(snapshot)
    for theirs, table in (
        (cases, loaded.to_arrow("cases")),
        (criteria, loaded.to_arrow("criteria")),
    ):
        ours = table.to_pylist()
        assert [{k: str(v) for k, v in row.items()} for row in theirs] == [
            {k: str(v) for k, v in row.items()} for row in ours
        ]
    assert len(criteria) == sum(len(case.criteria) for case in loaded)


LOADED = """
import sys
from datasets import load_dataset
for revision in ("2026.W46", "2026.W47", None):
    print(load_dataset(sys.argv[1], revision=revision, split="test").num_rows)
"""


@pytest.mark.filterwarnings(
    "ignore:Use 'content=:DeprecationWarning"
)  # the hub's client does so
def test_one_line_loads_a_published_version_or_the_newest(
    harness_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    at = "some-group/medlive"
    with hub_server() as hub:
        for version, cases in (("2026.W46", 1), ("2026.W47", 2)):
            snapshot = prepared(a_snapshot(tmp_path, version, cases=cases))
            HubRepository(at, endpoint_url=hub.url).publish(snapshot)
        # The client reads the hub's address once, when it is imported.
        hub_here = {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_DATASETS_OFFLINE": "0",
        }
        printed = run(
            harness_bin / "python",
            "-c",
            LOADED,
            at,
            home=tmp_path,
            check=True,
            **hub_here,
            HF_HUB_DISABLE_TELEMETRY="1",
        )
    assert printed.split() == ["1", "2", "2"]
