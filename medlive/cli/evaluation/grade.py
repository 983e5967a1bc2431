"""`medlive eval grade|judge-direct`: verdicts about a run's answers, or one score of each."""

from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from medlive.cli.evaluation.options import Cache, Calls, Grader, ModeOption, RunArgument, read_mode
from medlive.cli.evaluation.spending import (
    check_answered,
    check_complete,
    check_priced,
    price_of,
    print_plan,
    say_limits,
)
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import print_result, print_table, progress, say, wait_for
from medlive.errors import CheckFailed

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import DirectResult
    from medlive.evaluation.grading.grade import GradeResult
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.repeats import RepeatResult
    from medlive.llm.budget import Budget


@grouped
def grade(
    run_dir: RunArgument,
    *,
    by: Grader,
    mode: ModeOption = "criterion",
    cache: Cache,
    calls: Calls,
    repeats: Annotated[int, Option(min=1, max=100, help="Verdicts of each criterion, to see how stable.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded, 3 where no call was answered."""
    from medlive.config import load_settings
    from medlive.evaluation.grading.grade import grade_run
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.plan import plan_grading
    from medlive.evaluation.grading.repeats import repeat_run

    which = read_mode(mode)
    settings = load_settings().settings
    budget = calls.budget()

    async def work() -> "tuple[Judge, Plan | tuple[GradeResult, RepeatResult | None]]":
        async with aclosing(calls.grader(settings, by.grader, by.base_url)) as engine:
            judge = Judge(engine.identity, which, allow_unpinned=by.allow_unpinned)
            shared = cache.open(settings, engine)
            say(_who(judge))
            if calls.dry_run:
                return judge, plan_grading(
                    run_dir, engine.identity, mode=which, concurrency=calls.concurrency,
                    allow_unpinned=by.allow_unpinned, price=price_of(engine), cache=shared, repeats=repeats,
                )  # fmt: skip
            check_priced(engine, budget)
            with progress("criteria") as tick:
                done = await grade_run(
                    run_dir, engine, mode=which, concurrency=calls.concurrency,
                    allow_unpinned=by.allow_unpinned, budget=budget, cache=shared, progress=tick,
                )  # fmt: skip
            if repeats == 1 or done.stopped:
                return judge, (done, None)
            with progress("repeated verdicts") as tick:
                again = await repeat_run(
                    run_dir, engine, repeats=repeats, mode=which, concurrency=calls.concurrency,
                    allow_unpinned=by.allow_unpinned, budget=budget, progress=tick,
                )  # fmt: skip
            return judge, (done, again)

    judge, found = wait_for(work())
    if isinstance(found, tuple):
        _report(*found, judge, budget, as_json)
    else:
        _print_plan(found, run_dir, judge, as_json)
        say_limits(found, budget)


def _who(judge: "Judge") -> str:
    return f"the grader is {judge.identity.model} in {judge.mode} mode ({judge.digest[:19]})"


def _grader(judge: "Judge") -> dict[str, str]:
    who = judge.identity
    return {"engine": who.engine, "model": who.model, "mode": judge.mode.value, "judge": judge.digest}


def _print_plan(found: "Plan", run_dir: "Path", judge: "Judge", as_json: bool) -> None:
    if as_json:
        print_plan(
            {"path": run_dir, "mode": judge.mode.value, **found.about, "grader": _grader(judge)}, found, as_json
        )
        return
    names = {"settled": "graded", "cached": "in the cache", "repeated": "asked again"}
    print_plan(
        {names.get(name, name): n for name, n in found.about.items() if n or name != "repeated"}, found, False
    )


_SHOWN = (
    "path", "criteria", "met", "not_met", "ungraded", "reused", "cached", "calls", "unanswered", "reasons",
    "stopped", "notes",
)  # fmt: skip


def _report(
    done: "GradeResult", repeated: "RepeatResult | None", judge: "Judge", budget: "Budget", as_json: bool
) -> None:
    value: dict[str, Any] = {name: getattr(done, name) for name in _SHOWN}
    value |= {"grader": _grader(judge), "spent": budget.as_json()}
    stability = _stability(repeated) if repeated else {}
    if repeated:
        value["stability"] = stability

    def show() -> None:
        print_table(
            ["run", "criteria", "met", "not met", "ungraded", "reused", "calls", "unanswered cases"],
            [[done.path, done.criteria, done.met, done.not_met, done.ungraded, done.reused, done.calls,
              len(done.unanswered)]],
            title=_who(judge),
        )  # fmt: skip
        if stability:
            print_table([name.replace("_", " ") for name in stability], [[_cell(v) for v in stability.values()]])

    notes = [
        *done.notes,
        *(repeated.notes if repeated else ()),
        *(f"ungraded: {n}: {reason}" for reason, n in done.reasons.items()),
    ]
    if judge.identity.engine == "rules":
        notes.append(
            "graded by the rules engine: no clinical judgement was made, and no score of it is publishable"
        )
    print_result(value, as_json, show, notes=notes)
    _check(done, repeated)


def _check(done: "GradeResult", repeated: "RepeatResult | None") -> None:
    """Raises CheckFailed and EndpointUnavailable where verdicts are missing."""
    if done.ungraded and done.calls:
        check_answered([done.silence], done.calls)
    if repeated and repeated.missing and repeated.calls:
        check_answered([repeated.silence], repeated.calls)
    stopped = done.stopped or (repeated.stopped if repeated else None)
    if stopped:
        raise CheckFailed(
            f"{stopped}; {done.ungraded} criteria are ungraded", hint="the same command goes on from here"
        )
    check_complete(done.ungraded, "criteria are ungraded", None, hint="the same command grades them again")
    check_complete(repeated.missing if repeated else 0, "repeated verdicts are missing", None)


def _stability(repeated: "RepeatResult") -> dict[str, Any]:
    return {**asdict(repeated.stability), "calls": repeated.calls, "missing": repeated.missing}


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join("–" if one is None else f"{one:.1%}" for one in value)
    return f"{value:.1%}" if isinstance(value, float) else value


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
        _report_direct(found, budget, as_json)


def _report_direct(done: "DirectResult", budget: "Budget", as_json: bool) -> None:
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
