"""An endpoint's limit shared by several processes: even shares, never more in all, nothing lost when one dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from medlive.db.session import Database
from medlive.errors import DatabaseUnavailable
from medlive.llm.limiter import Limiter, Limiters
from medlive.llm.wire import Ended
from medlive.service.curation import pipeline
from medlive.service.curation.pipeline import share_endpoints
from tests.support.waiting import until

MOST = 12
URL = "http://127.0.0.1:1/v1"


class Endpoint:
    """What calls of all processes have under way at one endpoint."""

    def __init__(self) -> None:
        self.under_way = self.highest = 0

    async def _keep_calling(self, limiter: Limiter) -> None:
        while True:
            began = await limiter.enter()
            self.under_way += 1
            self.highest = max(self.highest, self.under_way)
            try:
                await asyncio.sleep(0.01)
            finally:
                self.under_way -= 1
                limiter.leave(began, Ended.ANSWERED)

    @asynccontextmanager
    async def called(self, limiter: Limiter) -> AsyncIterator[None]:
        """Have more callers than there are turns while the block runs."""
        tasks = [
            asyncio.create_task(self._keep_calling(limiter)) for _ in range(2 * MOST)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_joins_gets_a_share_and_all_together_never_more_than_the_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SETTLE_S", 0.3)
    endpoint, limiters = Endpoint(), [Limiters() for _ in range(3)]
    first, second, elsewhere = (
        each.limiter(URL, key, MOST) for each, key in zip(limiters, "aab", strict=True)
    )
    shared = (
        share_endpoints(database, limiters[2]),
        share_endpoints(database, limiters[1]),
    )
    async with shared[0], shared[1], endpoint.called(second):
        await until(lambda: endpoint.under_way == MOST)
        async with share_endpoints(database, limiters[0]), endpoint.called(first):
            # Another key is another endpoint.
            await until(
                lambda: [x.state().limit for x in (first, second)] == [MOST // 2] * 2
            )
            assert elsewhere.state().limit == MOST
            await until(lambda: first.answered > 50)
        # Who leaves, leaves its share to the others.
        await until(lambda: endpoint.under_way == second.state().limit == MOST)
    assert endpoint.highest == MOST


async def test_who_waits_for_a_turn_is_let_go_when_nobody_shares_them_out_any_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SETTLE_S", 0.05)
    limiters = Limiters()
    limiter = limiters.limiter(URL, "a", MOST)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    others += " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    waited: list[BaseException] = []

    async def wait_for_a_turn() -> None:
        try:
            await limiter.enter()
        except BaseException as error:
            waited.append(error)
            raise

    async def share() -> None:
        async with share_endpoints(database, limiters):
            async with database.begin() as session:
                await session.execute(text(others))
            limiter.allot(0)  # as it is in the moment in which others have all of them
            await asyncio.wait_for(wait_for_a_turn(), 60)

    with pytest.raises(DatabaseUnavailable):
        await share()
    assert [type(error) for error in waited] in (
        [DatabaseUnavailable],
        [asyncio.CancelledError],
    )
    with pytest.raises(DatabaseUnavailable):
        await limiter.enter()


async def test_where_there_are_fewer_turns_than_processes_each_gets_one_in_its_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SETTLE_S", 0.02)
    endpoint, limiters = Endpoint(), [Limiters() for _ in range(3)]
    first, second, idle = (each.limiter(URL, "a", 1) for each in limiters)
    async with (
        share_endpoints(
            database, limiters[2]
        ),  # it has the only turn at first, and asks for nothing
        share_endpoints(database, limiters[0]),
        share_endpoints(database, limiters[1]),
        endpoint.called(first),
        endpoint.called(second),
    ):
        await until(lambda: first.answered > 20 and second.answered > 20)
        seen = first.answered
        await until(lambda: first.answered > seen + 20)
    assert (endpoint.highest, idle.answered) == (1, 0)
