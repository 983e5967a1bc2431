"""`medlive eval judge-direct`: one score of each answer as a whole, the baseline of `eval meta`."""

from contextlib import aclosing
from typing import TYPE_CHECKING

from medlive.cli.evaluation.options import Calls, Grader, RunArgument
from medlive.cli.evaluation.spending import (
    check_answered,
    check_complete,
    check_priced,
    price_of,
    print_plan,
    say_limits,
)
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import print_result, print_table, progress, wait_for

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import DirectResult
    from medlive.llm.budget import Budget


@grouped
def judge_direct(run_dir: RunArgument, *, by: Grader, calls: Calls, as_json: JsonOption = False) -> None:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import judge_direct as judge_run
    from medlive.evaluation.grading.direct import plan_direct

    settings = load_settings().settings
    budget = calls.budget()

    async def work() -> "Plan | DirectResult":
        async with aclosing(calls.grader(settings, by.grader, by.base_url)) as engine:
            if calls.dry_run:
                return plan_direct(
                    run_dir, engine.identity, concurrency=calls.concurrency, allow_unpinned=by.allow_unpinned,
                    price=price_of(engine),
                )  # fmt: skip
            check_priced(engine, budget)
            with progress("answers") as tick:
                return await judge_run(
                    run_dir, engine, concurrency=calls.concurrency, allow_unpinned=by.allow_unpinned,
                    budget=budget, progress=tick,
                )  # fmt: skip

    found = wait_for(work())
    if isinstance(found, Plan):
        print_plan({"path": run_dir, **found.about}, found, as_json)
        say_limits(found, budget)
    else:
        _report(found, budget, as_json)


def _report(done: "DirectResult", budget: "Budget", as_json: bool) -> None:
    value = {
        "path": done.path, "answers": done.answers, "scored": done.scored, "calls": done.calls,
        "reasons": dict(done.reasons), "stopped": done.stopped, "spent": budget.as_json(),
    }  # fmt: skip
    rows = [[done.path, done.answers, done.scored, done.calls]]
    print_result(
        value,
        as_json,
        lambda: print_table(["run", "answers", "scored", "calls"], rows),
        notes=[*done.notes, *(f"no score: {n}: {reason}" for reason, n in done.reasons.items())],
    )
    left = done.answers - done.scored
    if left and done.calls:
        check_answered([done.silence], done.calls)
    check_complete(left, "answers have no score", done.stopped)
