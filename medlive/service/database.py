"""Which database a run uses, and this instance's key."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from medlive.config import Settings
from medlive.db import embedded
from medlive.db.migrate import upgrade
from medlive.db.session import Database, parse_url


def database_url(settings: Settings) -> str:
    """The configured server's URL, or the embedded one's, started when it is not running."""
    if settings.database_url is not None:
        return parse_url(settings.database_url.get_secret_value()).render_as_string(hide_password=False)
    return embedded.start(settings.home)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database, migrated to this version's schema. Raises DatabaseUnavailable."""
    url = database_url(settings)
    upgrade(url)
    database = Database.connect(url)
    try:
        yield database
    finally:
        await database.aclose()


def handle_key(settings: Settings) -> bytes:
    """This instance's key for hashing authors' handles: made once, readable by its owner alone."""
    path = settings.home / "handle.key"
    if not path.exists():
        settings.home.mkdir(parents=True, exist_ok=True)
        descriptor = None
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, secrets.token_hex(32).encode())
        except FileExistsError:
            pass  # another process made it in between: its key is the key
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return path.read_bytes()
