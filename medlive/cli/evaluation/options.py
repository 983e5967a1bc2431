"""What several commands of `medlive eval` share: options (a class is a group of them), plans and budgets."""

import json
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer import Argument, Option

from medlive.cli.options import DayOption, OptionalCount, PublicKeyOption, option_group
from medlive.cli.output import Result, first_of, progress, say, table_of, wait_for
from medlive.config import RoleSettings
from medlive.errors import (
    CheckFailed,
    CircuitOpen,
    EndpointUnavailable,
    MedliveError,
    UsageError,
)
from medlive.evaluation.asking.plan import Plan, run_logs, spent_of
from medlive.evaluation.grading.questions import (
    QuestionsAsked,
    Source,
    ask_questions,
    plan_questions,
)
from medlive.evaluation.model import CallsMade
from medlive.evaluation.runs.folder import check_parameters
from medlive.evaluation.scoring.errata import ErrataMode
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.metrics import CaseBasis, Metric
from medlive.evaluation.scoring.refusals import Allow, Objection, check_figures
from medlive.grader.judge import Mode
from medlive.home import models_file
from medlive.instance.loading import read_settings
from medlive.instance.opening import check_priced, grader_engine
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.registry import Price

P = TypeVar("P")
T = TypeVar("T")
Work = tuple[str, tuple[Source, Path]]
"""What the progress line counts, such as "answers"; and the questions, with the log of their replies."""
Works = Iterable[Work]


def check_runs(paths: list[Path]) -> list[Path]:
    """The run folders. Raises UsageError for one that is given twice."""
    places = set()
    for path in paths:
        place = path.resolve()
        if place in places:
            raise UsageError(f"{path} is given more than once")
        places.add(place)
    return paths


def load_runs(paths: list[Path], judge: str | None) -> list[GradedRun]:
    """The runs with the verdicts of one grader; notes on a folder go to stderr."""
    graded = []
    for path in paths:
        run = load_graded(path, judge=judge)
        graded.append(run)
        for note in first_of(run.notes, 20):
            say(f"{path}: {note}")
    return graded


def read_price(text: str) -> Price:
    """The price IN,OUT in dollars a million tokens. Raises UsageError."""
    first, _, second = text.partition(",")
    try:
        return Price(input=float(first), output=float(second))
    except ValueError as exc:
        raise UsageError(
            f"--price {text}: expected dollars a million tokens of input and of output",
            hint="two numbers of 0 and more, as 0.25,2",
        ) from exc


def read_parameters(text: str) -> dict[str, Any]:
    """The object in --parameters. Raises UsageError, for what looks like a secret too."""
    try:
        sent = json.loads(text)
    except ValueError as exc:
        raise UsageError(f"--parameters is not valid JSON: {exc}") from exc
    if not isinstance(sent, dict):
        raise UsageError("--parameters must be a JSON object")
    check_parameters(sent)
    return sent


CasesOption = Annotated[
    str,
    Option(help="A snapshot's folder or version, or a benchmark's file."),
]
UnpinnedOption = Annotated[bool, Option(help="Accept replies that name another model.")]
RunArgument = Annotated[Path, Argument(help="A run folder.")]
RunsArgument = Annotated[list[Path], Argument(help="Run folders.", callback=check_runs)]
ParametersOption = Annotated[
    dict[str, Any] | None,
    Option(
        metavar="JSON",
        parser=read_parameters,
        help="Sent with each call, as '{\"temperature\": 0}'; null: none.",
    ),
]
PriceOption = Annotated[Price | None, Option(metavar="IN,OUT", parser=read_price)]
MetricOption = Annotated[
    Metric | None,
    Option(
        help="paper: criteria of advice alone; published: LiveMedBench's script "
        "[safe where every run was read for harm, else complete].",
    ),
]
ModeOption = Annotated[
    Mode,
    Option(help="rubric: a call for each case; criterion: a call for each criterion."),
]
HarmOption = Annotated[bool, Option(help="Read each answer for harmful statements.")]
AllowOption = Annotated[
    list[Allow] | None,
    Option(help="Show figures although they mislead for this reason; repeatable."),
]
JudgeOption = Annotated[
    str | None,
    Option(metavar="DIGEST", help="The grader, by digest or model."),
]
DrawsOption = Annotated[int, Option(min=1, max=100_000, help="Draws of the bootstrap.")]
ErrataOption = Annotated[
    ErrataMode,
    Option(help="What to do about withdrawn cases; apply: leave them out."),
]
ErrataFileOption = Annotated[Path | None, Option(help="Errata [the snapshot's].")]


