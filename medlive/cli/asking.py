"""What a command asks on the terminal before it does what cannot be undone, or costs money."""

import sys
from typing import Annotated, Final

import typer
from typer import Option

from medlive.errors import CheckFailed, UsageError

YesOption = Annotated[bool, Option("--yes", help="Do not ask; for scripts.")]
_UNDONE: Final = "nothing was changed"


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
