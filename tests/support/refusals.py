"""A page that was not fetched, by the kind of its problem."""

import pytest

from medlive.sources.fetching.policy import FetchError
from medlive.sources.source import ProblemKind


def refused(
    kind: ProblemKind, match: str | None = None
) -> "pytest.RaisesExc[FetchError]":
    """Expect a page not to be fetched for this reason."""
    return pytest.raises(FetchError, match=match, check=lambda e: e.kind is kind)
