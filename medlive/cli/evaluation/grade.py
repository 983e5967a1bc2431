"""`medlive eval grade`: verdicts about a run's answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medlive.cli.evaluation.options import (
    CacheOption,
    ConcurrencyOption,
    DryRunOption,
    GraderOption,
    GraderUrlOption,
    KeyOption,
    MaxCallsOption,
    MaxTokensOption,
    MaxUsdOption,
    ModeOption,
    NoCacheOption,
    RunArgument,
    TimeoutOption,
    UnpinnedOption,
)
from medlive.cli.evaluation.spending import check_answered, check_priced, price_of, tell_limits, tell_plan
from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.cache import GradeCache
    from medlive.evaluation.grading.grade import GradeResult
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.repeats import RepeatResult
    from medlive.evaluation.model import Mode
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine


def grade(
    run_dir: RunArgument,
    grader: GraderOption = None,
    base_url: GraderUrlOption = None,
    mode: ModeOption = "criterion",
    allow_unpinned: UnpinnedOption = False,
    concurrency: ConcurrencyOption = 16,
    timeout: TimeoutOption = None,
    api_key_env: KeyOption = None,
    cache: CacheOption = None,
    no_cache: NoCacheOption = False,
    max_usd: MaxUsdOption = None,
    max_calls: MaxCallsOption = None,
    max_tokens: MaxTokensOption = None,
    repeats: Annotated[
        int,
        typer.Option("--repeats", min=1, max=100, help="Verdicts of each criterion, to see how stable."),
    ] = 1,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded, 3 where no call was answered."""
    from medlive.evaluation.grading.grade import grade_run
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.plan import plan_grading
    from medlive.evaluation.grading.repeats import repeat_run
    from medlive.llm.budget import Budget
    from medlive.service.endpoints import grader_engine

    which = read_mode(mode)
    from medlive.config import load_settings

    settings = load_settings().settings
    budget = Budget(max_calls=max_calls, max_usd=max_usd, max_tokens=max_tokens)

    async def work() -> "tuple[Judge, Plan | tuple[GradeResult, RepeatResult | None]]":
        engine = grader_engine(
            settings.roles.grader, model=grader, base_url=base_url, api_key_env=api_key_env,
            concurrency=concurrency, prices=settings.prices, timeout_s=timeout,
        )  # fmt: skip
        judge = Judge(engine.identity, which, allow_unpinned=allow_unpinned)
        held = open_cache(settings, engine, cache, no_cache)
        say(_who(judge))
        try:
            if dry_run:
                return judge, plan_grading(
                    run_dir, engine.identity, mode=which, concurrency=concurrency, allow_unpinned=allow_unpinned,
                    price=price_of(engine), cache=held, repeats=repeats,
                )  # fmt: skip
            check_priced(engine, budget)
            with progress("criteria") as tick:
                done = await grade_run(
                    run_dir, engine, mode=which, concurrency=concurrency, allow_unpinned=allow_unpinned,
                    budget=budget, cache=held, progress=tick,
                )  # fmt: skip
            if repeats == 1 or done.stopped:
                return judge, (done, None)
            with progress("repeated verdicts") as tick:
                again = await repeat_run(
                    run_dir, engine, repeats=repeats, mode=which, concurrency=concurrency,
                    allow_unpinned=allow_unpinned, budget=budget, progress=tick,
                )  # fmt: skip
            return judge, (done, again)
        finally:
            await engine.aclose()

    judge, found = wait_for(work())
    if not isinstance(found, tuple):
        _tell_plan(found, run_dir, judge, as_json)
        tell_limits(found, budget)
        return
    _tell(*found, judge, budget, as_json)


def read_mode(name: str) -> "Mode":
    """The mode of that name. Raises UsageError for another."""
    from medlive.evaluation.model import Mode

    if name not in set(Mode):
        raise UsageError(f"--mode {name}: choose criterion or rubric")
    return Mode(name)


