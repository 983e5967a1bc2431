"""`medlive eval batch write|read`: answers and verdicts through an endpoint's batch API."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from medlive.cli.evaluation.options import (
    Cache,
    Calls,
    Grader,
    KeyOption,
    ModeOption,
    ParametersOption,
    RunArgument,
    UnpinnedOption,
    read_mode,
)
from medlive.cli.options import (
    JsonOption,
    ReplaceOption,
    grouped,
    one_of,
    read_settings,
)
from medlive.cli.output import (
    echo,
    new_file,
    print_result,
    print_table,
    say,
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
    """The file that is written, and how long it may be."""

    out: Annotated[Path, Option(help="The JSON Lines file to write.", dir_okay=False)]
    replace: ReplaceOption = False
    max_requests: Annotated[int, Option(min=1, help="Most requests in a file.")] = (
        50_000
    )
    max_bytes: Annotated[int, Option(min=1, help="Most bytes of a file.")] = 190 * 2**20


app = typer.Typer(
    no_args_is_help=True, help="Ask and grade through an endpoint's batch API."
)


@app.command()
@grouped
def write(
    run_dir: RunArgument,
    *,
    file: BatchFile,
    by: Grader,
    answers: AnswersOption = False,
    mode: ModeOption = "rubric",
    shape: Annotated[
        str | None,
        Option(help="JSON's form: schema, object or none [role's, or schema]."),
    ] = None,
    api_key_env: KeyOption = None,
    parameters: ParametersOption = "{}",
    cache: Cache,
    as_json: JsonOption = False,
) -> None:
    """Write the calls that grading would make now as a batch file; nothing is sent.

    After `batch read` these are what it left open."""
    from medlive.evaluation.asking.batch import BatchWritten, write_answers
    from medlive.evaluation.grading.batch import write_batch

    check_batch_out(file.out, file.replace)
    if answers:
        done = write_answers(
            run_dir,
            file.out,
            most_requests=file.max_requests,
            most_bytes=file.max_bytes,
        )
        print_written(done, as_json)
        return
    which, asked = read_mode(mode), _read_shape(shape)

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
                cache=cache.open(engine),
                most_requests=file.max_requests,
                most_bytes=file.max_bytes,
            )

    print_written(wait_for(work()), as_json)


@app.command()
@grouped
def read(
    run_dir: RunArgument,
    results: Annotated[
        list[Path], Argument(help="Result and error files.", exists=True)
    ],
    answers: AnswersOption = False,
    allow_unpinned: UnpinnedOption = False,
    *,
    cache: Cache,
    as_json: JsonOption = False,
) -> None:
    """Take a batch's results into the run, checked as live replies are. Exit status 1 while what was asked for has
    no answer or no verdict, and for lines that are no results of this run."""
    from medlive.evaluation.asking.batch import read_answers
    from medlive.evaluation.grading.batch import read_batch
    from medlive.llm.wire import Price

    settings = read_settings()
    prices = {
        model: Price(p.input, p.output, p.cached)
        for model, p in settings.prices.items()
    }
    if answers:
        done = read_answers(run_dir, results, prices=prices)
        kinds = ["ok", "truncated", "refused", "empty", "failed"]
        left, hint = (
            "questions have no answer",
            "medlive eval batch write --answers, or run, asks again",
        )
    else:
        shared = cache.open()
        done = read_batch(
            run_dir, results, allow_unpinned=allow_unpinned, cache=shared, prices=prices
        )
        kinds = ["met", "not_met", "ungraded", "stale"]
        left = "criteria that were asked for are ungraded"
        hint = "medlive eval batch write makes the file of what is open; eval grade asks for it live"
    _report_read(done, kinds, left, hint, as_json)


def _report_read(
    done: "BatchRead", kinds: list[str], left: str, hint: str, as_json: bool
) -> None:
    """Print what was read. Raises CheckFailed where something is open, and for lines that are no results."""
    counts = {name: done.counts[name] for name in [*kinds, *_LINES]}
    reasons = dict(done.reasons.most_common())
    print_result(
        {**counts, "reasons": reasons, "notes": done.notes},
        as_json,
        lambda: print_table(
            [name.replace("_", " ") for name in counts], [list(counts.values())]
        ),
        notes=[
            *done.notes,
            *(f"ungraded: {n}: {reason}" for reason, n in reasons.items()),
        ],
    )
    if refused := sum(
        n
        for why, n in reasons.items()
        if "response_format" in why or "json_schema" in why
    ):
        say(
            f"{refused} calls were refused for the shape of the reply: try batch write --shape object"
        )
    faults = {
        "open": left,
        "missing": "calls have no result",
        "unknown": "results are of no call of this run",
    }
    faults["damaged"] = "lines are no results"
    if problems := ", ".join(
        f"{counts[name]} {what}" for name, what in faults.items() if counts[name]
    ):
        raise CheckFailed(problems, hint=hint if counts["open"] else None)


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


def print_written(
    done: "BatchWritten",
    as_json: bool,
    none_left: str = "nothing is open: no file was written",
) -> None:
    """Print the files of a batch."""

    def show() -> None:
        for path in done.files:
            echo(path)
        parts = {
            "criteria": done.criteria,
            "verdicts came from the cache": done.cached,
        }
        say(
            "; ".join(
                [
                    f"{done.requests} calls",
                    *(f"{n} {what}" for what, n in parts.items() if n),
                ]
            )
        )
        if done.waiting:
            say(
                f"{done.waiting} calls that have no result yet are in it: hand it in once their batch has ended"
            )
        if not done.files:
            say(none_left)

    print_result(asdict(done), as_json, show)
