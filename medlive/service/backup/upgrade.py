"""An upgrade of the schema, what it would do, and the way back: a signed copy of the database as it was.

No migration has a way back of its own: what one turned into other rows could not be had back exactly, and a path
that nobody takes is wrong when it is needed. The copy is the database alone, for an upgrade changes no file.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db.backups import count_rows, list_takedowns, server_version
from medlive.db.schema.migrate import upgrade as migrate
from medlive.db.schema.pending import Plan, count_others, empty_schema, read_plan
from medlive.db.schema.revisions import check_known, connect, read_revision
from medlive.db.session import Database
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.folder import writing_to
from medlive.integrity.paths import PRIVATE_FOLDER
from medlive.integrity.signing import PublicKey
from medlive.service.backup.make import copy_database
from medlive.service.backup.programs import WHOLE, run_program
from medlive.service.backup.restore import check_backup, private_dump
from medlive.service.database import database_url


def plan_upgrade(settings: Settings) -> Plan:
    """What an upgrade would do; nothing is changed.

    Raises:
        DatabaseUnavailable: without the database.
        ConfigError: where it is newer than this program.
    """
    return read_plan(database_url(settings))


async def upgrade_database(settings: Settings, *, copy: bool) -> dict[str, Any]:
    """Bring the schema to this version, after a copy of a database that is in use.

    Args:
        settings: The settings.
        copy: Whether to make the copy.

    Returns:
        "was" and "head", the revisions before (None: the database was empty) and after; "migrations", how many
        were made; "copy", its folder or None.

    Raises:
        ConfigError: where the database is newer than this program.
        DatabaseUnavailable: without the database, or while another process holds a lock.
        DiskFull: where the copy has no room; nothing was upgraded.
        ServiceUnavailable: where pg_dump fails; nothing was upgraded.
    """
    url = database_url(settings)
    plan = await asyncio.to_thread(read_plan, url)
    out = None
    if plan.migrations and plan.revision is not None and copy:
        name = f"{plan.revision}-{now():%Y%m%dT%H%M%SZ}"
        out = settings.home / "upgrades" / name
        with writing_to(out):
            out.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        await copy_database(settings, plan.revision, out)
    await asyncio.to_thread(migrate, url)
    return {
        "was": plan.revision,
        "head": plan.head,
        "migrations": len(plan.migrations),
        "copy": out,
    }


async def go_back(
    settings: Settings, folder: Path, keys: Sequence[PublicKey]
) -> dict[str, Any]:
    """Put the database back to what a copy holds; what was written since is gone.

    Args:
        settings: The settings.
        folder: The copy, as an upgrade left it.
        keys: The keys of which one must have signed it.

    Returns:
        "revision" and "medlive", the version that made the copy; "rows"; "taken_down", the threads (SOURCE/ID)
        that were taken down since the copy and are there again.

    Raises:
        CheckFailed: if none of these keys signed it.
        BadInput: if it is damaged.
        UsageError: while others are connected, and for a database that was not upgraded.
        ServiceUnavailable: if pg_restore fails; the database is empty then, and this can be run again.
        DatabaseUnavailable: without the database.
    """
    checked = await asyncio.to_thread(check_backup, folder, keys)
    about, url = checked.about, database_url(settings)
    check_known(about.schema_revision)
    if await asyncio.to_thread(_revision, url) == about.schema_revision:
        raise UsageError(
            f"the database is at {about.schema_revision} as it is, nothing to go back from"
        )
    async with aclosing(Database.connect(url)) as database:
        async with database.begin() as session:
            if others := await count_others(session):
                raise UsageError(
                    f"{others} others are connected to the database",
                    hint="stop the scheduler, the workers and the web first",
                )
            version = await server_version(session)
            # An earlier try may have left it empty.
            is_empty = not await count_rows(session)
            erased = {} if is_empty else await list_takedowns(session)
        async with private_dump(settings, folder, checked) as dump:
            async with database.begin() as session:
                await empty_schema(session)
            await run_program(settings, "pg_restore", version, *WHOLE, dump)
        async with database.begin() as session:
            rows = await count_rows(session)
            back = erased.keys() - (await list_takedowns(session)).keys()
    if rows != about.rows:
        raise CheckFailed("what came back is not what the copy says")
    return {
        "revision": about.schema_revision,
        "medlive": about.medlive,
        "rows": sum(rows.values()),
        "taken_down": sorted(map("/".join, back)),
    }


def _revision(url: str) -> str | None:
    with connect(url) as connection:
        return read_revision(connection)
