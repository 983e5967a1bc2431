"""A real browser for the tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; skips where there is none."""
    with chromium() as launched:
        yield launched
