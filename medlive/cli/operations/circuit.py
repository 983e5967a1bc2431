"""`medlive circuit`: which model endpoints are not asked for a while, and ask them again at once."""

from dataclasses import asdict
from typing import Annotated

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import pick, print_result, print_table, say, with_session
from medlive.errors import UsageError

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the open circuits: the endpoint, the cause, since when, and when one call is let through."""
    from medlive.db.curation.circuits import list_circuits

    openings = [asdict(opening) for opening in with_session(list_circuits)]

    def show() -> None:
        columns = "endpoint cause opened_at retry_at"
        print_table(columns.split(), pick(openings, columns), title="Open circuits")

    print_result(
        {"circuits": openings},
        as_json,
        show if openings else lambda: say("no circuit is open"),
    )


@app.command()
def reset(
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME...", help="Endpoints, as list shows them."),
    ] = None,
    all_: Annotated[bool, Option("--all", help="All that are open.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Close open circuits: the next call is made at once, by workers within a few seconds.

    What is still wrong opens them again.
    """
    from medlive.db.curation.circuits import list_circuits, reset_circuits

    if all_ == bool(names):
        raise UsageError(
            "give the names of circuits, or --all",
            hint="medlive circuit list shows the open ones",
        )
    known = {opening.endpoint for opening in with_session(list_circuits)}
    if unknown := sorted(set(names or ()) - known):
        raise UsageError(
            f"no circuit is open for {', '.join(unknown)}",
            hint="medlive circuit list shows the open ones",
        )
    closed = with_session(
        lambda session: reset_circuits(session, known if all_ else set(names or ()))
    )
    print_result(
        {"closed": closed},
        as_json,
        lambda: say(f"closed: {', '.join(closed) or 'none was open'}"),
    )
