"""`medlive eval all`: from cases to a report in one command, which goes on where it was killed."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Unpack

from typer import Option

from medlive.cli.asking import confirm
from medlive.cli.evaluation.grade import Steps, grade_answers, reads_harm
from medlive.cli.evaluation.options import (
    AllowOption,
    AskArguments,
    Calls,
    CasesOption,
    Grader,
    HarmOption,
    LimitOption,
    MetricOption,
    ModeOption,
    PlanArguments,
    Scoring,
    SignedErrata,
    UnpinnedOption,
    plan_or_ask,
    plans_result,
    read_allowed,
    sum_plans,
)
from medlive.cli.evaluation.run import (
    Asking,
    answers_result,
    ask_model,
    load_set,
    select_cases,
)
from medlive.cli.evaluation.score import describe_scores, find_unscored, scored
from medlive.cli.options import (
    CaseFilter,
    JsonOption,
    UnverifiedOption,
    one_of,
    read_settings,
)
from medlive.cli.output import (
    Result,
    print_json,
    say,
    show_result,
    wait_for,
)
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.config import RoleSettings, Settings
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.model import EvaluationCase
    from medlive.llm.budget import Budget
    from medlive.llm.engine import Engine


_PLANS_OF: Final = {"answers": ("answers",), "grades": ("grades", "harm")}
"""The plans of each stage that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Who grades, and how.

    Attributes:
        grader: The grader: the configured one's model id, or another.
        grader_url: The grader's endpoint [the model's].
        grader_key_env: Its key's variable [the model's].
        grader_price: Its dollars a million tokens [models.toml].
    """

    grader: Annotated[str, Option()]
    grader_url: str | None = None
    grader_key_env: Annotated[str | None, Option(metavar="NAME")] = None
    grader_price: Annotated[str | None, Option(metavar="IN,OUT")] = None
    mode: ModeOption = "rubric"
    allow_unpinned: UnpinnedOption = False

    def at(self, settings: "Settings", model: "RoleSettings") -> Grader:
        """The grader: the configured one where that is named, else by default one at the model's endpoint."""
        if self.grader_url is None and self.grader == settings.roles.grader.model:
            return Grader(allow_unpinned=self.allow_unpinned)
        address = self.grader_url or model.base_url
        return Grader(
            grader=self.grader, base_url=address, allow_unpinned=self.allow_unpinned
        )

    def calls(self, by: Grader, model: "RoleSettings", calls: Calls) -> Calls:
        """How it is called: as the model is, with its own parameters, and with the model's key at its endpoint."""
        own = model.api_key_env if by.base_url == model.base_url else None
        return replace(
            calls,
            parameters="{}",
            api_key_env=self.grader_key_env or own,
            price=self.grader_price,
        )


