"""HTML templates of every room: all text is escaped, and what is missing is an error."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

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
    made.filters["counted"] = counted
    return made


@dataclass(frozen=True)
class Page:
    """A template's context: its fields are all that the template may use, beside what surrounds every page."""

    template: ClassVar[str]

    def fill(self, templates: Environment, **around: object) -> str:
        """The page by the templates of its room; `around` is what surrounds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return templates.get_template(self.template).render(values, **around)


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
