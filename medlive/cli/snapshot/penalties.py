"""`medlive snapshot penalties`: errors that models really make, as penalties for a case's next revision."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medlive.cli.evaluation.options import (
    Grading,
    check_runs,
    find_incomplete,
    plan_or_ask,
    plan_result,
)
from medlive.cli.options import SnapshotArgument, UnverifiedOption, read_settings
from medlive.cli.output import Grid, Result, progress
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.questions import (
    QuestionsAsked,
    ask_questions,
    plan_questions,
)
from medlive.evaluation.penalties import (
    ERRORS,
    Penalties,
    find_candidates,
    read_penalties,
)
from medlive.evaluation.runs.folder import open_run
from medlive.instance.paths import snapshot_folder
from medlive.llm.engine import Engine
from medlive.snapshot.load import open_snapshot


def penalties(
    snapshot: SnapshotArgument,
    answers: Annotated[list[Path], Option(metavar="RUN_DIR")],
    out: Annotated[Path, Option()],
    unverified: UnverifiedOption = False,
    *,
    by: Grading,
) -> Result:
    """Propose penalties for harmful errors that models make and no criterion of a frozen week covers.

    A model reads the answers; nothing is changed: a person adds what is accepted. Exit status 1 while answers are
    unread, 3 where no call was answered.

    Args:
        answers: A run on this snapshot; repeatable.
        out: The folder of the log; goes on with what is there.
    """
    folder = snapshot_folder(read_settings(), snapshot)
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} is inside the snapshot", hint="name another folder")
    loaded = open_snapshot(folder, verify=not unverified)
    runs = list(map(open_run, check_runs(answers)))
    candidates = find_candidates(loaded, runs)
    questions = [candidate.question for candidate in candidates]
    log = out / ERRORS
    budget = by.budget(logs=[log])

    def plan(engine: Engine, **how: Any) -> Plan:
        return plan_questions(lambda _: questions, log, engine.identity, **how)

    async def ask(engine: Engine, **how: Any) -> tuple[QuestionsAsked, Penalties]:
        if engine.identity.engine == "rules":
            raise UsageError("the rules engine makes no clinical judgement")
        with progress("answered cases", budget) as tick:
            done = await ask_questions(
                lambda _: questions, log, engine, progress=tick, **how
            )
        return done, read_penalties(candidates, out, engine.identity)

    outcome = plan_or_ask(by, budget, plan, ask)
    if isinstance(outcome, Plan):
        return plan_result(outcome.about, outcome, budget)
    done, proposed = outcome
    value = proposed.as_json() | {"path": out, "spent": budget.as_json()}
    failure = find_incomplete(
        len(proposed.unread),
        "case is unread",
        "cases are unread",
        [done],
        always=True,
    )
    rows = []
    for proposal in proposed.proposals:
        quotes = [f"{model}: {text}" for model, text in proposal.quotes]
        row = [proposal.criterion, proposal.points, proposal.axis, quotes]
        rows.append([proposal.case_id, *row, proposal.command])
    made_by = "the one model that was read"
    if proposed.least > 1:
        made_by = f"at least {proposed.least} models"
    title = f"penalties proposed for errors of {made_by}, in {proposed.cases} cases"
    columns = ["case", "criterion", "points", "axis", "quotes", "to add it"]
    return Result(value, [Grid(columns, rows, title)], done.notes, failure)
