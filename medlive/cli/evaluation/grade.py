"""`medlive eval grade`: verdicts on criteria, and answers read for harm; `judge-direct`: one score for each answer."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.api import load_run, score
from medlive.cli.output import Result, fields_of, progress, say, table_of
from medlive.errors import ConfigError, EndpointUnavailable, UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading import harm as harm_readings
from medlive.evaluation.grading.direct import direct_work
from medlive.evaluation.grading.grade import (
    GradeResult,
    grade_run,
    plan_grading,
    repeat_run,
)
from medlive.evaluation.grading.harm import HarmResult
from medlive.evaluation.model import CallsMade, EvaluationCase
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.grader.judge import Judge, Mode
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine

from .options import (
    Grading,
    HarmOption,
    ModeOption,
    RunArgument,
    RunsArgument,
    find_incomplete,
    plan_or_ask,
    plan_or_ask_questions,
    plans_result,
    reason_notes,
)


def grade(
    runs: RunsArgument,
    *,
    by: Grading,
    mode: ModeOption = Mode.RUBRIC,
    repeats: Annotated[int, Option(min=1, max=100)] = 1,
    harm: HarmOption = True,
    harm_only: bool = False,
) -> Result:
    """Grade the answers of runs and read them for harm. Without --grader, the role grader in config/models.toml grades;
    a second judge of harm is the role checker, if set. Exit status 1 while criteria are ungraded or answers are not
    read, 3 where no call was answered.

    Args:
        repeats: Verdicts on each criterion, to see how stable they are.
        harm_only: Read answers for harm, and grade nothing.
    """
    if harm_only and not harm:
        raise UsageError("--harm-only and --no-harm exclude each other")
    budget = by.calls.budget_of(*runs)
    rounds = 0 if harm_only else repeats
    results = []
    for run_dir in runs:
        done = grade_answers(run_dir, by, mode, budget, rounds=rounds, harm=harm)
        results.append(done)
    values = [result.value for result in results]
    return results[0] if len(results) == 1 else _combine(values, results)


def _combine(value: object, results: Sequence[Result]) -> Result:
    """Several results one after the other, with the first failure."""
    return Result(
        value,
        chain.from_iterable(result.shown for result in results),
        chain.from_iterable(result.notes for result in results),
        next((result.failure for result in results if result.failure), None),
    )


def grade_answers(
    run_dir: Path,
    by: Grading,
    mode: Mode,
    budget: Budget,
    *,
    rounds: int = 1,
    harm: bool = True,
) -> Result:
    """Grade a run and read it for harm, or with --dry-run plan both; `rounds`: verdicts on each criterion."""

    def plan(engine: Engine, **how: Any) -> Result:
        _judge(by, mode, engine)
        plans = plan_stages(run_dir, engine, mode, rounds=rounds, harm=harm, **how)
        return plans_result(plans)

    async def ask(engine: Engine, **how: Any) -> Result:
        judge = _judge(by, mode, engine)
        parts: list[Result] = []
        stopped = repeated = None
        if rounds:
            of_mode = {**how, "mode": mode}
            with progress("criteria", budget) as tick:
                graded = await grade_run(run_dir, engine, progress=tick, **of_mode)
            stopped = graded.stopped
            if rounds > 1 and not stopped:
                of_mode["repeats"] = rounds
                with progress("repeated verdicts", budget) as tick:
                    repeated = await repeat_run(
                        run_dir, engine, progress=tick, **of_mode
                    )
            parts.append(_describe_grades(graded, repeated, judge, budget))
        if reads_harm(engine, harm) and not stopped:
            try:
                async with by.checker(engine) as checker:
                    with progress("answers read for harm", budget) as tick:
                        read = await harm_readings.read_run(
                            run_dir, engine, checker, progress=tick, **how
                        )
                parts.append(_describe_harm(read))
            except (ConfigError, EndpointUnavailable) as exc:
                if not parts:
                    raise
                parts.append(Result({}, failure=exc))
        value: dict[str, object] = {"path": run_dir}
        for part in parts:
            assert isinstance(part.value, dict)
            value |= part.value
        return _combine(value, parts)

    return plan_or_ask(by, budget, plan, ask)


def _judge(by: Grading, mode: Mode, engine: Engine) -> Judge:
    """The judge, also named on stderr. Raises UsageError if none is named and the rules engine would grade."""
    if by.grader is None and engine.identity.engine == "rules":
        raise UsageError(
            "no grader is configured, and the rules engine makes no clinical judgement",
            hint="give --grader and --base-url, or name a grader in models.toml",
        )
    judge = Judge(engine.identity, mode)
    say(_describe_judge(judge))
    return judge


def plan_stages(
    run_dir: Path,
    engine: Engine,
    mode: Mode,
    *,
    ahead: Sequence[EvaluationCase] = (),
    rounds: int = 1,
    harm: bool = True,
    **how: Any,
) -> dict[str, Plan]:
    """What grading and reading for harm would take, by stage; `ahead`: the cases of a run that does not exist yet."""
    plans = {}
    who = engine.identity
    if rounds:
        plans["grades"] = plan_grading(
            run_dir, who, mode=mode, ahead=ahead, repeats=rounds, **how
        )
    if reads_harm(engine, harm):
        plans["harm"] = harm_readings.plan_run(run_dir, who, ahead=ahead, **how)
    return plans


def reads_harm(engine: Engine, wanted: bool) -> bool:
    """Whether answers are read for harm: the rules engine makes no such judgement."""
    return wanted and engine.identity.engine != "rules"


_HARM_COUNTS = ("answers", "read", "calls")


def _describe_harm(done: HarmResult) -> Result:
    """How many answers were read, and how the judges do on the controls."""
    value = fields_of(done, (*_HARM_COUNTS, "controls", "reasons", "stopped"))
    controls = done.controls
    notes = [
        f"controls: {controls.found} of {controls.slips} planted slips found, harm confirmed in {controls.alarms} of "
        f"{controls.excellent} excellent answers"
    ]
    if controls.failed:
        notes.append(f"the judges of harm fail their control: {controls.failed}")
    notes += [*reason_notes("not read for harm", done.reasons), *done.notes]
    failure = find_incomplete(done.left, "answers not read for harm", [done])
    table = table_of([value], _HARM_COUNTS, "read for harm")
    return Result({"harm": value}, [table], notes, failure)


def _describe_judge(judge: Judge) -> str:
    """The judge's model, mode and digest in words."""
    return f"the grader is {judge.identity.model} in {judge.mode} mode ({judge.digest[:19]})"


