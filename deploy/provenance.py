"""Print what the files given were built from, as an in-toto statement with SLSA's provenance (slsa.dev, 1.0).

    python deploy/provenance.py dist/*.whl dist/*.tar.gz > dist/provenance.intoto.json
    python deploy/provenance.py registry.example/medlive@sha256:… > image.intoto.json

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
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def subject(name: str) -> dict[str, Any]:
    """An image by the digest that its name ends with, or a file by its own."""
    image, _, digest = name.partition("@sha256:")
    if digest:
        return {"name": image, "digest": {"sha256": digest}}
    return {
        "name": Path(name).name,
        "digest": {"sha256": hashlib.sha256(Path(name).read_bytes()).hexdigest()},
    }


def statement(names: list[str]) -> dict[str, Any]:
    """The statement about these files or images, built from the commit that is checked out."""
    commit = git("rev-parse", "HEAD")
    pins = hashlib.sha256((ROOT / "constraints.txt").read_bytes()).hexdigest()
    recipe = (
        "deploy/Dockerfile"
        if any("@sha256:" in name for name in names)
        else "deploy/release.sh"
    )
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": sorted(map(subject, names), key=lambda one: str(one["name"])),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"urn:medlive:{recipe}",
                "externalParameters": {"recipe": recipe},
                "internalParameters": {
                    "python": platform.python_version(),
                    "system": platform.platform(),
                },
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": "constraints.txt", "digest": {"sha256": pins}},
                ],
            },
            "runDetails": {
                "builder": {"id": f"urn:medlive:{recipe}"},
                "metadata": {
                    "finishedOn": datetime.now(UTC).isoformat(timespec="seconds")
                },
            },
        },
    }


if __name__ == "__main__":
    print(json.dumps(statement(sys.argv[1:]), indent=2))
