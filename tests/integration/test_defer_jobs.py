"""Jobs deferred in a caller's transaction: many at once, and once however many ask."""

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg import OperationalError
from sqlalchemy import text

from medlive.clock import now
from medlive.db.audit.health import failed_jobs
from medlive.db.jobs import (
    STALLED_AFTER_S,
    Queue,
    count_servers,
    count_waiting,
    defer_alone,
    forget_failures,
    hurry,
    list_jobs,
)
from medlive.db.session import Database
from medlive.errors import CircuitOpen, DatabaseUnavailable
from medlive.service.work.jobs import (
    defer_revisions,
    defer_step,
    open_app,
    run_step_job,
    run_until_drained,
    run_until_stopped,
    step_lock,
    take_over,
)
from medlive.service.work.taken import (
    CURATE,
    RETRY_AFTER_S,
    STEP,
    Jobs,
    Readiness,
    Work,
    Works,
)
from tests.support.waiting import LIMIT_S, until


async def test_jobs_that_another_transaction_queues_meanwhile_are_queued_once(
    database: Database,
) -> None:
    async with open_app(database).open_async() as app:
        async with database.begin() as first:
            assert await defer_revisions(first, [1, 2, 2]) == 2

            async def second() -> int:
                async with database.begin() as session:
                    return await defer_revisions(session, [2, 3, 1, 4])

            waiting = asyncio.create_task(second())
            # It sees none of the first's jobs, and waits for their locks.
            await asyncio.sleep(0.5)
            assert not waiting.done()
        assert await waiting == 2
        jobs = await app.job_manager.list_jobs_async()
        assert sorted(str(job.queueing_lock) for job in jobs) == [
            f"curate:{n}" for n in (1, 2, 3, 4)
        ]
        async with database.begin() as session:
            assert await defer_revisions(session, [1, 5]) == 1
            assert await defer_revisions(session, []) == 0


async def test_at_the_end_of_the_queue_jobs_take_as_long_as_they_need(
    database: Database,
) -> None:
    done = []

    async def slow(revision: int) -> None:
        await asyncio.sleep(0.6)
        done.append(revision)

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1, 2])
        # The grace is for who breaks off; nobody does.
        await run_until_drained(
            app, database, {CURATE: slow}, concurrency=2, grace_s=0.05
        )
        assert sorted(done) == [1, 2]
        assert await app.job_manager.list_jobs_async() == []


async def test_who_breaks_off_waits_for_the_grace_and_no_longer(
    database: Database,
) -> None:
    begun, ended = asyncio.Event(), []

    async def endless(revision: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(revision)

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1])
        works = {CURATE: endless}
        draining = asyncio.create_task(
            run_until_drained(app, database, works, concurrency=1, grace_s=0.1)
        )
        await begun.wait()
        draining.cancel()
        await asyncio.wait_for(
            asyncio.gather(draining, return_exceptions=True), LIMIT_S
        )
        assert draining.cancelled()
        assert ended == [1]


async def test_a_thread_without_an_answer_waits_longer_each_time_and_then_ends(
    database: Database,
) -> None:
    tried = []

    async def unanswered(revision: int) -> str:
        tried.append(revision)
        return "endpoint_unavailable" if revision == 1 else "invalid_reply"

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1, 2])
        waits = RETRY_AFTER_S["endpoint_unavailable"]
        for attempt, wait in enumerate(waits, start=1):
            begun = now()
            await _serve_until(
                app, database, unanswered, partial(_has_tried, tried, attempt)
            )
            [job] = await app.job_manager.list_jobs_async(status="todo")
            assert (job.task_kwargs, job.attempts, tried.count(2)) == (
                {"revision": 1},
                attempt,
                1,
            )
            assert job.scheduled_at is not None
            assert begun < job.scheduled_at - timedelta(seconds=wait) < now()
            async with database.begin() as session:
                # It waits, so a freeze does not wait for it; nor is it queued twice.
                assert (await count_waiting(session, Queue.CURATE)).ready == 0
                assert await defer_revisions(session, [1]) == 0
                await hurry(session, Queue.CURATE)
        await _serve_until(
            app, database, unanswered, partial(_has_tried, tried, len(waits) + 1)
        )
        assert await app.job_manager.list_jobs_async() == []


