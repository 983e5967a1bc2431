"""How commands run their work and print: results to stdout (a table, or JSON), progress and remarks to stderr."""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeVar,
)

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from medlive import logs
from medlive.errors import CheckFailed, UsageError
from medlive.guard.printable import printable, printable_json, printable_lines

from .fitting import fit_table

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.db.session import Database, Session
    from medlive.integrity.checks import Report

T = TypeVar("T")
P = ParamSpec("P")

_A_MINUTE = 60.0  # Seconds
COLLECT_AT = (20_000, 20, 20)
"""The collector's thresholds while a command does its work."""

_MOST_FINDINGS = 5
"""Most findings of a step that its row shows; --json has more."""
# What each state of a signature (`Report.trust`) proves
TRUST = {
    "not signed": "Unsigned: its origin cannot be verified; whoever changed it could have updated every digest.",
    "integrity": "Signed with the key that it names itself, which proves integrity, not origin; give --public-key.",
    "origin": "Signed with the key that was given.",
    "broken": "Its signature could not be checked.",
}
stderr = Console(stderr=True, highlight=False)

Tick = Callable[..., None]
"""Shows how far a work has come: `tick(done)`, or `tick(done, total)` where the total is known."""


def wait_for(work: Coroutine[object, None, T]) -> T:
    """Run a coroutine to its end."""
    # What is imported by now stays to the end: full passes of the garbage collector need not look at it again. A
    # hundred calls under way are some ten thousand objects: at Python's own thresholds the collector goes through
    # them every few calls, which takes a fifth of grading's throughput
    # (docs/builders/measurements/evaluation-speed.md).
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)
    return asyncio.run(work)


def with_instance(
    work: "Callable[Concatenate[Database, Settings, P], Awaitable[T]]",
    *arguments: P.args,
    **how: P.kwargs,
) -> T:
    """Run `work` with the configured database, which is open meanwhile, and the settings; return its result."""

    async def run() -> T:
        from medlive.instance.loading import read_settings
        from medlive.service.database import open_database

        settings = read_settings()
        async with open_database(settings) as database:
            return await work(database, settings, *arguments, **how)

    return wait_for(run())


def with_database(
    work: "Callable[Concatenate[Database, P], Awaitable[T]]",
    *arguments: P.args,
    **how: P.kwargs,
) -> T:
    """Run `work` with the configured database; return its result."""
    return with_instance(lambda database, _: work(database, *arguments, **how))


def with_session(
    work: "Callable[Concatenate[Session, P], Awaitable[T]]",
    *arguments: P.args,
    **how: P.kwargs,
) -> T:
    """Run `work` with a session of the configured database, committed at the end; return its result."""
    return with_database(lambda database: database.ask(work, *arguments, **how))


def print_json(value: object) -> None:
    """A result for machines: one JSON document on stdout."""
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2, default=_plain)
    for piece in encoder.iterencode(value):
        sys.stdout.write(printable_json(piece))
    sys.stdout.write("\n")


