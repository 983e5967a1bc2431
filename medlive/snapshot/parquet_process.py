"""Parquet files of strangers, compared with their twins in a process whose memory the system limits.

Run as a program it is that process: what to compare comes in on stdin, the files as open descriptors, and one line of
JSON goes out. A footer or page may claim any size; what it makes the decoder ask for is refused by the system.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from medlive.guard.child_environment import child_environment
from medlive.snapshot.parquet import TwinComparison, find_difference

MEMORY_BYTES: Final = 128 * 2**20
"""What a comparison may take beyond the loaded libraries, whatever is compared."""
MEMORY_FACTOR: Final = 8
"""And for each byte of the twins: a row group is held as text, as Python values and as two tables."""
SECONDS: Final = 3600.0

_SPARING: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
}
"""One thread and the system's allocator: address space is taken as it is used."""


def compare_twins(
    comparisons: Sequence[TwinComparison],
) -> list[str | ValueError | None]:
    """Return for each pair of files what `find_difference` returns, or the fault that it raises."""
    files: list[int] = []
    limit = MEMORY_BYTES
    for comparison in comparisons:
        files += [comparison.source, comparison.twin]
        limit += MEMORY_FACTOR * os.fstat(comparison.twin).st_size
    places = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "medlive.snapshot.parquet_process",
                str(limit),
            ],
            input=pickle.dumps(list(comparisons)),
            capture_output=True,
            pass_fds=files,
            env=child_environment(values={**_SPARING, "PYTHONPATH": places}),
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [ValueError(f"was not compared in {SECONDS:.0f} seconds")]
    results: list[str | ValueError | None] = []
    for line in done.stdout.splitlines():
        kind, text = json.loads(line)
        results.append(ValueError(text) if kind == "fault" else text)
    if len(results) < len(comparisons):
        needs = f"cannot be read within {limit >> 20} MB of memory"
        results.append(ValueError(needs))
    return results


def main() -> None:
    """Compare what stdin asks for, with as many bytes beyond what the libraries took as the argument says."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401  (loaded before the limit)

    comparisons: list[TwinComparison] = pickle.load(sys.stdin.buffer)
    with open("/proc/self/statm", encoding="ascii") as status:
        taken = int(status.read().split()[0]) * resource.getpagesize()
    limit = taken + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for comparison in comparisons:
        try:
            result = ("difference", find_difference(comparison))
        except (ValueError, OSError, MemoryError) as exc:
            result = ("fault", str(exc)[:300] or "needs more memory than its rows do")
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
