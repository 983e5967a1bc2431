"""Jobs deferred in a caller's transaction: many at once, and once however many ask."""

import asyncio

from medlive.db.session import Database
from medlive.service.jobs import defer_revisions, open_app, run_until_drained


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


async def test_at_the_end_of_the_queue_jobs_take_as_long_as_they_need(database: Database) -> None:
    done = []

    async def slow(revision: int) -> None:
        await asyncio.sleep(0.6)
        done.append(revision)

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(app, session, [1, 2])
        # The grace is for who breaks off; nobody does.
        await run_until_drained(app, slow, concurrency=2, grace_s=0.05)
        assert sorted(done) == [1, 2]
        assert await app.job_manager.list_jobs_async() == []


async def test_who_breaks_off_waits_for_the_grace_and_no_longer(database: Database) -> None:
    begun, ended = asyncio.Event(), []

    async def endless(revision: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(revision)

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(app, session, [1])
        draining = asyncio.create_task(run_until_drained(app, endless, concurrency=1, grace_s=0.1))
        await begun.wait()
        draining.cancel()
        await asyncio.wait_for(asyncio.gather(draining, return_exceptions=True), 60)
        assert draining.cancelled()
        assert ended == [1]
