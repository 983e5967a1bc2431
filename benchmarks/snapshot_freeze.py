"""Time and memory of freezing a week, beside reading the same rows and writing them as JSON lines alone.

A real PostgreSQL of its own is filled with decided cases that the gates have read (`benchmarks/gates.py` times the
reading). A process freezes them: membership fixed in one transaction, a share held out, the whole folder written,
synced to disk, signed and marked as frozen. Another reads the frozen rows and writes two JSON Lines files, which
is the least that any writer of a snapshot does. The greatest resident memory of freezing is compared over sizes.

    python benchmarks/snapshot_freeze.py [--cases 100000] [--memory 1000 10000]
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

CRITERIA, SENTENCES, HELD_OUT = 6, 18, 0.2
WEEK = "2026.W47"
MOST_S, MOST_MB = 60.0, 500.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process took."""

    seconds: float
    mb: float
    """Its greatest resident memory."""
    cases: int
    cpu_s: float
    """Of the process itself; the database's is not in it."""


def freeze_week(home: Path) -> int:
    """Freeze what is ready; how many cases are shown."""
    from medlive.config import ReleaseSection, Settings
    from medlive.db import embedded
    from medlive.db.session import Database
    from medlive.integrity.signing import SecretKey, generate
    from medlive.service.release.freeze import freeze

    async def work() -> int:
        url = embedded.start(home)
        database = Database.connect(url)
        key = SecretKey.parse(generate()[0])
        settings = Settings(home=home, release=ReleaseSection(hold_out=HELD_OUT))
        done = await freeze(database, settings, WEEK, key=key)
        await database.aclose()
        return done.cases

    return asyncio.run(work())


def write_lines(home: Path) -> int:
    """Read the frozen rows and write them as JSON lines; how many cases."""
    from sqlalchemy import make_url

    from medlive.db import embedded
    from medlive.db.release.rows import read_snapshots

    number = 0
    with (
        read_snapshots(make_url(embedded.start(home)), version=WEEK) as reader,
        (home / "cases.jsonl").open("w", encoding="utf-8") as cases,
        (home / "criteria.jsonl").open("w", encoding="utf-8") as criteria,
    ):
        for case in reader.cases():
            number += 1
            cases.write(
                json.dumps(case.row(), ensure_ascii=False, sort_keys=True) + "\n"
            )
            for criterion in case.criteria:
                criteria.write(
                    json.dumps(criterion.row(), ensure_ascii=False, sort_keys=True)
                    + "\n"
                )
    return number


WORK = {"freeze": freeze_week, "lines": write_lines}


def measure(what: str, home: Path) -> Measured:
    """Do one of WORK in a process of its own."""
    command = [sys.executable, __file__, "--apart", what, str(home)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Measured(**told)


def apart(what: str, home: Path) -> None:
    """The other side of `measure`: the clock starts when the program is imported, as a service's has long been."""
    import pyarrow.parquet  # noqa: F401

    import medlive.service.release.freeze  # noqa: F401

    used = resource.getrusage(resource.RUSAGE_SELF)
    imported = used.ru_utime + used.ru_stime
    began = time.perf_counter()
    cases = WORK[what](home)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - imported
    print(
        json.dumps(
            {
                "seconds": seconds,
                "mb": used.ru_maxrss / 1024,
                "cases": cases,
                "cpu_s": cpu,
            }
        )
    )


def run(cases: int, *, with_limit: bool) -> tuple[Measured, Measured | None]:
    """Freeze so many cases in a database of their own, and write them as lines."""
    import psycopg
    from throwaway import throwaway_home

    from medlive.db import embedded
    from medlive.db.schema.migrate import upgrade
    from medlive.snapshot.gates import gates_digest

    fill = import_module("support.release").fill
    with throwaway_home() as home:
        url = embedded.start(home)
        upgrade(url)
        with psycopg.connect(
            url.replace("+psycopg", ""), autocommit=True
        ) as connection:
            fill(
                connection,
                cases,
                criteria=CRITERIA,
                length=SENTENCES,
                gates=gates_digest(),
            )
            connection.execute("CHECKPOINT")
        frozen = measure("freeze", home)
        folder = home / "snapshots" / f"medlive-{WEEK}"
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        print(
            f"{cases:>8,} cases, {cases * CRITERIA:>9,} criteria: frozen in {frozen.seconds:6.1f} s "
            f"({frozen.cpu_s:.1f} s of processor beside the database's), {frozen.mb:4.0f} MB; "
            f"{frozen.cases:,} shown, {size / 1e6:,.0f} MB written",
            flush=True,
        )
        return frozen, measure("lines", home) if with_limit else None


def main() -> None:
    """Measure, print, and say whether the aims are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--memory", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument(
        "--apart", nargs=2, metavar=("WHAT", "HOME"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.apart:
        apart(arguments.apart[0], Path(arguments.apart[1]))
        return
    memory = {cases: run(cases, with_limit=False)[0].mb for cases in arguments.memory}
    frozen, lines = run(arguments.cases, with_limit=True)
    assert lines is not None
    print(
        f"reading the rows and writing JSON lines alone: {lines.seconds:.1f} s, {lines.mb:.0f} MB"
    )
    print(f"ratio, freeze to lines alone: {frozen.seconds / lines.seconds:.1f}")
    told = ", ".join(
        f"{cases:,}: {mb:.0f}"
        for cases, mb in (memory | {arguments.cases: frozen.mb}).items()
    )
    print(f"memory in MB by cases: {told}")
    met = frozen.seconds < MOST_S and frozen.mb < MOST_MB
    print(
        f"aim: under {MOST_S:.0f} s and {MOST_MB:.0f} MB for 100,000 cases: {'met' if met else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
