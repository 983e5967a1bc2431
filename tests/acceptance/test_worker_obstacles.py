"""What keeps a worker from its jobs: it says why once, takes none, loses none, and goes on by itself."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from medlive.db.jobs import Queue
from medlive.db.schema import migrate
from medlive.demo.samples import load_sample_threads
from medlive.errors import SchemaUnsuitable
from medlive.instance.loading import read_settings
from medlive.llm.rules.engine import RulesEngine
from medlive.service import database
from medlive.service.curation.curate import CurationCounts
from medlive.service.database import outlast
from medlive.service.waiting import Liveness
from medlive.service.wiring import new_budget
from medlive.service.work import jobs, taken
from medlive.service.work.worker import run_worker
from tests.support.counting_endpoint import CountingEndpoint, counting_endpoint
from tests.support.instance import Instance, write_lines, write_models
from tests.support.threads import as_import
from tests.support.waiting import until

THREADS = 6
MODEL = RulesEngine().identity.model
"""As the endpoint names it."""
WAITING = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
UNDER_WAY = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'"
PENDING = "SELECT count(*) FROM thread_standings WHERE outcome = 'pending'"
NewInstance = Callable[..., Instance]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again soon."""
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr("medlive.service.work.worker.HEARTBEAT_S", 0.1, raising=False)
    monkeypatch.setattr("medlive.service.work.worker.MISSING_S", 0.1)
    monkeypatch.setattr(taken, "FIRST_WAIT_S", 0.2)
    monkeypatch.setattr(taken, "MOST_WAIT_S", 0.2)


def queue_threads(instance: Instance) -> None:
    """Import threads that pass the filters, and queue them."""
    kept = [
        thread for thread in load_sample_threads() if thread.expect.outcome == "kept"
    ]
    lines = write_lines(instance.home / "threads.jsonl", map(as_import, kept[:THREADS]))
    instance.here("import", lines)
    instance.here("filter")
    assert instance.one(WAITING) == THREADS


@asynccontextmanager
async def working(
    instance: Instance, health: Liveness | None = None, **more: str
) -> AsyncIterator["asyncio.Task[CurationCounts]"]:
    """A worker on the queue `curate` while the block runs."""
    settings, stop = (
        read_settings({**instance.environment(), **more}),
        asyncio.Event(),
    )
    worker = asyncio.create_task(
        run_worker(
            settings, stop, [Queue.CURATE], concurrency=2, grace_s=5, health=health
        )
    )
    try:
        yield worker
    finally:
        stop.set()
        await asyncio.wait_for(worker, 60)


async def reaches(instance: Instance, query: str, wanted: object) -> None:
    await until(lambda: instance.one(query) == wanted)


async def waits(instance: Instance, why: str) -> None:
    """The worker is waiting for this reason, holds nothing, and every thread has its job."""
    await reaches(
        instance,
        f"SELECT count(*) FROM workers WHERE state = 'waiting' AND strpos(reason, '{why}') > 0",
        1,
    )
    await reaches(instance, UNDER_WAY, 0)
    assert (
        instance.one(
            "SELECT count(*) FROM medlive_waiting_threads() WHERE waits_for IS NULL"
        )
        == 0
    )


