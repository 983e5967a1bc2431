"""`medlive eval batch write|submit|status|read`: answers and verdicts through an endpoint's batch API."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    pick,
    print_result,
    print_table,
    say,
    wait_for,
)
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medlive.evaluation.asking.batch import BatchRead, BatchWritten
    from medlive.llm.batches import BatchApi, BatchState
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

    After `batch read` these are what it left open: a reply that held no verdict goes with what is wrong with it."""
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
def submit(
    run_dir: RunArgument,
    files: Annotated[
        list[Path], Argument(help="Files that `batch write` made.", exists=True)
    ],
    base_url: Annotated[
        str | None, Option(help="The endpoint [the grader's; the run's for --answers].")
    ] = None,
    api_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand files of calls in to the endpoint's batch API; `batch status` shows their state."""
    from medlive.evaluation.asking.batch import batch_kind, submit_batch
    from medlive.evaluation.runs.folder import read_info
    from medlive.service.wiring import open_batches

    settings, states = read_settings(), []
    for file in files:
        answers = batch_kind(run_dir, file) == "question"
        address = base_url or (
            read_info(run_dir).endpoint if answers else settings.roles.grader.base_url
        )
        if address is None:
            raise UsageError(
                "no endpoint is known for these calls", hint="name it: --base-url"
            )
        states.append(
            submit_batch(
                run_dir, file, open_batches(settings, address, api_key_env), api_key_env
            )
        )
    _print_states([file.name for file in files], states, as_json)


@app.command()
def status(run_dir: RunArgument, as_json: JsonOption = False) -> None:
    """Ask for the state of the batches of a run. Exit status 1 while one is under way."""
    from medlive.evaluation.asking.batch import read_batch_log

    submitted = read_batch_log(run_dir).submitted
    states = [_open_api(row).state(row["batch"]) for row in submitted]
    _print_states([row["file"] for row in submitted], states, as_json)
    if under_way := sum(not state.ended for state in states):
        raise CheckFailed(
            f"{under_way} of {len(states)} batches are under way",
            hint="ask again later",
        )


@app.command()
@grouped
def read(
    run_dir: RunArgument,
    results: Annotated[
        list[Path] | None,
        Argument(help="Result and error files [fetched].", exists=True),
    ] = None,
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
    files = results or _fetch(run_dir, "question" if answers else "asked")
    if answers:
        done = read_answers(run_dir, files, prices=prices)
        kinds = ["ok", "truncated", "refused", "empty", "failed"]
        left, hint = (
            "questions have no answer",
            "medlive eval batch write --answers, or run, asks again",
        )
    else:
        shared = cache.open()
        done = read_batch(
            run_dir, files, allow_unpinned=allow_unpinned, cache=shared, prices=prices
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
    for model, n in done.strangers.most_common(5):
        say(
            f"{n} criteria: {model[:100]!r} answered; the same command with --allow-unpinned takes its verdicts"
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


def _open_api(row: "Mapping[str, Any]") -> "BatchApi":
    from medlive.service.wiring import open_batches

    return open_batches(read_settings(), row["endpoint"], row["api_key_env"])


def _fetch(run_dir: Path, kind: str) -> list[Path]:
    """The results of the run's batches of a kind that ended."""
    from medlive.evaluation.asking.batch import fetch_results, read_batch_log

    submitted = read_batch_log(run_dir).submitted
    if not submitted:
        hint = "name the result files, or run medlive eval batch submit"
        raise UsageError(f"no batch of {run_dir} was submitted", hint=hint)
    files: list[Path] = []
    for number, row in enumerate(submitted, start=1):
        if row["calls"] != kind:
            continue
        api = _open_api(row)
        state = api.state(row["batch"])
        if state.ended:
            files += fetch_results(run_dir, number, state, api)
        if not state.ended or state.errors:
            say(
                f"{row['file']}: {state.status}"
                + "".join(f"; {error}" for error in state.errors[:5])
            )
    return files


def _print_states(files: list[str], states: "list[BatchState]", as_json: bool) -> None:
    value = [
        {"file": file, **asdict(state)}
        for file, state in zip(files, states, strict=True)
    ]
    columns = ["batch", "file", "status", "calls", "completed", "failed"]
    print_result(
        value,
        as_json,
        lambda: print_table(
            columns, pick(value, "id file status calls completed failed")
        ),
        notes=[f"{s.id}: {error}" for s in states for error in s.errors[:5]],
    )


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
            "calls show the grader what was wrong with its reply": done.repairs,
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
