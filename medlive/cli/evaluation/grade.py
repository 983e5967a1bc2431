"""`medlive eval grade|judge-direct`: verdicts about a run's answers, or one score of each."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.api import load_run, score
from medlive.cli.evaluation.options import (
    Grading,
    HarmOption,
    ModeOption,
    RunArgument,
    RunsArgument,
    find_incomplete,
    plan_or_ask,
    plan_result,
    plans_result,
    reason_notes,
)
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
from medlive.evaluation.grading.questions import ask_questions, plan_questions
from medlive.evaluation.model import CallsMade, EvaluationCase
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.grader.judge import Judge, Mode
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine


def grade(
    runs: RunsArgument,
    *,
    by: Grading,
    mode: ModeOption = Mode.RUBRIC,
    repeats: Annotated[int, Option(min=1, max=100)] = 1,
    harm: HarmOption = True,
    harm_only: bool = False,
) -> Result:
    """Grade the answers of runs and read them for harm; without --grader by the role of config/models.toml, the second
    judge of harm by the role checker. Exit status 1 while criteria are ungraded or answers are not read, 3 where no
    call was answered.

    Args:
        repeats: Verdicts of each criterion, to see how stable.
        harm_only: Read answers for harm, and grade nothing.
    """
    if harm_only and not harm:
        raise UsageError("--harm-only and --no-harm exclude each other")
    budget = by.budget(*runs)
    results = []
    for run_dir in runs:
        result = grade_answers(
            run_dir,
            by,
            mode,
            budget,
            grades=not harm_only,
            harm=harm,
            repeats=repeats,
        )
        results.append(result)
    values = [result.value for result in results]
    return _combine(values, results) if len(results) > 1 else results[0]


def _combine(value: object, results: Sequence[Result]) -> Result:
    """Several results one after the other, with the first failure."""
    failures = [result.failure for result in results if result.failure]
    return Result(
        value,
        chain.from_iterable(result.shown for result in results),
        chain.from_iterable(result.notes for result in results),
        failures[0] if failures else None,
    )


def grade_answers(
    run_dir: Path,
    by: Grading,
    mode: Mode,
    budget: Budget,
    *,
    grades: bool = True,
    harm: bool = True,
    repeats: int = 1,
) -> Result:
    """Grade and read for harm, or plan it, and return the state of both."""

    def plan(engine: Engine, **how: Any) -> Result:
        judge = _judge(by, mode, engine)
        plans = plan_stages(
            run_dir,
            engine,
            mode,
            grades=grades,
            harm=harm,
            repeats=repeats,
            **how,
        )
        if list(plans) != ["grades"]:
            return plans_result(plans, budget)
        planned = plans["grades"]
        about = {
            "path": run_dir,
            "mode": mode,
            **planned.about,
        }
        return plan_result(about | {"grader": _grader(judge)}, planned, budget)

    async def ask(engine: Engine, **how: Any) -> Result:
        judge = _judge(by, mode, engine)
        parts: list[Result] = []
        stopped = None
        if grades:
            with progress("criteria", budget) as tick:
                graded = await grade_run(
                    run_dir,
                    engine,
                    mode=mode,
                    progress=tick,
                    **how,
                )
            stopped = graded.stopped
            repeated = None
            if repeats > 1 and not stopped:
                with progress("repeated verdicts", budget) as tick:
                    repeated = await repeat_run(
                        run_dir,
                        engine,
                        repeats=repeats,
                        mode=mode,
                        progress=tick,
                        **how,
                    )
            parts.append(_describe_grades(graded, repeated, judge, budget))
        if reads_harm(engine, harm) and not stopped:
            try:
                async with by.checker(engine) as checker:
                    with progress("answers read for harm", budget) as tick:
                        read = await harm_readings.read_run(
                            run_dir,
                            engine,
                            checker,
                            progress=tick,
                            **how,
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


def _judge(
    by: Grading,
    mode: Mode,
    engine: Engine,
) -> Judge:
    """The judge, who is named on stderr. Raises UsageError for the rules engine that nobody chose."""
    if by.grader is None and engine.identity.engine == "rules":
        raise UsageError(
            "no grader is configured, and the rules engine makes no clinical judgement",
            hint="give --grader and --base-url, or name a grader in models.toml",
        )
    judge = Judge(engine.identity, mode)
    say(_who(judge))
    return judge


def plan_stages(
    run_dir: Path,
    engine: Engine,
    mode: Mode,
    *,
    ahead: Sequence[EvaluationCase] = (),
    grades: bool = True,
    harm: bool = True,
    repeats: int = 1,
    **how: Any,
) -> dict[str, Plan]:
    """What grading and reading for harm take, by stage; `ahead`: cases of a run that has yet to be made."""
    plans = {}
    who = engine.identity
    if grades:
        plans["grades"] = plan_grading(
            run_dir,
            who,
            mode=mode,
            ahead=ahead,
            repeats=repeats,
            **how,
        )
    if reads_harm(engine, harm):
        plans["harm"] = harm_readings.plan_run(
            run_dir,
            who,
            ahead=ahead,
            **how,
        )
    return plans


def reads_harm(engine: Engine, wanted: bool) -> bool:
    """Whether answers are read for harm: the rules engine makes no such judgement."""
    return wanted and engine.identity.engine != "rules"


_HARM_COUNTS = ("answers", "read", "severe", "moderate", "unconfirmed", "calls")


def _describe_harm(done: HarmResult) -> Result:
    """How many answers were read, what was confirmed, and how the judges do on the controls."""
    value = fields_of(done, (*_HARM_COUNTS, "reasons", "stopped"))
    controls = done.controls
    notes = [
        f"controls: {controls.found} of {controls.slips} planted slips found, harm confirmed in {controls.alarms} of "
        f"{controls.excellent} excellent answers"
    ]
    if controls.failed:
        notes.append(f"the judges of harm fail their control: {controls.failed}")
    notes += [*reason_notes("not read for harm", done.reasons), *done.notes]
    return Result(
        {"harm": value | {"controls": controls.as_json()}},
        [table_of([value], _HARM_COUNTS, "read for harm")],
        notes,
        find_incomplete(
            done.left,
            "answer is not read for harm",
            "answers are not read for harm",
            [done],
        ),
    )


def _who(judge: Judge) -> str:
    return f"the grader is {judge.identity.model} in {judge.mode} mode ({judge.digest[:19]})"


def _grader(judge: Judge) -> dict[str, object]:
    about = {"mode": judge.mode, "judge": judge.digest}
    return fields_of(judge.identity, ("engine", "model")) | about


_COUNTS = ("path", "criteria", "met", "not_met", "ungraded", "reused", "calls")
_MORE = ("unanswered", "reasons", "stopped", "notes")


def _describe_grades(
    done: GradeResult,
    repeated: CallsMade | None,
    judge: Judge,
    budget: Budget,
) -> Result:
    value = fields_of(done, (*_COUNTS, *_MORE))
    value |= {"grader": _grader(judge), "spent": budget.as_json()}
    row = value | {"unanswered": len(done.unanswered)}
    notes = [*done.notes, *reason_notes("ungraded", done.reasons)]
    failure = find_incomplete(
        done.left,
        "criterion is ungraded",
        "criteria are ungraded",
        [done],
        "the same command grades them again",
        always=True,
    )
    if repeated:
        value["repeated"] = {"calls": repeated.calls, "missing": repeated.left}
        notes += repeated.notes
        notes.append(
            f"{repeated.calls} calls for repeated verdicts: medlive eval meta {done.path} shows how far they agree"
        )
        failure = failure or find_incomplete(
            repeated.left,
            "repeated verdict is missing",
            "repeated verdicts are missing",
            [repeated],
            always=True,
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
    table = table_of([row], (*_COUNTS, "unanswered"), _who(judge))
    return Result(value, [table], notes, failure)


def judge_direct(run_dir: RunArgument, *, by: Grading) -> Result:
    """Ask a model for one score from 0 to 1 of each answer as a whole: the baseline for `medlive eval meta`.
    Exit status 1 while answers have no score, 3 where no call was answered."""
    budget = by.budget(run_dir)

    def plan(engine: Engine, **how: Any) -> Result:
        who = engine.identity
        planned = plan_questions(*direct_work(run_dir, who), who, **how)
        return plan_result({"path": run_dir, **planned.about}, planned, budget)

    async def ask(engine: Engine, **how: Any) -> Result:
        with progress("answers") as tick:
            done = await ask_questions(
                *direct_work(run_dir, engine.identity),
                engine,
                progress=tick,
                **how,
            )
        value = {
            "path": done.path.parent,
            "answers": done.questions,
            "scored": done.settled,
            "spent": budget.as_json(),
        }
        value |= fields_of(done, ("calls", "reasons", "stopped"))
        notes = [*done.notes, *reason_notes("no score", done.reasons)]
        return Result(
            value,
            [table_of([value], ("path", "answers", "scored", "calls"))],
            notes,
            find_incomplete(
                done.left,
                "answer has no score",
                "answers have no score",
                [done],
            ),
        )

    return plan_or_ask(by, budget, plan, ask)
