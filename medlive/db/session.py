"""The database as the service sees it: one pool, sessions that commit as a whole, errors without secrets."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from sqlalchemy import URL, exc, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from medlive.db.unstorable import dump_json, load_json
from medlive.errors import ConfigError, DatabaseUnavailable, MissingExtra

Session = AsyncSession
"""What stores are given: a transaction that ends as a whole."""
Connection = AsyncConnection

POOL_SIZE = 16
"""Most connections of one process; what runs beside them waits its turn."""
_POOL_WAIT_SECONDS = 120
_CONNECT_SECONDS = 10
_SCHEMES = {"postgres", "postgresql", "postgresql+psycopg"}
# Besides class 08 (connection exceptions) and 28 (authorisation): shutting down, crashed, starting, too many
# connections, no such database.
_AWAY = {"57P01", "57P02", "57P03", "53300", "3D000"}


def parse_url(url: str) -> URL:
    """The URL with psycopg 3 as its driver; `postgres://…` and `postgresql://…` are taken as the same.

    Raises ConfigError, without repeating the URL, when it is not PostgreSQL's.
    """
    hint = "it reads postgresql://user:password@host:port/database"
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise ConfigError("the database URL cannot be read", hint=hint) from error
    if parsed.drivername not in _SCHEMES:
        raise ConfigError("the database URL is not one of PostgreSQL", hint=hint)
    return parsed.set(drivername="postgresql+psycopg")


def connect_arguments() -> dict[str, object]:
    """What every connection asks for, sync or async: dates in UTC, a bounded wait, a name to be seen by."""
    return {"connect_timeout": _CONNECT_SECONDS, "options": "-c timezone=UTC", "application_name": "medlive"}


def unavailable(url: URL, error: BaseException) -> DatabaseUnavailable:
    """The error that a user meets: the host and the server's words, never the password."""
    host = url.host or url.query.get("host") or "the default host"
    words = str(getattr(error, "orig", None) or error).strip().splitlines()
    reason = words[0] if words else type(error).__name__
    if url.password:
        reason = reason.replace(str(url.password), "***")
    return DatabaseUnavailable(
        f"the database {url.database or ''} at {host} cannot be used: {reason}",
        hint="`medlive db start` starts the embedded one; MEDLIVE_DATABASE_URL names another",
    )


def is_unavailable(error: exc.DBAPIError) -> bool:
    """Whether the database was away, rather than a statement wrong."""
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, exc.OperationalError | exc.InterfaceError)
    return state[:2] in {"08", "28"} or state in _AWAY


class Database:
    """The pool of connections to one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Use `connect`."""
        self._engine = engine
        self._sessions = async_sessionmaker(engine, expire_on_commit=False)

    @classmethod
    def connect(cls, url: str) -> "Database":
        """A pool of at most POOL_SIZE connections; the first is opened when the first session needs it.

        Raises ConfigError for a URL that is not PostgreSQL's and MissingExtra without the driver.
        """
        parsed = parse_url(url)
        try:
            engine = create_async_engine(
                parsed,
                pool_size=POOL_SIZE,
                max_overflow=0,
                pool_timeout=_POOL_WAIT_SECONDS,
                pool_pre_ping=True,
                json_serializer=dump_json,
                json_deserializer=load_json,
                connect_args=connect_arguments(),
            )
        except ImportError as error:
            raise MissingExtra(
                "the database driver is not installed", hint="pip install 'medlive[service]'"
            ) from error
        return cls(engine)

    @property
    def engine(self) -> AsyncEngine:
        """The engine below, for what needs a connection and no session."""
        return self._engine

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        """A session whose work is committed at the end, or undone as a whole when the block raises.

        Raises DatabaseUnavailable when no connection can be had or the server goes away.
        """
        try:
            async with self._sessions.begin() as session:
                yield session
        except exc.DBAPIError as error:
            if is_unavailable(error):
                raise unavailable(self._engine.url, error) from error
            raise
        except exc.TimeoutError as error:
            raise unavailable(self._engine.url, error) from error

    async def aclose(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


@asynccontextmanager
async def advisory_lock(database: Database, name: str) -> AsyncIterator[bool]:
    """Whether this process alone holds the named lock while the block runs; it does not wait for it.

    The lock has a connection of its own, so that the server frees it whichever way its holder ends. Raises
    DatabaseUnavailable.
    """
    try:
        async with database.engine.connect() as connection:
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                taken = await alone.scalar(
                    text("SELECT pg_try_advisory_lock(hashtextextended(:name, 0))"), {"name": name}
                )
                yield bool(taken)
            finally:
                # At once, for whoever takes it next; the server does it by itself when the connection is lost.
                with suppress(exc.DBAPIError):
                    await alone.scalar(text("SELECT pg_advisory_unlock_all()"))
                # Not back to the pool, where the lock would live on.
                await alone.invalidate()
    except exc.DBAPIError as error:
        if is_unavailable(error):
            raise unavailable(database.engine.url, error) from error
        raise


async def ping(session: Session) -> None:
    """Ask the server for anything at all. Raises DatabaseUnavailable."""
    await session.execute(text("SELECT 1"))


@contextmanager
def translated_errors(database: Database) -> Iterator[None]:
    """For libraries that let SQLAlchemy's errors through. Raises DatabaseUnavailable where the server is away."""
    try:
        yield
    except exc.DBAPIError as error:
        if is_unavailable(error):
            raise unavailable(database.engine.url, error) from error
        raise


@asynccontextmanager
async def lock_connection(database: Database) -> AsyncIterator[Connection]:
    """A connection of the lock's own; the server frees the lock when it ends, however that happens."""
    async with database.engine.connect() as connection:
        alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield alone
        finally:
            # Not back to the pool, where the lock would live on.
            await alone.invalidate()


async def answers_yes(connection: Connection, question: str, key: int) -> bool:
    """The answer to a question about the lock `key`. Raises DatabaseUnavailable when the connection was lost."""
    try:
        return bool(await connection.scalar(text(question), {"key": key}))
    except exc.DBAPIError as error:
        raise DatabaseUnavailable("the connection that holds the lock was lost") from error
