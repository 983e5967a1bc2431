"""`medlive scheduler`: the weekly steps when they are due."""

from dataclasses import asdict
from typing import Annotated

import typer

from medlive.cli.output import JsonOption, print_json, say, wait_for
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Harvest each source, filter and queue, and freeze, once a week at the times of config/schedule.toml.

    What was missed is caught up; what failed is tried again after an hour. One scheduler works at a time,
    others wait for its place. Curating what is queued is `medlive worker`.
    """
    from medlive.service.schedule import State, Taken, run_scheduler
    from medlive.service.work import stopped_by_signals

    settings = load_settings().settings

    async def run() -> list[Taken]:
        with stopped_by_signals() as stop:
            if not once:
                say("taking each week's steps when they are due (stop with Ctrl-C)")
            return await run_scheduler(settings, stop, say, once=once)

    taken = wait_for(run())
    if as_json:
        print_json([asdict(step) for step in taken])
    elif once and not taken:
        say("nothing is due")
    if once and (failed := [f"{s.command}: {s.detail}" for s in taken if s.state is State.FAILED]):
        raise CheckFailed("; ".join(failed))
