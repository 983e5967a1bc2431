"""Options that several commands take, groups of options (`option_group`, `grouped`), and questions on the terminal."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer import Argument, Option
from typer.models import OptionInfo

from medlive.clock import parse_moment, parse_week
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.signing import PublicKey, public_key_of

from .output import Result, show_result


def _read_moment(text: str) -> datetime:
    try:
        return parse_moment(text)
    except ValueError:
        raise typer.BadParameter("expected a date such as 2026-11-01") from None


def _find_snapshot(place: str) -> Path:
    # Imported here: `medlive --help` needs no settings.
    from medlive.instance.loading import read_settings
    from medlive.instance.paths import snapshot_folder

    return snapshot_folder(read_settings(), place)


OptionalCount = Annotated[int | None, Option(min=1)]
DayOption = Annotated[
    datetime | None, Option(metavar="YYYY-MM-DD", formats=["%Y-%m-%d"])
]
MomentOption = Annotated[datetime | None, Option(metavar="DATE", parser=_read_moment)]
WeekOption = Annotated[str | None, Option(metavar="WEEK", parser=parse_week)]
PublicKeyOption = Annotated[
    PublicKey | None, Option(metavar="KEY", parser=public_key_of)
]
PublicKeysOption = Annotated[
    list[PublicKey] | None,
    Option(
        metavar="FILE",
        parser=public_key_of,
        help="A key that must have signed the bundle; repeatable.",
    ),
]
ThreadArgument = Annotated[
    str, Argument(metavar="SOURCE/ID", help="E.g. icliniq/a1b2.")
]
DecisionOption = Annotated[
    int | None, Option(metavar="N", help="Show this decision, not the latest.")
]
ByOption = Annotated[str | None, Option(help="Who says so.")]
DryRunOption = Annotated[bool, Option(help="Say what would be done; do nothing.")]
UnverifiedOption = Annotated[bool, Option(help="Take a snapshot without verifying it.")]
YesOption = Annotated[bool, Option(help="Do not ask; for scripts.")]
SnapshotArgument = Annotated[
    Path,
    Argument(
        help="A snapshot's folder, or the version of one frozen here.",
        parser=_find_snapshot,
    ),
]
SnapshotOption = Annotated[
    Path | None,
    Option(metavar="PATH", parser=_find_snapshot, help="The snapshot or cases."),
]

Several = list[str] | None  # A repeatable option
T = TypeVar("T")
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_UNDONE = "nothing was changed"


@dataclass_transform(kw_only_default=True, frozen_default=True)
def option_group(kind: type[T]) -> type[T]:
    """Make a class a group of options, which are its fields; a command takes the group whole (`grouped`)."""
    return dataclass(frozen=True, kw_only=True)(kind)


def grouped(command: Callable[..., object]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass stands for its fields.

    Typer knows no groups, so it is given a function whose parameters are the fields. The docstrings say what the
    options mean. A command that returns a `Result` gets the option --json, and its result is printed.
    """
    flat = list(_options_of(command))
    prints = get_type_hints(command).get("return") in (Result, Result | None)
    if prints:
        as_json = inspect.Parameter("json", KEYWORD_ONLY, default=False)
        flat.append(_option(as_json, bool, "Print the result as JSON."))

    def run(**arguments: Any) -> None:
        as_json = prints and arguments.pop("json")
        result = command(**_collect(command, arguments))
        if isinstance(result, Result):
            show_result(result, as_json)

    run.__name__ = command.__name__
    run.__doc__, _ = _read_docstring(command)
    run.__module__ = command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def _options_of(described: Any) -> Iterator[inspect.Parameter]:
    """The parameters of a command, or the fields of a group; the fields of a group inside it take the group's place."""
    kinds = get_type_hints(described, include_extras=True)
    meanings: dict[str, str] = {}
    for base in reversed(getattr(described, "__mro__", [described])):
        meanings |= _read_docstring(base)[1]
    for name, parameter in inspect.signature(described).parameters.items():
        if is_dataclass(kinds[name]):
            yield from _options_of(kinds[name])
        else:
            yield _option(parameter, kinds[name], meanings.get(name))


def _collect(
    described: Any,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments of a command or a group, from the values of all options; groups are made on the way."""
    kinds = get_type_hints(described)
    collected = {}
    for name in inspect.signature(described).parameters:
        kind = kinds[name]
        is_group = is_dataclass(kind)
        collected[name] = kind(**_collect(kind, values)) if is_group else values[name]
    return collected


def _option(
    parameter: inspect.Parameter, kind: Any, meaning: str | None
) -> inspect.Parameter:
    """A parameter as Typer wants it: an option where it has a default or is named by the caller, else an argument."""
    name, default = parameter.name, parameter.default
    if kind is not typer.Context:
        is_positional = parameter.kind is not KEYWORD_ONLY
        is_argument = is_positional and default is inspect.Parameter.empty
        info = Argument() if is_argument else Option()
        if get_origin(kind) is Annotated:
            kind, info = get_args(kind)
            info = copy(info)
        info.help = info.help or meaning
        # An annotated option holds its first name as `default`; ...: it has no name of its own yet.
        if isinstance(info, OptionInfo) and info.default is ...:
            spelt = name.strip("_").replace("_", "-")
            off = f"/--no-{spelt}" if default is True else ""
            info.param_decls = (f"--{spelt}{off}",)
        kind = Annotated[kind, info]
    return inspect.Parameter(name, KEYWORD_ONLY, default=default, annotation=kind)


def _read_docstring(described: object) -> tuple[str, dict[str, str]]:
    """The text of a docstring before its Args or Attributes, and the meaning of each parameter or field there."""
    text, _, section = re.sub(
        r"\n\n(?:Args|Attributes):\n", "\0", inspect.getdoc(described) or ""
    ).partition("\0")
    meanings = {}
    for name, meaning in re.findall(r"(?m)^ {4}(\w+): (.*(?:\n {5,}.*)*)", section):
        meanings[name] = " ".join(meaning.split())
    return text, meanings


def split_name(thread: str) -> tuple[str, str]:
    """The source and the id from a thread's name, SOURCE/ID. Raises UsageError for another text."""
    source, slash, thread_id = thread.partition("/")
    if not slash:
        raise UsageError(f"{thread}: give the source and the id, as in icliniq/a1b2")
    return source, thread_id


def confirm(question: str, *, refused: str = _UNDONE) -> None:
    """Ask a question. Raises UsageError where nobody is there to answer, CheckFailed with `refused` for a no."""
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
