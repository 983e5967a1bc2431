"""`medlive eval grade|judge-direct`: verdicts about a run's answers, or one score of each."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from medlive.cli.evaluation.options import (
    Cache,
    Calls,
    Grader,
    ModeOption,
    RunArgument,
    check_complete,
    plan_or_ask,
    print_plan,
    read_mode,
)
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import attributes, print_result, print_table, progress, say
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.grade import GradeResult
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.questions import QuestionsAsked
    from medlive.evaluation.grading.repeats import RepeatResult
    from medlive.evaluation.scoring.estimates import Estimate
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine


@grouped
def grade(
    run_dir: RunArgument,
    *,
    by: Grader,
    mode: ModeOption = "rubric",
    cache: Cache,
    calls: Calls,
    repeats: Annotated[
        int,
        Option(min=1, max=100, help="Verdicts of each criterion, to see how stable."),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded, 3 where no call was answered."""
    grade_answers(
        run_dir, by, mode, cache, calls, calls.budget(run_dir), repeats, as_json
    )


def grade_answers(
    run_dir: Path,
    by: Grader,
    mode: str,
    cache: Cache,
    calls: Calls,
    budget: "Budget",
    repeats: int = 1,
    as_json: bool = False,
) -> None:
    """Grade, or plan it, and print the state of the grades. Raises CheckFailed, EndpointUnavailable."""
    from medlive.evaluation.grading.grade import grade_run
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.plan import plan_grading
    from medlive.evaluation.grading.repeats import repeat_run

    which = read_mode(mode)

    def judged_by(engine: "Engine") -> Judge:
        if by.grader is None and engine.identity.engine == "rules":
            hint = "give --grader and --base-url, or name a model under [roles.grader] in models.toml"
            raise UsageError(
                "no grader is configured, and the rules engine makes no clinical judgement",
                hint=hint,
            )
        judge = Judge(engine.identity, which, allow_unpinned=by.allow_unpinned)
        say(_who(judge))
        return judge

    def plan(engine: "Engine", **how: Any) -> "tuple[Judge, Plan]":
        judge, shared = judged_by(engine), cache.open(engine)
        return judge, plan_grading(
            run_dir, engine.identity, mode=which, cache=shared, repeats=repeats, **how
        )

    async def ask(
        engine: "Engine", **how: Any
    ) -> "tuple[Judge, GradeResult, RepeatResult | None]":
        judge, shared = judged_by(engine), cache.open(engine)
        with progress("criteria", budget) as tick:
            done = await grade_run(
                run_dir, engine, mode=which, cache=shared, progress=tick, **how
            )
        if repeats == 1 or done.stopped:
            return judge, done, None
        with progress("repeated verdicts", budget) as tick:
            again = await repeat_run(
                run_dir, engine, repeats=repeats, mode=which, progress=tick, **how
            )
        return judge, done, again

    found = plan_or_ask(calls, by, budget, plan, ask)
    if len(found) == 3:
        _report(found[1], found[2], found[0], budget, as_json)
        return
    judge, planned = found
    about: dict[str, Any] = {
        "path": run_dir,
        "mode": judge.mode.value,
        **planned.about,
        "grader": _grader(judge),
    }
    if not as_json:
        names = {
            "settled": "graded",
            "cached": "in the cache",
            "repeated": "asked again",
        }
        about = {
            names.get(name, name): n
            for name, n in planned.about.items()
            if n or name != "repeated"
        }
    print_plan(about, planned, budget, as_json)


def _who(judge: "Judge") -> str:
    return f"the grader is {judge.identity.model} in {judge.mode} mode ({judge.digest[:19]})"


def _grader(judge: "Judge") -> dict[str, str]:
    who = judge.identity
    return {
        "engine": who.engine,
        "model": who.model,
        "mode": judge.mode.value,
        "judge": judge.digest,
    }


_SHOWN = "path criteria met not_met ungraded reused cached calls unanswered reasons stopped notes"


