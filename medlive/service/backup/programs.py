"""PostgreSQL's own programs for dumps, run on this instance's database."""

import asyncio
import errno
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Final

from medlive.config import Settings
from medlive.db.embedded import find_program
from medlive.db.session import connection_url
from medlive.errors import DiskFull, ServiceUnavailable
from medlive.guard.child_environment import LIBPQ, child_environment
from medlive.service.database import database_url

BARE: Final = ("--no-owner", "--no-acl")
"""Rights belong to the server; `medlive db roles` gives them anew."""
WHOLE: Final = ("--exit-on-error", "--single-transaction", *BARE)
"""A restore of all or nothing."""


async def run_program(
    settings: Settings, name: str, server: int, *options: str
) -> None:
    """Run one of PostgreSQL's programs on this instance's database.

    Args:
        settings: The settings, which name the database.
        name: `pg_dump` or `pg_restore`.
        server: The server's major version.
        options: The program's options besides the database.

    Raises:
        ServiceUnavailable: if it fails.
        DiskFull: if no space is left.
    """
    url = connection_url(database_url(settings)).set(drivername="postgresql")
    secret = {"PGPASSWORD": url.password} if url.password else {}
    shown = url.set(password=None).render_as_string(hide_password=False)
    command: list[str | Path] = [
        find_program(name, server),
        *options,
        f"--dbname={shown}",
    ]
    running = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=child_environment(*LIBPQ, values=secret),
    )
    try:
        _, output = await running.communicate()
    except asyncio.CancelledError:
        running.kill()
        raise
    if running.returncode:
        lines = output.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error:" in line), lines[-1])
        hint = "it needs the database's owner, and to restore a PostgreSQL as new as the backup's"
        if os.strerror(errno.ENOSPC) in reason:
            raise DiskFull(
                f"{name} failed: {reason}", hint="free some space and run this again"
            )
        raise ServiceUnavailable(f"{name} failed: {reason}", hint=hint)
