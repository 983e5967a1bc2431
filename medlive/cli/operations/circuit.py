"""`medlive circuit`: end the pause of model endpoints that failed too often."""

from medlive.cli.output import Result, with_session
from medlive.db.curation.circuits import reset_circuits


def reset() -> Result:
    """Close the open circuits: their endpoints are asked again at the next call, by workers within a few seconds.

    An endpoint that still fails opens its circuit again.
    """
    closed = with_session(reset_circuits)
    text = f"closed: {', '.join(closed) or 'none was open'}"
    return Result({"closed": closed}, notes=[text])
