"""Rounds: a week undisturbed, then weeks with one fault each, compared with it."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.checks import Outcome, count_left_out, differences, outcome_of
from tests.chaos.faults import FAULTS, Fault, NotPossibleError, Round
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
    left_out: int = 0  # Threads that had failed with a reason, or waited beyond the limit, at the freeze
    not_run: str = ""  # Why the fault could not be made; empty: it was
    log: str = ""  # What the processes wrote, of a round with problems


async def run_calm(stage: Stage) -> Outcome:
    """The undisturbed week. Raises AssertionError if it needs a second start or asks anything twice."""
    async with stage.new_week() as week:
        await week.live()
        assert week.settled_at is not None
        assert week.endpoint.repeated == 0
        assert len(week.endpoint.given) == week.endpoint.asked
        release_s = time.monotonic() - week.settled_at
        if problems := await week.find_problems():
            raise AssertionError(
                f"status --check names, after an undisturbed week: {problems}"
            )
        return outcome_of(week, release_s)


async def run_round(
    stage: Stage, calm: Outcome, number: int, seed: int, only: str = ""
) -> Result:
    """Disturb a week by the fault whose turn it is, by chance that depends on the seed and the round alone."""
    faults = [fault for fault in FAULTS if only in fault.name]
    fault, chance = faults[number % len(faults)], random.Random(f"{seed} {number}")
    began = time.monotonic()
    async with stage.new_week(small_disk=fault.small_disk) as week:
        week.roles = chance.choice(fault.roles)
        week.frozen_after = chance.choice(
            (0.0, chance.uniform(0, calm.events), float("inf"))
        )
        problems, not_run = [], ""
        try:
            problems = await _live(Round(stage, week, chance, calm), fault)
        except NotPossibleError as error:
            not_run = str(error)
        log = week.shift.with_name("log")
        return Result(
            number=number,
            fault=fault.name,
            problems=tuple(problems),
            seconds=time.monotonic() - began,
            asked=week.endpoint.asked,
            repeated=week.endpoint.repeated,
            starts=week.starts,
            left_out=0 if problems or not_run else count_left_out(week),
            not_run=not_run,
            log=log.read_text(errors="replace") if problems else "",
        )


async def _live(one: Round, fault: Fault) -> list[str]:
    disturbing = asyncio.create_task(fault.disturb(one))
    living = asyncio.create_task(one.week.live())
    try:
        await asyncio.wait([living, disturbing], return_when=asyncio.FIRST_COMPLETED)
        if disturbing.done() and disturbing.exception() is not None:
            return []  # it is raised below
        await asyncio.wait([living])
        if error := living.exception():
            if not isinstance(error, StuckError):
                raise error
            return [str(error)]
        if named := await one.week.find_problems():
            return [f"status --check: {named}"]
    finally:
        living.cancel()
        if disturbing.done() and (failed := disturbing.exception()) is not None:
            raise failed
        disturbing.cancel()
        await asyncio.gather(disturbing, living, return_exceptions=True)
    one.week.kill_all()
    return differences(one.week, one.calm, may_fail=fault.may_fail)


def tabulate(results: list[Result]) -> Iterator[str]:
    """The table in Markdown: a row for each fault, and the sums."""
    heads = (
        "rounds",
        "processes",
        "requests",
        "answered again",
        "left out",
        "failures",
        "seconds a round",
    )
    yield f"| fault | {' | '.join(heads)} |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    ran = [result for result in results if not result.not_run]
    names = [
        fault.name
        for fault in FAULTS
        if any(result.fault == fault.name for result in ran)
    ]
    for name in [*names, "all"] if ran else []:
        own = [result for result in ran if name in (result.fault, "all")]
        failed = sum(bool(result.problems) for result in own)
        mean = sum(result.seconds for result in own) / len(own)
        sums = [
            sum(getattr(result, what) for result in own)
            for what in ("starts", "asked", "repeated", "left_out")
        ]
        yield f"| {name} | {len(own)} | {' | '.join(map(str, sums))} | {failed} | {mean:.1f} |"
    for result in results:
        if result.not_run:
            yield f"round {result.number}, {result.fault}, was not run: {result.not_run}"
