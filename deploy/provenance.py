"""Print what the files given were built from, as an in-toto statement with SLSA's provenance (slsa.dev, 1.0).

    python deploy/provenance.py dist/*.whl dist/*.tar.gz > dist/provenance.intoto.json

It says what whoever runs it vouches for: the statement is only as good as the signature over it.
"""

import hashlib
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def git(*arguments: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def statement(files: list[Path]) -> dict[str, Any]:
    """The statement about these files, built from the commit that is checked out."""
    commit = git("rev-parse", "HEAD")
    pins = hashlib.sha256((ROOT / "constraints.txt").read_bytes()).hexdigest()
    subjects = [{"name": f.name, "digest": {"sha256": hashlib.sha256(f.read_bytes()).hexdigest()}} for f in files]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": sorted(subjects, key=lambda subject: str(subject["name"])),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://pypi.org/project/build/",
                "externalParameters": {"script": "deploy/release.sh"},
                "internalParameters": {"python": platform.python_version(), "system": platform.platform()},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": "constraints.txt", "digest": {"sha256": pins}},
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:medlive:deploy/release.sh"},
                "metadata": {"finishedOn": datetime.now(UTC).isoformat(timespec="seconds")},
            },
        },
    }


if __name__ == "__main__":
    print(json.dumps(statement([Path(name) for name in sys.argv[1:]]), indent=2))
