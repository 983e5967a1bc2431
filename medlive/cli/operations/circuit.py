"""`medlive circuit`: which model endpoints are not asked for a while, and ask them again at once."""

from typing import Annotated

from typer import Argument

from medlive.cli.output import Result, table_of, with_session
from medlive.db.curation.circuits import list_circuits, reset_circuits
from medlive.errors import UsageError

_SHOWN = ("endpoint", "cause", "opened_at", "retry_at")


def list_() -> Result:
    """List the open circuits: the endpoint, the cause, since when, and when one call is let through."""
    rows = with_session(list_circuits)
    table = table_of(rows, _SHOWN)
    return Result({"circuits": rows}, [table], [f"open circuits: {len(rows)}"])


def reset(
    names: Annotated[list[str] | None, Argument(metavar="NAME...")] = None,
    all_: bool = False,
) -> Result:
    """Close open circuits: the next call is made at once, by workers within a few seconds.

    What is still wrong opens them again.

    Args:
        names: Endpoints, as list shows them.
        all_: All that are open.
    """
    hint = "medlive circuit list shows the open ones"
    if all_ == bool(names):
        raise UsageError("give the names of circuits, or --all", hint=hint)
    wanted = names or [row.endpoint for row in with_session(list_circuits)]
    closed = with_session(reset_circuits, wanted)
    if unknown := sorted(set(wanted).difference(closed)):
        raise UsageError(f"no circuit is open for {', '.join(unknown)}", hint=hint)
    text = f"closed: {', '.join(closed) or 'none was open'}"
    return Result({"closed": closed}, notes=[text])