def all_(
    cases: CasesOption,
    out: Annotated[Path, Option()],
    *,
    asking: Asking,
    judging: Judging,
    part: CaseFilter,
    limit: LimitOption = None,
    unverified: UnverifiedOption = False,
    calls: Calls,
    metric: MetricOption = None,
    allow: AllowOption = None,
    harm: HarmOption = True,
    errata: SignedErrata,
    yes: bool = False,
    as_json: JsonOption = False,
) -> None:
    """Verify the cases, ask the model, grade, score and report, into OUT/run and OUT/report.

    Prints what it would take and asks first; a budget holds for all calls together. The same command goes on where
    it stopped. Exit status as of the single commands: 1 where answers or verdicts are missing in the report.
    With --json the tables go to stderr, and plan, spending and scores to stdout when it ends.

    Args:
        out: The folder for the run and the report; an existing one is continued.
        yes: Begin without asking.
    """
    from medlive.evaluation.scoring.refusals import check_before

    if (out / "run.json").exists():
        raise UsageError(
            f"{out} is a run folder",
            hint="name another folder: the run goes into its folder run",
        )
    settings, run = read_settings(), out / "run"
    chosen, book = asking.candidate(settings, calls), asking.book(settings)
    case_set, arm = select_cases(
        settings,
        load_set(settings, _begun_with(run, cases), unverified),
        part,
        limit,
        asking,
    )
    by, budget = judging.at(settings, chosen), calls.budget(run)
    judge_calls = judging.calls(by, chosen, calls)

    def ask(dry_run: bool) -> Any:
        how = replace(calls, dry_run=dry_run)
        return wait_for(
            ask_model(case_set, run, asking, chosen, book, arm, how, budget, None)
        )

    def plan_grades(
        engine: "Engine", **how: Unpack[PlanArguments]
    ) -> "dict[str, Plan]":
        from medlive.instance.opening import check_priced

        check_before(case_set, engine.identity.engine, read_allowed(allow))
        check_priced(budget.max_usd, {engine.identity.model: how["price"]})
        ahead = case_set.cases
        return _plan_judging(run, engine, judging.mode, ahead, harm, how)

    result: dict[str, object] = {"run": run, "report": None, "scores": None}

    def answer() -> Result:
        return answers_result(ask(dry_run=False), case_set, budget)

    def grade() -> Result:
        work = Steps(harm=harm)
        return grade_answers(run, by, judging.mode, judge_calls, budget, work)

    def score() -> Result:
        from medlive.api import open_registry
        from medlive.report.render import write_report
        from medlive.report.tables import WRITERS

        table = scored([run], Scoring(metric=metric, allow=allow), errata)
        result["scores"] = json.loads(WRITERS["json"](table, None))
        page = write_report(table, out / "report", registry=open_registry(None))
        result["report"] = page
        shown = [*describe_scores(table), str(page)]
        return Result(table, shown, table.warnings, find_unscored(table))

    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            grades = plan_or_ask(
                replace(judge_calls, dry_run=True), by, budget, plan_grades, _never
            )
            plans = {"answers": ask(dry_run=True), **grades}
            total = sum_plans(plans)
            show_result(plans_result(plans, budget))
            result["plan"] = {
                name: asdict(plan) for name, plan in {**plans, "all": total}.items()
            }
            if calls.dry_run:
                return
            if total.calls and not yes:
                confirm("Begin?", refused="nothing was sent")
            stages = {"answers": answer, "grades": grade, "score and report": score}
            _work_through(stages, plans, budget)
    finally:
        if as_json and "plan" in result:
            print_json({**result, "spent": budget.as_json()})


def _plan_judging(
    run: Path,
    engine: "Engine",
    mode: str,
    ahead: "Sequence[EvaluationCase]",
    harm: bool,
    how: PlanArguments,
) -> "dict[str, Plan]":
    """What grading takes, and reading for harm where it is wanted."""
    from medlive.evaluation.grading.harm import plan_run
    from medlive.evaluation.grading.plan import plan_grading
    from medlive.grader.judge import Mode

    who = engine.identity
    which = one_of("--mode", Mode, mode)
    grades = plan_grading(run, who, mode=which, ahead=ahead, **how)
    if not reads_harm(engine, harm):
        return {"grades": grades}
    reading = plan_run(run, who, ahead=ahead, **how)
    return {"grades": grades, "harm": reading}


def _work_through(
    stages: Mapping[str, Callable[[], Result]],
    plans: "Mapping[str, Plan]",
    budget: "Budget",
) -> None:
    """Do one stage after the other; what is missing after one does not end the next, a spent budget does.

    A stage whose plan has no calls is named as done: its state is shown, and nothing is asked.
    Raises the first CheckFailed at the end, all else at once.
    """
    failures: list[CheckFailed] = []
    for number, (name, work) in enumerate(stages.items(), start=1):
        own = [plans[name] for name in _PLANS_OF.get(name, ()) if name in plans]
        done = bool(own) and not any(plan.calls for plan in own)
        state = "skipped, it is done already" if done else str(budget)
        say(f"stage {number} of {len(stages)}: {name}; {state}")
        try:
            show_result(work())
        except CheckFailed as exc:
            failures.append(exc)
            if budget.stopped:
                break
    if failures:
        raise failures[0]


def _begun_with(run: Path, cases: str) -> str:
    """The cases of a run: one that began with the latest snapshot stays with that."""
    from medlive.evaluation.runs.folder import read_info

    if cases == "latest" and (run / "run.json").exists():
        return read_info(run).cases.name
    return cases


async def _never(_: "Engine", **__: Unpack[AskArguments]) -> "dict[str, Plan]":
    raise AssertionError("with dry_run nothing is asked")