def _plain(value: object) -> object:
    """A value that JSON lacks, as JSON: in its own JSON form, a record as a mapping of its fields, else as text."""
    if callable(value):
        return value()
    # A pydantic model; `medlive --help` does not import the library.
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    if isinstance(value, SimpleNamespace):
        return vars(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Sequence):  # A row of the database
        return list(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def echo(value: object) -> None:
    """Print a line on stdout: no text in it moves the cursor or begins another line."""
    sys.stdout.write(printable(str(value)) + "\n")


def echo_lines(text: str) -> None:
    """Print lines on stdout without characters that a terminal obeys; the text brings its own line ends."""
    sys.stdout.write(printable_lines(text))


@dataclass(frozen=True)
class Grid:
    """A table of a result."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str | None = None


Shown = Iterator[Grid | Text | str]
"""What people see, on stdout: tables, lines, and texts that keep their line ends."""


class Result(NamedTuple):
    """What a command found out, and how people see it."""

    # For --json: JSON values, records, or a function that returns one where that takes long
    value: object
    shown: Iterable[Grid | Text | str] = ()  # As `Shown`
    notes: Iterable[str] = ()  # On stderr
    failure: BaseException | None = None  # Raised at the end


def show_result(result: Result, as_json: bool = False) -> None:
    """Print a result as JSON, or as its tables and lines; then its notes. Raises its failure if it has one."""
    if as_json:
        print_json(result.value)
    else:
        for part in result.shown:
            if isinstance(part, Grid):
                print_table(part.columns, part.rows, title=part.title)
            elif isinstance(part, Text):
                echo_lines(part.plain + "\n")
            else:
                echo(part)
    for note in result.notes:
        say(note)
    if result.failure:
        raise result.failure


def table_of(
    rows: Iterable[object], names: Sequence[str], title: str | None = None
) -> Grid:
    """The values `names` of each row, a mapping or a record, as a table with these columns."""
    cells = []
    for row in rows:
        if not isinstance(row, Mapping):
            row = fields_of(row, names)
        cells.append([row[name] for name in names])
    return Grid([name.replace("_", " ") for name in names], cells, title)


def list_result(
    records: Iterable[object],
    shown: Sequence[str],
    *more: str,
) -> Result:
    """Records as a list: a table has the values `shown`, --json also the values `more`."""
    rows = [fields_of(record, (*shown, *more)) for record in records]
    return Result(rows, [table_of(rows, shown)])


def fields_of(
    record: Any,
    names: Iterable[str] = (),
) -> dict[str, object]:
    """The attributes `names` of an object; without names all fields of a dataclass."""
    names = names or [field.name for field in fields(record)]
    return {name: getattr(record, name) for name in names}


def dimmed(cells: Sequence[object]) -> list[Text]:
    """A row of a table in faint letters."""
    return [Text(_cell(cell).plain, style="dim") for cell in cells]


def _estimate(figure: Any) -> str:
    """A figure with its interval, p and n, or why it has none."""
    if figure.value is None:
        return f"- ({figure.why})"
    interval = f"({figure.why})"
    if figure.low is not None:
        interval = f"[{figure.low:.3f}, {figure.high:.3f}]"
    p = getattr(figure, "p", None)
    likely = "" if p is None else f", p {p:.2g}"
    return f"{figure.value:.3f} {interval}{likely}, n {figure.n}"


def _cell(cell: object) -> Text:
    """What a table shows of a value: no markup, and no character that a terminal obeys."""
    match cell:
        case Text():
            return Text(printable_lines(cell.plain), style=cell.style)
        case None:
            text = "–"
        case datetime():
            text = f"{cell:%Y-%m-%d %H:%M}"
        case float():
            text = str(round(cell, 4))
        case dict():
            parts = [f"{name} {_cell(part).plain}" for name, part in cell.items()]
            text = "\n".join(parts)
        case list() | tuple():
            text = "\n".join(map(str, cell))
        case _ if hasattr(cell, "low") and hasattr(cell, "why"):
            text = _estimate(cell)
        case _:
            text = str(cell)
    return Text(printable_lines(text))


def first_of(notes: Sequence[str], most: int) -> list[str]:
    """The first `most` notes, and a line that says how many more there are."""
    shown = list(notes[:most])
    if (more := len(notes) - len(shown)) > 0:
        shown.append(f"and {more} more")
    return shown


def failed(
    problems: Sequence[str],
    hint: str | None = None,
) -> CheckFailed | None:
    """The failure that names all problems; None without problems."""
    return CheckFailed("; ".join(problems), hint=hint) if problems else None


def say(text: str) -> None:
    """A remark on stderr."""
    logs.REMARKS.info(text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
) -> None:
    """Print a table for people on stdout; nothing without a row. A cell's text is never read as markup; a `Text` keeps
    its style.

    No word is cut: a table that is too wide has a line for each value.
    """
    cells = [list(map(_cell, row)) for row in rows]
    if not cells:
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    names = [Text(printable(name)) for name in columns]
    if title is not None:  # A title of the table would wrap at its width
        console.print(Text(printable(title), style="table.title"))
    console.print(fit_table([names, *cells], console.width))


def describe_report(report: "Report", names: Sequence[str]) -> Result:
    """The steps of a verification, and what it proves; the failure where a step failed.

    Args:
        report: The verification.
        names: Further attributes of the report that --json shows.
    """
    rows = []
    for step in report.steps:
        findings = step.findings[:_MOST_FINDINGS] or step.why or None
        rows.append([step.number, step.name, step.state, step.faults, findings])
    value = fields_of(report, ("path", "ok", "complete", "trust", "steps", *names))
    shown = [Grid(["step", "what", "state", "faults", "finding"], rows)]
    if not report.ok:
        failure = CheckFailed(f"{report.path.name} does not verify")
        return Result(value, shown, failure=failure)
    skipped = "" if report.complete else ", but steps were skipped"
    notes = [f"{report.path.name} verifies{skipped}", TRUST[report.trust]]
    return Result(value, shown, notes)


def refuse_existing(path: Path) -> None:
    """Raise UsageError if there is something at `path`, before the work that makes the file."""
    if os.path.lexists(path):
        raise UsageError(
            f"{path} is there already", hint="name another file, or remove it"
        )


@contextmanager
def progress(what: str, spent: object = "") -> Iterator[Tick]:
    """A progress line on stderr; without a terminal, as in a log, a line a minute and one when the work ends.

    `spent`, such as a budget, is shown beside it with its value at the time.
    """
    if stderr.is_terminal and logs.for_people():
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}", markup=False),
            console=stderr,
        ) as bar:
            task = bar.add_task(printable(what), total=None, spent=spent)
            yield lambda done, total=None: bar.update(task, completed=done, total=total)
        return
    last = "0"
    printed = time.monotonic()

    def say_last() -> None:
        say(f"{what}: {last}; {spent}" if str(spent) else f"{what}: {last}")

    def count(done: int, total: int | None = None) -> None:
        nonlocal last, printed
        last = str(done)
        if total is not None:
            last += f" of {total}, {total - done} left"
        if (now := time.monotonic()) - printed >= _A_MINUTE:
            printed = now
            say_last()

    yield count
    say_last()
