"""`medlive eval batch write|read`: verdicts through an endpoint's batch API."""

from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from medlive.cli.output import (
    Result,
    failed,
    first_of,
    refuse_existing,
    table_of,
    wait_for,
)
from medlive.errors import UsageError
from medlive.evaluation.grading.batch import BatchWritten, read_batch, write_batch
from medlive.grader.judge import Mode
from medlive.instance.loading import read_settings

from .options import (
    Calls,
    Grading,
    ModeOption,
    ParametersOption,
    RunArgument,
    UnpinnedOption,
    reason_notes,
)

_MOST_NOTES = 20
_COUNTS = ("met", "not_met", "ungraded", "stale", "unread", "missing", "open")
"""The columns of `batch read`; `BatchRead.counts` explains them."""


def write(
    run_dir: RunArgument,
    out: Annotated[Path, Option(dir_okay=False)],
    grader: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: ParametersOption = None,
    mode: ModeOption = Mode.RUBRIC,
    allow_unpinned: UnpinnedOption = False,
) -> Result:
    """Write the calls that grading would make now as a batch file; nothing is sent.

    After `batch read` these are the calls that it left open.

    Args:
        out: The JSON Lines file to write.
        grader: The grader's model id.
        base_url: The grader's endpoint.
        api_key_env: The variable that holds the endpoint's key [OPENAI_API_KEY].
    """
    refuse_existing(out)
    by = Grading(
        calls=Calls(api_key_env=api_key_env, parameters=parameters),
        grader=grader,
        base_url=base_url,
        allow_unpinned=allow_unpinned,
    )

    async def work() -> BatchWritten:
        async with aclosing(by.open()) as engine:
            body_of = getattr(engine, "body", None)
            if body_of is None:
                hint = "name --grader and --base-url, or set roles.grader"
                raise UsageError("the rules engine has no batch API", hint=hint)
            return write_batch(run_dir, engine.identity, body_of, out, mode=mode)

    done = wait_for(work())
    notes = [f"calls: {done.requests}"]
    if done.waiting:
        notes.append(
            f"{done.waiting} calls that have no result yet are in it: hand it in once their batch has ended"
        )
    if done.is_full:
        notes.append("the file is full: once its results are read, write the rest")
    if not done.requests:
        notes.append("nothing is open: no file was written")
    return Result(done, [str(out)] if done.requests else [], notes)


def read(
    run_dir: RunArgument,
    results: Annotated[list[Path], Argument(exists=True)],
    allow_unpinned: UnpinnedOption = False,
) -> Result:
    """Take a batch's results into the run, checked as live replies are. Exit status 1 while criteria that the batch
    asked about have no verdict, and for lines that are no results of this run.

    Args:
        results: Result and error files.
    """
    prices = read_settings().prices
    done = read_batch(run_dir, results, allow_unpinned=allow_unpinned, prices=prices)
    counts = {name: done.counts[name] for name in _COUNTS}
    reasons = dict(done.reasons.most_common())
    notes = [*first_of(done.notes, _MOST_NOTES), *reason_notes("ungraded", reasons)]
    faults = {
        "open": "criteria that were asked for are ungraded",
        "missing": "calls have no result",
        "unread": "lines are no results of this run",
    }
    problems = [f"{counts[name]} {faults[name]}" for name in faults if counts[name]]
    hint = "medlive eval batch write makes the file of what is open; live grading asks for it too"
    value = {**counts, "reasons": reasons, "notes": done.notes}
    table = table_of([counts], list(counts))
    failure = failed(problems, hint if counts["open"] else None)
    return Result(value, [table], notes, failure)
