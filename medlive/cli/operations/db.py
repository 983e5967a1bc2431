"""`medlive db`: the database."""

import shutil
from typing import Annotated

from rich.text import Text
from typer import Option

from medlive.cli.options import Commands, DryRunOption, read_settings
from medlive.cli.output import Grid, Result, echo, say, wait_for
from medlive.db import embedded
from medlive.db.schema.differences import find_differences
from medlive.db.schema.migrate import grant, prepare, read_plan
from medlive.errors import CheckFailed, SchemaUnsuitable, UsageError
from medlive.instance.loading import mask_url
from medlive.service.backup.make import upgrade_database
from medlive.service.database import database_url

app = Commands()
NoBackupOption = Annotated[
    bool,
    Option("--no-backup", help="Keep no copy of the database as it was: no way back."),
]


@app.command()
def start() -> None:
    """Start the embedded PostgreSQL when it is not running, make its tables, print its URL."""
    url = database_url(read_settings())
    prepare(url)
    echo(mask_url(url))


@app.command()
def stop() -> None:
    """Stop the embedded PostgreSQL; a second process that still uses it loses its connection."""
    settings = read_settings()
    if settings.database_url is not None:
        raise UsageError(
            "the settings name a server of yours; medlive stops only its embedded one"
        )
    say("stopped" if embedded.stop(settings.home) else "it was not running")


@app.command()
def url(
    password: Annotated[bool, Option("--show-password")] = False,
) -> None:
    """Print the database's URL; starts the embedded PostgreSQL when it is not running.

    Args:
        password: Print the password, for another program.
    """
    # Other programs know no drivers.
    address = database_url(read_settings()).replace(
        "postgresql+psycopg:", "postgresql:"
    )
    echo(address if password else mask_url(address))


@app.command()
def upgrade(dry_run: DryRunOption = False, no_backup: NoBackupOption = False) -> Result:
    """Bring the schema up to this version; a copy of the database as it was stays under MEDLIVE_HOME/upgrades.

    To go back, restore it into an empty database with the earlier version.
    """
    settings = read_settings()
    if dry_run:
        plan = read_plan(database_url(settings))
        migrations = [{"number": n, "what": what} for n, what in plan.migrations]
        value = plan._asdict() | {"migrations": migrations}
        if not plan.migrations:
            return Result(value, [f"already at {plan.head}"])
        shown: list[Grid | Text | str] = [
            Grid(["migration", "what"], plan.migrations),
            f"from {plan.revision or 'an empty database'} to {plan.head}",
        ]
        if plan.revision:
            free = shutil.disk_usage(settings.home).free
            size, room = f"{plan.bytes / 1e6:.1f} MB", f"{free / 1e6:.0f} MB are free"
            shown += [
                f"a copy of at most {size} is made first, as the way back; {room}",
                "stop the scheduler, the workers and the web before, and start this version's after it",
            ]
        return Result(value, shown)
    done = wait_for(upgrade_database(settings, copy=not no_backup))
    state = "upgraded to" if done["migrations"] else "already at"
    notes = [f"{state} {done['head']}"]
    if done["copy"]:
        notes.append(f"as it was: {done['copy']}, for `medlive restore`")
    return Result(done, notes=notes)


@app.command()
def roles(no_backup: NoBackupOption = False) -> Result:
    """Upgrade the schema, and give the roles medlive_web and medlive_worker the least rights that they need.

    Roles that are missing are created without a login: CREATE ROLE name LOGIN PASSWORD '…' IN ROLE medlive_worker.
    """
    settings = read_settings()
    wait_for(upgrade_database(settings, copy=not no_backup))
    granted = grant(database_url(settings))
    return Result({"roles": granted}, notes=[f"granted: {', '.join(granted)}"])


@app.command()
def check() -> Result:
    """Compare the schema with the model; exit status 1 when they differ."""
    url = database_url(read_settings())
    faults = find_differences(url)
    value = {"differences": faults}
    if not faults:
        return Result(value, notes=["schema and model agree"])
    # An upgrade helps only where one is pending.
    hint = "the schema is the newest, so somebody changed it by hand: undo that, or restore a backup"
    try:
        if read_plan(url).migrations:
            hint = "medlive db upgrade"
    except SchemaUnsuitable:
        hint = "install the medlive that upgraded it; this one is older than the schema"
    text = f"{len(faults)} differences between schema and model"
    return Result(value, map(str, faults), failure=CheckFailed(text, hint=hint))
