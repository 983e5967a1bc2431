"""Open the configured or the embedded database, go on after its outages (`outlast`), and make this instance's keys."""

import asyncio
import logging
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from medlive.config import Settings
from medlive.db import embedded
from medlive.db.schema.migrate import prepare
from medlive.db.session import Database, check_room, parse_url, ping
from medlive.errors import (
    ConfigError,
    DatabaseForbidden,
    DatabaseFull,
    DatabaseUnavailable,
)
from medlive.home import close_home
from medlive.integrity.paths import PRIVATE_FOLDER

from .waiting import Liveness, rest

T = TypeVar("T")
_log = logging.getLogger(__name__)
RETRY_S = 3.0
"""Seconds between looks for a lost database."""
MOST_RETRY_S = 60.0
"""The longest wait, in seconds, before work that the database stops again and again is begun again."""
WATCH_S = 10.0
"""Seconds between the web's looks whether the database is there; requests find out by themselves."""


def database_url(settings: Settings) -> str:
    """The URL of the configured server, or of the embedded one, started if necessary."""
    if settings.database_url is not None:
        return parse_url(settings.database_url.get_secret_value()).render_as_string(
            hide_password=False
        )
    return embedded.start(settings.home)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database, whose tables are made where it is empty.

    Raises:
        ConfigError: where its schema is not this version's.
        DatabaseUnavailable: without the database.
    """
    home = settings.home
    closed, left = (
        ", ".join(path.name for path in paths) for paths in close_home(home)
    )
    if closed:
        _log.warning("other users could read these in %s; no longer: %s", home, closed)
    if left:
        _log.warning(
            "other users can read these in %s: %s; run chmod go= on them", home, left
        )
    url = database_url(settings)
    prepare(url)
    database = Database.connect(url)
    try:
        yield database
    finally:
        await database.aclose()


async def outlast(
    settings: Settings,
    work: Callable[[], Awaitable[T]],
    stop: asyncio.Event,
    health: Liveness | None = None,
) -> T:
    """Return what `work` returns; when the database stops it, wait until that can be used, and begin `work` again.

    Args:
        settings: The settings.
        work: What is done, from its beginning each time.
        stop: Ends the waiting when set.
        health: Gets what the process waits for.

    Raises:
        DatabaseUnavailable: when the database, or its tables, are not there when `stop` is set.
        DatabaseForbidden: when `stop` is set while a right is missing.
    """
    health = health or Liveness()
    wait_s, message = RETRY_S / 2, ""

    while True:
        began = time.monotonic()
        try:
            return await work()
        except (DatabaseUnavailable, DatabaseForbidden) as error:
            wait_s = min(2 * wait_s, MOST_RETRY_S)
            if time.monotonic() - began > MOST_RETRY_S:
                wait_s, message = RETRY_S, ""  # a new trouble
            if error.message != message:
                _log.warning(
                    "%s; going on when the database can be used", error.message
                )
            message = health.waiting = error.message
            await rest(stop, wait_s)
            while not stop.is_set() and not await _is_usable(settings, error):
                await rest(stop, RETRY_S)
            if stop.is_set():
                raise
            health.waiting = None
            _log.warning("the database can be used again")


async def _is_usable(settings: Settings, trouble: Exception) -> bool:
    """Whether the database answers, and has room where that was the trouble; the embedded one is started first."""
    try:
        async with open_database(settings) as database:
            if isinstance(trouble, DatabaseFull):
                await check_room(database)
            else:
                await database.ask(ping)
    except DatabaseUnavailable:
        return False
    except DatabaseForbidden:
        return True  # who may not write so much may still do its work
    return True


async def keep_reachable(settings: Settings, stop: asyncio.Event) -> None:
    """Look every WATCH_S whether the database is there, until `stop` is set; start an embedded one that has gone."""

    async def watch() -> None:
        async with open_database(settings) as database:
            while not stop.is_set():
                await database.ask(ping)
                await rest(stop, WATCH_S)

    with suppress(DatabaseUnavailable):
        await outlast(settings, watch, stop)


def handle_key(settings: Settings) -> bytes:
    """This instance's key for hashing authors' handles. Raises ConfigError for a file that is too short."""
    return instance_key(settings, "handle.key")


def instance_key(settings: Settings, name: str) -> bytes:
    """A key of this instance: created once, readable by its owner only.

    Raises ConfigError for a file that others may read, or that is too short: what it hashes or signs could be
    guessed.
    """
    path = settings.home / name
    if not path.exists():
        # Where another process was first, its key is the key.
        create_key_file(path, secrets.token_hex(32))
    if path.stat().st_mode & 0o077:
        raise ConfigError(
            f"{path} can be read by others than its owner", hint=f"run chmod 600 {path}"
        )
    key = path.read_bytes()
    if len(key) < 32:
        raise ConfigError(
            f"{path} does not contain a key",
            hint="restore it from a backup",
        )
    return key


def create_key_file(path: Path, text: str) -> bool:
    """Write a new file for its owner alone; return False where there is one already, which stays.

    It is linked when it is complete, so that neither a kill nor a second process sees half a key.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(draft, path)
            return True
        return False
    finally:
        os.unlink(draft)