def state_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that say that jobs are taken or not."""
    return [
        record.getMessage()
        for record in caplog.records
        if " taken" in record.getMessage()
    ]


@pytest.fixture
async def endpoint() -> AsyncIterator[CountingEndpoint]:
    async with counting_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
async def instance(
    new_instance: NewInstance, endpoint: CountingEndpoint, tmp_path: Path
) -> Instance:
    """An instance with a few threads in its queue."""
    instance = new_instance(MEDLIVE_CONFIG=str(tmp_path / "config"))
    write_models(tmp_path / "config", endpoint.url, model=MODEL, max_retries=0)
    await asyncio.to_thread(queue_threads, instance)
    return instance


@pytest.mark.thorough
async def test_a_wrong_model_costs_no_job_and_the_worker_goes_on_when_it_is_the_right_one(
    instance: Instance, endpoint: CountingEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    endpoint.names = "another"
    async with working(instance):
        await until(lambda: endpoint.asked >= 8)
        await waits(instance, "was asked and ''another'' answered, every time")
        # before the eighth reply
        failed = instance.one("SELECT count(*) FROM curations")
        assert instance.one(PENDING) == THREADS - failed
        assert (
            instance.one(WAITING) == THREADS
        )  # those that failed, too: it was the endpoint's fault
        asked = endpoint.asked
        endpoint.names = None
        await asyncio.to_thread(instance.here, "circuit", "reset")
        await reaches(instance, PENDING, 0)
        await reaches(
            instance,
            "SELECT count(*) FROM workers WHERE state = 'working' AND reason IS NULL",
            1,
        )
    assert endpoint.asked > asked
    assert [line.partition(":")[0] for line in state_lines(caplog)] == [
        "no jobs of curate are taken",
        "jobs of curate are taken again",
    ]
    assert instance.one("SELECT count(*) FROM workers") == 0


@pytest.mark.thorough
async def test_a_worker_whose_budget_is_spent_leaves_what_is_queued_to_others(
    instance: Instance,
) -> None:
    async with working(instance, MEDLIVE_BUDGET__MAX_CALLS="5"):
        await waits(instance, "The budget of 5 calls is spent")
        left = instance.one(WAITING)
        assert left == instance.one(PENDING) > 0
        async with working(instance):
            await reaches(instance, PENDING, 0)
    assert instance.one("SELECT count(*) FROM workers") == 0


@pytest.mark.thorough
async def test_a_budget_is_of_the_workers_life_whatever_happens_to_the_database(
    instance: Instance, endpoint: CountingEndpoint
) -> None:
    stop = asyncio.Event()
    settings = read_settings(
        {**instance.environment(), "MEDLIVE_BUDGET__MAX_CALLS": "5"}
    )
    started: list[None] = []
    work = partial(
        run_worker,
        settings,
        stop,
        [Queue.CURATE],
        concurrency=1,
        grace_s=5,
        ready=lambda: started.append(None),
        budget=new_budget(settings),
    )

    def has_started(times: int) -> bool:
        return len(started) == times

    worker = asyncio.create_task(outlast(settings, work, stop))
    for life in (1, 2, 3):
        await until(partial(has_started, life))
        await waits(instance, "The budget of 5 calls is spent")
        assert endpoint.asked == 5
        instance.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await until(partial(has_started, 4))
    stop.set()
    await asyncio.wait_for(worker, 60)


@pytest.mark.thorough
async def test_evidence_that_is_missing_is_waited_for(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    elsewhere = shutil.move(instance.home / "evidence", instance.home / "elsewhere")
    async with working(instance):
        await waits(instance, "evidence")
        assert instance.one(WAITING) == THREADS
        shutil.move(elsewhere, instance.home / "evidence")
        await reaches(instance, PENDING, 0)
    assert len(state_lines(caplog)) == 2


OBSTACLES = {
    "53100": "No space left on device",
    "42501": "permission denied",
}


@pytest.mark.thorough
@pytest.mark.matrix
@pytest.mark.parametrize("state", OBSTACLES)
async def test_what_the_database_refuses_for_a_while_fails_no_thread(
    instance: Instance, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    caplog.set_level(logging.INFO)
    # Not what the job queue itself writes: its worker would end, and others take over.
    instance.change(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" RAISE EXCEPTION '{OBSTACLES[state]}' USING ERRCODE = '{state}'; END $$"
    )
    tables = ("curations", "job_failures")
    for table in tables:
        instance.change(
            f"CREATE TRIGGER refuse BEFORE INSERT ON {table} EXECUTE FUNCTION refuse()"
        )
    async with working(instance):
        await waits(instance, OBSTACLES[state])
        assert instance.one(WAITING) == instance.one(PENDING) == THREADS
        for table in tables:
            instance.change(f"DROP TRIGGER refuse ON {table}")
        await reaches(instance, PENDING, 0)
    assert instance.one("SELECT count(*) FROM procrastinate_jobs") == 0
    assert instance.rows("SELECT DISTINCT outcome FROM curations") == [("kept",)]
    assert [line.partition(":")[0] for line in state_lines(caplog)] == [
        "no jobs of curate are taken",
        "jobs of curate are taken again",
    ]


@pytest.mark.thorough
async def test_threads_that_wait_for_a_turn_when_the_database_is_lost_are_decided_and_stop_ends_the_workers(
    instance: Instance, endpoint: CountingEndpoint
) -> None:
    stop = asyncio.Event()
    # One turn for both workers: the others wait for theirs.
    write_models(
        Path(instance.settings["MEDLIVE_CONFIG"]),
        endpoint.url,
        model=MODEL,
        concurrency=1,
    )
    settings = read_settings(instance.environment())
    endpoint.answers.clear()
    work = partial(
        run_worker, settings, stop, [Queue.CURATE], concurrency=THREADS, grace_s=1
    )
    workers = [asyncio.create_task(outlast(settings, work, stop)) for _ in range(2)]
    await until(lambda: endpoint.asked)
    await reaches(instance, UNDER_WAY, THREADS)
    instance.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    endpoint.answers.set()
    await reaches(instance, PENDING, 0)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*workers), 60)


@pytest.mark.thorough
async def test_a_key_that_is_missing_is_waited_for(
    instance: Instance, caplog: pytest.LogCaptureFixture, endpoint: CountingEndpoint
) -> None:
    caplog.set_level(logging.INFO)
    key = instance.home / "handle.key"
    whole = key.read_bytes()
    key.write_bytes(b"half")
    health = Liveness()
    async with working(instance, health=health):
        await waits(instance, "does not contain a key")
        assert "does not contain a key" in health.answer()["reason"]
        assert instance.one(WAITING) == THREADS
        key.write_bytes(whole)
        await reaches(instance, PENDING, 0)
        assert health.answer() == {"status": "ok"}
    assert len(state_lines(caplog)) == 2


async def test_a_database_without_tables_is_waited_for(
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a user who may not make them; the owner does, later."""
    monkeypatch.setattr("medlive.service.database.RETRY_S", 0.02)
    missing, health, stop = True, Liveness(), asyncio.Event()

    def refuse(url: str) -> None:
        if missing:
            raise SchemaUnsuitable("the database has no tables")
        migrate.prepare(url)

    monkeypatch.setattr("medlive.service.database.prepare", refuse)
    settings = read_settings(instance.environment())

    async def work() -> str:
        async with database.open_database(settings):
            return "done"

    working = asyncio.create_task(outlast(settings, work, stop, health))
    await until(lambda: health.waiting)
    assert health.answer()["reason"] == "the database has no tables"
    missing = False
    assert await working == "done"
    said = [r.getMessage() for r in caplog.records if "no tables" in r.getMessage()]
    assert len(said) == 1
