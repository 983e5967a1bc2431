"""Stored answers of literature services, and whose turn it is to ask: `PostgresAnswers`, shared by all workers."""

from datetime import timedelta

from medlive.db.session import Database, Session

_TAKE_TURN = """
    INSERT INTO literature_turns (service, next_at)
    VALUES (:service, clock_timestamp() + make_interval(secs => :interval_s))
    ON CONFLICT (service) DO UPDATE SET next_at =
        greatest(literature_turns.next_at, clock_timestamp()) + make_interval(secs => :interval_s)
    RETURNING extract(epoch FROM next_at - clock_timestamp())
"""

_HOLD_BACK = """
    INSERT INTO literature_turns (service, next_at)
    VALUES (:service, clock_timestamp() + make_interval(secs => :wait_s))
    ON CONFLICT (service) DO UPDATE SET next_at =
        greatest(literature_turns.next_at, clock_timestamp() + make_interval(secs => :wait_s))
"""
_SAVE = """
    INSERT INTO literature_answers (key, service, body) VALUES (:key, :service, :body)
    ON CONFLICT (key) DO UPDATE SET body = excluded.body, fetched_at = now()
"""
BATCH = 1000
"""How many answers `delete_old` deletes in a transaction."""


class PostgresAnswers:
    """A `medlive.evidence.online.service.AnswerStore` in the database. Each method raises DatabaseUnavailable."""

    def __init__(self, database: Database, *, days: float) -> None:
        """The caller closes `database`; an answer older than `days` is asked for again."""
        self._database = database
        self._age = timedelta(days=days)

    async def load(self, key: str) -> bytes | None:
        """See AnswerStore."""
        async with self._database.read() as session:
            body: bytes | None = await session.value(
                """
                SELECT body FROM literature_answers WHERE key = :key AND fetched_at > now() - CAST(:age AS interval)
                """,
                key=key,
                age=self._age,
            )
        return body

    async def save(self, service: str, key: str, body: bytes) -> None:
        """See AnswerStore; a newer answer replaces an older one."""
        await self._database.ask(
            Session.run, _SAVE, service=service, key=key, body=body
        )

    async def take_turn(self, service: str, interval_s: float) -> float:
        """See AnswerStore; the database's clock counts."""
        until_next = await self._database.ask(
            Session.value, _TAKE_TURN, service=service, interval_s=interval_s
        )
        return max(0.0, float(until_next) - interval_s)

    async def hold_back(self, service: str, wait_s: float) -> None:
        """See AnswerStore; the database's clock counts."""
        await self._database.ask(
            Session.run, _HOLD_BACK, service=service, wait_s=wait_s
        )

    async def delete_old(self) -> int:
        """Delete the answers that are no longer used, a batch at a time; return how many."""
        old = """
            DELETE FROM literature_answers WHERE key IN (
                SELECT key FROM literature_answers WHERE fetched_at <= now() - CAST(:age AS interval) LIMIT :batch
            ) RETURNING key
        """
        count = 0
        while True:
            deleted = await self._database.ask(
                Session.column, old, age=self._age, batch=BATCH
            )
            count += len(deleted)
            if len(deleted) < BATCH:
                return count
