"""`medlive user`: who may use the private pages."""

from typing import Annotated

from typer import Argument

from medlive.cli.output import Result, echo, list_result, say, with_session
from medlive.db import accounts
from medlive.db.tables.accounts import Role
from medlive.instance.loading import read_settings
from medlive.instance.paths import site_address

NameArgument = Annotated[str, Argument(help="The account's name.")]
_SHOWN = ("name", "role", "subject", "created_at", "signed_in_at", "disabled_at")


def invite(
    name: NameArgument,
    role: Role = Role.VIEWER,
) -> None:
    """Make an account and print the one-time link by which its password is set within two days.

    Args:
        role: What it may do.
    """
    _print_link(with_session(accounts.invite, name, role))


def list_() -> Result:
    """List the accounts by name; times are in UTC."""
    return list_result(with_session(accounts.list_accounts), _SHOWN)


def role(
    name: NameArgument,
    role: Role,
) -> None:
    """Give an account another role, from its next request on.

    Args:
        role: What it may do from now on.
    """
    with_session(accounts.set_role, name, role)
    say(f"{name} is {role.value} now")


def disable(name: NameArgument) -> None:
    """Sign an account out everywhere and let it in no more; `reset` lets it in again."""
    with_session(accounts.disable, name)
    say(f"{name} is disabled")


def reset(name: NameArgument) -> None:
    """Forget an account's password, sign it out everywhere, and print a new one-time link."""
    token = with_session(accounts.reset, name)
    if token is None:
        say(f"{name} may sign in at the identity provider again")
    else:
        _print_link(token)


def _print_link(token: str) -> None:
    echo(f"{site_address(read_settings())}/invitation/{token}")
    say(
        "whoever opens this link first sets the account's password; it ends after two days"
    )
