"""The command line: `COMMANDS` lists every command with its module, and `build` imports only what is called."""

import builtins
import importlib
import keyword
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from typer import Option

from medlive import logs

from .options import grouped


class Group(NamedTuple):
    """Commands of one noun."""

    help: str
    commands: Mapping[str, Sequence[str]]  # Module below `medlive.cli` → its commands
    groups: Mapping[str, "Group"] = {}
    first: str | None = None
    """The module whose function with the group's name runs before its commands, and alone where none is named."""


# A pair is a single command: its line of help and its module. A module is imported when its command is run or its own
# help is asked for, so that `medlive --help` answers at once and a missing extra troubles only the commands that need
# it.
COMMANDS: Mapping[str, tuple[str, str] | Group] = {
    "demo": (
        "The whole loop once, on sample communities served from this machine.",
        "demo",
    ),
    "db": Group(
        "The database: start, stop, url, upgrade, check.",
        {"operations.db": ("start", "stop", "url", "upgrade", "roles", "check")},
    ),
    "backup": (
        "Write everything that cannot be made again into a folder.",
        "operations.db",
    ),
    "restore": ("Restore a backup into an empty instance.", "operations.db"),
    "import": ("Import threads from JSON Lines files.", "harvest"),
    "source": Group(
        "The communities: list them, check what a page yields.",
        {"harvest": ("list", "check", "lift", "reparse")},
    ),
    "harvest": ("Fetch new threads of the communities.", "harvest"),
    "evidence": Group(
        "The medical evidence: fetch it, build an index, search it.",
        {
            "evidence": ("build", "list", "search", "verify", "models", "gaps"),
            "evidence_fetch": ("fetch",),
        },
    ),
    "filter": ("Filter the threads that wait, and queue what passes.", "curate"),
    "curate": ("Filter and curate the threads that wait.", "curate"),
    "worker": ("Do what is queued until stopped.", "operations.schedule"),
    "jobs": Group(
        "The job queue: list, check, retry, cancel.",
        {"operations.jobs": ("list", "retry", "check", "cancel")},
    ),
    "circuit": Group(
        "Model endpoints that are not asked for a while: ask them again.",
        {"operations.circuit": ("reset",)},
    ),
    "scheduler": (
        "Take each weekly step when it is due, until stopped.",
        "operations.schedule",
    ),
    "serve": (
        "The public site and downloads; the audit room and the review desk.",
        "operations.schedule",
    ),
    "thread": Group(
        "Every decision about a thread, down to the sentence that it is based on.",
        {"audit.thread": ("list", "show", "takedown", "lift-takedown")},
    ),
    "case": Group(
        "The cases: list and filter them, show one.",
        {"audit.case": ("list",), "audit.review": ("show",)},
    ),
    "prompt": Group(
        "The prompts: a task's template, or a stored request as it was sent.",
        {"audit.records": ("show",)},
    ),
    "cost": (
        "What engines cost in a week, by task, engine and source.",
        "audit.records",
    ),
    "status": Group(
        "Where the threads are, what failed, what the week cost, what is due.",
        {"operations.status": ("ack",)},
        first="operations.status",
    ),
    "doctor": (
        "Try for real what a week needs, one line each.",
        "operations.doctor",
    ),
    "week": Group(
        "One week: what came, fell, cost, was held, shipped.",
        {"operations.week": ("show", "run", "clear")},
    ),
    "snapshot": Group(
        "Snapshots: freeze, sign, verify, diff, withdraw, publish, fetch.",
        {
            "snapshot.release": ("freeze", "publish", "withdraw", "reinstate"),
            "snapshot.reading": (
                "list",
                "show",
                "verify",
                "keygen",
                "fetch",
                "diff",
                "export",
            ),
            "snapshot.penalties": ("penalties",),
        },
    ),
    "review": Group(
        "What people decide: approve, edit, reject, overrule, dispute.",
        {
            "audit.review": (
                "list",
                "show",
                "approve",
                "reject",
                "edit",
                "overrule",
                "redact",
                "drop-element",
                "prove",
                "dispute",
                "resolve",
                "disputes",
            ),
            "audit.suspects": ("suspects",),
        },
    ),
    "user": Group(
        "Who may use the private pages: invite, list, role, disable, reset.",
        {"operations.user": ("invite", "list", "role", "disable", "reset")},
    ),
    "audit": Group(
        "Who did what: show the audit log, check that it is whole.",
        {"audit.records": ("log", "verify")},
    ),
    "eval": Group(
        "Evaluate a model: run, grade, score, report, audit, bundle.",
        {
            "evaluation.all": ("all",),
            "evaluation.run": ("run", "import", "export"),
            "evaluation.grade": ("grade", "judge-direct"),
            "evaluation.score": ("score",),
            "evaluation.report": ("report",),
            "evaluation.contamination": ("contamination",),
            "evaluation.root_causes": ("audit",),
            "evaluation.bundle": ("bundle", "verify-bundle", "leaderboard"),
            "evaluation.agreement": ("meta",),
            "evaluation.planning": ("power", "plan"),
        },
        {
            "batch": Group(
                "Ask and grade through an endpoint's batch API.",
                {"evaluation.batch": ("write", "read")},
            ),
            "judges": Group(
                "Compare judges of the same answers.",
                {"evaluation.agreement": ("compare",)},
            ),
            "protocol": Group(
                "Evaluate by other papers' methods: coverage, comparison and more.",
                {"evaluation.protocol": ("list", "run", "all", "errors")},
            ),
        },
    ),
    "site": Group("The public site: build its static pages.", {"site": ("build",)}),
    "llm": Group(
        "Serve the rules engine as an OpenAI-compatible endpoint.",
        {"llm": ("serve",)},
    ),
    "config": Group(
        "The effective settings and where each comes from.",
        {"config": ("show",)},
    ),
}


