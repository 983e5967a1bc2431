"""Other implementations that tests hold ours against."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class _Later:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(
            "_"
        ):  # pytest asks each global of a test file whether it wraps something
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def oracle(name: str) -> Any:
    """The module of that name; the test file that asks for it is skipped where it is not installed.

    Every worker collects every file and one runs it: what takes seconds to import is imported by that one alone.
    """
    package = name.partition(".")[0]
    if find_spec(package) is None:
        pytest.skip(
            f"{package}, an oracle of these tests, is not installed",
            allow_module_level=True,
        )
    return _Later(name)
