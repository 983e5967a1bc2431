"""`medlive import`: threads from JSON Lines files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, progress, say
from medlive.clock import parse_moment
from medlive.config import load_settings
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.db.session import Database

SHOWN_PROBLEMS = 20


def command(
    files: Annotated[list[Path], typer.Argument(help="Thread files, one JSON object a line.")],
    assume_posted_at: Annotated[
        str | None, typer.Option("--assume-posted-at", metavar="DATE", help="The date of threads that carry none.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Import threads from JSON Lines files; a bad line is reported and the others are imported.

    Importing a file twice changes nothing; a thread that changed becomes a new revision.
    """
    from medlive.service.database import handle_key
    from medlive.service.harvest.import_files import ImportResult, import_file

    settings = load_settings().settings
    try:
        moment = parse_moment(assume_posted_at) if assume_posted_at else None
    except ValueError as exc:
        raise UsageError(f"--assume-posted-at {assume_posted_at}: no ISO date such as 2025-01-01") from exc

    async def work(database: "Database") -> list[ImportResult]:
        done = []
        for path in files:
            with progress(f"import {path.name}") as tick:
                done.append(
                    await import_file(
                        database, path, assume_posted_at=moment, handle_key=handle_key(settings), tick=tick
                    )
                )
        return done

    done = with_database(settings, work)
    value = [
        {"file": d.file, **d.counts,
         "lines": [{"line": p.line, "reason": p.reason.value, "detail": p.detail} for p in d.problems]}
        for d in done
    ]  # fmt: skip
    columns = ("new", "revised", "unchanged", "taken_down", "problems")
    rows = [[d.file.name, *(d.counts[c] for c in columns)] for d in done]
    print_result(value, as_json, lambda: print_table(["file", *columns], rows))
    for d in done:
        for problem in d.problems[:SHOWN_PROBLEMS]:
            say(f"{d.file.name}:{problem.line}: {problem.reason.value}: {problem.detail}")
        if len(d.problems) > SHOWN_PROBLEMS:
            say(f"{d.file.name}: {len(d.problems) - SHOWN_PROBLEMS} more bad lines; all are in import_problems")
