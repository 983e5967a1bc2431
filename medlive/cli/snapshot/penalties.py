"""`medlive snapshot penalties`: errors that models really make, as penalties for a case's next revision."""

from pathlib import Path

from medlive.cli.evaluation.options import (
    Grading,
    Works,
    check_runs,
    find_incomplete,
    plan_or_ask_questions,
    plans_result,
)
from medlive.cli.options import SnapshotArgument, UnverifiedOption
from medlive.cli.output import Grid, Result
from medlive.errors import UsageError
from medlive.evaluation.penalties import (
    ERRORS,
    LEAST_MODELS,
    find_candidates,
    read_penalties,
)
from medlive.evaluation.runs.folder import open_run
from medlive.llm.engine import EngineIdentity
from medlive.snapshot.load import open_snapshot


def penalties(
    snapshot: SnapshotArgument,
    *,
    answers: list[Path],
    out: Path,
    unverified: UnverifiedOption = False,
    by: Grading,
) -> Result:
    """Propose penalties for harmful errors that models make and no criterion of a frozen week covers.

    A model reads the answers; nothing is changed: a person adds what is accepted. Exit status 1 while answers are
    unread, 3 where no call was answered.

    Args:
        answers: A run on this snapshot that was read for harm; repeatable.
        out: The folder of the log; an existing log is continued.
    """
    if out.resolve().is_relative_to(snapshot.resolve()):
        raise UsageError(f"{out} is inside the snapshot", hint="name another folder")
    loaded = open_snapshot(snapshot, verify=not unverified)
    candidates = find_candidates(loaded, list(map(open_run, check_runs(answers))))
    questions = [candidate.question for candidate in candidates]
    budget = by.calls.budget([out / ERRORS])

    def work(judge: EngineIdentity) -> Works:
        if judge.engine == "rules" and not by.calls.dry_run:
            raise UsageError("the rules engine makes no clinical judgement")
        return [("answered cases", (lambda _: questions, out / ERRORS))]

    outcome = plan_or_ask_questions(by, budget, work)
    if isinstance(outcome, dict):
        return plans_result(outcome)
    (done,), judge = outcome
    unread, proposals = read_penalties(candidates, out, judge)
    failure = find_incomplete(len(unread), "cases unread", [done])
    rows = []
    for proposal in proposals:
        quotes = [f"{model}: {text}" for model, text in proposal.quotes]
        row = [proposal.criterion, proposal.points, proposal.axis, quotes]
        rows.append([proposal.case_id, *row])
    title = f"penalties proposed for errors of {LEAST_MODELS} models and more, in {len(candidates)} cases"
    columns = ["case", "criterion", "points", "axis", "quotes"]
    value = {
        "cases": len(candidates),
        "unread": unread,
        "proposals": proposals,
        "path": out,
        "spent": budget,
    }
    how = "medlive review edit CASE --file FILE --reason WHY adds one"
    return Result(
        value,
        [Grid(columns, rows, title)],
        [*done.notes, how],
        failure,
    )
