"""How long `medlive --help` takes, how much memory idle services hold, how large the installs are: against limits.

Prints the median of seven starts as a share of 0.5 s, and beside it `python -c 'import typer'`, which no command
line on typer can beat. Then the resident memory of `serve`, `scheduler` and `worker` with the demo's evidence and
nothing to do, five seconds after they are ready. Paths of virtual environments given as arguments are measured
against the limit of the install that each holds: consumer (no database driver) or service. Exits 1 when a limit is
passed.
Run: `python benchmarks/startup.py [venv …]`.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from downloads import memory_mb

from medlive.config import Settings
from medlive.db import embedded
from medlive.db.schema.migrate import upgrade
from medlive.demo.samples import sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import index_path

RUNS = 7
HELP_LIMIT_S = 0.5
SIZE_LIMITS_MB = {"consumer": 130, "service": 600}
MEGABYTE = 1_000_000
SERVICES = ("serve --port 0", "scheduler", "worker", "worker --queues harvest,filter")
IDLE_LIMIT_MB = 120


def median_s(command: Sequence[str]) -> float:
    """The median wall time of RUNS runs, one before them left out: it fills the caches."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def idle_mb(command: str, home: Path) -> float:
    """The resident memory of a service, five seconds after it says that it is ready."""
    started = [sys.executable, "-m", "medlive", *command.split()]
    environment = os.environ | {"MEDLIVE_HOME": str(home)}
    with subprocess.Popen(
        started, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            output = [line := next(process.stderr)]
            while "stop with Ctrl-C" not in line:
                output.append(line := next(process.stderr))
            time.sleep(5)
            return memory_mb(process.pid)
        except StopIteration:
            raise SystemExit(f"{command} ended: {''.join(output)}") from None
        finally:
            process.terminate()


def print_idle() -> bool:
    """Print the memory of every idle service; whether each is within the limit."""
    home = Path(tempfile.mkdtemp(prefix="medlive-idle-"))
    home.chmod(0o755)  # root's server runs as another user, who must get in
    try:
        upgrade(embedded.start(home))
        build_index(
            [open_corpus(sample_evidence_path(), name="demo")],
            index_path(Settings(home=home)),
        )
        found = {command: idle_mb(command, home) for command in SERVICES}
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    for command, held in found.items():
        print(
            f"idle {command:30} {held:4.0f} MB, {held / IDLE_LIMIT_MB:.2f} of the limit of {IDLE_LIMIT_MB} MB"
        )
    return max(found.values()) <= IDLE_LIMIT_MB


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
    return (
        "service" if any(venv.glob("lib/python*/site-packages/psycopg")) else "consumer"
    )


def main() -> int:
    """Print the table; the exit status says whether every limit holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "venvs",
        nargs="*",
        type=Path,
        metavar="venv",
        help="a virtual environment to measure",
    )
    arguments = parser.parse_args()
    ours = median_s([sys.executable, "-m", "medlive", "--help"])
    typer = median_s([sys.executable, "-c", "import typer"])
    kept = ours <= HELP_LIMIT_S
    print(
        f"medlive --help  {ours:.3f} s, {ours / HELP_LIMIT_S:.2f} of the limit of {HELP_LIMIT_S} s, "
        f"{ours / typer:.2f} of `import typer` ({typer:.3f} s)"
    )
    kept = print_idle() and kept
    for venv in arguments.venvs:
        kind, size = kind_of(venv), size_mb(venv)
        limit = SIZE_LIMITS_MB[kind]
        kept = kept and size <= limit
        print(
            f"install {kind:8} {size:6.0f} MB, {size / limit:.2f} of the limit of {limit} MB  {venv}"
        )
        start = median_s([str(venv / "bin" / "python"), "-m", "medlive", "--help"])
        kept = kept and start <= HELP_LIMIT_S
        print(
            f"                its --help {start:.3f} s, {start / HELP_LIMIT_S:.2f} of the limit"
        )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
