"""Lets these tests import what tests share, `tests/support`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """A home with nothing in it and the address of a database that nobody answers at."""
    return Instance(tmp_path, "postgresql://keeper:s3cret-w0rd@127.0.0.1:9/medlive")
