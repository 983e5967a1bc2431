"""`medlive eval batch write|read`: answers and verdicts through an endpoint's batch API."""

from contextlib import aclosing
from glob import escape
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    Calls,
    Grading,
    ModeOption,
    ParametersOption,
    RunArgument,
    UnpinnedOption,
    reason_notes,
)
from medlive.cli.output import (
    Result,
    failed,
    first_of,
    new_file,
    table_of,
    wait_for,
)
from medlive.errors import UsageError
from medlive.evaluation.grading.batch import (
    BatchWritten,
    read_answers,
    read_batch,
    write_answers,
    write_batch,
)
from medlive.grader.judge import Mode
from medlive.instance.loading import read_settings
from medlive.llm.wire import JsonMode

AnswersOption = Annotated[bool, Option(help="The model's answers instead of verdicts.")]
_NOTES = 20
_LINES = ("again", "duplicates", "unknown", "damaged", "missing", "open")


def write(
    run_dir: RunArgument,
    out: Annotated[Path, Option(dir_okay=False)],
    answers: AnswersOption = False,
    grader: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: ParametersOption = None,
    mode: ModeOption = Mode.RUBRIC,
    shape: JsonMode | None = None,
    allow_unpinned: UnpinnedOption = False,
) -> Result:
    """Write the calls that grading would make now as a batch file; nothing is sent.

    After `batch read` these are what it left open.

    Args:
        out: The JSON Lines file to write.
        grader: The grader's model id.
        base_url: The grader's endpoint.
        api_key_env: The variable [OPENAI_API_KEY].
        shape: How the reply is asked to be JSON [as the role says, else schema].
    """
    # Parts of another batch beside it would be handed in with it.
    parts = f"{escape(out.stem)}-[0-9][0-9][0-9]{escape(out.suffix)}"
    for path in (out, *out.parent.glob(parts)):
        new_file(path)
    by = Grading(
        calls=Calls(api_key_env=api_key_env, parameters=parameters),
        grader=grader,
        base_url=base_url,
        allow_unpinned=allow_unpinned,
    )

    async def work() -> BatchWritten:
        async with aclosing(by.open()) as engine:
            json_mode = getattr(engine, "json_mode", None)
            if json_mode is None:
                hint = "name --grader and --base-url, or set roles.grader"
                raise UsageError("the rules engine has no batch API", hint=hint)
            return write_batch(
                run_dir,
                engine.identity,
                out,
                shape=shape or json_mode,
                mode=mode,
            )

    done = write_answers(run_dir, out) if answers else wait_for(work())
    notes = [f"calls: {done.requests}, about {done.criteria} criteria"]
    if done.waiting:
        notes.append(
            f"{done.waiting} calls that have no result yet are in it: hand it in once their batch has ended"
        )
    return Result(done, map(str, done.files), notes)


def read(
    run_dir: RunArgument,
    results: Annotated[list[Path], Argument(exists=True)],
    answers: AnswersOption = False,
    allow_unpinned: UnpinnedOption = False,
) -> Result:
    """Take a batch's results into the run, checked as live replies are. Exit status 1 while what was asked for has
    no answer or no verdict, and for lines that are no results of this run.

    Args:
        results: Result and error files.
    """
    prices = read_settings().prices
    if answers:
        done = read_answers(run_dir, results, prices=prices)
        kinds = ["ok", "truncated", "refused", "empty", "failed"]
        left = "questions have no answer"
    else:
        done = read_batch(
            run_dir, results, allow_unpinned=allow_unpinned, prices=prices
        )
        kinds = ["met", "not_met", "ungraded", "stale"]
        left = "criteria that were asked for are ungraded"
    counts = {name: done.counts[name] for name in [*kinds, *_LINES]}
    reasons = dict(done.reasons.most_common())
    notes = [*first_of(done.notes, _NOTES), *reason_notes("ungraded", reasons)]
    if any("response_format" in why or "json_schema" in why for why in reasons):
        notes.append(
            "calls were refused for the shape of the reply: try batch write --shape object"
        )
    faults = {
        "open": left,
        "missing": "calls have no result",
        "unknown": "results are of no call of this run",
        "damaged": "lines are no results",
    }
    problems = [f"{counts[name]} {faults[name]}" for name in faults if counts[name]]
    hint = "medlive eval batch write makes the file of what is open; live commands ask for it too"
    value = {**counts, "reasons": reasons, "notes": done.notes}
    table = table_of([counts], list(counts))
    failure = failed(problems, hint if counts["open"] else None)
    return Result(value, [table], notes, failure)
