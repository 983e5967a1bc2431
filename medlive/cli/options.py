"""Options that several commands take, and groups of them."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from typer import Argument, Option

from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.config import Settings

JsonOption = Annotated[bool, Option("--json", help="Print the result as JSON.")]
ThreadArgument = Annotated[
    str, Argument(metavar="SOURCE/ID", help="E.g. icliniq/a1b2.")
]
DecisionOption = Annotated[
    int | None, Option(metavar="N", help="Show this decision, not the latest.")
]
ReplaceOption = Annotated[bool, Option("--replace", help="Overwrite an existing file.")]

Choice = TypeVar("Choice", bound=StrEnum)
_Several = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases of a snapshot are taken."""

    language: Annotated[
        _Several, Option(help="Only cases in it, en or zh; repeatable.")
    ] = None
    source: Annotated[
        _Several, Option(help="Only cases of this community; repeatable.")
    ] = None
    theme: Annotated[_Several, Option(help="Only cases of this theme; repeatable.")] = (
        None
    )
    specialty: Annotated[
        _Several, Option(help="Only cases of this specialty; repeatable.")
    ] = None
    first_release: Annotated[
        _Several, Option(help="Only cases that are new in this version; repeatable.")
    ] = None
    first_release_after: Annotated[
        str | None, Option(metavar="VERSION", help="Only newer cases.")
    ] = None
    posted_from: Annotated[
        str | None, Option(metavar="DATE", help="Only cases of this day or later.")
    ] = None
    posted_before: Annotated[
        str | None, Option(metavar="DATE", help="Only cases from before this day.")
    ] = None

    def given(self) -> dict[str, Any]:
        """What was asked for, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if v
        }


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass stands for its annotated fields.

    Typer knows no groups, so it is given a function whose parameters are the fields.
    """
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not is_dataclass(kind):
            flat.append(parameter.replace(annotation=kind, kind=keyword))
            continue
        groups[parameter.name] = kind
        inner = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = (
                inspect.Parameter.empty if field.default is MISSING else field.default
            )
            flat.append(
                inspect.Parameter(
                    field.name, keyword, default=default, annotation=inner[field.name]
                )
            )

    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(
                **{field.name: given.pop(field.name) for field in fields(kind)}
            )
        command(**given)

    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def split_name(thread: str) -> tuple[str, str]:
    """The source and the id of a thread's name. Raises UsageError for another text."""
    source, slash, thread_id = thread.partition("/")
    if not slash:
        raise UsageError(f"{thread}: give the source and the id, as in icliniq/a1b2")
    return source, thread_id


def read_settings() -> "Settings":
    """The settings."""
    from medlive.config import load_settings

    return load_settings().settings


def one_of(option: str, kind: type[Choice], text: str) -> Choice:
    """The option's value. Raises UsageError for an unknown value."""
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text}: choose {' or '.join(kind)}") from None
