"""`medlive worker`: curate what is queued until stopped."""

from typing import Any

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say, wait_for
from medlive.config import load_settings
from medlive.errors import CheckFailed


def command(as_json: JsonOption = False) -> None:
    """Curate what is queued, by this process or another, until stopped by SIGTERM or SIGINT.

    A thread that has begun is finished first; what a worker that was killed had begun is taken over. A budget
    in config/medlive.toml holds for the worker's life.
    """
    from medlive.service.curation.curate import CurationCounts
    from medlive.service.schedule.worker import run_worker, stopped_by_signals

    settings = load_settings().settings

    def report(recent: CurationCounts) -> None:
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(recent.outcomes.items()))
        say(f"{outcomes or 'nothing decided'}; {recent.calls} calls, {recent.replayed} of them replayed")
        for fault in recent.faults:
            say(fault)

    async def run() -> dict[str, Any]:
        with stopped_by_signals() as stop:
            return await run_worker(
                settings, stop, report=report, ready=lambda: say("waiting for threads (stop with Ctrl-C)")
            )

    done = wait_for(run())
    failure = CheckFailed(
        f"{len(done['faults'])} threads met a fault of medlive itself", hint="medlive curate tries them again"
    )
    print_result(
        done,
        as_json,
        lambda: say(f"stopped after {sum(done['outcomes'].values())} threads and {done['calls']} calls"),
        failure=failure if done["faults"] else None,
    )
