"""An upgrade of the schema, what it would do, and the way back: a signed copy of the database, to be restored.

The copy is the database alone, for an upgrade changes no file.
"""

import asyncio
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db.schema.migrate import upgrade as migrate
from medlive.db.schema.revisions import Plan, read_plan
from medlive.integrity.log import writing
from medlive.integrity.paths import PRIVATE_FOLDER
from medlive.service.backup.make import copy_database
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
        with writing(out):
            out.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        await copy_database(settings, plan.revision, out)
    await asyncio.to_thread(migrate, url)
    return {
        "was": plan.revision,
        "head": plan.head,
        "migrations": len(plan.migrations),
        "copy": out,
    }
