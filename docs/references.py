"""The pages of reference, made from the program when the site is built (docs/site.py).

None is kept in the repository: `medlive COMMAND --help` and `medlive config show` say the same.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

import shapes
import typer
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from medlive import config
from medlive.cli.main import COMMANDS, build
from medlive.evidence.encoders import table
from medlive.filters import model as filters
from medlive.llm import registry, wire
from medlive.sources import source
from medlive.sources.fetching import policy

_LONGEST = 120  # Characters of a default that are shown


class Command(NamedTuple):
    """One command as its help describes it."""

    path: str  # Its whole name, "medlive snapshot verify"
    usage: str
    help: str
    options: tuple[tuple[str, str], ...]  # Names and what they take; meaning
    names: frozenset[str]  # Every spelling of its options
    flags: frozenset[str]  # Those that take no value
    arguments: tuple[int, float]  # The fewest and the most that it takes


class Setting(NamedTuple):
    """One setting as the code declares it."""

    name: str  # Dotted; NAME stands for a name that the user gives
    default: str
    meaning: str


def commands() -> dict[str, Command]:
    """Whole name → command, groups included, in the order of the help."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        whole = typer.main.get_command(build([name]))
        assert isinstance(whole, TyperGroup)
        found["medlive"] = _command(whole, "medlive")
        for command in _walk(whole.commands[name], f"medlive {name}"):
            found[command.path] = command
    return found


def _walk(command: object, path: str) -> Iterator[Command]:
    yield _command(command, path)
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, f"{path} {name}")


def _command(command: object, path: str) -> Command:
    context = typer.Context(command, info_name=path)  # type: ignore[arg-type]
    options, names, flags = [], {"--help"}, {"--help"}
    fewest, most = 0, 0.0
    for param in command.params:  # type: ignore[attr-defined]
        if param.param_type_name == "argument":
            fewest += param.required
            most += param.nargs if param.nargs > 0 else float("inf")
            continue
        names.update(param.opts, param.secondary_opts)
        if param.is_flag:
            flags.update(param.opts, param.secondary_opts)
        record = param.get_help_record(context)
        if record is not None:
            options.append(record)
    usage = " ".join([path, *command.collect_usage_pieces(context)])  # type: ignore[attr-defined]
    text = inspect.cleandoc(command.help or "")  # type: ignore[attr-defined]
    return Command(
        path=path,
        usage=usage,
        help=text,
        options=tuple(options),
        names=frozenset(names),
        flags=frozenset(flags),
        arguments=(fewest, most),
    )


def commands_page() -> str:
    """The reference of every command, argument and option, in Markdown."""
    known = commands()
    rows = ["# Commands", ""]
    for command in known.values():
        rows += [f"## {command.path}", "", _cell(command.help), ""]
        rows += [f"    {command.usage}", ""]
        if command.options:
            rows += ["| option | meaning |", "| --- | --- |"]
        for names, meaning in command.options:
            rows.append(f"| `{_cell(names)}` | {_cell(meaning)} |")
        rows.append("")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def settings() -> list[Setting]:
    """Every setting, in the order of the code."""
    fields: dict[str, dict[str, str]] = {}
    for module in (registry, filters, source, policy, table, wire, config):
        fields |= _declared(module)
    tables = {"filters": filters.FilterSettings, "harvest": policy.FetchSettings}
    found = []
    for setting in _of_section(config.Settings, "", fields):
        found.append(setting)
        if setting.name in tables:
            found += _of_section(tables[setting.name], f"{setting.name}.", fields)
        if setting.name == "sources":
            found += _of_section(source.SourceSettings, "sources.NAME.", fields)
    return found


def _of_section(
    section: type, prefix: str, fields: Mapping[str, Mapping[str, str]]
) -> Iterator[Setting]:
    for name, field in section.model_fields.items():  # type: ignore[attr-defined]
        # A field may be declared in the class that its section extends.
        declared = [fields.get(own.__name__, {}).get(name) for own in section.__mro__]
        meaning = field.description or next(filter(None, declared), "")
        inner = _inner_section(field.annotation)
        if inner is config.Roles:
            yield from _of_section(config.RoleSettings, f"{name}.NAME.", fields)
        elif inner is not None:
            by_name = "NAME." if "dict" in str(field.annotation) else ""
            yield from _of_section(inner, f"{prefix}{name}.{by_name}", fields)
        else:
            yield Setting(f"{prefix}{name}", _default(field), meaning)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required() or value is None:
        return ""
    if isinstance(value, tuple | frozenset):
        value = ", ".join(sorted(str(each) for each in value))
    elif isinstance(value, dict):
        value = ", ".join(f"{key} = {each}" for key, each in value.items())
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) < _LONGEST else f"{text[:_LONGEST]}…"


def _inner_section(annotation: object) -> type | None:
    """The section that a field holds, alone or by name; None for a plain value."""
    waiting = [annotation]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and hasattr(each, "model_fields"):
            return each
        waiting += getattr(each, "__args__", ())
    return None


def _declared(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class → field → its docstring, or the comment on it or before it."""
    text = inspect.getsource(module)
    comments: dict[tuple[int, bool], str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            # One beside a field is that field's; one on a line of its own is the next line's.
            own_line = token.line.lstrip().startswith("#")
            line = token.start[0] + own_line
            comments[line, own_line] = token.string.lstrip("# ")
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = _class_fields(node, comments)
    return found


def _class_fields(
    node: ast.ClassDef, comments: dict[tuple[int, bool], str]
) -> dict[str, str]:
    found = {}
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign):
            continue
        beside = comments.get((statement.end_lineno or 0, False))
        meaning = beside or comments.get((statement.lineno, True), "")
        if isinstance(following, ast.Expr) and isinstance(
            following.value, ast.Constant
        ):
            meaning = str(following.value.value)
        found[ast.unparse(statement.target)] = " ".join(meaning.split())
    return found


def settings_page() -> str:
    """The reference of every setting, in Markdown."""
    rows = [
        "# Settings",
        "",
        "Each is written in a file of the [folder of settings](../operations.md#where-settings-are-read-from) or given "
        "by the environment: `a.b` is `MEDLIVE_A__B`. A relative path in a file is below the file's folder. "
        "`medlive config show` prints which value is in force and where it comes from. Under `roles.` NAME is "
        f"one of {', '.join(config.Roles.model_fields)}; elsewhere it is a name of yours.",
        "",
        "| setting | default | meaning |",
        "| --- | --- | --- |",
    ]
    for setting in settings():
        default = f"`{_cell(setting.default)}`" if setting.default else ""
        rows.append(f"| `{setting.name}` | {default} | {_cell(setting.meaning)} |")
    return "\n".join(rows) + "\n"


def pages() -> dict[str, str]:
    """Name of a page → its text."""
    return {
        "commands.md": commands_page(),
        "settings.md": settings_page(),
        "python.md": shapes.python_page(),
        "formats.md": shapes.formats_page(_declared),
    }
