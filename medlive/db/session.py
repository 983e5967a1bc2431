"""Access to the database: `Database` is a pool of connections, `Session` a transaction with short methods for SQL.

Also here: checked URLs, named locks between processes, and the server's errors as ours, without secrets.
"""

import asyncio
import logging
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg.types.json import Json
from sqlalchemy import URL, Result, exc, make_url, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase

from medlive.errors import (
    ConfigError,
    DatabaseForbidden,
    DatabaseFull,
    DatabaseUnavailable,
)
from medlive.guard.redaction import HIDDEN
from medlive.guard.trust import authorities_file, is_loopback

from .adapters import ADAPTERS
from .mapping import Record

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=DeclarativeBase)
_AS_STORED = {"populate_existing": True}  # A row that the session holds is read again
Connection = AsyncConnection

_POOL_SIZE = 16
_POOL_WAIT_SECONDS = 120
CONNECT_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "medlive",
    "options": "-c timezone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
    "context": ADAPTERS,
}
"""Settings of every connection, sync or async: any text, dates in UTC, a bounded wait, a name to be seen by, and that
the server frees the locks of a machine that has vanished within half a minute."""
_SCHEMES = {"postgres", "postgresql", "postgresql+psycopg"}
_CHECKED = ("verify-full", "verify-ca")
"""The modes in which libpq checks the server's certificate."""
_AWAY_CLASSES = {"08", "28", "53", "57P", "58"}
"""Classes of SQLSTATE for a server that cannot be used: connection, authorisation, resources, the server's start and
end, its system's errors."""
_AWAY = {"3D000", "25006"}
"""States that mean the same: no such database; a server that only reads, as a standby does."""
_FULL = {"53000", "53100", "53200"}  # Resources, the disk, memory
_FORBIDDEN = "42501"
_NOT_REACHED = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)
_PROBE = """
    INSERT INTO job_failures (job_id, queue, reason)
    SELECT -number, '', repeat('x', 1500) FROM generate_series(1, 400) AS number
"""
"""Writes about a megabyte of rows and of write-ahead log, for `check_room`, which undoes it."""


class Session(AsyncSession):
    """A session of the database, mostly one transaction. In its SQL `:name` is the value that is given as `name`."""

    async def run(self, sql: str, /, **values: Any) -> Result[*tuple[Any, ...]]:
        """Run a statement."""
        return await self.execute(text(sql), values)

    async def records(self, sql: str, /, **values: Any) -> list[Record]:
        """A query's rows, each with its columns by name."""
        rows = await self.run(sql, **values)
        return [SimpleNamespace(**row) for row in rows.mappings()]

    async def value(self, sql: str, /, **values: Any) -> Any:
        """The first value of a query's first row; None without a row."""
        return (await self.run(sql, **values)).scalar()

    async def column(self, sql: str, /, **values: Any) -> list[Any]:
        """The first value of each of a query's rows."""
        return list((await self.run(sql, **values)).scalars())

    async def lookup(self, sql: str, /, **values: Any) -> dict[Any, Any]:
        """First value → second value of each of a query's rows."""
        return {row[0]: row[1] for row in await self.run(sql, **values)}

    async def rows(self, table: type[R], which: str, /, **values: Any) -> list[R]:
        """A table's rows as the database has them now; `which` is the SQL after the table's name."""
        every = text(f"SELECT * FROM {table.__tablename__} {which}")
        rows = select(table).from_statement(every)
        return list(await self.scalars(rows, values, execution_options=_AS_STORED))

    async def first(self, table: type[R], which: str, /, **values: Any) -> R | None:
        """The first of the rows that `rows` finds; None if there is none."""
        return next(iter(await self.rows(table, which, **values)), None)

    async def insert(self, row: T) -> T:
        """Insert a row; return it with what the database filled in."""
        self.add(row)
        await self.flush()
        return row

    async def put(
        self,
        table: type[R],
        key: Mapping[str, Any],
        **values: Any,
    ) -> R:
        """Insert a row, or give the row that has this key these values; return it."""
        added = upsert(table).values(**key, **values)
        put = added.on_conflict_do_update(index_elements=list(key), set_=values)
        returned = put.returning(table)
        return (await self.scalars(returned, execution_options=_AS_STORED)).one()

    async def insert_rows(
        self,
        table: type[DeclarativeBase],
        rows: Sequence[Mapping[str, Any]],
        *,
        skip_known: bool = False,
        returning: Sequence[str] = (),
    ) -> Sequence[Any]:
        """Insert rows in their order; each has the same columns as the first. None is NULL, in JSON columns too.

        `skip_known` leaves out rows whose key the table has already. The rows travel as one JSON parameter, which
        PostgreSQL reads by the table's own types: one round trip and one statement for all of them. Returns the
        columns `returning` of each row that was inserted, in any order.
        """
        if not rows:
            return []
        into, names = table.__tablename__, ", ".join(f'"{name}"' for name in rows[0])
        statement = (
            f'INSERT INTO "{into}" ({names}) SELECT {names}'
            f' FROM json_populate_recordset(NULL::"{into}", CAST(:rows AS json))'
        )
        if skip_known:
            statement += " ON CONFLICT DO NOTHING"
        if returning:
            statement += f" RETURNING {', '.join(returning)}"
        result = await self.run(statement, rows=Json(rows))
        return result.all() if returning else []