async def test_jobs_that_are_put_back_use_up_no_attempt(database: Database) -> None:
    tried = []

    async def closed(revision: int) -> str:
        tried.append(revision)
        if len(tried) < 3:
            raise CircuitOpen("the endpoint is not asked", hint="", retry_at=now())
        return "endpoint_unavailable"

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1])
        await _serve_until(app, database, closed, partial(_has_tried, tried, 3))
        [job] = await app.job_manager.list_jobs_async(status="todo")
    assert job.attempts == 1
    assert job.scheduled_at is not None
    assert (job.scheduled_at - now()).total_seconds() <= RETRY_AFTER_S[
        "endpoint_unavailable"
    ][0]


def _has_tried(tried: list[int], times: int) -> bool:
    return tried.count(1) == times


async def _serve_until(
    app: App,
    database: Database,
    work: Work,
    done: Callable[[], bool],
) -> None:
    """Serve the queue as a worker does until `done`."""
    stop = asyncio.Event()
    serving_it = asyncio.create_task(
        run_until_stopped(
            Jobs(app, database, {CURATE: work}, Readiness()),
            [Queue.CURATE],
            concurrency=2,
            stop=stop,
        )
    )
    await until(done)
    stop.set()
    await serving_it


async def test_a_worker_that_is_cancelled_twice_leaves_nothing_at_work(
    database: Database,
) -> None:
    """As when the connection of the queue and that of the limiters are lost one after the other."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def beside() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with open_app(database).open_async() as app:
        serving_it = asyncio.create_task(
            run_until_stopped(
                Jobs(app, database, {}, Readiness()),
                [Queue.CURATE],
                concurrency=2,
                stop=asyncio.Event(),
                beside=[beside()],
            )
        )
        await asyncio.wait_for(began.wait(), LIMIT_S)
        serving_it.cancel()
        for _ in range(2):  # it has begun to end what it runs
            await asyncio.sleep(0)
        serving_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving_it
        assert ended.is_set()


async def test_what_was_broken_off_waits_for_no_clock(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This machine's clock is an hour ahead of the database's.
    monkeypatch.setattr(
        "medlive.service.work.taken.utcnow", lambda: now() + timedelta(hours=1)
    )
    begun, ended = asyncio.Event(), asyncio.Event()

    async def step(step: str, week: str) -> None:
        begun.set()
        await ended.wait()

    async with open_app(database).open_async() as app, asyncio.timeout(60):
        for leave_as in ("todo", "doing"):  # by who was stopped, and by who was killed
            begun.clear()
            running = asyncio.create_task(
                run_step_job(
                    app, database, {STEP: step}, Queue.RELEASE, "freeze", "2026.W47"
                )
            )
            await begun.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            async with database.begin() as session:
                assert (await count_waiting(session, Queue.RELEASE)).open == 1
                await session.execute(
                    text(
                        f"UPDATE procrastinate_jobs SET status = '{leave_as}', worker_id = NULL"
                    )
                )
        ended.set()
        await run_step_job(
            app, database, {STEP: step}, Queue.RELEASE, "freeze", "2026.W47"
        )
        assert await app.job_manager.list_jobs_async() == []


async def test_a_worker_is_dead_when_its_heartbeat_is_old(database: Database) -> None:
    async def statuses(app: App) -> list[tuple[Any, str]]:
        jobs = await app.job_manager.list_jobs_async()
        return sorted((job.task_kwargs["revision"], job.status) for job in jobs)

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1, 2])
        workers = [await app.job_manager.register_worker() for _ in range(2)]
        for worker in workers:
            await app.job_manager.fetch_job(queues=[Queue.CURATE], worker_id=worker)
        await take_over(app, [Queue.CURATE])
        assert await statuses(app) == [(1, "doing"), (2, "doing")]
        old = f"now() - interval '{STALLED_AFTER_S + 1} seconds'"
        beat = f"UPDATE procrastinate_workers SET last_heartbeat = {old} WHERE id = "
        async with database.begin() as session:
            await session.execute(text(f"{beat} {workers[1]}"))
        await take_over(app, [Queue.CURATE])
        assert await statuses(app) == [(1, "doing"), (2, "todo")]
        # Queued by one who did not see that it is done already: of its dead worker's job one may wait.
        async with database.begin() as session:
            await session.execute(
                text("UPDATE procrastinate_jobs SET queueing_lock = 'curate:1'")
            )
            await session.execute(text(f"{beat} {workers[0]}"))
        await take_over(app, [Queue.CURATE])
        assert await statuses(app) == [(1, "doing"), (2, "todo")]
        async with database.begin() as session:
            await session.execute(
                text("DELETE FROM procrastinate_jobs WHERE status = 'todo'")
            )
        await take_over(app, [Queue.CURATE])
        assert await statuses(app) == [(1, "todo")]


async def test_a_job_that_is_delivered_twice_is_done_by_one_at_a_time_and_ended_without_a_trace(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("medlive.service.work.taken.RETRY_S", 0.05)
    caplog.set_level("INFO", "medlive")
    unseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, what: unseen.append(what)
    )
    begun, released, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    under_way: list[int] = []

    async def change(statement: str) -> Any:
        async with database.begin() as session:
            return list(await session.execute(text(statement)))

    async def work(revision: int) -> None:
        under_way.append(revision)
        assert len(under_way) == 1
        begun.set()
        await released.wait()
        if revision == 2:
            await change(
                "DELETE FROM procrastinate_jobs RETURNING id"
            )  # as if another worker had ended it
        under_way.clear()

    async with (
        open_app(database).open_async() as app,
        open_app(database).open_async() as other,
    ):
        workers = [
            asyncio.create_task(
                run_until_stopped(
                    Jobs(one, database, {CURATE: work}, Readiness()),
                    [Queue.CURATE],
                    concurrency=2,
                    stop=stop,
                )
            )
            for one in (app, other)
        ]
        async with asyncio.timeout(LIMIT_S), database.begin() as session:
            await defer_revisions(session, [1])
        await begun.wait()
        await change(
            "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL RETURNING id"
        )
        columns = "queue_name, task_name, priority, args"
        await change(
            f"INSERT INTO procrastinate_jobs ({columns}) SELECT {columns} FROM procrastinate_jobs RETURNING id"
        )
        retried = "SELECT DISTINCT job_id FROM procrastinate_events WHERE type = 'deferred_for_retry'"
        async with asyncio.timeout(LIMIT_S):
            while len(await change(retried)) < 2:  # noqa: ASYNC110 - other connections
                await asyncio.sleep(0.02)
            released.set()
            while await app.job_manager.list_jobs_async():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            async with database.begin() as session:
                await defer_revisions(session, [2])
            await until(lambda: "was not ended here: Job was not found" in caplog.text)
            stop.set()
            await asyncio.gather(*workers)
    gc.collect()
    assert (unseen, caplog.text.count("Traceback")) == ([], 0)


async def test_a_job_that_loses_the_database_is_done_when_it_is_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.service.work.taken.RETRY_S", 0)
    attempts = 0

    async def step(step: str, week: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise DatabaseUnavailable("the connection was lost")

    finish, ends = JobManager.finish_job, []

    async def lose_the_first(
        self: JobManager, job: Job, status: Status, delete_job: bool
    ) -> None:
        ends.append(status)
        if len(ends) == 1:
            raise ConnectorException from OperationalError("the connection was lost")
        await finish(self, job, status, delete_job)

    monkeypatch.setattr(JobManager, "finish_job", lose_the_first)
    async with open_app(database).open_async() as app, asyncio.timeout(60):
        await run_step_job(
            app, database, {STEP: step}, Queue.RELEASE, "freeze", "2026.W47"
        )
        assert (attempts, len(ends), await app.job_manager.list_jobs_async()) == (
            3,
            2,
            [],
        )


async def test_a_step_is_done_here_unless_a_worker_serves_its_queue_and_once(
    database: Database,
) -> None:
    here: list[str] = []
    there: list[str] = []
    stop = asyncio.Event()

    def record(place: list[str]) -> Works:
        async def step(step: str, week: str) -> None:
            # Asked for again while it is being done.
            async with database.begin() as session:
                await defer_step(session, Queue.RELEASE, step, week)
            place.append(f"{step} {week}")

        return {STEP: step}

    async with (
        open_app(database).open_async() as app,
        open_app(database).open_async() as other,
    ):
        ask = partial(
            run_step_job, app, database, record(here), Queue.RELEASE, "freeze"
        )
        await ask("2026.W01")
        assert here == ["freeze 2026.W01"]
        worker = asyncio.create_task(
            run_until_stopped(
                Jobs(other, database, record(there), Readiness()),
                [Queue.RELEASE],
                concurrency=2,
                stop=stop,
            )
        )
        async with asyncio.timeout(LIMIT_S):
            async with database.begin() as session:
                while not await count_servers(session, Queue.RELEASE):  # noqa: ASYNC110 - another connection
                    await asyncio.sleep(0.02)
            await ask("2026.W02")
            stop.set()
            await worker
        assert (here, there) == (["freeze 2026.W01"], ["freeze 2026.W02"])
        await ask("2026.W03")
        assert here == ["freeze 2026.W01", "freeze 2026.W03"]


async def test_a_stop_that_comes_before_the_first_job_is_heeded(
    database: Database,
) -> None:
    stop = asyncio.Event()
    stop.set()
    async with open_app(database).open_async() as app, asyncio.timeout(LIMIT_S):
        await run_until_stopped(
            Jobs(app, database, {}, Readiness()),
            [Queue.CURATE],
            concurrency=1,
            stop=stop,
        )


async def test_who_defers_a_step_waits_for_another_who_does(database: Database) -> None:
    """No index refuses a second job once a worker has taken the first."""

    async def ask() -> None:
        async with database.begin() as session:
            await defer_step(session, Queue.RELEASE, "freeze", "2026.W01")

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_alone(session, step_lock("freeze", "2026.W01"))
            second = asyncio.create_task(ask())
            await asyncio.sleep(0.3)
            assert not second.done()
            await defer_step(session, Queue.RELEASE, "freeze", "2026.W01")
        await second
        assert len(list(await app.job_manager.list_jobs_async())) == 1


async def test_a_claim_reads_no_more_of_a_long_queue_than_of_a_short_one(
    database: Database, database_url: str
) -> None:
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            # Just queued, so that the server has no statistics of the table.
            await defer_revisions(session, range(1, 2001))
        worker = await app.job_manager.register_worker()
        for revision in range(1, 21):
            job = await app.job_manager.fetch_job(
                queues=[Queue.CURATE], worker_id=worker
            )
            assert job is not None
            assert job.task_kwargs == {"revision": revision}
    # The counters of connections that have ended; a claim that sorts the queue reads all of it.
    query = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'procrastinate_jobs'"
    with psycopg.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        read = 0
        async with asyncio.timeout(LIMIT_S):
            while read < 20:
                await asyncio.sleep(0.1)
                [(read,)] = connection.execute(query).fetchall()
    assert read < 8_000


async def test_what_failed_is_over_once_a_later_job_of_its_name_is_done(
    database: Database,
) -> None:
    """The later job is deleted when it is done: nothing else says that the earlier one's work is."""
    failing = True

    async def work(**_: Any) -> None:
        if failing:
            raise RuntimeError

    async def count(app: App) -> int:
        async with database.begin() as session:
            await defer_revisions(session, [1])
        works = {CURATE: work, STEP: work}
        await run_until_drained(app, database, works, concurrency=1)
        step = ("freeze", "2026.W01")
        await run_step_job(app, database, works, Queue.RELEASE, *step)
        return sum(failed.jobs for failed in await database.ask(failed_jobs))

    async with open_app(database).open_async() as app:
        assert await count(app) == 2
        assert await count(app) == 2
        failing = False
        assert await count(app) == 0
        assert list(await app.job_manager.list_jobs_async()) == []


async def test_why_a_job_fails_is_kept_though_another_worker_looks_just_then(
    database: Database,
) -> None:
    """It is written before the job is ended: forgotten in between, its thread would count as lost and be queued."""

    async def fail(**_: Any) -> None:
        raise RuntimeError("of its own")

    class Looking(Jobs):
        async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
            await database.ask(forget_failures)
            await super().finish_job(job, status, delete_job)

    stop = asyncio.Event()
    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1])
        jobs = Looking(app, database, {CURATE: fail}, Readiness())
        serving = asyncio.create_task(
            run_until_stopped(jobs, [Queue.CURATE], concurrency=1, stop=stop)
        )
        for _ in range(100):
            listed = await database.ask(list_jobs, limit=9)
            if any(job.status == "failed" for job in listed):
                break
            await asyncio.sleep(0.1)
        stop.set()
        await asyncio.wait_for(serving, LIMIT_S)
    [failed] = await database.ask(list_jobs, limit=9)
    assert failed.reason == "RuntimeError: of its own"
