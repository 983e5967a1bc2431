"""`medlive eval grade|judge-direct`: verdicts about a run's answers, or one score of each."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from typer import Option

from medlive.cli.evaluation.options import (
    AskArguments,
    Cache,
    Calls,
    Grader,
    ModeOption,
    PlanArguments,
    RunArgument,
    find_incomplete,
    plan_or_ask,
    plan_result,
)
from medlive.cli.options import one_of
from medlive.cli.output import Result, fields_of, progress, say, table_of
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


def grade(
    run_dir: RunArgument,
    *,
    by: Grader,
    mode: ModeOption = "rubric",
    cache: Cache,
    calls: Calls,
    repeats: Annotated[int, Option(min=1, max=100)] = 1,
) -> Result:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded, 3 where no call was answered.

    Args:
        repeats: Verdicts of each criterion, to see how stable.
    """
    budget = calls.budget(run_dir)
    return grade_answers(run_dir, by, mode, cache, calls, budget, repeats)


def grade_answers(
    run_dir: Path,
    by: Grader,
    mode: str,
    cache: Cache,
    calls: Calls,
    budget: "Budget",
    repeats: int = 1,
) -> Result:
    """Grade, or plan it, and return the state of the grades."""
    from medlive.evaluation.grading.grade import grade_run
    from medlive.evaluation.grading.judge import Judge
    from medlive.evaluation.grading.plan import plan_grading
    from medlive.evaluation.grading.repeats import repeat_run
    from medlive.evaluation.model import Mode

    which = one_of("--mode", Mode, mode)

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

    def plan(engine: "Engine", **how: Unpack[PlanArguments]) -> "tuple[Judge, Plan]":
        judge, shared = judged_by(engine), cache.open(engine)
        return judge, plan_grading(
            run_dir, engine.identity, mode=which, cache=shared, repeats=repeats, **how
        )

    async def ask(
        engine: "Engine", **how: Unpack[AskArguments]
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
        return _describe_grades(found[1], found[2], found[0], budget)
    judge, planned = found
    about: dict[str, object] = {
        "path": run_dir,
        "mode": judge.mode.value,
        **planned.about,
        "grader": _grader(judge),
    }
    return plan_result(about, planned, budget)


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


_COUNTS = ("path", "criteria", "met", "not_met", "ungraded", "reused", "calls")
_MORE = ("cached", "unanswered", "reasons", "stopped", "notes")


def _describe_grades(
    done: "GradeResult",
    repeated: "RepeatResult | None",
    judge: "Judge",
    budget: "Budget",
) -> Result:
    value = fields_of(done, (*_COUNTS, *_MORE))
    value["grader"] = _grader(judge)
    value["spent"] = budget.as_json()
    row = value | {"unanswered": len(done.unanswered)}
    shown = [table_of([row], (*_COUNTS, "unanswered"), _who(judge))]
    notes = list(done.notes)
    if repeated:
        value["repeated"] = fields_of(repeated, ("calls", "missing"))
        notes += repeated.notes
    for reason, n in done.reasons.items():
        notes.append(f"ungraded: {n}: {reason}")
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
    hint = "the same command grades them again"
    failure = find_incomplete(
        done.ungraded, "criteria are ungraded", [done], hint, always=True
    )
    if repeated and failure is None:
        missing = "repeated verdicts are missing"
        failure = find_incomplete(repeated.missing, missing, [repeated], always=True)
    return Result(value, shown, notes, failure)


def _partial_score(run_dir: Path, judge: str) -> "Estimate":
    """The score of what is graded so far, with the bounds that the rest leaves."""
    from medlive.api import load_run, score
    from medlive.evaluation.scoring.refusals import EVERYTHING

    table = score(load_run(run_dir, judge=judge), allow=EVERYTHING)
    return table.models[0].overall


def _partial_text(partial: "Estimate") -> str:
    mean = "none" if partial.mean is None else f"{partial.mean:.1%}"
    return (
        f"score so far: {mean} on {partial.n} of {partial.of} cases; with what is unanswered or ungraded "
        f"between {partial.least:.1%} and {partial.most:.1%}"
    )


def judge_direct(
    run_dir: RunArgument,
    *,
    by: Grader,
    cache: Cache,
    calls: Calls,
) -> Result:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.direct import judge_direct as judge_run
    from medlive.evaluation.grading.direct import plan_direct

    budget = calls.budget(run_dir)

    async def ask(engine: "Engine", **how: Unpack[AskArguments]) -> "QuestionsAsked":
        with progress("answers") as tick:
            return await judge_run(
                run_dir, engine, cache=cache.open(engine), progress=tick, **how
            )

    def plan(engine: "Engine", **how: Unpack[PlanArguments]) -> Plan:
        return plan_direct(run_dir, engine.identity, cache=cache.open(engine), **how)

    found = plan_or_ask(calls, by, budget, plan, ask)
    if isinstance(found, Plan):
        return plan_result({"path": run_dir, **found.about}, found, budget)
    return _describe_direct(found, budget)


def _describe_direct(done: "QuestionsAsked", budget: "Budget") -> Result:
    value = {
        "path": done.path.parent,
        "answers": done.questions,
        "scored": done.settled,
        "spent": budget.as_json(),
    } | fields_of(done, ("calls", "cached", "reasons", "stopped"))
    notes = list(done.notes)
    for reason, n in done.reasons.items():
        notes.append(f"no score: {n}: {reason}")
    return Result(
        value,
        [table_of([value], ("path", "answers", "scored", "calls"))],
        notes,
        find_incomplete(done.questions - done.settled, "answers have no score", [done]),
    )
