"""How commands run their work and print: results to stdout (a table, or JSON), progress and remarks to stderr."""

import asyncio
import gc
import json
import os
import re
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
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from medlive import logs
from medlive.cli.fitting import Fitted, arrange
from medlive.errors import MedliveError, UsageError
from medlive.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.db.session import Database, Session
    from medlive.integrity.checks import StepResult

T = TypeVar("T")

_A_MINUTE: Final = 60.0
COLLECT_AT: Final = (20_000, 20, 20)
"""The collector's thresholds while a command does its work."""

_WHOLE: Final = {"run.json": "a run folder", "manifest.json": "a snapshot"}
"""What says that a folder's files belong together and are medlive's to write."""

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?%?")

stderr = Console(stderr=True, highlight=False)


def wait_for(work: Coroutine[object, None, T]) -> T:
    """Run a coroutine to its end."""
    # What is imported by now stays to the end: full passes of the garbage collector need not look at it again. A
    # hundred calls under way are some ten thousand objects: at Python's own thresholds the collector goes through
    # them every few calls, which takes a fifth of grading's throughput (docs/measurements/evaluation-speed.md).
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)
    return asyncio.run(work)


def with_database(work: "Callable[[Database, Settings], Awaitable[T]]") -> T:
    """What `work` returns for the configured database, which is migrated and open meanwhile."""

    async def run() -> T:
        from medlive.config import load_settings
        from medlive.service.database import open_database

        settings = load_settings().settings
        async with open_database(settings) as database:
            return await work(database, settings)

    return wait_for(run())


def with_session(work: "Callable[[Session], Awaitable[T]]") -> T:
    """The same for a session of it, whose transaction is committed at the end."""

    async def run(database: "Database", _: "Settings") -> T:
        async with database.begin() as session:
            return await work(session)

    return with_database(run)


def print_json(value: object) -> None:
    """A result for machines: one JSON document on stdout."""
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2, default=str).iterencode(
        value
    ):
        sys.stdout.write(printable_json(piece))
    sys.stdout.write("\n")


def echo(value: object = "") -> None:
    """A line on stdout: no text in it moves the cursor or begins another line."""
    sys.stdout.write(printable(str(value)) + "\n")


def echo_lines(text: str) -> None:
    """Lines on stdout, as they are but for characters that a terminal obeys; the last line has its own end."""
    sys.stdout.write(printable_lines(text))


def print_result(
    value: object,
    as_json: bool,
    show: Callable[[], None],
    *,
    notes: Iterable[str] = (),
    failure: MedliveError | None = None,
) -> None:
    """Print a result: `value` as JSON, or else by `show`; then the notes to stderr. Raises `failure` if given."""
    if as_json:
        print_json(value)
    else:
        show()
    for note in notes:
        say(note)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a result."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str | None = None


class Result(Protocol):
    """What a command found out: a frozen dataclass that says how it is shown."""

    def as_json(self) -> object:
        """The result for machines."""

    def tables(self) -> Iterable[Grid]:
        """The result for people, on stdout."""

    def remarks(self) -> Iterable[str]:
        """Notes for people on stderr beside the tables; machines get none."""


def render(
    result: Result, as_json: bool, *, failure: MedliveError | None = None
) -> None:
    """Print a result as JSON, or as its tables and remarks. Raises `failure` if given."""
    if as_json:
        print_json(result.as_json())
    else:
        for grid in result.tables():
            print_table(grid.columns, grid.rows, title=grid.title)
        for remark in result.remarks():
            say(remark)
    if failure is not None:
        raise failure


def in_minutes(moment: datetime | None) -> str | None:
    """A moment as tables show it; None for none."""
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def dimmed(cells: Sequence[object]) -> list[Text]:
    """A row of a table in faint letters."""
    return [Text(_shown(cell), style="dim") for cell in cells]


def _shown(cell: object) -> str:
    return "–" if cell is None else printable_lines(str(cell))


def _cell(cell: object) -> Text:
    """What a table shows of a value: no markup, and no character that a terminal obeys."""
    if isinstance(cell, Text):
        return Text(printable_lines(cell.plain), style=cell.style)
    return Text(_shown(cell))


