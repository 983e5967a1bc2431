"""Options that several commands take, and groups of them."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import update_wrapper
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer import Argument, Option
from typer.models import CommandFunctionType

from medlive.cli.output import Result, show_result
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
ByOption = Annotated[str | None, Option("--by", metavar="NAME", help="Who says so.")]
DryRunOption = Annotated[
    bool, Option("--dry-run", help="Say what would be done; do nothing.")
]
UnverifiedOption = Annotated[
    bool, Option("--unverified", help="Take a snapshot without verifying it.")
]
SnapshotArgument = Annotated[
    str, Argument(help="A snapshot's folder, or the version of one frozen here.")
]

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
        wanted = {}
        for name, value in asdict(self).items():
            if value:
                wanted[name] = tuple(value) if isinstance(value, list) else value
        return wanted


class Commands(typer.Typer):
    """Commands that take groups of options, and whose `Result` is printed here, with --json as JSON."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"no_args_is_help": True, **how})

    def command(
        self, name: str | None = None, **how: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a command."""
        register = super().command(name, **how)

        def add(function: CommandFunctionType) -> CommandFunctionType:
            register(grouped(function))
            return function

        return add


def grouped(command: Callable[..., object]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass stands for its annotated fields.

    Typer knows no groups, so it is given a function whose parameters are the fields. One that returns a `Result`
    gets the option --json, and its result is printed.
    """
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            inner = get_type_hints(kind, include_extras=True)
            for field in fields(kind):
                flat.append(_option(field.name, inner[field.name], field.default))
        else:
            flat.append(_option(parameter.name, kind, parameter.default))
    prints = hints.get("return") in (Result, Result | None)
    if prints:
        flat.append(_option("as_json", JsonOption, False))

    def run(**given: Any) -> None:
        as_json = prints and given.pop("as_json")
        for name, kind in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(kind)}
            given[name] = kind(**own)
        result = command(**given)
        if isinstance(result, Result):
            show_result(result, as_json)

    update_wrapper(run, command, ("__name__", "__doc__", "__module__"))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def _option(name: str, kind: object, default: object) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    if default is MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(name, keyword, default=default, annotation=kind)


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
