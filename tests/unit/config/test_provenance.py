"""What a release was built from: every file by its digest, the commit as git names it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout by git")
def test_it_names_every_file_and_the_commit(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("b.tar.gz", "a.whl")]
    for file in files:
        file.write_bytes(file.name.encode() * 1000)
    sums = subprocess.run(
        ["sha256sum", *files], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    expected = {
        Path(path).name: digest for digest, path in (line.split("  ") for line in sums)
    }
    command = [sys.executable, str(ROOT / "deploy" / "provenance.py"), *map(str, files)]
    found = json.loads(
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path).stdout
    )
    assert {
        one["name"]: one["digest"]["sha256"] for one in found["subject"]
    } == expected
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    source, _ = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"]["gitCommit"] == head.strip()
