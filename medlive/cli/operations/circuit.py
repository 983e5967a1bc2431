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
    if not rows:
        return Result({"circuits": []}, notes=["no circuit is open"])
    return Result({"circuits": rows}, [table_of(rows, _SHOWN, "Open circuits")])


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
    known = {opening.endpoint for opening in with_session(list_circuits)}
    wanted = known if all_ else set(names or ())
    if unknown := sorted(wanted - known):
        raise UsageError(f"no circuit is open for {', '.join(unknown)}", hint=hint)
    closed = with_session(reset_circuits, wanted)
    text = f"closed: {', '.join(closed) or 'none was open'}"
    return Result({"closed": closed}, notes=[text])
