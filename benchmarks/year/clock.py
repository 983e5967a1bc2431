"""One clock for Python and PostgreSQL, set by the simulation; between settings it runs as time does."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace

import psycopg

from medlive import clock as program

# The function is found before pg_catalog's, also by the defaults and functions that migrations create.
_INSTALL = """
CREATE TABLE public.simulated_clock (ahead interval NOT NULL);
INSERT INTO public.simulated_clock VALUES ('0');
CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + ahead FROM public.simulated_clock';
"""


class Clock:
    """What the program and its database take for the time."""

    def __init__(self, connection: psycopg.Connection) -> None:
        """Use `simulated`."""
        self._connection = connection
        self._ahead = timedelta(0)

    def now(self, zone: tzinfo | None = UTC) -> datetime:
        """The simulated moment."""
        return datetime.now(zone) + self._ahead

    def set(self, moment: datetime) -> None:
        """Move to a later moment, in the program and in the database; whoever works now has worked until then."""
        self._ahead = moment - datetime.now(UTC)
        with self._connection.transaction():
            self._connection.execute(
                "UPDATE public.simulated_clock SET ahead = %s", [self._ahead]
            )
            if self._connection.execute(
                "SELECT to_regclass('procrastinate_workers')"
            ).fetchone() != (None,):
                # A worker's own beat may hold its row, and its loop waits for this call.
                self._connection.execute(
                    "UPDATE procrastinate_workers SET last_heartbeat = now()"
                    " WHERE id IN (SELECT id FROM procrastinate_workers FOR UPDATE SKIP LOCKED)"
                )


@contextmanager
def simulated(url: str, moment: datetime) -> Iterator[Clock]:
    """Give this process and an empty database a clock that begins at a moment, until the block ends."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(_INSTALL)
        name = connection.info.dbname
        connection.execute(
            f'ALTER DATABASE "{name}" SET search_path = public, pg_catalog'.encode()
        )
        clock = Clock(connection)
        clock.set(moment)
        # Every module calls the one now(), which looks the name up each time.
        shifted = SimpleNamespace(
            now=clock.now,
            fromisoformat=datetime.fromisoformat,
            fromisocalendar=datetime.fromisocalendar,
        )
        vars(program)["datetime"] = shifted
        try:
            yield clock
        finally:
            vars(program)["datetime"] = datetime
