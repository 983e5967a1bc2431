"""`datasets.load_dataset` reads a snapshot's folder as it is."""

import json
from pathlib import Path

from medlive import load_snapshot
from tests.integrations.conftest import run

READ = """
import json, sys
from datasets import load_dataset
for name in ("cases", "criteria"):
    rows = load_dataset(sys.argv[1], name, split="test")
    print(json.dumps([rows[i] for i in range(len(rows))], default=str))
"""


def test_load_dataset_reads_the_rows_that_we_read(harness_bin: Path, snapshot: Path, tmp_path: Path) -> None:
    printed = run(harness_bin / "python", "-c", READ, snapshot, home=tmp_path, check=True)
    cases, criteria = (json.loads(line) for line in printed.splitlines()[-2:])
    loaded = load_snapshot(snapshot)
    for theirs, table in ((cases, "cases"), (criteria, "criteria")):
        ours = loaded.to_arrow(table).to_pylist()
        assert [{k: str(v) for k, v in row.items()} for row in theirs] == [
            {k: str(v) for k, v in row.items()} for row in ours
        ]
    assert len(criteria) == sum(len(case.criteria) for case in loaded)
