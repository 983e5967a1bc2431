"""`medlive snapshot`: frozen snapshots."""

import typer

from medlive.cli.options import load_group

COMMANDS = {
    "freeze": "release:freeze",
    "rebuild": "release:rebuild",
    "list": "reading:list_",
    "show": "reading:show",
    "verify": "reading:verify",
    "keygen": "reading:keygen",
    "publish": "release:publish",
    "fetch": "reading:fetch",
    "penalties": "penalties:penalties",
    "withdraw": "release:withdraw",
    "reinstate": "release:reinstate",
    "diff": "reading:diff",
    "export": "reading:export",
}


def load(wanted: str | None) -> typer.Typer:
    """The group, as `load_group` imports it."""
    return load_group("medlive.cli.snapshot", COMMANDS, wanted)
