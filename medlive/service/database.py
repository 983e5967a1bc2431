"""The database of a run, and this instance's key."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from medlive.config import Settings
from medlive.db import embedded
from medlive.db.migrate import upgrade
from medlive.db.session import Database, parse_url, ping
from medlive.errors import ConfigError, DatabaseUnavailable
from medlive.home import close_home
from medlive.service.key_files import create_key_file

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)
RETRY_S: Final = 3.0
"""How often a lost database is looked for."""
WATCH_S: Final = 10.0
"""How often the web looks whether it still has the database; requests find out by themselves."""


def database_url(settings: Settings) -> str:
    """The URL of the configured server, or of the embedded one, started if necessary."""
    if settings.database_url is not None:
        return parse_url(settings.database_url.get_secret_value()).render_as_string(hide_password=False)
    return embedded.start(settings.home)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database, migrated to this version's schema. Raises DatabaseUnavailable."""
    _close_home(settings)
    url = database_url(settings)
    upgrade(url)
    database = Database.connect(url)
    try:
        yield database
    finally:
        await database.aclose()


async def outlast(settings: Settings, work: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T:
    """Do `work` to its end; where it loses the database, begin it again once that is back, unless `stop` is set.

    Raises DatabaseUnavailable when the database was not there to begin with, or is not when `stop` is set.
    """
    async with open_database(settings):
        pass
    while True:
        try:
            return await work()
        except DatabaseUnavailable as error:
            _log.warning("%s; going on when the database is back", error.message)
            while not await is_reachable(settings):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RETRY_S)
                if stop.is_set():
                    raise
            _log.warning("the database is back")


async def keep_reachable(settings: Settings, stop: asyncio.Event) -> None:
    """Watch the database until `stop` is set, and start the embedded one again when it has gone."""

    async def watch() -> None:
        async with open_database(settings) as database:
            while not stop.is_set():
                async with database.begin() as session:
                    await ping(session)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), WATCH_S)

    with suppress(DatabaseUnavailable):
        await outlast(settings, watch, stop)


async def is_reachable(settings: Settings) -> bool:
    """Whether the database answers; the embedded one is started if necessary."""
    try:
        async with open_database(settings) as database, database.begin() as session:
            await ping(session)
    except DatabaseUnavailable:
        return False
    return True


def _close_home(settings: Settings) -> None:
    closed, left = close_home(settings.home)
    if closed:
        names = ", ".join(path.name for path in closed)
        _log.warning("other users could read these in %s; no longer: %s", settings.home, names)
    if left:
        names = ", ".join(path.name for path in left)
        _log.warning("other users can read these in %s: %s; run chmod go= on them", settings.home, names)


def handle_key(settings: Settings) -> bytes:
    """This instance's key for hashing authors' handles. Raises ConfigError for a file that is too short."""
    return instance_key(settings, "handle.key", "every handle is another")


def instance_key(settings: Settings, name: str, if_lost: str) -> bytes:
    """A key of this instance: created once, readable by its owner only; `if_lost` says what another one costs.

    Raises ConfigError for a file that others may read, or that is too short: what it hashes or signs could be
    guessed.
    """
    path = settings.home / name
    if not path.exists():
        create_key_file(path, secrets.token_hex(32))  # where another process was first, its key is the key
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others than its owner", hint=f"run chmod 600 {path}")
    key = path.read_bytes()
    if len(key) < 32:
        raise ConfigError(
            f"{path} does not contain a key", hint=f"restore it from a backup: with a new key {if_lost}"
        )
    return key
