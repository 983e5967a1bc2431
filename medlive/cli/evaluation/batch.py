"""`medlive eval batch write|read|next`: answers and verdicts through an endpoint's batch API."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from medlive.cli.options import JsonOption, ReplaceOption, grouped
from medlive.cli.output import new_file, print_result, print_table, say, wait_for
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medlive.evaluation.asking.batch_files import BatchWritten
    from medlive.llm.wire import JsonMode

AnswersOption = Annotated[
    bool, typer.Option("--answers", help="The model's answers, as `eval run` asks for them, and no verdicts.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """The file that is written, and how long it may be."""

    out: Annotated[Path, typer.Option("--out", help="The JSON Lines file to write.", dir_okay=False)]
    replace: ReplaceOption = False
    max_requests: Annotated[int, typer.Option("--max-requests", min=1, help="Most requests in a file.")] = 50_000
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Most bytes of a file.")] = 190 * 2**20


app = typer.Typer(no_args_is_help=True, help="Ask and grade through an endpoint's batch API.")


@app.command()
@grouped
def write(
    run_dir: RunArgument,
    *,
    file: BatchFile,
    by: Grader,
    answers: AnswersOption = False,
    mode: ModeOption = "criterion",
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="How JSON is asked for: schema, object or none [the role's, or schema]."),
    ] = None,
    api_key_env: KeyOption = None,
    parameters: ParametersOption = "{}",
    cache: Cache,
    as_json: JsonOption = False,
) -> None:
    """Write the calls that grading would make as a batch file; nothing is sent."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.batch_answers import write_answers
    from medlive.evaluation.asking.batch_files import BatchWritten
    from medlive.evaluation.grading.batch import Bodies, write_batch

    check_batch_out(file.out, file.replace)
    if answers:
        done = write_answers(run_dir, file.out, most_requests=file.max_requests, most_bytes=file.max_bytes)
        print_written(done, as_json)
        return
    which, asked = read_mode(mode), _read_shape(shape)
    settings = load_settings().settings

    async def work() -> BatchWritten:
        calls = Calls(concurrency=1, api_key_env=api_key_env, parameters=parameters)
        async with aclosing(calls.grader(settings, by.grader, by.base_url)) as engine:
            json_mode = getattr(engine, "json_mode", None)
            if json_mode is None:
                raise UsageError(
                    "the rules engine has no batch API", hint="name --grader and --base-url, or set roles.grader"
                )
            return write_batch(
                run_dir, Bodies(engine.identity, asked or json_mode), file.out, mode=which,
                allow_unpinned=by.allow_unpinned, cache=cache.open(settings, engine),
                most_requests=file.max_requests, most_bytes=file.max_bytes,
            )  # fmt: skip

    print_written(wait_for(work()), as_json)


@app.command(name="next")
@grouped
def next_(
    run_dir: RunArgument,
    *,
    file: BatchFile,
    shape: Annotated[
        str | None, typer.Option("--shape", help="How JSON is asked for: schema, object or none [as before].")
    ] = None,
    leave_waiting: Annotated[
        bool, typer.Option("--leave-waiting", help="Leave out what has no result yet: its batch is under way.")
    ] = False,
    allow_unpinned: UnpinnedOption = False,
    cache: Cache,
    as_json: JsonOption = False,
) -> None:
    """Write what the last batch left open as the next file, for the same grader and mode: what failed or has no
    result as it was, and a reply that held no verdict with what is wrong with it."""
    from medlive.config import load_settings
    from medlive.evaluation.grading.batch import Bodies, last_written, write_batch

    shared = cache.open(load_settings().settings)
    check_batch_out(file.out, file.replace)
    identity, mode, before = last_written(run_dir)
    done = write_batch(
        run_dir, Bodies(identity, _read_shape(shape) or before), file.out, mode=mode,
        allow_unpinned=allow_unpinned, cache=shared, most_requests=file.max_requests, most_bytes=file.max_bytes,
        leave_waiting=leave_waiting,
    )  # fmt: skip
    print_written(done, as_json)
    if done.waiting:
        what = "are left out" if leave_waiting else "are in it: hand it in once their batch has ended"
        say(f"{done.waiting} calls that have no result yet {what}")


