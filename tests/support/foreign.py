"""Files of other people's benchmarks, and the commands that read them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from medlive.cli.main import build

Rows = list[dict[str, Any]]


def medlive(*words: object) -> Any:
    """What `medlive eval` does with these words; it ends well."""
    line = ["eval", *map(str, words)]
    done = CliRunner().invoke(build(line), line)
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    return done


def lines(path: Path, rows: Sequence[object]) -> Path:
    """A file with a row a line."""
    path.write_text(
        "".join(
            (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
        ),
        "utf-8",
    )
    return path


def said(text: str, role: str = "user") -> dict[str, str]:
    """A turn of a conversation."""
    return {"role": role, "content": text}


def example(name: str, *rubrics: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A row of HealthBench."""
    row = {
        "prompt_id": name,
        "prompt": [said(f"What of {name}?")],
        "rubrics": list(rubrics),
        "example_tags": [],
    }
    return {**row, "ideal_completions_data": None, "canary": "x", **more}


def item(points: object, text: str = "Names it.", *tags: str) -> dict[str, Any]:
    """A criterion of HealthBench."""
    return {"criterion": text, "points": points, "tags": list(tags)}
