"""An upgrade of the schema, what it would do, and the way back: a signed copy of the database as it was.

No migration has a way back of its own: what one turned into other rows could not be had back exactly, and a path
that nobody takes is wrong when it is needed. The copy is the database alone, for an upgrade changes no file.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from medlive.clock import now
from medlive.config import Settings
from medlive.db.backups import count_rows, list_takedowns, server_version
from medlive.db.schema.migrate import upgrade as migrate
from medlive.db.schema.pending import Plan, count_others, empty_schema, read_plan
from medlive.db.schema.revisions import check_known, connect, read_revision
from medlive.db.session import Database, Session
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.log import writing
from medlive.integrity.paths import PRIVATE_FOLDER
from medlive.integrity.signing import PublicKey
from medlive.service.backup.make import copy_database
from medlive.service.backup.programs import WHOLE, run_program
from medlive.service.backup.restore import check_backup, private_dump
from medlive.service.database import database_url


class Upgraded(NamedTuple):
    """An upgrade that was done."""

    was: str | None  # The revision before; None: the database was empty
    head: str
    migrations: int
    copy: Path | None


class WentBack(NamedTuple):
    """A database that is again as a copy holds it."""

    revision: str
    medlive: str  # The version that made the copy
    rows: int
    taken_down: Sequence[str]
    """Threads that were taken down since the copy, and are there again."""


def plan_upgrade(settings: Settings) -> Plan:
    """What an upgrade would do; nothing is changed.

    Raises:
        DatabaseUnavailable: without the database.
        ConfigError: where it is newer than this program.
    """
    return read_plan(database_url(settings))


async def upgrade_database(settings: Settings, *, copy: bool) -> Upgraded:
    """Bring the schema to this version, after a copy of a database that is in use.

    Args:
        settings: The settings.
        copy: Whether to make the copy.

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
        with writing(out):
            out.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        await copy_database(settings, plan.revision, out)
    await asyncio.to_thread(migrate, url)
    return Upgraded(plan.revision, plan.head, len(plan.migrations), out)


async def go_back(
    settings: Settings, folder: Path, keys: Sequence[PublicKey]
) -> WentBack:
    """Put the database back to what a copy holds; what was written since is gone.

    Args:
        settings: The settings.
        folder: The copy, as an upgrade left it.
        keys: The keys of which one must have signed it.

    Raises:
        CheckFailed: if none of these keys signed it.
        BadInput: if it is damaged.
        UsageError: while others are connected, and for a database that was not upgraded.
        ServiceUnavailable: if pg_restore fails; the database is empty then, and this can be run again.
        DatabaseUnavailable: without the database.
    """
    checked = await asyncio.to_thread(check_backup, folder, keys)
    before, url = checked.about.schema_revision, database_url(settings)
    check_known(before)
    if await asyncio.to_thread(_revision, url) == before:
        raise UsageError(
            f"the database is at {before} as it is, nothing to go back from"
        )
    async with aclosing(Database.connect(url)) as database:
        async with database.begin() as session:
            if others := await count_others(session):
                raise UsageError(
                    f"{others} others are connected to the database",
                    hint="stop the scheduler, the workers and the web first",
                )
            version = await server_version(session)
            erased = await _erased(session)
        async with private_dump(settings, folder, checked) as dump:
            async with database.begin() as session:
                await empty_schema(session)
            await run_program(
                settings,
                "pg_restore",
                version,
                *WHOLE,
                dump,
            )
        async with database.begin() as session:
            rows = await count_rows(session)
            back = erased - await _erased(session)
    if rows != checked.about.rows:
        raise CheckFailed("what came back is not what the copy says")
    return WentBack(
        revision=before,
        medlive=checked.about.medlive,
        rows=sum(rows.values()),
        taken_down=sorted(back),
    )


def _revision(url: str) -> str | None:
    with connect(url) as connection:
        return read_revision(connection)


async def _erased(session: Session) -> set[str]:
    """SOURCE/ID of every erased thread; empty for a database without tables."""
    if not await count_rows(session):
        return set()
    return set(map("/".join, await list_takedowns(session)))