@option_group
class GradedRuns:
    """Graded runs whose figures are shown side by side."""

    runs: RunsArgument
    judge: JudgeOption = None
    allow: AllowOption = None

    def load(self) -> list[GradedRun]:
        """The runs with the verdicts of one grader."""
        return load_runs(self.runs, self.judge)

    def load_checked(self) -> tuple[list[GradedRun], list[Objection]]:
        """The runs, and the objections to their figures that --allow overrides. Raises CheckFailed for any other."""
        graded = self.load()
        return graded, check_figures(graded, self.allow or ())


@option_group
class Scoring(GradedRuns):
    """How runs are scored.

    Attributes:
        basis: Each model's own cases, or those common to all.
        since: Score cases posted on this day or later.
        until: Score cases posted on this day or earlier.
        public_key: The key that signed the errata.
    """

    metric: MetricOption = None
    basis: Annotated[CaseBasis, Option("--cases")] = "own"
    since: DayOption = None
    until: DayOption = None
    draws: DrawsOption = 1000
    errata: ErrataOption = ErrataMode.WARN
    errata_file: ErrataFileOption = None
    public_key: PublicKeyOption = None


@option_group
class Calls:
    """How a model is called, and what may be spent.

    Attributes:
        concurrency: Calls at once.
        timeout: Limit of an attempt [120].
        api_key_env: The variable that holds the endpoint's key [OPENAI_API_KEY].
        max_usd: Stop when the folder has cost this many dollars, earlier commands included.
        price: The model's dollars a million tokens [as in models.toml].
        max_calls: Stop after this many calls.
        max_tokens: Stop after this many tokens, input and output.
        dry_run: Say what it would take; send nothing.
    """

    concurrency: Annotated[int, Option(min=1, max=1024)] = 16
    timeout: Annotated[float | None, Option(min=1, metavar="SECONDS")] = None
    api_key_env: str | None = None
    parameters: ParametersOption = None
    max_usd: Annotated[float | None, Option(min=0)] = None
    price: PriceOption = None
    max_calls: OptionalCount = None
    max_tokens: OptionalCount = None
    dry_run: bool = False

    def budget(self, logs: Iterable[Path]) -> Budget:
        """The limits of what may be spent; with --max-usd, also what the calls in `logs` have cost already."""
        budget = Budget(self.max_calls, self.max_usd, self.max_tokens)
        if self.max_usd is not None:
            budget.usd_before, unpriced = spent_of(logs, self.price)
            if unpriced:
                say(f"calls without a price, not counted against --max-usd: {unpriced}")
        return budget

    def budget_of(self, *run_dirs: Path) -> Budget:
        """The same budget for what the calls of run folders have cost."""
        return self.budget(list(chain.from_iterable(map(run_logs, run_dirs))))


@option_group
class Grading:
    """Who judges, instead of the configured grader, and how it is called.

    Attributes:
        grader: The grader's model id.
        base_url: The grader's endpoint.
    """

    calls: Calls = Calls()
    grader: str | None = None
    base_url: str | None = None
    allow_unpinned: UnpinnedOption = False

    def open(self) -> Engine:
        """Open the grader that the options name, else the configured one."""
        role, price = read_settings().roles.grader, self.calls.price
        prices = {}
        if price is not None:
            role = role.model_copy(update={"price": price})
            prices[self.grader or role.model or ""] = price
        return self._engine(
            role,
            prices,
            model=self.grader,
            base_url=self.base_url,
            api_key_env=self.calls.api_key_env,
        )

    @asynccontextmanager
    async def checker(self, grader: Engine) -> AsyncIterator[Engine]:
        """The second judge of harm as configured, at its own price, else the grader itself."""
        role = read_settings().roles.checker
        if role.engine == "rules":
            yield grader
            return
        async with aclosing(self._engine(role, {})) as engine:
            yield engine

    def _engine(
        self, role: RoleSettings, prices: Mapping[str, Price], **named: str | None
    ) -> Engine:
        """Open a role's engine; `named` may give another model, endpoint and key variable."""
        calls = self.calls
        return grader_engine(
            role,
            **named,
            concurrency=calls.concurrency,
            prices={**read_settings().prices, **prices},
            timeout_s=calls.timeout,
            parameters=calls.parameters,
            allow_unpinned=self.allow_unpinned,
        )


