"""`medlive eval batch write|read`: answers and verdicts through an endpoint's batch API."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from medlive.cli.evaluation.options import (
    Calls,
    Grader,
    KeyOption,
    ModeOption,
    ParametersOption,
    RunArgument,
    UnpinnedOption,
)
from medlive.cli.options import Commands, ReplaceOption, one_of, read_settings
from medlive.cli.output import (
    Result,
    new_file,
    table_of,
    wait_for,
)
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.asking.batch import BatchRead, BatchWritten
    from medlive.llm.wire import JsonMode

AnswersOption = Annotated[
    bool, Option("--answers", help="The model's answers instead of verdicts.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """The file that is written, and how long it may be.

    Attributes:
        out: The JSON Lines file to write.
        max_requests: Most requests in a file.
        max_bytes: Most bytes of a file.
    """

    out: Annotated[Path, Option(dir_okay=False)]
    replace: ReplaceOption = False
    max_requests: Annotated[int, Option(min=1)] = 50_000
    max_bytes: Annotated[int, Option(min=1)] = 190 * 2**20


app = Commands(help="Ask and grade through an endpoint's batch API.")
ShapeOption = Annotated[
    str | None,
    Option(
        "--shape",
        help="How JSON is asked for: schema, object or none [as before; the role's; schema].",
    ),
]


@app.command()
def write(
    run_dir: RunArgument,
    *,
    file: BatchFile,
    by: Grader,
    answers: AnswersOption = False,
    mode: ModeOption = "rubric",
    shape: ShapeOption = None,
    api_key_env: KeyOption = None,
    parameters: ParametersOption = "{}",
) -> Result:
    """Write the calls that grading would make now as a batch file; nothing is sent.

    After `batch read` these are what it left open."""
    from medlive.evaluation.asking.batch import BatchWritten, write_answers
    from medlive.evaluation.grading.batch import write_batch
    from medlive.grader.judge import Mode

    check_batch_out(file.out, file.replace)
    if answers:
        done = write_answers(
            run_dir,
            file.out,
            most_requests=file.max_requests,
            most_bytes=file.max_bytes,
        )
        return written_result(done)
    which, asked = one_of("--mode", Mode, mode), _read_shape(shape)

    async def work() -> BatchWritten:
        calls = Calls(concurrency=1, api_key_env=api_key_env, parameters=parameters)
        async with aclosing(calls.grader(by.grader, by.base_url)) as engine:
            json_mode = getattr(engine, "json_mode", None)
            if json_mode is None:
                hint = "name --grader and --base-url, or set roles.grader"
                raise UsageError("the rules engine has no batch API", hint=hint)
            return write_batch(
                run_dir,
                engine.identity,
                file.out,
                shape=asked or json_mode,
                mode=which,
                allow_unpinned=by.allow_unpinned,
                most_requests=file.max_requests,
                most_bytes=file.max_bytes,
            )

    return written_result(wait_for(work()))


@app.command()
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
    from medlive.evaluation.asking.batch import read_answers
    from medlive.evaluation.grading.batch import read_batch

    settings = read_settings()
    prices = settings.prices
    if answers:
        done = read_answers(run_dir, results, prices=prices)
        kinds = ["ok", "truncated", "refused", "empty", "failed"]
        left = "questions have no answer"
        hint = "medlive eval batch write --answers, or run, asks again"
    else:
        done = read_batch(
            run_dir, results, allow_unpinned=allow_unpinned, prices=prices
        )
        kinds = ["met", "not_met", "ungraded", "stale"]
        left = "criteria that were asked for are ungraded"
        hint = "medlive eval batch write makes the file of what is open; eval grade asks for it live"
    return _describe_read(done, kinds, left, hint)


def _describe_read(done: "BatchRead", kinds: list[str], left: str, hint: str) -> Result:
    """What was read; the failure where something is open, or for lines that are no results."""
    counts = {name: done.counts[name] for name in [*kinds, *_LINES]}
    notes = list(done.notes)
    refused = 0
    for reason, n in done.reasons.most_common():
        notes.append(f"ungraded: {n}: {reason}")
        if "response_format" in reason or "json_schema" in reason:
            refused += n
    if refused:
        notes.append(
            f"{refused} calls were refused for the shape of the reply: try batch write --shape object"
        )
    faults = {
        "open": left,
        "missing": "calls have no result",
        "unknown": "results are of no call of this run",
        "damaged": "lines are no results",
    }
    problems = []
    for name, what in faults.items():
        if counts[name]:
            problems.append(f"{counts[name]} {what}")
    failure = None
    if problems:
        failure = CheckFailed(
            ", ".join(problems), hint=hint if counts["open"] else None
        )
    reasons = dict(done.reasons.most_common())
    return Result(
        {**counts, "reasons": reasons, "notes": done.notes},
        [table_of([counts], list(counts))],
        notes,
        failure,
    )


_LINES = ("again", "duplicates", "unknown", "damaged", "missing", "open")


def check_batch_out(out: Path, replace: bool) -> None:
    """`new_file` of a batch's file, and of the numbered ones that it becomes where it is long: parts of another
    batch beside it would be handed in with it."""
    new_file(out, replace)
    for part in out.parent.glob(
        f"{escape(out.stem)}-[0-9][0-9][0-9]{escape(out.suffix)}"
    ):
        new_file(part, replace)


def _read_shape(name: str | None) -> "JsonMode | None":
    from medlive.llm.wire import JsonMode

    return None if name is None else one_of("--shape", JsonMode, name)


def written_result(
    done: "BatchWritten", none_left: str = "nothing is open: no file was written"
) -> Result:
    """The files of a batch."""
    parts = [f"{done.requests} calls"]
    if done.criteria:
        parts.append(f"{done.criteria} criteria")
    notes = ["; ".join(parts)]
    if done.waiting:
        notes.append(
            f"{done.waiting} calls that have no result yet are in it: hand it in once their batch has ended"
        )
    if not done.files:
        notes.append(none_left)
    return Result(asdict(done), map(str, done.files), notes)
