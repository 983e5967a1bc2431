"""`medlive scheduler`: the weekly steps when they are due."""

from dataclasses import asdict
from typing import Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say, wait_for
from medlive.cli.schedule.steps import print_steps
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is due now and when each step is due next, and do nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Harvest each source, queue and drain, and freeze, once a week at the times of config/schedule.toml.

    What was missed is caught up once; what failed is tried again after an hour. Any number may be started: one
    works, the others wait for its place. What is queued is curated here when no `medlive worker` runs.
    """
    from medlive.service.schedule.scheduler import list_steps, run_scheduler
    from medlive.service.schedule.weekly import StepOutcome, StepResult
    from medlive.service.schedule.worker import stopped_by_signals
    from medlive.service.status import step_as_json

    settings = load_settings().settings
    if dry_run:
        steps = [step_as_json(state) for state in wait_for(list_steps(settings))]
        print_result(steps, as_json, lambda: print_steps(steps))
        return

    async def run() -> list[StepResult]:
        with stopped_by_signals() as stop:
            if not once:
                say("taking each week's steps when they are due (stop with Ctrl-C)")
            return await run_scheduler(settings, stop, say, once=once)

    taken = wait_for(run())
    failed = [f"{s.command}: {s.detail}" for s in taken if once and s.state is StepOutcome.FAILED]
    print_result(
        [asdict(step) for step in taken],
        as_json,
        lambda: say("nothing is due") if once and not taken else None,
        failure=CheckFailed("; ".join(failed)) if failed else None,
    )