def parse_url(url: str) -> URL:
    """The URL with psycopg 3 as its driver; `postgres://…` and `postgresql://…` are taken as the same.

    Raises ConfigError, without repeating the URL, when it is not PostgreSQL's.
    """
    hint = (
        "write postgresql://USER:PASSWORD@HOST:PORT/NAME, or in place of a URL MEDLIVE_DATABASE_HOST, "
        "_PORT, _NAME, _USER and _PASSWORD (or _PASSWORD_FILE), which need no escaping"
    )
    if url.count("@") > 1:
        raise ConfigError(
            "the database URL holds more than one @: write those of its password %40",
            hint=hint,
        )
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise ConfigError("the database URL cannot be read", hint=hint) from error
    if parsed.drivername not in _SCHEMES:
        raise ConfigError("the database URL is not one of PostgreSQL", hint=hint)
    return parsed.set(drivername="postgresql+psycopg")


def connection_url(url: str) -> URL:
    """`parse_url`, with the options by which libpq checks the certificate of a server on another machine.

    Its own default, `prefer`, takes any certificate. `sslmode=disable` stays, for a network that strangers cannot
    reach, and is warned about.

    Raises:
        ConfigError: for a URL that is not PostgreSQL's, or whose sslmode uses TLS without checking it.
    """
    parsed = parse_url(url)
    remote = sorted(
        host
        for host in _hosts(parsed)
        if not (host[:1] in ("", "/", "@") or is_loopback(host))
    )
    if not remote:
        return parsed
    query = parsed.query
    mode = query.get("sslmode") or os.environ.get("PGSSLMODE") or "verify-full"
    where = ", ".join(remote)
    if mode == "disable":
        _log.warning(
            "the connection to the database at %s is not encrypted (sslmode=disable)",
            where,
        )
        return parsed
    if mode not in _CHECKED:
        raise ConfigError(
            f"sslmode={mode} does not check the certificate of the database at {where}",
            hint="leave it out to have it checked; [tls] authority names an authority of your own; "
            "sslmode=disable does without TLS, for a network that nobody else can reach",
        )
    added = {"sslmode": mode}
    if not (query.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")):
        added["sslrootcert"] = str(authorities_file())
    return parsed.update_query_dict(added)


def _hosts(url: URL) -> set[str]:
    """The hosts that libpq would try; "" for a local socket."""
    query = url.query
    named = url.host or query.get("host") or query.get("hostaddr")
    values = named or os.environ.get("PGHOST", "")
    joined = values if isinstance(values, str) else ",".join(values)
    return {host.strip() for host in joined.split(",")}


def translate(
    url: URL, error: BaseException
) -> DatabaseUnavailable | DatabaseForbidden | None:
    """Return our error for a driver's or SQLAlchemy's, if the server's state is its cause; None for a fault of the
    statement.

    Our error has the host and the server's message, never the password. It is DatabaseFull if the server has no room
    for what it was asked to do, and DatabaseForbidden for a user without the right.
    """
    own = getattr(error, "orig", None) or error
    state: str | None = getattr(own, "sqlstate", None)  # None: the server gave none
    words = (str(own).strip().splitlines() or [type(error).__name__])[0]
    if state == _FORBIDDEN:
        return DatabaseForbidden(
            f"the database user {url.username or ''} may not do this: {words}",
            hint="use the owner's URL on the command line, or see `medlive db roles`",
        )
    away = isinstance(error, _NOT_REACHED)
    if state is not None:
        away = state in _AWAY or not _AWAY_CLASSES.isdisjoint({state[:2], state[:3]})
    if not away:
        return None
    host = url.host or url.query.get("host") or "the default host"
    if url.password:
        words = words.replace(url.password, HIDDEN)
    message = f"the database {url.database or ''} at {host} cannot be used: {words}"
    if state in _FULL:
        return DatabaseFull(
            message,
            hint="make room on the database's disk, or give its machine more memory",
        )
    return DatabaseUnavailable(
        message,
        hint="`medlive db start` starts the embedded one; MEDLIVE_DATABASE_URL names another",
    )


@contextmanager
def translated_errors(url: URL) -> Iterator[None]:
    """Raise what `translate` returns for SQLAlchemy's errors in their place."""
    try:
        yield
    except (exc.TimeoutError, exc.DBAPIError) as error:
        if (known := translate(url, error)) is not None:
            raise known from error
        raise


UnusableValue = exc.DataError
"""Raised by a statement for a value that its column cannot take, such as a number that is too large."""


class Database:
    """The pool of connections to one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        """Use `connect`."""
        self.engine = engine
        self._sessions = async_sessionmaker(
            engine, class_=Session, expire_on_commit=False
        )
        # The same pool, each statement committed by itself
        self._reader = engine.execution_options(isolation_level="AUTOCOMMIT")

    @classmethod
    def connect(cls, url: str) -> "Database":
        """A pool of at most 16 connections; the first is opened when the first session needs it.

        Raises ConfigError for a URL that is not PostgreSQL's.
        """
        engine = create_async_engine(
            connection_url(url),
            pool_size=_POOL_SIZE,
            max_overflow=0,
            pool_timeout=_POOL_WAIT_SECONDS,
            pool_pre_ping=True,
            use_native_hstore=False,  # no column has that type, and looking for it is one more query to begin with
            connect_args=CONNECT_ARGUMENTS,
            hide_parameters=True,  # an error would quote threads
        )
        return cls(engine)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Session]:
        """A session whose work is committed at the end, or undone as a whole when the block raises.

        Raises DatabaseUnavailable when no connection can be had or the server goes away.
        """
        with translated_errors(self.engine.url):
            async with self._sessions.begin() as session:
                yield session

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Session]:
        """A session without a transaction, each statement by itself: two round trips fewer, for pages.

        Raises DatabaseUnavailable as `begin` does.
        """
        with translated_errors(self.engine.url):
            async with self._sessions(bind=self._reader) as session:
                yield session

    async def ask(
        self,
        query: Callable[Concatenate[Session, P], Awaitable[T]],
        *arguments: P.args,
        **how: P.kwargs,
    ) -> T:
        """The result of a function that takes a session, called with a session of its own from `begin`."""
        async with self.begin() as session:
            return await query(session, *arguments, **how)

    async def aclose(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


@asynccontextmanager
async def lock_connection(database: Database) -> AsyncIterator[Connection]:
    """A connection for locks alone; the server releases the locks when the connection ends, however that happens.

    Raises DatabaseUnavailable.
    """
    with translated_errors(database.engine.url):
        async with database.engine.connect() as connection:
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                yield alone
            finally:
                # Free the locks at once, for the next holder. The server does it by itself when the connection is
                # lost, which also happens when a statement on it is cancelled.
                with suppress(exc.SQLAlchemyError):
                    await alone.scalar(text("SELECT pg_advisory_unlock_all()"))
                # Not back to the pool, where the lock would live on.
                await alone.invalidate()


class NameLocks:
    """Named locks that share a connection: one task of one process has a name at a time."""

    def __init__(self, connection: Connection) -> None:
        """`connection` comes from `lock_connection`; the caller closes it."""
        self._connection, self._turn = connection, asyncio.Lock()
        self._held = set[str]()

    @asynccontextmanager
    async def claim(self, name: str) -> AsyncIterator[bool]:
        """Claim a name for the block without waiting; yields whether it was free. Raises DatabaseUnavailable."""
        # The server would grant this connection the same lock again.
        if name in self._held:
            yield False
            return
        self._held.add(name)
        # Shielded: a statement that is cancelled ends its connection, and with it every lock.
        taking = asyncio.ensure_future(
            self.ask("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))", name)
        )
        try:
            yield await asyncio.shield(taking)
        finally:
            await asyncio.shield(self._free(taking, name))

    async def ask(self, question: str, key: int | str) -> bool:
        """`ask_lock`, one caller at a time."""
        async with self._turn:
            return await ask_lock(self._connection, question, key)

    async def _free(self, taking: asyncio.Future[bool], name: str) -> None:
        with suppress(DatabaseUnavailable):
            if await taking:
                await self.ask(
                    "SELECT pg_advisory_unlock(hashtextextended(:key, 0))", name
                )
        self._held.discard(name)


@asynccontextmanager
async def advisory_lock(database: Database, name: str) -> AsyncIterator[bool]:
    """Take a named lock for the block without waiting; yields whether it was free.

    Raises DatabaseUnavailable.
    """
    async with (
        lock_connection(database) as connection,
        NameLocks(connection).claim(name) as alone,
    ):
        yield alone


async def ping(session: Session) -> None:
    """Check that the server answers. Raises DatabaseUnavailable."""
    await session.run("SELECT 1")


async def read_clock(session: Session) -> datetime:
    """The database's time: now, or in a transaction the time at which it began."""
    moment: datetime = await session.value("SELECT now()")
    return moment


async def check_room(database: Database) -> None:
    """Write a megabyte and undo it. Raises DatabaseFull if the server has no room for it."""
    async with database.begin() as session:
        await session.run(_PROBE)
        await session.rollback()


async def ask_lock(connection: Connection, question: str, key: int | str) -> bool:
    """The boolean that a query about the lock `:key` gives. Raises DatabaseUnavailable if the connection was lost."""
    try:
        return bool(await connection.scalar(text(question), {"key": key}))
    except exc.SQLAlchemyError as error:
        raise DatabaseUnavailable(
            "the connection that holds the lock was lost"
        ) from error
