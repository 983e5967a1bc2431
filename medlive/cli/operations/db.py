"""`medlive db`: the database."""

from typing import Annotated

import typer
from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import echo, print_result, print_table, say
from medlive.config import load_settings, mask_url
from medlive.errors import CheckFailed, UsageError

app = typer.Typer(no_args_is_help=True)


@app.command()
def start() -> None:
    """Start the embedded PostgreSQL when it is not running, bring it up to this version, print its URL."""
    from medlive.db.migrate import upgrade as migrate
    from medlive.service.database import database_url

    url = database_url(load_settings().settings)
    migrate(url)
    echo(mask_url(url))


@app.command()
def stop() -> None:
    """Stop the embedded PostgreSQL; a second process that still uses it loses its connection."""
    from medlive.db import embedded

    settings = load_settings().settings
    if settings.database_url is not None:
        raise UsageError(
            "the settings name a server of yours; medlive stops only its embedded one"
        )
    say("stopped" if embedded.stop(settings.home) else "it was not running")


@app.command()
def url(
    password: Annotated[
        bool, Option("--show-password", help="Print the password, for another program.")
    ] = False,
) -> None:
    """Print the database's URL; starts the embedded PostgreSQL when it is not running."""
    from medlive.service.database import database_url

    found = database_url(load_settings().settings)
    echo(found if password else mask_url(found))


@app.command()
def upgrade() -> None:
    """Bring the schema up to this version; does nothing if it is up to date."""
    from medlive.db.migrate import head
    from medlive.db.migrate import upgrade as migrate
    from medlive.service.database import database_url

    changed = migrate(database_url(load_settings().settings))
    say(f"upgraded to {head()}" if changed else f"already at {head()}")


@app.command()
def roles(as_json: JsonOption = False) -> None:
    """Upgrade the schema, and give the roles medlive_web and medlive_worker the least rights that they need.

    Roles that are missing are created without a login: CREATE ROLE name LOGIN PASSWORD '…' IN ROLE medlive_worker.
    """
    from medlive.db.migrate import upgrade as migrate
    from medlive.db.roles import grant
    from medlive.service.database import database_url

    url = database_url(load_settings().settings)
    migrate(url)
    granted = grant(url)
    print_result(
        {"roles": granted}, as_json, lambda: say(f"granted: {', '.join(granted)}")
    )


@app.command()
def check(as_json: JsonOption = False) -> None:
    """Compare the schema with the model; exit status 1 when they differ."""
    from medlive.db.migrate import check as differences
    from medlive.service.database import database_url

    url = database_url(load_settings().settings)
    found = differences(url)
    failure = CheckFailed(
        f"{len(found)} differences between schema and model", hint=_find_remedy(url)
    )
    print_result(
        {"differences": found},
        as_json,
        lambda: (
            print_table(["difference"], [[f] for f in found])
            if found
            else say("schema and model agree")
        ),
        failure=failure if found else None,
    )


def _find_remedy(url: str) -> str:
    """What helps where schema and model differ: an upgrade only where one is pending."""
    from medlive.db.migrate import is_newer, is_newest

    if is_newer(url):
        return "install the medlive that upgraded it; this one is older than the schema"
    if not is_newest(url):
        return "medlive db upgrade"
    return "the schema is the newest, so somebody changed it by hand: undo that, or restore a backup"