def plan_or_ask(
    by: Grading,
    budget: Budget,
    plan: Callable[..., P],
    ask: Callable[..., Awaitable[T]] | None = None,
) -> P | T:
    """Return what `plan` returns with --dry-run or without `ask`, else what `ask` returns after the grader's calls.

    Both are given the engine; `plan` also its `price`, `ask` also `budget` and `concurrency`.
    """

    async def run() -> P | T:
        async with aclosing(by.open()) as engine:
            # The rules engine has no price and costs nothing; None: an endpoint's price is unknown.
            price = getattr(engine, "price", Price(input=0.0, output=0.0))
            if by.calls.dry_run or ask is None:
                return plan(engine, price=price)
            check_priced(budget.max_usd, {engine.identity.model: price})
            concurrency = by.calls.concurrency
            return await ask(engine, budget=budget, concurrency=concurrency)

    return wait_for(run())


def plan_or_ask_questions(
    by: Grading,
    budget: Budget,
    work: Callable[[EngineIdentity], Works],
) -> dict[str, Plan] | tuple[list[QuestionsAsked], EngineIdentity]:
    """With --dry-run what each work would take, by name; else the result of each, and the judge that was asked.

    Args:
        by: The options that name the judge.
        budget: What may be spent.
        work: Returns the works for a judge.
    """

    def plan(engine: Engine, **how: Any) -> dict[str, Plan]:
        plans = {}
        for what, questions in work(engine.identity):
            plans[what] = plan_questions(*questions, engine.identity, **how)
        return plans

    async def ask(
        engine: Engine, **how: Any
    ) -> tuple[list[QuestionsAsked], EngineIdentity]:
        results = []
        for what, questions in work(engine.identity):
            with progress(what, budget) as tick:
                done = await ask_questions(*questions, engine, progress=tick, **how)
            results.append(done)
        return results, engine.identity

    return plan_or_ask(by, budget, plan, ask)


def find_incomplete(
    left: int,
    what: str,
    work: Sequence[CallsMade] = (),
) -> MedliveError | None:
    """Return the failure where something is left to do or a limit ended the work; None where all is done.

    Args:
        left: How many items are not done.
        what: What they are, such as "criteria ungraded".
        work: The calls that were made, by part of the work.
    """
    silences = [part.silence for part in work if part.calls]
    if left and silences and all(silences) and (last := silences[-1]):
        to_do = last.hint
        if isinstance(last, CircuitOpen):
            # Its own hint is for workers, which go on by themselves.
            to_do = (
                "look at the address, the key and the network; the same command goes on"
            )
        calls = sum(part.calls for part in work)
        return EndpointUnavailable(
            f"none of {calls} calls was answered, the last: {last.message}", hint=to_do
        )
    for part in work:
        if part.stopped:
            return CheckFailed(
                f"{part.stopped}; {what}: {left}",
                hint="the same command goes on from here",
            )
    if not left:
        return None
    return CheckFailed(f"{what}: {left}", hint="the same command asks again")


def reason_notes(what: str, reasons: Mapping[str, int]) -> list[str]:
    """A note for each reason why items were not done, with their number; `what` begins it."""
    return [f"{what}: {n}: {reason}" for reason, n in reasons.items()]


def sum_plans(plans: Mapping[str, Plan]) -> Plan:
    """What several stages would take, as one plan."""
    stages = plans.values()
    dollars = [plan.usd for plan in stages]
    return Plan(
        calls=sum(plan.calls for plan in stages),
        input_tokens=sum(plan.input_tokens for plan in stages),
        output_tokens=sum(plan.output_tokens for plan in stages),
        usd=None if None in dollars else sum(filter(None, dollars)),
    )


def plans_result(plans: Mapping[str, Plan]) -> Result:
    """What several stages would take as a table, and in all."""
    whole = sum_plans(plans)
    rows = []
    for stage, plan in {**plans, "all": whole}.items():
        rows.append({"stage": stage, **asdict(plan)})
    names = ("stage", "calls", "input_tokens", "output_tokens", "usd")
    note = "estimated; an answer that is not there yet is taken to have 800 tokens; repairs come on top; –: unknown"
    notes = [note]
    if whole.usd is None and whole.calls:
        prices = models_file(os.environ)
        notes.append(
            f"money unknown: give --price IN,OUT, or a price under [prices] in {prices}"
        )
    return Result(plans, [table_of(rows, names)], notes)
