"""`medlive db`, `backup` and `restore`: the database, and everything that cannot be made again as one folder."""

from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.options import DryRunOption
from medlive.cli.output import Grid, Result, echo, say, wait_for
from medlive.db import embedded
from medlive.db.schema.differences import find_differences
from medlive.db.schema.migrate import grant, prepare, read_plan
from medlive.errors import CheckFailed, SchemaUnsuitable, UsageError
from medlive.instance.loading import mask_url, read_settings
from medlive.service.backup.contents import public_keys
from medlive.service.backup.make import make_backup, upgrade_database
from medlive.service.backup.restore import check_backup, restore_backup, try_backup
from medlive.service.database import database_url

NoBackupOption = Annotated[
    bool,
    Option(help="Keep no copy of the database as it was: no way back."),
]


def start() -> None:
    """Start the embedded PostgreSQL when it is not running, make its tables, print its URL."""
    url = database_url(read_settings())
    prepare(url)
    echo(mask_url(url))


def stop() -> None:
    """Stop the embedded PostgreSQL; a second process that still uses it loses its connection."""
    settings = read_settings()
    if settings.database_url is not None:
        raise UsageError(
            "the settings name a server of yours; medlive stops only its embedded one"
        )
    say("stopped" if embedded.stop(settings.home) else "it was not running")


def url(
    show_password: bool = False,
) -> None:
    """Print the database's URL; starts the embedded PostgreSQL when it is not running.

    Args:
        show_password: Print the password, for another program.
    """
    # Other programs do not know SQLAlchemy's driver names.
    address = database_url(read_settings()).replace(
        "postgresql+psycopg:", "postgresql:"
    )
    echo(address if show_password else mask_url(address))


def upgrade(dry_run: DryRunOption = False, no_backup: NoBackupOption = False) -> Result:
    """Bring the schema up to this version; a copy of the database as it was stays under MEDLIVE_HOME/upgrades.

    To go back, restore it into an empty database with the earlier version.
    """
    settings = read_settings()
    if dry_run:
        plan = read_plan(database_url(settings))
        value = plan._asdict()
        if not plan.migrations:
            return Result(value, [f"already at {plan.head}"])
        notes = []
        if plan.revision:
            notes = [
                f"a copy of at most {plan.bytes / 1e6:.1f} MB is made first, as the way back",
                "stop the scheduler, the workers and the web before, and start this version's after it",
            ]
        title = f"from {plan.revision or 'an empty database'} to {plan.head}"
        return Result(
            value, [Grid(["migration", "what"], plan.migrations, title)], notes
        )
    done = wait_for(upgrade_database(settings, copy=not no_backup))
    state = "upgraded to" if done["migrations"] else "already at"
    notes = [f"{state} {done['head']}"]
    if done["copy"]:
        notes.append(f"as it was: {done['copy']}, for `medlive restore`")
    return Result(done, notes=notes)


def roles(no_backup: NoBackupOption = False) -> Result:
    """Upgrade the schema, and give the roles medlive_web and medlive_worker the least rights that they need.

    Roles that are missing are created without a login: CREATE ROLE name LOGIN PASSWORD '…' IN ROLE medlive_worker.
    """
    settings = read_settings()
    wait_for(upgrade_database(settings, copy=not no_backup))
    granted = grant(database_url(settings))
    return Result({"roles": granted}, notes=[f"granted: {', '.join(granted)}"])


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
    return Result(
        value,
        map(str, faults),
        failure=CheckFailed(text, hint=hint),
    )


def backup(
    out: Path,
) -> Result:
    """Write the database, raw pages, snapshots and keys into a folder; other processes may go on.

    It holds keys and patients' words: keep it where only you can read it. Evidence, the signing key and the key
    that signs backups are not in it. Keep the public key that is shown elsewhere: a restore asks for it.

    Args:
        out: The folder to write; it must not exist.
    """
    done = wait_for(make_backup(read_settings(), out))
    rows = sum(done["rows"].values())
    text = f"{out}: {rows} rows, {len(done['archives'])} files of pages, {len(done['snapshots'])} snapshots"
    signed = f"signed; keep its public key for a restore: {done['public_key']}"
    return Result(done, notes=[text, signed])


def restore(
    folder: Path,
    public_key: Annotated[list[str] | None, Option(metavar="KEY")] = None,
    unverified: bool = False,
    check: bool = False,
    scratch: bool = False,
) -> Result:
    """Restore a backup into this instance, which must be empty, after checking its signature and every digest.

    Without --public-key this instance's own `backup.key` must have signed it. Threads that were taken down since,
    as a later backup beside this one says, are taken down again.

    Args:
        folder: The backup.
        public_key: A key, or its file, that may have signed it; more than once for several.
        unverified: Ask for no signature: whoever wrote the folder can run any SQL here.
        check: Only check it: nothing is restored.
        scratch: With --check: restore it into a scratch database too, compare, and drop that.
    """
    if unverified and public_key:
        raise UsageError(
            "--unverified asks for no signature, --public-key for one",
            hint="give one of the two",
        )
    if scratch and not check:
        raise UsageError(
            "--scratch is part of a check", hint="--check --scratch, or neither"
        )
    settings = read_settings()
    keys = None if unverified else public_keys(settings, public_key or ())
    if check:
        if scratch:
            about = wait_for(try_backup(settings, folder, keys))
        else:
            about, _ = check_backup(folder, keys)
        text = f"the backup of {about.created_at.isoformat()} is whole"
        if not unverified:
            text += " and signed"
        if scratch:
            text += f", and its {sum(about.rows.values())} rows come back"
        return Result(about, notes=[text])
    done = wait_for(restore_backup(settings, folder, keys))
    notes = [f"taken down again: {name}" for name in done["taken_down"]]
    notes += [f"not applied: {reason}" for reason in done["skipped"]]
    text = f"restored the backup of {done['created_at']}: {sum(done['rows'].values())} rows"
    return Result(done, notes=[text, *notes])
