"""`medlive eval grade`: verdicts about a run's answers."""

from typing import Annotated

import typer

from medlive.cli.evaluation_options import ConcurrencyOption, KeyOption, RunArgument
from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.config import load_settings
from medlive.errors import CheckFailed, UsageError


def grade(
    run_dir: RunArgument,
    grader: Annotated[str | None, typer.Option("--grader", help="The grader's model id.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The grader's endpoint.")] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="criterion: a call each; rubric: a call per case.")
    ] = "criterion",
    allow_unpinned: Annotated[
        bool, typer.Option("--allow-unpinned", help="Accept replies that name another model than --grader.")
    ] = False,
    concurrency: ConcurrencyOption = 16,
    api_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded."""
    from medlive.evaluation.grade import GradeResult, grade_run
    from medlive.evaluation.model import Mode
    from medlive.service.endpoints import grader_engine

    if mode not in set(Mode):
        raise UsageError(f"--mode {mode}: choose criterion or rubric")
    settings = load_settings().settings

    async def work() -> GradeResult:
        engine = grader_engine(
            settings.roles.grader, model=grader, base_url=base_url, api_key_env=api_key_env,
            concurrency=concurrency, prices=settings.prices,
        )  # fmt: skip
        try:
            with progress("criteria") as tick:
                return await grade_run(
                    run_dir, engine, mode=Mode(mode), concurrency=concurrency, allow_unpinned=allow_unpinned,
                    progress=tick,
                )  # fmt: skip
        finally:
            await engine.aclose()

    done = wait_for(work())
    if as_json:
        print_json(
            {"path": done.path, "criteria": done.criteria, "met": done.met, "not_met": done.not_met,
             "ungraded": done.ungraded, "reused": done.reused, "calls": done.calls,
             "unanswered": done.unanswered, "reasons": dict(done.reasons), "notes": done.notes}
        )  # fmt: skip
    else:
        print_table(
            ["run", "criteria", "met", "not met", "ungraded", "reused", "calls", "unanswered cases"],
            [[done.path, done.criteria, done.met, done.not_met, done.ungraded, done.reused, done.calls,
              len(done.unanswered)]],
        )  # fmt: skip
    for reason, n in done.reasons.items():
        say(f"ungraded: {n}: {reason}")
    if done.ungraded:
        raise CheckFailed(f"{done.ungraded} criteria are ungraded", hint="the same command grades them again")
