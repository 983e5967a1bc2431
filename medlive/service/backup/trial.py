"""Trying a backup: its dump is restored into a scratch database, compared with what the backup says, and dropped.

A backup whose digests are right may still not come back: the dump was cut short before it was signed, a program of
PostgreSQL is missing, the server is older. Only a restore shows it.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from medlive.config import Settings
from medlive.db.audit.health import data_directory
from medlive.db.backups import (
    count_rows,
    database_size,
    may_create_databases,
    scratch_database,
    server_version,
)
from medlive.db.release.snapshots import list_snapshots
from medlive.db.session import Database, advisory_lock
from medlive.db.tables.release import SnapshotRow, SnapshotState
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.signing import PublicKey
from medlive.service.backup.contents import SUMS
from medlive.service.backup.programs import BARE, run_program
from medlive.service.backup.restore import Checked, check_backup, private_dump
from medlive.service.database import database_url
from medlive.snapshot.identity import folder_name

_ROOM: Final = 2
"""A restore takes so many times the database's size: its tables and indexes, and the log of writing them."""
_BY_HAND: Final = "or `medlive restore FOLDER --check --scratch` on another machine and [backup] check = false"


class TrialImpossible(UsageError):
    """A backup cannot be restored into a scratch database of this server."""


async def try_backup(
    settings: Settings, folder: Path, keys: Sequence[PublicKey] | None
) -> Checked:
    """Check a backup's files, restore its dump into a scratch database, compare, and drop the database.

    Args:
        settings: The settings of the instance; the scratch database is made beside its own, which stays as it is.
        folder: The backup.
        keys: The keys of which one must have signed it; None to ask for no signature.

    Raises:
        CheckFailed: if none of these keys signed it, or what came back is not what it says.
        BadInput: if it is damaged.
        TrialImpossible: if this user may not create databases, or there is no room for another.
        ServiceUnavailable: if pg_restore fails.
        DatabaseUnavailable: without the server.
    """
    checked = await asyncio.to_thread(check_backup, folder, keys)
    async with (
        aclosing(Database.connect(database_url(settings))) as database,
        advisory_lock(database, "restore check") as is_alone,
    ):
        if not is_alone:
            raise TrialImpossible(
                "another backup is being tried", hint="wait for its end"
            )
        async with database.begin() as session:
            if not await may_create_databases(session):
                user = database.engine.url.username or "the database's user"
                raise TrialImpossible(
                    f"{user} may not create the scratch database",
                    hint=f"ALTER ROLE {user} CREATEDB; {_BY_HAND}",
                )
            place = await data_directory(session)
            needed = _ROOM * await database_size(session)
            version = await server_version(session)
        # On another machine it is not seen.
        if place is not None and await asyncio.to_thread(os.path.isdir, place):
            free = shutil.disk_usage(place).free - settings.watch.disk_free_gb * 1e9
            if free < needed:
                raise TrialImpossible(
                    f"{max(free, 0) / 1e9:.1f} GB are free for the scratch database,"
                    f" which may take {needed / 1e9:.1f}",
                    hint=f"make room at {place}; {_BY_HAND}",
                )
        async with (
            scratch_database(database) as url,
            private_dump(settings, folder, checked) as dump,
        ):
            scratch = settings.model_copy(update={"database_url": SecretStr(url)})
            options = ("--exit-on-error", *BARE)
            await run_program(scratch, "pg_restore", version, *options, dump)
            async with (
                aclosing(Database.connect(url)) as restored,
                restored.begin() as session,
            ):
                rows = await count_rows(session)
                snapshots = await list_snapshots(session)
    _compare(folder, checked, rows, snapshots)
    return checked


def _compare(
    folder: Path,
    checked: Checked,
    rows: Mapping[str, int],
    snapshots: Sequence[SnapshotRow],
) -> None:
    """Compare what came back with what the backup says, and with its snapshots' files. Raises CheckFailed."""
    wrong, expected = list[str](), checked.about.rows
    for table in sorted(expected.keys() | rows.keys()):
        if rows.get(table) != expected.get(table):
            counted = f"expected {expected.get(table)} rows, got {rows.get(table)}"
            wrong.append(f"table {table}: {counted}")
    for snapshot in snapshots:
        sums = f"snapshots/{folder_name(snapshot.version)}/{SUMS}"
        digest = checked.digests.get(sums)
        is_there = snapshot.state is SnapshotState.FROZEN and digest is not None
        if is_there and snapshot.sums_digest != f"sha256:{digest}":
            wrong.append(f"snapshot {snapshot.version}: its row names other files")
    for name in checked.about.archives:
        if f"archive/{name}" not in checked.digests:
            wrong.append(f"raw pages {name}: missing")
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckFailed(
            f"{folder} does not come back as it was written: {wrong[0]}{more}"
        )
