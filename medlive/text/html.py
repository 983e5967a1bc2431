"""The Jinja environment for HTML templates of all packages: text is escaped, and a missing value is an error."""

from collections.abc import Callable
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

NONE = "–"
"""What is shown where there is no value."""


def environment(package: str, **options: Any) -> Environment:
    """The templates of a package, and those here that all packages share.

    Args:
        package: The package with a folder `templates`.
        **options: Further ones of jinja2.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("medlive.text")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        **options,
    )
    made.filters["percent"] = percent
    made.filters["interval"] = interval
    made.filters["counted"] = counted
    return made


def counted(count: int, noun: str) -> str:
    """A number of things: `1 case`, `2,756 cases`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share for people, in per cent with one decimal."""
    return NONE if share is None else f"{100 * share:z.1f}"


def interval(
    low: float | None,
    high: float | None,
    write: Callable[[float], str] = percent,
) -> str:
    """An interval for people, of a share in per cent."""
    return NONE if low is None or high is None else f"{write(low)} to {write(high)}"