def open_cache(settings: "Settings", engine: "Engine", folder: Path | None, without: bool) -> "GradeCache | None":
    """The verdicts that runs share; None when they are not wanted, and for the rules, which cost nothing."""
    from medlive.evaluation.grading.cache import GradeCache

    if without and folder is not None:
        raise UsageError("--cache and --no-cache exclude each other")
    if without or (folder is None and engine.identity.engine == "rules"):
        return None
    return GradeCache(folder or settings.home / "cache" / "grades")


def _who(judge: "Judge") -> str:
    return f"the grader is {judge.identity.model} in {judge.mode} mode ({judge.digest[:19]})"


def _grader(judge: "Judge") -> dict[str, str]:
    who = judge.identity
    return {"engine": who.engine, "model": who.model, "mode": judge.mode.value, "judge": judge.digest}


def _tell_plan(found: "Plan", run_dir: Path, judge: "Judge", as_json: bool) -> None:
    if as_json:
        tell_plan(
            {"path": run_dir, "mode": judge.mode.value, **found.about, "grader": _grader(judge)}, found, as_json
        )
        return
    names = {"settled": "graded", "cached": "in the cache", "repeated": "asked again"}
    tell_plan(
        {names.get(name, name): n for name, n in found.about.items() if n or name != "repeated"}, found, False
    )


def _tell(
    done: "GradeResult", repeated: "RepeatResult | None", judge: "Judge", budget: "Budget", as_json: bool
) -> None:
    if as_json:
        values: dict[str, Any] = {
            "path": done.path, "grader": _grader(judge), "criteria": done.criteria, "met": done.met,
            "not_met": done.not_met,
            "ungraded": done.ungraded, "reused": done.reused, "cached": done.cached, "calls": done.calls,
            "unanswered": done.unanswered, "reasons": dict(done.reasons), "stopped": done.stopped,
            "spent": budget.as_json(), "notes": done.notes,
        }  # fmt: skip
        if repeated:
            values["stability"] = _stability(repeated)
        print_json(values)
    else:
        print_table(
            ["run", "criteria", "met", "not met", "ungraded", "reused", "calls", "unanswered cases"],
            [[done.path, done.criteria, done.met, done.not_met, done.ungraded, done.reused, done.calls,
              len(done.unanswered)]],
            title=_who(judge),
        )  # fmt: skip
        if repeated:
            found = _stability(repeated)
            print_table([name.replace("_", " ") for name in found], [[_cell(v) for v in found.values()]])
    for note in (*done.notes, *(repeated.notes if repeated else ())):
        say(note)
    for reason, n in done.reasons.items():
        say(f"ungraded: {n}: {reason}")
    if judge.identity.engine == "rules":
        say("graded by the rules engine: no clinical judgement was made, and no score of it is publishable")
    if done.ungraded and done.calls:
        check_answered([done.silence], done.calls)
    if repeated and repeated.missing and repeated.calls:
        check_answered([repeated.silence], repeated.calls)
    stopped = done.stopped or (repeated.stopped if repeated else None)
    if stopped:
        raise CheckFailed(
            f"{stopped}; {done.ungraded} criteria are ungraded", hint="the same command goes on from here"
        )
    if done.ungraded:
        raise CheckFailed(f"{done.ungraded} criteria are ungraded", hint="the same command grades them again")
    if repeated and repeated.missing:
        raise CheckFailed(f"{repeated.missing} repeated verdicts are missing", hint="the same command asks again")


def _stability(repeated: "RepeatResult") -> dict[str, Any]:
    found = repeated.stability
    return {
        "rounds": found.rounds, "criteria": found.criteria, "unanimous": found.unanimous,
        "agreement": found.agreement, "invalid": found.invalid, "met": found.met, "calls": repeated.calls,
        "missing": repeated.missing,
    }  # fmt: skip


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join("–" if one is None else f"{one:.1%}" for one in value)
    return f"{value:.1%}" if isinstance(value, float) else value
