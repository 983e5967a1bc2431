"""`medlive eval judge-direct`: one score of each answer as a whole, the baseline of `eval meta`."""

from typing import TYPE_CHECKING

from medlive.cli.evaluation.options import (
    ConcurrencyOption,
    DryRunOption,
    GraderOption,
    GraderUrlOption,
    KeyOption,
    MaxCallsOption,
    MaxTokensOption,
    MaxUsdOption,
    RunArgument,
    TimeoutOption,
    UnpinnedOption,
)
from medlive.cli.evaluation.spending import check_answered, check_priced, price_of, tell_limits, tell_plan
from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.errors import CheckFailed

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import DirectResult
    from medlive.llm.budget import Budget


def judge_direct(
    run_dir: RunArgument,
    grader: GraderOption = None,
    base_url: GraderUrlOption = None,
    allow_unpinned: UnpinnedOption = False,
    concurrency: ConcurrencyOption = 16,
    timeout: TimeoutOption = None,
    api_key_env: KeyOption = None,
    max_usd: MaxUsdOption = None,
    max_calls: MaxCallsOption = None,
    max_tokens: MaxTokensOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import judge_direct as judge_run
    from medlive.evaluation.grading.direct import plan_direct
    from medlive.llm.budget import Budget
    from medlive.service.endpoints import grader_engine

    settings = load_settings().settings
    budget = Budget(max_calls=max_calls, max_usd=max_usd, max_tokens=max_tokens)

    async def work() -> "Plan | DirectResult":
        engine = grader_engine(
            settings.roles.grader, model=grader, base_url=base_url, api_key_env=api_key_env,
            concurrency=concurrency, prices=settings.prices, timeout_s=timeout,
        )  # fmt: skip
        try:
            if dry_run:
                return plan_direct(
                    run_dir, engine.identity, concurrency=concurrency, allow_unpinned=allow_unpinned,
                    price=price_of(engine),
                )  # fmt: skip
            check_priced(engine, budget)
            with progress("answers") as tick:
                return await judge_run(
                    run_dir, engine, concurrency=concurrency, allow_unpinned=allow_unpinned, budget=budget,
                    progress=tick,
                )  # fmt: skip
        finally:
            await engine.aclose()

    found = wait_for(work())
    if isinstance(found, Plan):
        tell_plan({"path": run_dir, **found.about}, found, as_json)
        tell_limits(found, budget)
    else:
        _tell(found, budget, as_json)


def _tell(done: "DirectResult", budget: "Budget", as_json: bool) -> None:
    if as_json:
        print_json(
            {"path": done.path, "answers": done.answers, "scored": done.scored, "calls": done.calls,
             "reasons": dict(done.reasons), "stopped": done.stopped, "spent": budget.as_json()}
        )  # fmt: skip
    else:
        print_table(["run", "answers", "scored", "calls"], [[done.path, done.answers, done.scored, done.calls]])
    for note in done.notes:
        say(note)
    for reason, n in done.reasons.items():
        say(f"no score: {n}: {reason}")
    left = done.answers - done.scored
    if left and done.calls:
        check_answered([done.silence], done.calls)
    if left and done.stopped:
        raise CheckFailed(
            f"{done.stopped}; {left} answers have no score", hint="the same command goes on from here"
        )
    if left:
        raise CheckFailed(f"{left} answers have no score", hint="the same command asks for them again")
