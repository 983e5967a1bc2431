"""Options that several commands take, and groups of them."""

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer import Argument, Option
from typer.models import CommandFunctionType, OptionInfo

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
    """Which cases of a snapshot are taken.

    Attributes:
        language: Only cases in it, en or zh; repeatable.
        source: Only cases of this community; repeatable.
        theme: Only cases of this theme; repeatable.
        specialty: Only cases of this specialty; repeatable.
        first_release: Only cases that are new in this version; repeatable.
        first_release_after: Only newer cases.
        posted_from: Only cases of this day or later.
        posted_before: Only cases from before this day.
    """

    language: _Several = None
    source: _Several = None
    theme: _Several = None
    specialty: _Several = None
    first_release: _Several = None
    first_release_after: Annotated[str | None, Option(metavar="VERSION")] = None
    posted_from: Annotated[str | None, Option(metavar="DATE")] = None
    posted_before: Annotated[str | None, Option(metavar="DATE")] = None

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
    """Let a command take groups of options: a parameter that is a dataclass stands for its fields.

    Typer knows no groups, so it is given a function whose parameters are the fields. The docstrings say what the
    options mean. A command that returns a `Result` gets the option --json, and its result is printed.
    """
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    text, meanings = _read_docstring(command)
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            inner = get_type_hints(kind, include_extras=True)
            _, of_fields = _read_docstring(kind)
            for field in fields(kind):
                name = field.name
                default = inspect.Parameter.empty
                if field.default is not MISSING:
                    default = field.default
                flat.append(_option(name, inner[name], default, of_fields.get(name)))
        else:
            meaning = meanings.get(parameter.name)
            flat.append(_option(parameter.name, kind, parameter.default, meaning))
    prints = hints.get("return") in (Result, Result | None)
    if prints:
        flat.append(_option("as_json", JsonOption, False, None))

    def run(**arguments: Any) -> None:
        as_json = prints and arguments.pop("as_json")
        for name, kind in groups.items():
            own = {field.name: arguments.pop(field.name) for field in fields(kind)}
            arguments[name] = kind(**own)
        result = command(**arguments)
        if isinstance(result, Result):
            show_result(result, as_json)

    run.__name__ = command.__name__
    run.__doc__ = text
    run.__module__ = command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def _option(
    name: str, kind: Any, default: object, meaning: str | None
) -> inspect.Parameter:
    """A parameter as Typer wants it: an option where it has a default, else an argument."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if kind is not typer.Context:
        described = get_origin(kind) is Annotated
        kind, info = get_args(kind) if described else (kind, None)
        if info is None:
            info = Argument() if default is inspect.Parameter.empty else Option()
        info = copy(info)
        info.help = info.help or meaning
        if isinstance(info, OptionInfo) and "Path" in str(kind):
            info.metavar = info.metavar or "PATH"
        # Typer takes the first name of an annotated option for its default.
        if isinstance(info, OptionInfo) and info.default is ...:
            info.param_decls = (f"--{name.strip('_').replace('_', '-')}",)
        kind = Annotated[kind, info]
    return inspect.Parameter(name, keyword, default=default, annotation=kind)


def _read_docstring(described: object) -> tuple[str, dict[str, str]]:
    """What a command or a group of options is, and the meaning of each parameter or field."""
    text, *sections = re.split(
        r"\n\n(?:Args|Attributes):\n", inspect.getdoc(described) or "", maxsplit=1
    )
    meanings: dict[str, str] = {}
    name = ""
    for line in "".join(sections).splitlines():
        if line.startswith("     "):
            meanings[name] += f" {line.strip()}"
        else:
            name, _, meaning = line.strip().partition(": ")
            meanings[name] = meaning
    return text, meanings


def split_name(thread: str) -> tuple[str, str]:
    """The source and the id of a thread's name. Raises UsageError for another text."""
    source, slash, thread_id = thread.partition("/")
    if not slash:
        raise UsageError(f"{thread}: give the source and the id, as in icliniq/a1b2")
    return source, thread_id


def read_settings() -> "Settings":
    """The settings."""
    from medlive.instance.loading import load_settings

    return load_settings().settings


def one_of(option: str, kind: type[Choice], text: str) -> Choice:
    """The option's value. Raises UsageError for an unknown value."""
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text}: choose {' or '.join(kind)}") from None
