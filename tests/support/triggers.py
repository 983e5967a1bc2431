"""What the schema's triggers refuse, known by its SQLSTATE and not by its words."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError


@contextmanager
def refused_by_trigger() -> Iterator[None]:
    """Expect that a trigger refuses what is done inside.

    Our triggers raise 23000; a constraint of a table raises another code of class 23.
    """
    with pytest.raises(IntegrityError) as caught:
        yield
    cause = caught.value.orig
    assert isinstance(cause, psycopg.errors.IntegrityConstraintViolation)
