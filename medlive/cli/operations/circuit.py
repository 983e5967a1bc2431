"""`medlive circuit`: which model endpoints are not asked for a while, and ask them again at once."""

from medlive.cli.output import Result, table_of, with_session
from medlive.db.curation.circuits import list_circuits, reset_circuits

_SHOWN = ("endpoint", "cause", "opened_at", "retry_at")


def list_() -> Result:
    """List the open circuits: the endpoint, the cause, since when, and when one call is let through."""
    rows = with_session(list_circuits)
    table = table_of(rows, _SHOWN)
    return Result({"circuits": rows}, [table], [f"open circuits: {len(rows)}"])


def reset() -> Result:
    """Close the open circuits: the next call is made at once, by workers within a few seconds.

    What is still wrong opens them again.
    """
    closed = with_session(reset_circuits)
    text = f"closed: {', '.join(closed) or 'none was open'}"
    return Result({"closed": closed}, notes=[text])
