"""`medlive circuit`: which model endpoints are not asked for a while, and ask them again at once."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import Grid, print_result, render, say, with_session
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.llm.circuit import Opening

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Circuits:
    """The open circuits."""

    openings: "Sequence[Opening]"

    def as_json(self) -> object:
        """Each with its times."""
        return {"circuits": [asdict(opening) for opening in self.openings]}

    def tables(self) -> Iterable[Grid]:
        """A row for each."""
        rows = []
        for opening in self.openings:
            times = (opening.opened_at, opening.retry_at)
            rows.append([opening.endpoint, opening.cause, *times])
        if rows:
            columns = ["endpoint", "cause", "opened_at", "retry_at"]
            yield Grid(columns, rows, "Open circuits")

    def remarks(self) -> Iterable[str]:
        """That none is open, where none is."""
        return () if self.openings else ("no circuit is open",)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the open circuits: the endpoint, the cause, since when, and when one call is let through."""
    from medlive.db.curation.circuits import list_circuits

    render(_Circuits(with_session(list_circuits)), as_json)


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
