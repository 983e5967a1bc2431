"""How long `medlive --help` takes, and how large the installs are, against their limits.

Prints the median of seven starts as a share of 0.5 s, and beside it `python -c 'import typer'`, which no command
line on typer can beat. Paths of virtual environments given as arguments are measured against the limit of the
install that each holds: consumer (no database driver) or service. Exits 1 when a limit is passed.
Run: `python benchmarks/startup.py [venv …]`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RUNS = 7
HELP_LIMIT_S = 0.5
SIZE_LIMITS_MB = {"consumer": 130, "service": 600}
MEGABYTE = 1_000_000


def median_s(command: Sequence[str]) -> float:
    """The median wall time of RUNS runs, one before them left out: it fills the caches."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def size_mb(folder: Path) -> float:
    """What the files of a folder take on disk, each once however often it is linked."""
    sizes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            stat = os.lstat(Path(parent, name))
            sizes[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values()) / MEGABYTE


def kind_of(venv: Path) -> str:
    """Which install a virtual environment holds."""
    return "service" if any(venv.glob("lib/python*/site-packages/psycopg")) else "consumer"


def main() -> int:
    """Print the table; the exit status says whether every limit holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("venvs", nargs="*", type=Path, metavar="venv", help="a virtual environment to measure")
    arguments = parser.parse_args()
    ours = median_s([sys.executable, "-m", "medlive", "--help"])
    typer = median_s([sys.executable, "-c", "import typer"])
    kept = ours <= HELP_LIMIT_S
    print(
        f"medlive --help  {ours:.3f} s, {ours / HELP_LIMIT_S:.2f} of the limit of {HELP_LIMIT_S} s, "
        f"{ours / typer:.2f} of `import typer` ({typer:.3f} s)"
    )
    for venv in arguments.venvs:
        kind, size = kind_of(venv), size_mb(venv)
        limit = SIZE_LIMITS_MB[kind]
        kept = kept and size <= limit
        print(f"install {kind:8} {size:6.0f} MB, {size / limit:.2f} of the limit of {limit} MB  {venv}")
        start = median_s([str(venv / "bin" / "python"), "-m", "medlive", "--help"])
        kept = kept and start <= HELP_LIMIT_S
        print(f"                its --help {start:.3f} s, {start / HELP_LIMIT_S:.2f} of the limit")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
