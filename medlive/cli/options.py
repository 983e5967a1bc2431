"""Options that several commands take, groups of them, and what a command asks on the terminal."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer import Argument, Option
from typer.models import CommandFunctionType, OptionInfo

from medlive.cli.output import Result, show_result
from medlive.clock import parse_moment
from medlive.config import Settings
from medlive.errors import CheckFailed, UsageError
from medlive.instance.loading import load_settings

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
YesOption = Annotated[bool, Option("--yes", help="Do not ask; for scripts.")]
SnapshotArgument = Annotated[
    str, Argument(help="A snapshot's folder, or the version of one frozen here.")
]

Choice = TypeVar("Choice", bound=StrEnum)
Several = list[str] | None
_UNDONE = "nothing was changed"


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

    language: Several = None
    source: Several = None
    theme: Several = None
    specialty: Several = None
    first_release: Several = None
    first_release_after: Annotated[str | None, Option(metavar="VERSION")] = None
    posted_from: Annotated[str | None, Option(metavar="DATE")] = None
    posted_before: Annotated[str | None, Option(metavar="DATE")] = None

    def given(self) -> dict[str, Any]:
        """What was asked for, by name."""
        wanted = {}
        for name, value in asdict(self).items():
            if value is not None:
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


def load_group(
    package: str, commands: Mapping[str, str], wanted: str | None
) -> Commands:
    """A group with the command that is wanted, so that what others need is not imported; with all where none is.

    Args:
        package: Where the modules are.
        commands: Name → "module:function"; the function may be a group too.
        wanted: The command that the arguments name.
    """
    app = Commands()
    for name, place in commands.items():
        if wanted in commands and name != wanted:
            app.command(name)(lambda: None)
            continue
        module, _, function = place.partition(":")
        command = getattr(import_module(f"{package}.{module}"), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def grouped(command: Callable[..., object]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass stands for its fields.

    Typer knows no groups, so it is given a function whose parameters are the fields. The docstrings say what the
    options mean. A command that returns a `Result` gets the option --json, and its result is printed.
    """
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    text, meanings = _read_docstring(command)
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        name, kind = parameter.name, hints[parameter.name]
        if not is_dataclass(kind):
            flat.append(_option(name, kind, parameter.default, meanings.get(name)))
            continue
        groups[name] = kind
        inner = get_type_hints(kind, include_extras=True)
        of_fields: dict[str, str] = {}
        for base in groups[name].__mro__:
            of_fields = _read_docstring(base)[1] | of_fields
        for field in fields(kind):
            default = field.default
            if default is MISSING:
                default = inspect.Parameter.empty
            meaning = of_fields.get(field.name)
            flat.append(_option(field.name, inner[field.name], default, meaning))
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
    if kind is not typer.Context:
        info = Argument() if default is inspect.Parameter.empty else Option()
        if get_origin(kind) is Annotated:
            kind, info = get_args(kind)
            info = copy(info)
        info.help = info.help or meaning
        if isinstance(info, OptionInfo):
            if "Path" in str(kind):
                info.metavar = info.metavar or "PATH"
            # Typer takes the first name of an annotated option for its default.
            if info.default is ...:
                info.param_decls = (f"--{name.strip('_').replace('_', '-')}",)
        kind = Annotated[kind, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )


def _read_docstring(described: object) -> tuple[str, dict[str, str]]:
    """What a command or a group of options is, and the meaning of each parameter or field."""
    text, _, section = re.sub(
        r"\n\n(?:Args|Attributes):\n", "\0", inspect.getdoc(described) or ""
    ).partition("\0")
    meanings = {}
    for name, meaning in re.findall(r"(?m)^ {4}(\w+): (.*(?:\n {5,}.*)*)", section):
        meanings[name] = " ".join(meaning.split())
    return text, meanings


def split_name(thread: str) -> tuple[str, str]:
    """The source and the id of a thread's name. Raises UsageError for another text."""
    source, slash, thread_id = thread.partition("/")
    if not slash:
        raise UsageError(f"{thread}: give the source and the id, as in icliniq/a1b2")
    return source, thread_id


def read_settings() -> Settings:
    """The settings."""
    return load_settings().settings


def one_of(option: str, kind: type[Choice], text: str) -> Choice:
    """The option's value. Raises UsageError for an unknown value."""
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text}: choose {' or '.join(kind)}") from None


def read_moment(option: str, text: str | None) -> datetime | None:
    """The option's day or time. Raises UsageError for another text."""
    try:
        return None if text is None else parse_moment(text)
    except ValueError:
        raise UsageError(
            f"{option} {text}: not an ISO date such as 2026-11-01"
        ) from None


def confirm(question: str, *, refused: str = _UNDONE) -> None:
    """Ask a question. Raises UsageError where nobody is there to answer, CheckFailed for a no."""
    _check_terminal()
    if not typer.confirm(question, err=True):
        raise CheckFailed(f"not confirmed: {refused}")


def confirm_by_name(name: str) -> None:
    """Let the person type the name of what cannot be undone.

    Args:
        name: What has to be typed.

    Raises:
        UsageError: If nobody is there to type it.
        CheckFailed: If another name was typed.
    """
    _check_terminal()
    typed = typer.prompt(f"This cannot be undone. Type {name} to do it", err=True)
    if typed.strip() != name:
        raise CheckFailed(f"expected {name}, not {typed.strip()[:100]!r}: {_UNDONE}")


def is_terminal() -> bool:
    """Whether somebody may be there to answer."""
    # Python has no stdin at all where it was closed.
    return sys.stdin is not None and sys.stdin.isatty()


def _check_terminal() -> None:
    if not is_terminal():
        raise UsageError(
            "this asks before it acts, and nobody is there to answer",
            hint="--yes does it without asking, --dry-run only says what would be done",
        )
