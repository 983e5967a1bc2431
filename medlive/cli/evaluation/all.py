"""`medlive eval all`: from cases to a report in one command, which goes on where it was killed."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.api import open_registry
from medlive.cli.evaluation.grade import grade_answers, plan_stages
from medlive.cli.evaluation.options import (
    AllowOption,
    Calls,
    CasesOption,
    ErrataFileOption,
    ErrataKeyOption,
    ErrataOption,
    Grading,
    HarmOption,
    MetricOption,
    ModeOption,
    Scoring,
    UnpinnedOption,
    plan_or_ask,
    plans_result,
    sum_plans,
)
from medlive.cli.evaluation.run import Asking, answers_result
from medlive.cli.evaluation.score import describe_scores, find_unscored, scored
from medlive.cli.options import CaseFilter, confirm, read_settings
from medlive.cli.output import Result, say, show_result, wait_for
from medlive.config import RoleSettings
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.runs.folder import read_info
from medlive.evaluation.scoring.errata import ErrataMode
from medlive.evaluation.scoring.refusals import check_before
from medlive.grader.judge import Mode
from medlive.instance.opening import check_priced
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.report.render import write_report
from medlive.report.tables import scores_json

Stage = tuple[str, Callable[[], Result], Sequence[str]]
"""A stage's name, its work, and the plans of its calls."""


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
    mode: ModeOption = Mode.RUBRIC
    allow_unpinned: UnpinnedOption = False
    harm: HarmOption = True

    def calls(
        self,
        asking: Asking,
        model: RoleSettings,
    ) -> Grading:
        """The configured grader where that is named, else by default one at the model's endpoint.

        It is called as the model is, with its own parameters, and with the model's key at its endpoint.
        """
        how = {field.name: getattr(asking, field.name) for field in fields(Calls)}
        how |= {
            "parameters": "{}",
            "api_key_env": self.grader_key_env,
            "price": self.grader_price,
            "allow_unpinned": self.allow_unpinned,
        }
        if (
            self.grader_url is None
            and self.grader == read_settings().roles.grader.model
        ):
            return Grading(**how)
        address = self.grader_url or model.base_url
        if address == model.base_url and self.grader_key_env is None:
            how["api_key_env"] = model.api_key_env
        return Grading(
            **how,
            grader=self.grader,
            base_url=address,
        )


def all_(
    cases: CasesOption,
    out: Annotated[Path, Option()],
    *,
    asking: Asking,
    judging: Judging,
    part: CaseFilter,
    metric: MetricOption = None,
    allow: AllowOption = None,
    errata: ErrataOption = ErrataMode.WARN,
    errata_file: ErrataFileOption = None,
    public_key: ErrataKeyOption = None,
    yes: bool = False,
) -> Result:
    """Verify the cases, ask the model, grade, score and report, into OUT/run and OUT/report.

    Prints what it would take and asks first; a budget holds for all calls together. The same command goes on where
    it stopped. Exit status as of the single commands: 1 where answers or verdicts are missing in the report.
    How the stages end goes to stderr, scores and report to stdout; with --json plan, spending and scores.

    Args:
        out: The folder for the run and the report; an existing one is continued.
        yes: Begin without asking.
    """
    run = out / "run"
    chosen, book = asking.candidate(), asking.book()
    case_set = asking.cases(_begun_with(cases, out), part)
    by, budget = judging.calls(asking, chosen), asking.budget(run)
    result: dict[str, Any] = {
        "run": run,
        "report": None,
        "scores": None,
    }
    shown: list[Any] = []

    def ask(dry_run: bool) -> Any:
        how = replace(asking, dry_run=dry_run)
        return wait_for(how.ask(case_set, run, chosen, book, budget))

    def plan_grades(engine: Engine, **how: Any) -> dict[str, Plan]:
        check_priced(budget.max_usd, {engine.identity.model: how["price"]})
        if not asking.dry_run:
            check_before(case_set, engine.identity.engine, allow or ())
        ahead = case_set.cases
        return plan_stages(
            run,
            engine,
            judging.mode,
            ahead=ahead,
            harm=judging.harm,
            **how,
        )

    def score() -> Result:
        how = Scoring(
            metric=metric,
            allow=allow,
            errata=errata,
            errata_file=errata_file,
            public_key=public_key,
        )
        table = scored([run], how)
        result["scores"] = scores_json(table)
        page = write_report(table, out / "report", registry=open_registry(None))
        result["report"] = page
        shown.extend([*describe_scores(table), str(page)])
        return Result(None, (), table.warnings, find_unscored(table))

    stages: list[Stage] = [
        (
            "answers",
            lambda: answers_result(ask(dry_run=False), case_set, budget),
            ("answers",),
        ),
        (
            "grades",
            lambda: grade_answers(run, by, judging.mode, budget, harm=judging.harm),
            ("grades", "harm"),
        ),
        ("score and report", score, ()),
    ]
    grades = plan_or_ask(by, budget, plan_grades)
    plans: dict[str, Plan] = {"answers": ask(dry_run=True), **grades}
    every = {**plans, "all": sum_plans(plans)}
    result["plan"] = {name: asdict(plan) for name, plan in every.items()}
    failure: MedliveError | None = None
    with redirect_stdout(sys.stderr):
        show_result(plans_result(plans, budget))
        try:
            if not asking.dry_run:
                _work_through(stages, plans, budget, ask_first=not yes)
        except MedliveError as exc:
            failure = exc
    return Result(result | {"spent": budget.as_json()}, shown, (), failure)


def _begun_with(cases: str, out: Path) -> str:
    """The cases of a run: one that began with the latest snapshot stays with that. Raises UsageError."""
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
    plans: Mapping[str, Plan],
    budget: Budget,
    *,
    ask_first: bool,
) -> None:
    """Do one stage after the other; what is missing after one does not end the next, a spent budget does.

    A stage whose plan has no calls is named as done: its state is shown, and nothing is asked.
    Raises the first CheckFailed at the end, all else at once.
    """
    if ask_first and any(plan.calls for plan in plans.values()):
        confirm("Begin?", refused="nothing was sent")
    failures: list[CheckFailed] = []
    for number, (name, work, planned) in enumerate(stages, start=1):
        calls = [plans[plan].calls for plan in planned if plan in plans]
        done = bool(calls) and not any(calls)
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
