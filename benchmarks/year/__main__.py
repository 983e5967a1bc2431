"""Simulate the year, evaluate the candidates, and write the report; exit 1 where a promise is broken.

Fewer than 52 weeks have no candidates and no report: their promises are printed, in a minute or two.
"""

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from medlive.db import embedded
from medlive.instance.paths import snapshots_path
from medlive.snapshot.model import folder_name
from year.candidates import Outcome, evaluate
from year.report import write_report
from year.scenario import Year, run_year

WEEKS = 52


async def _simulate(
    home: Path, options: argparse.Namespace
) -> tuple[Year, Outcome | None]:
    year = await run_year(
        home, options.seed, options.weeks, lambda line: print(line, flush=True)
    )
    if options.weeks < WEEKS:
        return year, None
    write_report(year, None, options.out)
    last = [week.name for week in year.weeks if week.cases is not None][-1]
    release = snapshots_path(year.settings) / folder_name(last)
    return year, await evaluate(release, home / "candidates", options.seed)


def main() -> int:
    """0 where every promise holds."""
    parser = argparse.ArgumentParser(prog="python -m year", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--weeks", type=int, default=WEEKS)
    parser.add_argument(
        "--home", type=Path, help="keep the instance in this empty folder"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/builders/measurements"),
        help="where the page is written",
    )
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # its failures are meant
    home = options.home or Path(tempfile.mkdtemp(prefix="medlive-year-"))
    try:
        year, outcome = asyncio.run(_simulate(home, options))
        promises = list(year.promises)
        if outcome is not None:
            write_report(year, outcome, options.out)
            promises.append(
                ("the planted memories are found and no others", outcome.right)
            )
        for what, holds in promises:
            print("ok  " if holds else "FAIL", what)
        print(
            f"{sum(week.cpu_s for week in year.weeks):.0f} s of processor time for the weeks"
        )
        return 0 if all(holds for _, holds in promises) else 1
    finally:
        embedded.stop(home)
        if options.home is None:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