def check_batch_out(out: Path, replace: bool) -> None:
    """`new_file` of a batch's file, and of the numbered ones that it becomes where it is long: parts of another
    batch beside it would be handed in with it."""
    new_file(out, replace)
    for part in out.parent.glob(f"{escape(out.stem)}-[0-9][0-9][0-9]{escape(out.suffix)}"):
        new_file(part, replace)


def _read_shape(name: str | None) -> "JsonMode | None":
    from medlive.llm.wire import JsonMode

    if name is None:
        return None
    if name not in set(JsonMode):
        raise UsageError(f"--shape {name}: choose schema, object or none")
    return JsonMode(name)


def print_written(
    done: "BatchWritten", as_json: bool, none_left: str = "nothing is open: no file was written"
) -> None:
    """Print the files of a batch."""
    print_result(asdict(done), as_json, lambda: _print_files(done, none_left))


def _print_files(done: "BatchWritten", none_left: str) -> None:
    for path in done.files:
        print(path)
    say(
        f"{done.requests} calls"
        # Of a file that asks for answers there are none.
        + (f"; {done.criteria} criteria" if done.criteria else "")
        + (f"; {done.cached} verdicts came from the cache" if done.cached else "")
        + (f"; {done.repairs} calls show the grader what was wrong with its reply" if done.repairs else "")
    )
    if not done.files and not done.waiting:
        say(none_left)


@app.command()
@grouped
def read(
    run_dir: RunArgument,
    results: Annotated[list[Path], typer.Argument(help="Result and error files of the batch.", exists=True)],
    answers: AnswersOption = False,
    allow_unpinned: UnpinnedOption = False,
    *,
    cache: Cache,
    as_json: JsonOption = False,
) -> None:
    """Take a batch's results into the run, checked as live replies are. Exit status 1 while what was asked for has
    no answer or no verdict, and for lines that are no results of this run."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.batch_answers import read_answers
    from medlive.evaluation.grading.batch import read_batch
    from medlive.llm.wire import Price

    settings = load_settings().settings
    shared = cache.open(settings)
    prices = {model: Price(p.input, p.output, p.cached) for model, p in settings.prices.items()}
    if answers:
        got = read_answers(run_dir, results, prices=prices)
        _print_read(
            {**{state.value: n for state, n in got.answers.items()}, "again": got.again, "unknown": got.unknown,
             "damaged": got.damaged, "missing": got.missing, "open": got.open},
            got.notes, {}, as_json,
        )  # fmt: skip
        if left := _left(
            {"questions have no answer": got.open, "calls have no result": got.missing,
             "results are of no call of this run": got.unknown, "lines are no results": got.damaged}
        ):  # fmt: skip
            hint = "medlive eval batch write --answers, or run, asks again for what is open" if got.open else None
            raise CheckFailed(left, hint=hint)
        return
    done = read_batch(run_dir, results, allow_unpinned=allow_unpinned, cache=shared, prices=prices)
    counts = {
        "met": done.met, "not_met": done.not_met, "ungraded": done.ungraded, "again": done.again,
        "duplicates": done.duplicates, "unknown": done.unknown, "stale": done.stale, "damaged": done.damaged,
        "missing": done.missing, "open": done.open,
    }  # fmt: skip
    _print_read(counts, done.notes, dict(done.reasons.most_common()), as_json)
    for model, n in done.strangers.most_common(5):
        say(f"{n} criteria: {model[:100]!r} answered; the same command with --allow-unpinned takes its verdicts")
    if done.shape_refused:
        say(f"{done.shape_refused} calls were refused for the shape of the reply: try batch next --shape object")
    if left := _left(
        {"criteria that were asked for are ungraded": done.open, "calls have no result": done.missing,
         "results are of no call of this run": done.unknown, "lines are no results": done.damaged}
    ):  # fmt: skip
        hint = "medlive eval batch next writes the file of what is open; eval grade asks for it live"
        raise CheckFailed(left, hint=hint if done.open else None)


def _left(counts: dict[str, int]) -> str:
    """What there is of what should not be, as words; empty where there is none."""
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n)


def _print_read(counts: dict[str, int], notes: "Sequence[str]", reasons: dict[str, int], as_json: bool) -> None:
    print_result(
        {**counts, "reasons": reasons, "notes": notes},
        as_json,
        lambda: print_table([name.replace("_", " ") for name in counts], [list(counts.values())]),
        notes=[*notes, *(f"ungraded: {n}: {reason}" for reason, n in reasons.items())],
    )