def _report(
    done: "GradeResult",
    repeated: "RepeatResult | None",
    judge: "Judge",
    budget: "Budget",
    as_json: bool,
) -> None:
    value = attributes(done, _SHOWN) | {
        "grader": _grader(judge),
        "spent": budget.as_json(),
    }
    if repeated:
        value["repeated"] = attributes(repeated, "calls missing")

    def show() -> None:
        print_table(
            [
                "run",
                "criteria",
                "met",
                "not met",
                "ungraded",
                "reused",
                "calls",
                "unanswered cases",
            ],
            [
                [
                    done.path,
                    done.criteria,
                    done.met,
                    done.not_met,
                    done.ungraded,
                    done.reused,
                    done.calls,
                    len(done.unanswered),
                ]
            ],
            title=_who(judge),
        )

    notes = [
        *done.notes,
        *(repeated.notes if repeated else ()),
        *(f"ungraded: {n}: {reason}" for reason, n in done.reasons.items()),
    ]
    if repeated:
        notes.append(
            f"{repeated.calls} calls for repeated verdicts: medlive eval meta {done.path} shows how far they agree"
        )
    if judge.identity.engine == "rules":
        notes.append(
            "graded by the rules engine: no clinical judgement was made, no score is publishable"
        )
    if done.stopped and done.met + done.not_met:
        partial = _partial_score(done.path, judge.digest)
        value["partial_score"] = asdict(partial)
        notes.append(_partial_text(partial))
    print_result(value, as_json, show, notes=notes)
    hint = "the same command grades them again"
    check_complete(done.ungraded, "criteria are ungraded", [done], hint, always=True)
    if repeated:
        check_complete(
            repeated.missing, "repeated verdicts are missing", [repeated], always=True
        )


def _partial_score(run_dir: Path, judge: str) -> "Estimate":
    """The score of what is graded so far, with the bounds that the rest leaves."""
    from medlive.evaluation.scoring.graded import load_graded
    from medlive.evaluation.scoring.refusals import EVERYTHING
    from medlive.evaluation.scoring.score import score_runs

    graded = load_graded(run_dir, judge=judge)
    return score_runs([graded], allow=EVERYTHING).models[0].overall


def _partial_text(partial: "Estimate") -> str:
    mean = "none" if partial.mean is None else f"{partial.mean:.1%}"
    return (
        f"score so far: {mean} on {partial.n} of {partial.of} cases; with what is unanswered or ungraded "
        f"between {partial.least:.1%} and {partial.most:.1%}"
    )


@grouped
def judge_direct(
    run_dir: RunArgument,
    *,
    by: Grader,
    cache: Cache,
    calls: Calls,
    as_json: JsonOption = False,
) -> None:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import judge_direct as judge_run
    from medlive.evaluation.grading.direct import plan_direct

    budget = calls.budget(run_dir)

    async def ask(engine: "Engine", **how: Any) -> "QuestionsAsked":
        with progress("answers") as tick:
            return await judge_run(
                run_dir, engine, cache=cache.open(engine), progress=tick, **how
            )

    def plan(engine: "Engine", **how: Any) -> Plan:
        return plan_direct(run_dir, engine.identity, cache=cache.open(engine), **how)

    found = plan_or_ask(calls, by, budget, plan, ask)
    if isinstance(found, Plan):
        print_plan({"path": run_dir, **found.about}, found, budget, as_json)
    else:
        _report_direct(found, budget, as_json)


def _report_direct(done: "QuestionsAsked", budget: "Budget", as_json: bool) -> None:
    run, left = done.path.parent, done.questions - done.settled
    value = {
        "path": run,
        "answers": done.questions,
        "scored": done.settled,
        "spent": budget.as_json(),
    }
    rows = [[run, done.questions, done.settled, done.calls]]
    print_result(
        value | attributes(done, "calls cached reasons stopped"),
        as_json,
        lambda: print_table(["run", "answers", "scored", "calls"], rows),
        notes=[
            *done.notes,
            *(f"no score: {n}: {reason}" for reason, n in done.reasons.items()),
        ],
    )
    check_complete(left, "answers have no score", [done])
