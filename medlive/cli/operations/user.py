"""`medlive user`: who may use the private pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Argument, Option

from medlive.cli.options import JsonOption, read_settings
from medlive.cli.output import (
    Grid,
    echo,
    in_minutes,
    render,
    say,
    with_session,
)
from medlive.db import accounts
from medlive.db.tables.accounts import Role
from medlive.service.paths import site_address

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, Argument(help="The account's name.")]


@dataclass(frozen=True, slots=True)
class _Accounts:
    """The accounts by name."""

    accounts: Sequence[accounts.Account]

    def as_json(self) -> object:
        """Everything but the rows' numbers."""
        return [
            {
                "name": account.name,
                "role": account.role,
                "subject": account.subject,
                "created_at": account.created_at,
                "signed_in_at": account.signed_in_at,
                "disabled_at": account.disabled_at,
            }
            for account in self.accounts
        ]

    def tables(self) -> Iterable[Grid]:
        """A row for each account."""
        columns = [
            "user",
            "role",
            "identity provider's",
            "made (UTC)",
            "last signed in (UTC)",
            "disabled (UTC)",
        ]
        rows = []
        for account in self.accounts:
            row = [
                account.name,
                account.role,
                account.subject,
                in_minutes(account.created_at),
                in_minutes(account.signed_in_at),
                in_minutes(account.disabled_at),
            ]
            rows.append(row)
        yield Grid(columns, rows)

    def remarks(self) -> Iterable[str]:
        """None."""
        return ()


@app.command()
def invite(
    name: NameArgument,
    role: Annotated[Role, Option(help="What it may do.")] = Role.VIEWER,
) -> None:
    """Make an account and print the one-time link by which its password is set within two days."""
    _print_link(with_session(lambda session: accounts.invite(session, name, role)))


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the accounts by name."""
    render(_Accounts(with_session(accounts.list_accounts)), as_json)


@app.command("role")
def set_role(
    name: NameArgument,
    role: Annotated[Role, Argument(help="What it may do from now on.")],
) -> None:
    """Give an account another role, from its next request on."""
    with_session(lambda session: accounts.set_role(session, name, role))
    say(f"{name} is {role.value} now")


@app.command()
def disable(name: NameArgument) -> None:
    """Sign an account out everywhere and let it in no more; `reset` lets it in again."""
    with_session(lambda session: accounts.disable(session, name))
    say(f"{name} is disabled")


@app.command()
def reset(name: NameArgument) -> None:
    """Forget an account's password, sign it out everywhere, and print a new one-time link."""
    _print_link(with_session(lambda session: accounts.reset(session, name)))


def _print_link(token: str) -> None:
    echo(f"{site_address(read_settings())}/invitation/{token}")
    say(
        "whoever opens this link first sets the account's password; it ends after two days"
    )
