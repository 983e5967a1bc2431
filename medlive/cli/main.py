"""The command line: one file per noun, imported when its command is used."""

import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from medlive import logs
from medlive.cli.options import grouped

# Command → (module with an `app` or a `load`, or module:function; help). A module is imported when its command
# is run or its own help is asked for, so that `medlive --help` answers at once and a missing extra troubles only
# the commands that need it.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "medlive.cli.demo:demo",
        "The whole loop once, on sample communities served from this machine.",
    ),
    "db": (
        "medlive.cli.operations.db",
        "The database: start, stop, url, upgrade, check.",
    ),
    "backup": (
        "medlive.cli.operations.backup:backup",
        "Write everything that cannot be made again into a folder.",
    ),
    "restore": (
        "medlive.cli.operations.backup:restore",
        "Restore a backup into an empty instance.",
    ),
    "import": ("medlive.cli.harvest:import_", "Import threads from JSON Lines files."),
    "source": (
        "medlive.cli.harvest",
        "The communities: list them, check what a page yields.",
    ),
    "harvest": ("medlive.cli.harvest:harvest", "Fetch new threads of the communities."),
    "evidence": (
        "medlive.cli.evidence",
        "The medical evidence: fetch it, build an index, search it.",
    ),
    "filter": (
        "medlive.cli.curate:filter_threads",
        "Filter the threads that wait, and queue what passes.",
    ),
    "curate": ("medlive.cli.curate:curate", "Filter and curate the threads that wait."),
    "worker": (
        "medlive.cli.operations.schedule:worker",
        "Do what is queued until stopped.",
    ),
    "jobs": (
        "medlive.cli.operations.jobs",
        "The job queue: list, check, retry, cancel.",
    ),
    "circuit": (
        "medlive.cli.operations.circuit",
        "Model endpoints that are not asked for a while: list, reset.",
    ),
    "scheduler": (
        "medlive.cli.operations.schedule:scheduler",
        "Take each weekly step when it is due, until stopped.",
    ),
    "serve": (
        "medlive.cli.operations.schedule:serve",
        "The public site and downloads; the audit room and the review desk.",
    ),
    "thread": (
        "medlive.cli.audit.thread",
        "Every decision about a thread, down to the sentence that it is based on.",
    ),
    "case": ("medlive.cli.audit.case", "The cases: list and filter them, show one."),
    "prompt": (
        "medlive.cli.audit.prompt",
        "The prompts: a task's template, or a stored request as it was sent.",
    ),
    "cost": (
        "medlive.cli.audit.cost:cost",
        "What engines cost in a week, by task, engine and source.",
    ),
    "status": (
        "medlive.cli.operations.status",
        "Where the threads are, what failed, what the week cost, what is due.",
    ),
    "doctor": (
        "medlive.cli.operations.doctor:doctor",
        "Try for real what a week needs, one line each.",
    ),
    "week": (
        "medlive.cli.operations.week",
        "One week: what came, fell, cost, was held, shipped.",
    ),
    "snapshot": (
        "medlive.cli.snapshot.group",
        "Snapshots: freeze, sign, verify, diff, withdraw, publish, fetch.",
    ),
    "review": (
        "medlive.cli.audit.review",
        "What people decide: approve, edit, reject, overrule, dispute.",
    ),
    "user": (
        "medlive.cli.operations.user",
        "Who may use the private pages: invite, list, role, disable, reset.",
    ),
    "audit": (
        "medlive.cli.audit.log",
        "Who did what: show the audit log, check that it is whole.",
    ),
    "eval": (
        "medlive.cli.evaluation.group",
        "Evaluate a model: run, grade, score, report, audit, bundle.",
    ),
    "site": (
        "medlive.cli.site",
        "The public site: build its static pages.",
    ),
    "llm": (
        "medlive.cli.llm",
        "Serve the rules engine as an OpenAI-compatible endpoint.",
    ),
    "config": (
        "medlive.cli.config",
        "The effective settings and where each comes from.",
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
    """The command line for these arguments: of the command they name all, of the others the help line."""
    words: list[str | None] = []
    values = iter(arguments)
    for word in values:
        if word in VALUED and not words:
            next(values, None)
        elif not word.startswith("-"):
            words.append(word)
    wanted, below, *_ = [*words, None, None]
    app = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        help="medlive: a weekly, checksummed benchmark of real clinical questions.",
        epilog=_EPILOG,
    )
    app.callback()(_root)
    for name, (module, text) in COMMANDS.items():
        if name != wanted:
            app.command(name, help=text)(lambda: None)
            continue
        place, _, function = module.partition(":")
        imported = importlib.import_module(place)
        if load := getattr(imported, "load", None):
            app.add_typer(load(below), name=name, help=text)
        elif function:
            command = grouped(getattr(imported, function))
            app.command(name, help=command.__doc__)(command)
        else:
            app.add_typer(imported.app, name=name, help=text)
    return app


def _version(value: bool) -> None:
    if value:
        from medlive import __version__

        typer.echo(f"medlive {__version__}")
        raise typer.Exit


def _root(
    config: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="The folder of the settings [MEDLIVE_CONFIG]."),
    ] = None,
    version: Annotated[
        bool,
        Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Log details and libraries' INFO lines.")
    ] = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Log only warnings and errors.")
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Option(envvar="MEDLIVE_LOG_LEVEL", help="The lowest level that is logged."),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], Option(envvar="MEDLIVE_LOG_FORMAT", help="Of stderr.")
    ] = "text",
) -> None:
    """medlive: a weekly, checksummed benchmark of real clinical questions."""
    if config:
        os.environ["MEDLIVE_CONFIG"] = str(config)
    level = None
    if log_level:
        level = logging.getLevelNamesMapping()[log_level.upper()]
    logs.configure(level, verbose=verbose, quiet=quiet, as_json=log_format == "json")
