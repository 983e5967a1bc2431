"""`medlive db`: the database."""

import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.options import Commands, DryRunOption
from medlive.cli.output import Grid, Result, echo, say, wait_for
from medlive.errors import CheckFailed, SchemaUnsuitable, UsageError
from medlive.instance.loading import load_settings, mask_url

if TYPE_CHECKING:
    from medlive.db.schema.pending import Plan

app = Commands()
NoBackupOption = Annotated[
    bool,
    Option("--no-backup", help="Keep no copy of the database as it was: no way back."),
]


@app.command()
def start() -> None:
    """Start the embedded PostgreSQL when it is not running, make its tables, print its URL."""
    from medlive.db.schema.migrate import prepare
    from medlive.service.database import database_url

    url = database_url(load_settings().settings)
    prepare(url)
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
def serve() -> None:
    """Keep the embedded PostgreSQL running in the foreground until SIGTERM, as a unit of its own wants it.

    From then on it is started by this command alone, until `medlive db stop`.
    """
    from medlive.db.embedded import serve as keep_running

    settings = load_settings().settings
    if settings.database_url is not None:
        raise UsageError("the settings name a server of yours", hint="it needs no unit")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    keep_running(settings.home, stop)


@app.command()
def url(
    password: Annotated[bool, Option("--show-password")] = False,
) -> None:
    """Print the database's URL; starts the embedded PostgreSQL when it is not running.

    Args:
        password: Print the password, for another program.
    """
    from medlive.service.database import database_url

    address = database_url(load_settings().settings)
    echo(address if password else mask_url(address))


@app.command()
def upgrade(dry_run: DryRunOption = False, no_backup: NoBackupOption = False) -> Result:
    """Bring the schema up to this version; a copy of the database as it was stays under MEDLIVE_HOME/upgrades.

    `medlive db downgrade COPY` goes back to it.
    """
    from medlive.service.backup.upgrade import plan_upgrade, upgrade_database

    settings = load_settings().settings
    if dry_run:
        plan = plan_upgrade(settings)
        return Result(_plan_as_json(plan), _describe_plan(plan, settings.home))
    done = wait_for(upgrade_database(settings, copy=not no_backup))
    notes = [
        f"upgraded to {done['head']}"
        if done["migrations"]
        else f"already at {done['head']}"
    ]
    if done["copy"] is not None:
        notes.append(f"the way back: medlive db downgrade {done['copy']}")
    return Result(done, notes=notes)


@app.command()
def downgrade(
    copy: Path,
    public_key: Annotated[list[str] | None, Option(metavar="KEY")] = None,
) -> Result:
    """Put the database back to the copy that an upgrade made; what was written since is lost.

    Stop everything first, and install the earlier version afterwards: this one does not work with that schema.

    Args:
        copy: The copy that an upgrade left.
        public_key: A key, or its file, that may have signed it.
    """
    from medlive.service.backup.seal import public_keys
    from medlive.service.backup.upgrade import go_back

    settings = load_settings().settings
    keys = public_keys(settings, public_key or ())
    done = wait_for(go_back(settings, copy, keys))
    notes = [
        f"at {done['revision']} again, with {done['rows']} rows",
        f"install medlive {done['medlive']}, run its `medlive db roles` where it had roles, and start it",
    ]
    for thread in done["taken_down"]:
        notes.append(f"{thread} was taken down since and is back: take it down again")
    return Result(done, notes=notes)


@app.command()
def roles(no_backup: NoBackupOption = False) -> Result:
    """Upgrade the schema, and give the roles medlive_web and medlive_worker the least rights that they need.

    Roles that are missing are created without a login: CREATE ROLE name LOGIN PASSWORD '…' IN ROLE medlive_worker.
    """
    from medlive.db.schema.roles import grant
    from medlive.service.backup.upgrade import upgrade_database
    from medlive.service.database import database_url

    settings = load_settings().settings
    wait_for(upgrade_database(settings, copy=not no_backup))
    granted = grant(database_url(settings))
    return Result({"roles": granted}, notes=[f"granted: {', '.join(granted)}"])


def _plan_as_json(plan: "Plan") -> dict[str, object]:
    migrations = [pending._asdict() for pending in plan.migrations]
    return plan._asdict() | {"migrations": migrations}


def _describe_plan(plan: "Plan", home: Path) -> Iterator[Grid | str]:
    if not plan.migrations:
        yield f"already at {plan.head}"
        return
    yield Grid(["migration", "what"], plan.migrations)
    free = shutil.disk_usage(home).free
    yield f"from {plan.revision or 'an empty database'} to {plan.head}"
    if plan.revision is not None:
        size, room = f"{plan.bytes / 1e6:.1f} MB", f"{free / 1e6:.0f} MB are free"
        yield f"a copy of at most {size} is made first, as the way back; {room}"
        yield (
            f"{plan.connections} others are connected: stop the scheduler, the workers and the web before,"
            " and start this version's after it"
        )


@app.command()
def check() -> Result:
    """Compare the schema with the model; exit status 1 when they differ."""
    from medlive.db.schema.differences import find_differences
    from medlive.service.database import database_url

    url = database_url(load_settings().settings)
    faults = find_differences(url)
    value = {"differences": faults}
    if not faults:
        return Result(value, notes=["schema and model agree"])
    failure = CheckFailed(
        f"{len(faults)} differences between schema and model", hint=_find_remedy(url)
    )
    return Result(value, map(str, faults), failure=failure)


def _find_remedy(url: str) -> str:
    """What helps where schema and model differ: an upgrade only where one is pending."""
    from medlive.db.schema.pending import read_plan

    try:
        plan = read_plan(url)
    except SchemaUnsuitable:
        return "install the medlive that upgraded it; this one is older than the schema"
    if plan.migrations:
        return "medlive db upgrade"
    return "the schema is the newest, so somebody changed it by hand: undo that, or restore a backup"
