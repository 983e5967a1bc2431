"""The worker and the scheduler as services run them: processes that share a queue and end when told."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import psycopg
import pytest

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db import embedded
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.demo.samples import load_sample_threads
from medlive.instance.loading import read_settings
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.work.worker import run_worker
from tests.support.instance import Instance, write_lines
from tests.support.serving import serving
from tests.support.threads import as_import
from tests.support.waiting import until, wait_until

NewInstance = Callable[..., Instance]
FOREVER = {
    "worker": ("worker", "--queues", "filter,upkeep"),
    "scheduler": ("scheduler",),
    "web": ("serve", "--port", "0"),
}
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
WEEK, NEXT = iso_week(MONDAY), iso_week(MONDAY + timedelta(days=7))


def _is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def _wait(instance: Instance, query: str, wanted: object) -> None:
    address = str(instance.url).replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        wait_until(lambda: connection.execute(query.encode()).fetchone() == (wanted,))


def _import(instance: Instance, count: int) -> None:
    kept = [t for t in load_sample_threads() if t.expect.outcome == "kept"][:count]
    lines = write_lines(instance.home / "threads.jsonl", map(as_import, kept))
    assert instance.here("import", lines, "--json").json[0]["new"] == count


def _settings(instance: Instance, **environment: str) -> Settings:
    return read_settings({**instance.environment(), **environment})


async def _take(
    settings: Settings, moment: datetime, *, once: bool = True
) -> list[tuple[str, str, str]]:
    taken = await run_scheduler(
        settings, asyncio.Event(), lambda _: None, once=once, clock=lambda: moment
    )
    return [
        (t["iso_week"], t["command"].removeprefix("scheduler "), t["state"])
        for t in taken
    ]


async def test_workers_take_what_the_scheduler_queues_and_end_when_told(
    new_instance: NewInstance,
) -> None:
    """One worker is a process, the other one is in this."""
    instance = new_instance()
    settings, stop = _settings(instance), asyncio.Event()
    process = instance.start("worker", "--json")
    worker = asyncio.create_task(run_worker(settings, stop, [Queue.CURATE]))

    async def reaches(query: str, wanted: int) -> None:
        await asyncio.to_thread(_wait, instance, query, wanted)

    await reaches("SELECT count(*) FROM pipeline_runs WHERE command = 'worker'", 2)
    await asyncio.to_thread(_import, instance, 4)
    await _take(settings, MONDAY + timedelta(days=1, hours=3))
    await reaches("SELECT count(*) FROM curations", 4)
    await reaches(
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')", 0
    )
    os.kill(process.pid, signal.SIGTERM)
    done = await asyncio.to_thread(instance.finish, process)
    stop.set()
    assert done.status == 0
    outcomes = Counter(done.json["outcomes"]) + (await worker).outcomes
    assert outcomes.total() == 4
    assert instance.rows(
        "SELECT DISTINCT outcome FROM pipeline_runs WHERE command = 'worker'"
    ) == [("done",)]


@pytest.mark.thorough
def test_every_log_line_of_a_thread_carries_its_ids(new_instance: NewInstance) -> None:
    instance = new_instance()
    _import(instance, 3)
    lines = instance.run(
        "--log-level", "debug", "--log-format", "json", "curate"
    ).err.splitlines()
    curated = [
        line
        for line in map(json.loads, lines)
        if line["logger"] == "medlive.service.curation.curate"
    ]
    (run,) = {line["run"] for line in curated}
    assert run == instance.one("SELECT id FROM pipeline_runs WHERE command = 'curate'")
    assert len({line["job"] for line in curated}) == 3
    threads = instance.rows("SELECT source || '/' || thread_id FROM threads")
    assert {line["thread"] for line in curated} == {thread for (thread,) in threads}


def test_jobs_are_listed_cancelled_and_tried_again(new_instance: NewInstance) -> None:
    instance = new_instance()
    _import(instance, 3)
    asyncio.run(_take_beside_a_worker(instance, MONDAY + timedelta(days=1, hours=3)))
    listed = instance.here("jobs", "list", "--json").json
    assert listed["queues"] == [
        {"queue": "curate", "status": "todo", "jobs": 3, "delayed": 0, "servers": 0}
    ]
    first, second, third = (job["id"] for job in listed["jobs"])
    instance.here("jobs", "cancel", str(first))
    refused = instance.here("jobs", "cancel", str(first), status=None)
    assert (
        refused.status,
        f"job {first} is not waiting or being done" in refused.err,
    ) == (2, True)
    with psycopg.connect(
        str(instance.url).replace("+psycopg", ""), autocommit=True
    ) as connection:
        connection.execute(
            "UPDATE procrastinate_jobs SET status = 'failed' WHERE id = %s", [second]
        )
    instance.here("jobs", "retry", str(second))
    left = instance.here("jobs", "list", "--json").json["jobs"]
    assert [(job["id"], job["attempts"]) for job in left] == [(second, 1), (third, 0)]
    refused = instance.here("jobs", "retry", str(third), status=None)
    assert f"job {third} is not failed" in refused.err
    said = instance.here("worker", "--queues", "curate,cure", status=2).err
    assert "cure" in said
    assert "choose harvest or" in said


@pytest.mark.thorough
def test_a_worker_takes_over_from_one_that_was_killed(
    new_instance: NewInstance,
) -> None:
    instance = new_instance()
    _import(instance, 3)
    with psycopg.connect(
        str(instance.url).replace("+psycopg", ""), autocommit=True
    ) as connection:
        asyncio.run(
            _take_beside_a_worker(instance, MONDAY + timedelta(days=1, hours=3))
        )
        # What a worker that was killed leaves: a job under way, its heartbeat long ago.
        connection.execute(
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour')"
        )
        connection.execute(
            "UPDATE procrastinate_jobs SET status = 'doing', "
            "worker_id = (SELECT max(id) FROM procrastinate_workers)"
        )
    worker = instance.start("worker")
    _wait(instance, "SELECT count(*) FROM curations", 3)
    os.kill(worker.pid, signal.SIGINT)
    assert instance.finish(worker).status == 0


async def _take_beside_a_worker(instance: Instance, moment: datetime) -> None:
    """While a worker serves the queue, the scheduler leaves to it what it queues."""
    database = Database.connect(str(instance.url))
    async with serving(database, [Queue.CURATE]):
        await _take(_settings(instance), moment)
    await database.aclose()


@pytest.mark.thorough
async def test_each_step_is_taken_once_and_what_was_missed_is_caught_up(
    new_instance: NewInstance,
) -> None:
    instance = new_instance()
    await asyncio.to_thread(_import, instance, 4)
    settings = _settings(instance)
    sources = ("icliniq", "sdn", "dxy", "medlive")
    assert await _take(settings, MONDAY + timedelta(hours=7, minutes=59)) == []
    # Each at its own time. No contact address: skipped and said, no crash.
    assert await _take(settings, MONDAY + timedelta(hours=8)) == [
        (WEEK, "harvest sdn", "skipped")
    ]
    assert await _take(settings, MONDAY + timedelta(hours=21)) == [
        (WEEK, f"harvest {s}", "skipped") for s in sources
    ]
    later = MONDAY + timedelta(days=3)
    assert (await _take(settings, later))[-1] == (WEEK, "queue", "done")
    assert "queue" not in {command for _, command, _ in await _take(settings, later)}
    # No worker lives, so the scheduler drained the queue itself.
    assert instance.one("SELECT count(*) FROM curations") == 4
    # Away on Sunday: the week is frozen in the next one, and once.
    late = MONDAY + timedelta(days=7, hours=1)
    assert await _take(settings, late) == [
        (WEEK, step, "done") for step in ("freeze", "verify", "retention")
    ]
    assert await _take(settings, late) == []
    assert instance.rows("SELECT version, state FROM snapshots") == [(WEEK, "frozen")]
    assert (await _take(settings, MONDAY + timedelta(days=13, hours=18)))[-2:] == [
        (NEXT, step, "done") for step in ("freeze", "verify")
    ]


@pytest.mark.thorough
def test_a_step_that_misses_evidence_is_due_again_and_one_that_fails_is_told_and_waits(
    new_instance: NewInstance,
) -> None:
    # Due from the week's first moment, so that it is due whenever the tests are run.
    instance = new_instance(
        MEDLIVE_SCHEDULE__QUEUE__WEEKDAY="mon", MEDLIVE_SCHEDULE__QUEUE__HOUR="0"
    )
    asyncio.run(_fails_and_waits(instance))
    assert "queue failed for" in instance.here("status", "--check", status=None).out
    assert (
        "does not contain a key" in instance.here("scheduler", "--once", status=1).err
    )


async def _fails_and_waits(instance: Instance) -> None:
    evidence, elsewhere = instance.home / "evidence", instance.home / "elsewhere"
    evidence.rename(elsewhere)
    settings, moment = _settings(instance), datetime.now(UTC)
    missed = (iso_week(moment), "queue", "skipped")
    assert missed in await _take(settings, moment)  # a check of its own names it
    elsewhere.rename(evidence)
    (instance.home / "handle.key").write_bytes(b"half")
    failed = (iso_week(moment), "queue", "failed")
    assert failed in await _take(settings, moment)
    assert failed in await _take(settings, moment)  # asked for by hand: at once
    stop, said = asyncio.Event(), list[str]()
    asked: list[None] = []

    def clock() -> datetime:
        asked.append(None)
        return moment

    running = asyncio.create_task(
        run_scheduler(settings, stop, said.append, clock=clock, wake_s=0.05)
    )
    await until(lambda: len(asked) > 20)
    stop.set()
    assert "scheduler queue" not in {t["command"] for t in await running}


async def test_one_scheduler_works_and_others_say_that_they_wait(
    new_instance: NewInstance,
) -> None:
    instance = new_instance()
    settings, said, stop = _settings(instance), list[str](), asyncio.Event()
    first = asyncio.create_task(
        run_scheduler(settings, stop, lambda _: None, clock=lambda: MONDAY, wake_s=0.05)
    )
    locks = (
        "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
        "WHERE locktype = 'advisory' AND granted AND datname = current_database()"
    )
    await asyncio.to_thread(_wait, instance, locks, 1)
    with pytest.raises(Exception, match="another scheduler is active"):
        await _take(settings, MONDAY)
    second_stop = asyncio.Event()
    second = asyncio.create_task(
        run_scheduler(
            settings,
            second_stop,
            said.append,
            clock=lambda: MONDAY + timedelta(hours=21),
            wake_s=0.05,
        )
    )
    await until(lambda: bool(said))
    await asyncio.sleep(0.3)  # it asks for the place every 0.05 s
    assert said == ["another scheduler is active; waiting for it to end"]
    stop.set()
    await first
    await until(lambda: len(said) == 5)
    second_stop.set()
    assert [t["state"] for t in await second] == ["skipped"] * 4


@pytest.mark.thorough
def test_a_killed_database_costs_a_line_and_they_go_on_when_it_is_back(
    tmp_path: Path, free_tcp_port_factory: Callable[[], int]
) -> None:
    port = free_tcp_port_factory()
    home = tmp_path / "home"
    home.mkdir()
    tmp_path.chmod(0o755)
    instance = Instance(home, embedded.start(home))
    instance.here("db", "upgrade")
    begun = "SELECT count(*) FROM pipeline_runs WHERE command = 'worker'"
    active = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1835361356"
    try:
        commands = {**FOREVER, "web": ("serve", "--port", str(port))}
        started = {name: instance.start(*words) for name, words in commands.items()}
        _wait(instance, begun, 1)
        _wait(instance, active, True)
        wait_until(lambda: _is_ready(port))
        server = embedded.status(home)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        embedded.start(home)
        _wait(instance, begun, 2)
        _wait(instance, active, True)
        for name, process in started.items():
            process.terminate()
            done = instance.finish(process)
            assert done.status == 0, name
            lines = [line for line in done.err.splitlines() if "database" in line]
            assert sum("going on when" in line for line in lines) <= 1, (name, done.err)
            assert len(done.err.splitlines()) < 20, (name, done.err)
    finally:
        embedded.stop(home)
