"""`make chaos`: many weeks, each under one fault, must all freeze whole, as an undisturbed one does."""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.rounds import Result, run_calm, run_round, tabulate
from tests.chaos.stage import open_stage
from tests.chaos.weeks import Lived, live_weeks, tabulate_weeks


async def _run(args: argparse.Namespace, folder: Path) -> list[Result]:
    results: list[Result] = []
    limit = time.monotonic() + args.minutes * 60
    async with open_stage(folder) as stage:
        calm = await run_calm(stage)
        print(
            f"undisturbed: {len(calm.threads)} threads, {len(calm.cases)} cases, {calm.events} pages and replies",
            flush=True,
        )
        for number in range(args.first, args.first + args.rounds):
            if time.monotonic() > limit:
                print(f"no time is left after {len(results)} rounds")
                break
            done = await run_round(stage, calm, number, args.seed, args.fault)
            results.append(done)
            ended = "; ".join(done.problems) or done.not_run or "ok"
            print(
                f"{number:4} {done.fault}: {ended} ({done.seconds:.1f} s)", flush=True
            )
            if args.logs and done.problems:
                (args.logs / f"round-{number}.log").write_text(done.log)
    return results


async def _run_weeks(args: argparse.Namespace, folder: Path) -> int:
    def notify(week: Lived) -> None:
        ended = "; ".join(week.problems) or week.partial or "whole"
        print(f"{week.name}: {ended} ({week.seconds:.0f} s)", flush=True)

    async with open_stage(folder) as stage:
        lived = await live_weeks(stage, args.weeks, args.seed, notify, args.logs)
    print("\n".join(tabulate_weeks(lived)))
    for week in lived:
        for problem in week.problems:
            print(f"{week.name}: {problem}")
    return int(any(week.problems for week in lived) or len(lived) < args.weeks)


def main() -> int:
    """Run the rounds, or the weeks, and print the table; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument(
        "--weeks",
        type=int,
        help="so many weeks of one installation instead, its database killed in each",
    )
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first round"
    )
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument(
        "--minutes", type=float, default=180, help="begin no round after so long"
    )
    parser.add_argument("--fault", default="", help="only faults whose name holds this")
    parser.add_argument(
        "--logs", type=Path, help="folder for what the processes of failed rounds wrote"
    )
    args = parser.parse_args()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a stop leaves no server and no disk behind
    folder = Path(tempfile.mkdtemp(prefix="medlive-chaos-"))
    try:
        if args.weeks:
            return asyncio.run(_run_weeks(args, folder))
        results = asyncio.run(_run(args, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(tabulate(results)))
    return int(any(result.problems for result in results))


if __name__ == "__main__":
    sys.exit(main())