_EPILOG = (
    "Exit status: 0 done; 1 a check found a problem; 2 wrong use or configuration; 3 a service is missing; "
    "4 a bundle verifies, but its origin is not proven or a step was skipped. "
    "--debug anywhere shows the trace of an error."
)


VALUED = ("--config", "--log-level", "--log-format")
"""Options before the command that are followed by a value."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the command that they name, and only the help lines of the others."""
    words: list[str] = []
    values = iter(arguments)
    for word in values:
        if word in VALUED and not words:
            next(values, None)
        elif not word.startswith("-"):
            words.append(word)
    app = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        epilog=_EPILOG,
    )
    app.callback()(grouped(_root))
    for name, command in COMMANDS.items():
        if name not in words[:1]:
            # The line of help comes first in both kinds
            app.command(name, help=command[0])(lambda: None)
        elif isinstance(command, Group):
            app.add_typer(_build_group(name, command, words[1:]), name=name)
        else:
            app.command(name)(_load(command[1], name))
    return app


def _build_group(
    name: str,
    group: Group,
    words: Sequence[str],
) -> typer.Typer:
    """A group with the command that `words` name, so that no other is imported; with all commands if none is named."""
    app = typer.Typer(
        help=group.help,
        no_args_is_help=not group.first,
        invoke_without_command=bool(group.first),
    )
    # Without a callback Typer takes a single command for the group itself.
    app.callback()(_load(group.first, name) if group.first else lambda: None)
    own: dict[str, str] = {}
    for module, names in group.commands.items():
        own |= dict.fromkeys(names, module)
    wanted = words[0] if words and words[0] in {*own, *group.groups} else None
    for command, module in own.items():
        is_wanted = wanted in (None, command)
        app.command(command)(_load(module, command) if is_wanted else lambda: None)
    for below, inner in group.groups.items():
        if wanted in (None, below):
            app.add_typer(_build_group(below, inner, words[1:]), name=below)
        else:
            app.command(below, help=inner.help)(lambda: None)
    return app


def _load(module: str, name: str) -> Callable[..., None]:
    """A command from its module: the function of its name, which ends in "_" where Python itself has the word."""
    function = name.replace("-", "_")
    if keyword.iskeyword(name) or hasattr(builtins, name):
        function += "_"
    return grouped(getattr(importlib.import_module(f"medlive.cli.{module}"), function))


def _version(value: bool) -> None:
    if value:
        from medlive import __version__

        typer.echo(f"medlive {__version__}")
        raise typer.Exit


def _root(
    *,
    config: Annotated[Path | None, Option(metavar="FOLDER")] = None,
    version: Annotated[bool, Option(callback=_version, is_eager=True)] = False,
    verbose: Annotated[bool, Option("--verbose", "-v")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q")] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(envvar="MEDLIVE_LOG_LEVEL"),
    ] = "info",
    log_format: Annotated[
        Literal["text", "json"], Option(envvar="MEDLIVE_LOG_FORMAT")
    ] = "text",
) -> None:
    """medlive: a weekly, checksummed benchmark of real clinical questions.

    Args:
        config: The folder of the settings [MEDLIVE_CONFIG].
        version: Print the version.
        verbose: The same as --log-level debug.
        quiet: The same as --log-level warning.
        log_level: The lowest level that is logged.
        log_format: The format of the log on stderr.
    """
    if config:
        os.environ["MEDLIVE_CONFIG"] = str(config)
    if verbose or quiet:
        log_level = "debug" if verbose else "warning"
    logs.configure(log_level, as_json=log_format == "json")
