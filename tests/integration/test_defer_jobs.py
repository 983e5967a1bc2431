"""Jobs deferred in a caller's transaction: many at once, and once however many ask."""

import asyncio

from medlive.db.session import Database
from medlive.service.jobs import defer_revisions, open_app


async def test_jobs_that_another_transaction_queues_meanwhile_are_queued_once(database: Database) -> None:
    async with open_app(database).open_async() as app:
        async with database.begin() as first:
            assert await defer_revisions(app, first, [1, 2, 2]) == 2

            async def second() -> int:
                async with database.begin() as session:
                    return await defer_revisions(app, session, [2, 3, 1, 4])

            waiting = asyncio.create_task(second())
            # It sees none of the first's jobs, and waits for their locks.
            await asyncio.sleep(0.5)
            assert not waiting.done()
        assert await waiting == 2
        jobs = await app.job_manager.list_jobs_async()
        assert sorted(str(job.queueing_lock) for job in jobs) == [f"curate:{n}" for n in (1, 2, 3, 4)]
        async with database.begin() as session:
            assert await defer_revisions(app, session, [1, 5]) == 1
            assert await defer_revisions(app, session, []) == 0
