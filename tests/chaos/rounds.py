"""Rounds: a week undisturbed, then weeks with one fault each, compared with it."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.checks import Outcome, differences, outcome_of
from tests.chaos.faults import FAULTS, Fault, Round
from tests.chaos.stage import Stage, StuckError


@dataclass(frozen=True)
class Result:
    """How a round ended."""

    number: int
    fault: str
    problems: tuple[str, ...]
    seconds: float
    asked: int  # Requests to the endpoint
    repeated: int  # Of these, asked again though answered before: the answer was cut off on its way
    starts: int  # Processes started
    log: str = ""  # What the processes wrote, of a round with problems


async def run_calm(stage: Stage) -> Outcome:
    """The undisturbed week. Raises AssertionError if it needs a second start or asks anything twice."""
    async with stage.new_week() as week:
        await week.live()
        assert week.settled_at is not None
        assert week.endpoint.repeated == 0
        assert len(week.endpoint.given) == week.endpoint.asked
        return outcome_of(week, time.monotonic() - week.settled_at)


async def run_round(stage: Stage, calm: Outcome, number: int, seed: int, only: str = "") -> Result:
    """Disturb a week by the fault whose turn it is, by chance that depends on the seed and the round alone."""
    faults = [fault for fault in FAULTS if only in fault.name]
    fault, chance = faults[number % len(faults)], random.Random(f"{seed} {number}")
    began = time.monotonic()
    async with stage.new_week(small_disk=fault.small_disk) as week:
        week.roles = chance.choice(fault.roles)
        problems = await _live(Round(stage, week, chance, calm), fault)
        log = week.shift.with_name("log")
        return Result(
            number, fault.name, tuple(problems), time.monotonic() - began, week.endpoint.asked,
            week.endpoint.repeated, week.starts, log.read_text(errors="replace") if problems else "",
        )  # fmt: skip


async def _live(one: Round, fault: Fault) -> list[str]:
    disturbing = asyncio.create_task(fault.disturb(one))
    living = asyncio.create_task(one.week.live())
    try:
        await asyncio.wait([living])
        if error := living.exception():
            if not isinstance(error, StuckError):
                raise error
            return [str(error)]
    finally:
        living.cancel()
        if disturbing.done() and (failed := disturbing.exception()) is not None:
            raise failed
        disturbing.cancel()
        await asyncio.gather(disturbing, living, return_exceptions=True)
    one.week.kill_all()
    return differences(one.week, one.calm)


def tabulate(results: list[Result]) -> Iterator[str]:
    """The table in Markdown: a row for each fault, and the sums."""
    yield "| fault | rounds | processes | requests | answered again | failures | seconds a round |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    names = [fault.name for fault in FAULTS if any(r.fault == fault.name for r in results)]
    for name in [*names, "all"]:
        own = [r for r in results if name in (r.fault, "all")]
        failed = sum(bool(r.problems) for r in own)
        sums = [sum(values) for values in zip(*((r.starts, r.asked, r.repeated) for r in own), strict=True)]
        mean = sum(r.seconds for r in own) / len(own)
        yield f"| {name} | {len(own)} | {sums[0]} | {sums[1]} | {sums[2]} | {failed} | {mean:.1f} |"
