"""Export a slice of a snapshot as LiveMedBench's file, which is data to work with and no snapshot any more."""

import os
from pathlib import Path

from medlive.errors import UsageError
from medlive.integrity.digest import digest_bytes
from medlive.integrity.log import write_whole

from .load import Snapshot
from .model import LIVEMEDBENCH_END, livemedbench_piece


def export_slice(snapshot: Snapshot, out: Path) -> str:
    """Write the cases of a snapshot, or of a part, into the file `out`, whole or not at all; each holds the canary.

    LiveMedBench's scripts and `medlive eval run --cases` read it. Returns the file's digest.

    Raises:
        UsageError: If there is no case, or the file exists.
        DiskFull, BadInput: If the file cannot be written.
    """
    if os.path.lexists(out):
        hint = "name another file, or remove it"
        raise UsageError(f"{out} exists already", hint=hint)
    cases = snapshot.cases
    if not cases:
        raise UsageError(
            f"no case of {snapshot.version} fits the filters: nothing was written"
        )
    pieces = []
    for number, case in enumerate(cases):
        row = {**case.row(), "canary": snapshot.manifest.canary}
        criteria = [criterion.row() for criterion in case.criteria]
        pieces.append(livemedbench_piece(number, row, criteria))
    data = b"".join([*pieces, LIVEMEDBENCH_END])
    write_whole(out, data)
    return digest_bytes(data)
