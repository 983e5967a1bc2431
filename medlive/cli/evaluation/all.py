"""`medlive eval all`: ask, grade, score and report in one command, which goes on where it was killed."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from medlive.api import open_registry
from medlive.cli.options import confirm
from medlive.cli.output import Result, say, show_result, wait_for
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.runs.folder import read_info
from medlive.evaluation.scoring.refusals import check_before
from medlive.grader.judge import Mode
from medlive.instance.loading import read_settings
from medlive.instance.opening import check_priced
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.llm.registry import Price
from medlive.report.render import write_report
from medlive.report.tables import scores_json

from .grade import grade_answers, plan_stages
from .options import (
    AllowOption,
    CasesOption,
    Grading,
    HarmOption,
    MetricOption,
    ModeOption,
    PriceOption,
    Scoring,
    UnpinnedOption,
    plan_or_ask,
    plans_result,
    sum_plans,
)
from .run import Asking, answers_result
from .tables import describe_scores, find_unscored, scored

Stage = tuple[str, Callable[[], Result], int | None]
"""A stage's name, its work, and how many calls it takes; None: it makes none."""


def all_(
    *,
    cases: CasesOption,
    out: Path,
    asking: Asking,
    grader: str,
    grader_url: str | None = None,
    grader_key_env: str | None = None,
    grader_price: PriceOption = None,
    mode: ModeOption = Mode.RUBRIC,
    allow_unpinned: UnpinnedOption = False,
    harm: HarmOption = True,
    metric: MetricOption = None,
    allow: AllowOption = None,
    yes: bool = False,
) -> Result:
    """Verify the cases, ask the model, grade, score and report, into OUT/run and OUT/report.

    Prints what it would take and asks first; a budget holds for all calls together. The same command goes on where
    it stopped. Exit status as of the single commands: 1 where answers or verdicts are missing in the report.
    How the stages end goes to stderr, scores and report to stdout; with --json plan, spending and scores.

    Without --grader-url, the configured grader is asked at its own endpoint if --grader names it; any other is asked at
    the model's endpoint, with the model's key there.

    Args:
        grader: The grader: the configured one's model id, or another.
        grader_url: The grader's endpoint [the model's].
        grader_key_env: The variable that holds the key of that endpoint [the model's].
        grader_price: The grader's dollars a million tokens [models.toml].
        out: The folder for the run and the report; an existing one is continued.
        yes: Begin without asking.
    """
    run = out / "run"
    chosen, book = asking.candidate(), asking.book()
    case_set = asking.cases(_begun_with(cases, out))
    budget = asking.calls.budget_of(run)
    judge: str | None = grader
    address, key = grader_url or chosen.base_url, grader_key_env
    if grader_url is None and grader == read_settings().roles.grader.model:
        judge = address = None
    elif address == chosen.base_url:
        key = key or chosen.api_key_env
    by = Grading(
        calls=replace(
            asking.calls, parameters=None, api_key_env=key, price=grader_price
        ),
        grader=judge,
        base_url=address,
        allow_unpinned=allow_unpinned,
    )
    result: dict[str, Any] = {"run": run, "report": None, "scores": None}
    shown: list[Any] = []

    def ask(dry_run: bool) -> Any:
        return wait_for(
            asking.ask(case_set, run, chosen, book, budget, dry_run=dry_run)
        )

    def plan_grades(engine: Engine, price: Price | None) -> dict[str, Plan]:
        check_priced(budget.max_usd, {engine.identity.model: price})
        if not asking.calls.dry_run:
            check_before(case_set, engine.identity.engine, allow or ())
        ahead = case_set.cases
        return plan_stages(run, engine, mode, ahead=ahead, harm=harm, price=price)

    def score() -> Result:
        table = scored(Scoring(runs=[run], metric=metric, allow=allow))
        result["scores"] = scores_json(table)
        page = write_report(table, out / "report", registry=open_registry())
        result["report"] = page
        shown.extend([*describe_scores(table), str(page)])
        return Result(None, (), table.warnings, find_unscored(table))

    def answer() -> Result:
        return answers_result(ask(dry_run=False), case_set, budget)

    grade = partial(grade_answers, run, by, mode, budget, harm=harm)
    grades = plan_or_ask(by, budget, plan_grades)
    answers = ask(dry_run=True)
    plans: dict[str, Plan] = {"answers": answers, **grades}
    stages: list[Stage] = [
        ("answers", answer, answers.calls),
        ("grades", grade, sum(plan.calls for plan in grades.values())),
        ("score and report", score, None),
    ]
    result["plan"] = {**plans, "all": sum_plans(plans)}
    failure: MedliveError | None = None
    with redirect_stdout(sys.stderr):
        show_result(plans_result(plans))
        try:
            if not asking.calls.dry_run:
                _work_through(stages, budget, ask_first=not yes)
        except MedliveError as exc:
            failure = exc
    return Result(result | {"spent": budget}, shown, (), failure)


def _begun_with(cases: str, out: Path) -> str:
    """The cases to ask about: for "latest" those that a run in `out` began with, if any. Raises UsageError."""
    if (out / "run.json").exists():
        raise UsageError(
            f"{out} is a run folder",
            hint="name another folder: the run goes into its folder run",
        )
    if cases == "latest" and (out / "run" / "run.json").exists():
        return read_info(out / "run").cases.name
    return cases


def _work_through(
    stages: Sequence[Stage],
    budget: Budget,
    *,
    ask_first: bool,
) -> None:
    """Do the stages in order. Missing answers or verdicts do not prevent the next stage; a spent budget does.

    A stage with 0 calls to make is named as done: its state is shown, and nothing is asked.
    Raises the first CheckFailed at the end, any other error at once.
    """
    if ask_first and any(calls for _, _, calls in stages):
        confirm("Begin?", refused="nothing was sent")
    failure = None
    for number, (name, work, calls) in enumerate(stages, start=1):
        state = "skipped, it is done already" if calls == 0 else str(budget)
        say(f"stage {number} of {len(stages)}: {name}; {state}")
        try:
            show_result(work())
        except CheckFailed as exc:
            failure = failure or exc
            if budget.stopped:
                break
    if failure:
        raise failure