def say(text: str) -> None:
    """A remark on stderr."""
    logs.REMARKS.info(text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
) -> None:
    """A table for people on stdout; numbers on the right. A cell's text is never read as markup; a `Text` keeps its
    style.

    No word is cut: a table that is too wide has its columns as rows, or else comes in parts, each with the first
    column.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    names = [Text(printable(name)) for name in columns]
    parts = arrange([names, *cells], console.width)
    for number, part in enumerate(parts, start=1):
        heading = None if title is None else printable(title)
        if len(parts) > 1:
            counted = f"columns, part {number} of {len(parts)}"
            heading = counted if heading is None else f"{heading} ({counted})"
        console.print(_table(part, heading))


def _table(part: Fitted, heading: str | None) -> Table:
    table = Table(
        title=None if heading is None else Text(heading),
        title_justify="left",
        show_edge=False,
        pad_edge=False,
        padding=(0, part.padding),
    )
    names, *cells = part.rows
    for i, name in enumerate(names):
        numeric = _is_numeric([row[i].plain for row in cells])
        table.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="fold",
            width=part.widths[i] if part.widths else None,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers alone, besides cells that hold nothing or say that it is not known."""
    known = [cell for cell in cells if cell not in ("–", "unknown")]
    return bool(known) and all(_NUMBER.fullmatch(cell) for cell in known)


def pick(records: Iterable[Any], names: str) -> list[list[Any]]:
    """The rows of a table: of each record the values of these names, which are separated by spaces."""
    return [
        [
            (itemgetter if isinstance(record, Mapping) else attrgetter)(name)(record)
            for name in names.split()
        ]
        for record in records
    ]


def attributes(record: object, names: str) -> dict[str, Any]:
    """An object's attributes of these names, which are separated by spaces; `key=a.b`: `record.a.b` as `key`."""
    pairs = [name.partition("=") for name in names.split()]
    return {key: attrgetter(path or key)(record) for key, _, path in pairs}


def print_checks(steps: "Sequence[StepResult]", most: int | None = None) -> None:
    """The steps of a verification, each with at most so many of its findings."""

    def finding(step: "StepResult") -> str | None:
        shown = step.findings[:most]
        more = step.faults - len(shown)
        return (
            "; ".join([*map(str, shown), *([f"and {more} more"] if more else [])])
            or step.why
            or None
        )

    rows = [[step.number, step.name, step.state.value, finding(step)] for step in steps]
    print_table(["step", "what", "state", "finding"], rows)


def check_as_json(step: "StepResult") -> dict[str, object]:
    """A step of a verification with all its findings."""
    findings = []
    for finding in step.findings:
        stated = {
            "file": finding.file,
            "expected": finding.expected,
            "got": finding.got,
        }
        findings.append(stated)
    return {
        "number": step.number,
        "name": step.name,
        "state": step.state,
        "why": step.why,
        "faults": step.faults,
        "findings": findings,
    }


def new_file(path: Path, replace: bool = False) -> None:
    """See that a result may be written to `path`, before the work that makes it.

    Raises UsageError for an existing one, unless `replace`; and always for a folder, and for a path
    inside a run folder or a snapshot, whose files are evidence.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name a file")
    parent = path.absolute().parent.resolve()
    for folder in (parent, *parent.parents):
        for name, what in _WHOLE.items():
            # Further up another program's manifest.json may lie, as of a browser's extension.
            if (folder / name).is_file() and (
                folder == parent or _written_by_medlive(folder / name)
            ):
                raise UsageError(
                    f"{path} is inside {what}, {folder}, where medlive alone writes",
                    hint="name a file elsewhere",
                )
    if not replace and os.path.lexists(path):
        raise UsageError(
            f"{path} is there already",
            hint="name another file, or --replace writes over it",
        )


def _written_by_medlive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"medlive" in file.read(65_536)
    except OSError:
        return False


class Tick(Protocol):
    """Shows how far a work has come."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """`done` of `total` steps; None: unknown."""


@contextmanager
def progress(what: str, spent: object = "") -> Iterator[Tick]:
    """A progress line on stderr; on no terminal, as in a log, a line a minute and one when the work ends.

    `spent`, such as a budget, is shown beside it with its value then.
    """
    if stderr.is_terminal and logs.for_people():
        what = printable(what)
        label = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), label, BarColumn(), MofNCompleteColumn())
        shown = (
            *columns,
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}", markup=False),
        )
        with Progress(*shown, console=stderr) as bar:
            task = bar.add_task(what, total=None, spent=spent)
            yield lambda done, total=None: bar.update(task, completed=done, total=total)
        return
    last, printed = "0", time.monotonic()

    def count(done: int, total: int | None = None) -> None:
        nonlocal last, printed
        last = f"{done}" + (
            "" if total is None else f" of {total}, {total - done} left"
        )
        if (now := time.monotonic()) - printed >= _A_MINUTE:
            printed = now
            say(line())

    def line() -> str:
        return "; ".join(filter(None, (f"{what}: {last}", str(spent))))

    yield count
    say(line())