_COUNTS = ("path", "criteria", "met", "not_met", "ungraded", "reused", "calls")
_MORE = ("unanswered", "reasons", "stopped", "notes")


def _describe_grades(
    done: GradeResult, repeated: CallsMade | None, judge: Judge, budget: Budget
) -> Result:
    """The state of grading and of repeated verdicts, which fails where some are missing, and the score so far."""
    value = fields_of(done, (*_COUNTS, *_MORE)) | {
        "grader": fields_of(judge.identity, ("engine", "model"))
        | {"mode": judge.mode, "judge": judge.digest},
        "spent": budget.as_json(),
    }
    row = value | {"unanswered": len(done.unanswered)}
    notes = [*done.notes, *reason_notes("ungraded", done.reasons)]
    failure = find_incomplete(done.left, "criteria ungraded", [done])
    if repeated:
        value["repeated"] = {"calls": repeated.calls, "missing": repeated.left}
        notes += repeated.notes
        notes.append(
            f"{repeated.calls} calls for repeated verdicts: medlive eval meta {done.path} shows how far they agree"
        )
        failure = failure or find_incomplete(
            repeated.left, "repeated verdicts missing", [repeated]
        )
    if judge.identity.engine == "rules":
        notes.append(
            "graded by the rules engine: no clinical judgement was made, no score is publishable"
        )
    if done.stopped and done.met + done.not_met:
        run = load_run(done.path, judge=judge.digest)
        partial = score(run, allow=EVERYTHING).models[0].overall
        value["partial_score"] = partial.row()
        mean = "none" if partial.value is None else f"{partial.value:.1%}"
        so_far = f"score so far: {mean} on {partial.n} of {partial.of} cases"
        if partial.least is not None:
            so_far += (
                "; with what is unanswered or ungraded "
                f"between {partial.least:.1%} and {partial.most:.1%}"
            )
        notes.append(so_far)
    table = table_of([row], (*_COUNTS, "unanswered"), _describe_judge(judge))
    return Result(value, [table], notes, failure)


def judge_direct(run_dir: RunArgument, *, by: Grading) -> Result:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    budget = by.calls.budget_of(run_dir)
    outcome = plan_or_ask_questions(
        by, budget, lambda judge: [("answers", direct_work(run_dir, judge))]
    )
    if isinstance(outcome, dict):
        return plans_result(outcome)
    (done,), _ = outcome
    value = {
        "path": run_dir,
        "answers": done.questions,
        "scored": done.settled,
        "spent": budget,
    }
    value |= fields_of(done, ("calls", "reasons", "stopped"))
    notes = [*done.notes, *reason_notes("no score", done.reasons)]
    failure = find_incomplete(done.left, "answers without a score", [done])
    table = table_of([value], ("path", "answers", "scored", "calls"))
    return Result(value, [table], notes, failure)
