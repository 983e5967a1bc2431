"""`medlive eval grade|judge-direct`: verdicts about a run's answers, or one score of each."""

from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from typer import Option

from medlive.cli.evaluation.options import (
    AskArguments,
    Calls,
    Grader,
    HarmOption,
    ModeOption,
    PlanArguments,
    RunArgument,
    RunsArgument,
    find_incomplete,
    plan_or_ask,
    plan_result,
    plans_result,
)
from medlive.cli.options import one_of
from medlive.cli.output import Result, fields_of, progress, say, table_of
from medlive.errors import (
    ConfigError,
    EndpointUnavailable,
    MedliveError,
    UsageError,
)

if TYPE_CHECKING:
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.grading.grade import GradeResult
    from medlive.evaluation.grading.harm import HarmResult
    from medlive.evaluation.grading.questions import QuestionsAsked
    from medlive.evaluation.grading.repeats import RepeatResult
    from medlive.evaluation.scoring.estimates import ScoreEstimate
    from medlive.grader.judge import Judge, Mode
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine


def grade(
    runs: RunsArgument,
    *,
    by: Grader,
    mode: ModeOption = "rubric",
    calls: Calls,
    repeats: Annotated[int, Option(min=1, max=100)] = 1,
    harm: HarmOption = True,
    harm_only: Annotated[bool, Option("--harm-only")] = False,
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
    budget = calls.budget(*runs)
    what = Steps(grades=not harm_only, harm=harm, repeats=repeats)
    results = []
    for run_dir in runs:
        results.append(grade_answers(run_dir, by, mode, calls, budget, what))
    return _combine(results) if len(results) > 1 else results[0]


def _combine(results: list[Result]) -> Result:
    """Several runs' results, one after the other; a list for machines, and the first failure."""
    return Result(
        [result.value for result in results],
        chain.from_iterable(result.shown for result in results),
        chain.from_iterable(result.notes for result in results),
        next((result.failure for result in results if result.failure), None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What is done about a run's answers."""

    grades: bool = True
    harm: bool = True
    repeats: int = 1


@dataclass(slots=True)
class _Done:
    """What came of it; None: not asked for, or stopped before."""

    path: Path
    judge: "Judge"
    grades: "GradeResult | None" = None
    repeated: "RepeatResult | None" = None
    harm: "HarmResult | None" = None
    harm_failure: MedliveError | None = None
    """Why the answers could not be read for harm at all, after they were graded."""


def grade_answers(
    run_dir: Path,
    by: Grader,
    mode: str,
    calls: Calls,
    budget: "Budget",
    work: Steps,
) -> Result:
    """Grade and read for harm, or plan it, and return the state of both."""
    from medlive.grader.judge import Mode

    grading = _Grading(
        run_dir=run_dir,
        by=by,
        mode=one_of("--mode", Mode, mode),
        calls=calls,
        budget=budget,
        work=work,
    )
    outcome = plan_or_ask(calls, by, budget, grading.plan, grading.ask)
    if isinstance(outcome, _Done):
        return _describe_done(outcome, budget)
    judge, plans = outcome
    if set(plans) != {"grades"}:
        return plans_result(plans, budget)
    planned = plans["grades"]
    about: dict[str, object] = {
        "path": run_dir,
        "mode": judge.mode.value,
        **planned.about,
        "grader": _grader(judge),
    }
    return plan_result(about, planned, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grading:
    """The calls about a run's answers, planned or made."""

    run_dir: Path
    by: Grader
    mode: "Mode"
    calls: Calls
    budget: "Budget"
    work: Steps

    def judge(self, engine: "Engine") -> "Judge":
        """The judge, who is named on stderr. Raises UsageError for the rules engine that nobody chose."""
        from medlive.grader.judge import Judge

        if self.by.grader is None and engine.identity.engine == "rules":
            hint = "give --grader and --base-url, or name a model under [roles.grader] in models.toml"
            raise UsageError(
                "no grader is configured, and the rules engine makes no clinical judgement",
                hint=hint,
            )
        allow = self.by.allow_unpinned
        judge = Judge(engine.identity, self.mode, allow_unpinned=allow)
        say(_who(judge))
        return judge

    def plan(
        self, engine: "Engine", **how: Unpack[PlanArguments]
    ) -> "tuple[Judge, dict[str, Plan]]":
        """The plans by stage."""
        from medlive.evaluation.grading.harm import plan_run
        from medlive.evaluation.grading.plan import plan_grading

        judge, who = self.judge(engine), engine.identity
        plans = {}
        if self.work.grades:
            plans["grades"] = plan_grading(
                self.run_dir,
                who,
                mode=self.mode,
                repeats=self.work.repeats,
                **how,
            )
        if reads_harm(engine, self.work.harm):
            plans["harm"] = plan_run(self.run_dir, who, **how)
        return judge, plans

    async def ask(self, engine: "Engine", **how: Unpack[AskArguments]) -> _Done:
        """Make the calls, stage after stage, until a budget ends them."""
        done = _Done(self.run_dir, self.judge(engine))
        if self.work.grades:
            await self._grade(done, engine, **how)
        if done.grades and done.grades.stopped:
            return done
        if reads_harm(engine, self.work.harm):
            try:
                await self._read(done, engine, **how)
            except (ConfigError, EndpointUnavailable) as exc:
                if done.grades is None:
                    raise
                done.harm_failure = exc
        return done

    async def _grade(
        self, done: _Done, engine: "Engine", **how: Unpack[AskArguments]
    ) -> None:
        from medlive.evaluation.grading.grade import grade_run
        from medlive.evaluation.grading.repeats import repeat_run

        with progress("criteria", self.budget) as tick:
            done.grades = await grade_run(
                self.run_dir,
                engine,
                mode=self.mode,
                progress=tick,
                **how,
            )
        if self.work.repeats == 1 or done.grades.stopped:
            return
        with progress("repeated verdicts", self.budget) as tick:
            done.repeated = await repeat_run(
                self.run_dir,
                engine,
                repeats=self.work.repeats,
                mode=self.mode,
                progress=tick,
                **how,
            )

    async def _read(
        self, done: _Done, engine: "Engine", **how: Unpack[AskArguments]
    ) -> None:
        from medlive.evaluation.grading.harm import read_run

        async with self.calls.checker(engine) as checker:
            with progress("answers read for harm", self.budget) as tick:
                done.harm = await read_run(
                    self.run_dir, engine, checker, progress=tick, **how
                )


def reads_harm(engine: "Engine", wanted: bool) -> bool:
    """Whether answers are read for harm: the rules engine makes no such judgement."""
    return wanted and engine.identity.engine != "rules"


def _describe_done(done: _Done, budget: "Budget") -> Result:
    """The grades, then the readings; the first failure of both."""
    parts = []
    if done.grades is not None:
        parts.append(_describe_grades(done.grades, done.repeated, done.judge, budget))
    if done.harm is not None:
        parts.append(_describe_harm(done.harm))
    value: dict[str, object] = {"path": done.path}
    failures = []
    for part in parts:
        assert isinstance(part.value, dict)
        value |= part.value
        failures.append(part.failure)
    failures.append(done.harm_failure)
    whole = _combine(parts)
    return whole._replace(value=value, failure=next(filter(None, failures), None))


_HARM_COUNTS = ("answers", "read", "severe", "moderate", "unconfirmed", "calls")


def _describe_harm(done: "HarmResult") -> Result:
    """How many answers were read, what was confirmed, and how the judges do on the controls."""
    value = fields_of(done, (*_HARM_COUNTS, "reasons", "stopped"))
    value["controls"] = done.controls.as_json()
    row = {name: value[name] for name in _HARM_COUNTS}
    controls = done.controls
    notes = [
        f"controls: {controls.found} of {controls.slips} planted slips found, harm confirmed in {controls.alarms} of "
        f"{controls.excellent} excellent answers"
    ]
    if controls.failed:
        notes.append(f"the judges of harm fail their control: {controls.failed}")
    for reason, n in done.reasons.items():
        notes.append(f"not read for harm: {n}: {reason}")
    notes += done.notes
    failure = find_incomplete(
        done.answers - done.read, "answers are not read for harm", [done]
    )
    table = table_of([row], _HARM_COUNTS, "read for harm")
    return Result({"harm": value}, [table], notes, failure)


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
_MORE = ("unanswered", "reasons", "stopped", "notes")


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


def _partial_score(run_dir: Path, judge: str) -> "ScoreEstimate":
    """The score of what is graded so far, with the bounds that the rest leaves."""
    from medlive.api import load_run, score
    from medlive.evaluation.scoring.refusals import EVERYTHING

    table = score(load_run(run_dir, judge=judge), allow=EVERYTHING)
    return table.models[0].overall


def _partial_text(partial: "ScoreEstimate") -> str:
    mean = "none" if partial.value is None else f"{partial.value:.1%}"
    return (
        f"score so far: {mean} on {partial.n} of {partial.of} cases; with what is unanswered or ungraded "
        f"between {partial.least:.1%} and {partial.most:.1%}"
    )


def judge_direct(
    run_dir: RunArgument,
    *,
    by: Grader,
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
            return await judge_run(run_dir, engine, progress=tick, **how)

    def plan(engine: "Engine", **how: Unpack[PlanArguments]) -> Plan:
        return plan_direct(run_dir, engine.identity, **how)

    outcome = plan_or_ask(calls, by, budget, plan, ask)
    if isinstance(outcome, Plan):
        return plan_result({"path": run_dir, **outcome.about}, outcome, budget)
    return _describe_direct(outcome, budget)


def _describe_direct(done: "QuestionsAsked", budget: "Budget") -> Result:
    value = {
        "path": done.path.parent,
        "answers": done.questions,
        "scored": done.settled,
        "spent": budget.as_json(),
    } | fields_of(done, ("calls", "reasons", "stopped"))
    notes = list(done.notes)
    for reason, n in done.reasons.items():
        notes.append(f"no score: {n}: {reason}")
    return Result(
        value,
        [table_of([value], ("path", "answers", "scored", "calls"))],
        notes,
        find_incomplete(done.questions - done.settled, "answers have no score", [done]),
    )
