"""HTML templates of every room: all text is escaped, and what is missing is an error."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NONE: Final = "–"
"""What is shown where there is no value."""


def environment(package: str, **options: Any) -> Environment:
    """The templates of a package, and those here that every room shares.

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
    return made


def context(page: "DataclassInstance") -> dict[str, Any]:
    """A page's fields, which are all that its template may use."""
    return {field.name: getattr(page, field.name) for field in fields(page)}


def percent(share: float | None) -> str:
    """A share for people, in per cent with one decimal."""
    return NONE if share is None else f"{100 * share:z.1f}"


def interval(
    low: float | None, high: float | None, write: Callable[[float], str] = percent
) -> str:
    """An interval for people, of a share in per cent."""
    return NONE if low is None or high is None else f"{write(low)} to {write(high)}"
