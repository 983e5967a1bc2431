"""`medlive circuit`: ask model endpoints again at once that are not asked for a while."""

from medlive.cli.output import Result, with_session
from medlive.db.curation.circuits import reset_circuits


def reset() -> Result:
    """Close the open circuits: the next call is made at once, by workers within a few seconds.

    What is still wrong opens them again.
    """
    closed = with_session(reset_circuits)
    text = f"closed: {', '.join(closed) or 'none was open'}"
    return Result({"closed": closed}, notes=[text])
