"""A slice of a snapshot as one file: what is exported is data to work with, and no snapshot any more."""

import os
from pathlib import Path
from typing import Literal

from medlive.errors import UsageError
from medlive.integrity.digest import digest_file
from medlive.integrity.log import writing
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import (
    CRITERION_CONTENT,
    LIVEMEDBENCH_END,
    line,
    livemedbench_piece,
)

ExportFormat = Literal["livemedbench", "jsonl"]
"""One list as LiveMedBench's scripts and `medlive eval run --cases` read it, or a case a line with its criteria."""
SUFFIXES: dict[str, ExportFormat] = {".json": "livemedbench", ".jsonl": "jsonl"}
"""The format that a file's name asks for."""


def export_slice(snapshot: Snapshot, out: Path, form: ExportFormat) -> str:
    """Write the part's cases into the file `out`, which appears whole or not at all; each holds the canary.

    Returns the file's digest.

    Raises:
        UsageError: If the part has no cases, the file exists, or lies inside the snapshot.
        DiskFull, BadInput: If the file cannot be written.
    """
    if out.is_symlink() or out.exists():
        hint = "name another file, or remove it"
        raise UsageError(f"{out} exists already", hint=hint)
    if out.absolute().resolve().is_relative_to(snapshot.path.absolute().resolve()):
        raise UsageError(
            f"{out} lies inside the snapshot, which would not verify any more"
        )
    cases = snapshot.cases
    if not cases:
        raise UsageError(
            f"no case of {snapshot.version} fits the filters: nothing was written"
        )
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    with writing(out):
        try:
            with partial.open("wb") as handle:
                for number, case in enumerate(cases):
                    row = {**case.row(), "canary": snapshot.manifest.canary}
                    criteria = [criterion.row() for criterion in case.criteria]
                    if form == "livemedbench":
                        handle.write(livemedbench_piece(number, row, criteria))
                        continue
                    known = []
                    for own in criteria:
                        known.append({name: own[name] for name in CRITERION_CONTENT})
                    handle.write(line({**row, "criteria": known}))
                if form == "livemedbench":
                    handle.write(LIVEMEDBENCH_END)
            digest = digest_file(partial)
            partial.rename(out)
        finally:
            partial.unlink(missing_ok=True)
    return digest
