"""The scheduler's part: what comes due, what was missed, one active scheduler, and what status says."""

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db.curation.circuits import PostgresCircuits
from medlive.db.runs import SCHEDULER_LOCK
from medlive.db.session import Database
from medlive.guard.circuit import Opening, circuit_key
from medlive.instance.loading import read_settings
from medlive.service.schedule import scheduler
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.work.jobs import defer_revisions, open_app, run_until_drained
from medlive.service.work.taken import CURATE
from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.instance import Instance
from tests.support.receivers import serve_webhook
from tests.support.waiting import LIMIT_S, until

NewInstance = Callable[..., Instance]
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1, hours=4)


def settings_of(instance: Instance, **environment: str) -> Settings:
    return read_settings({**instance.environment(), **environment})


def execute(instance: Instance, *statements: str) -> None:
    with psycopg.connect(
        str(instance.url).replace("+psycopg", ""), autocommit=True
    ) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def is_scheduled(instance: Instance) -> bool:
    """Whether a scheduler is active; the exit status is not looked at, since the hour may make steps due."""
    shown = await asyncio.to_thread(instance.here, "status", "--json", status=None)
    return bool(shown.json["scheduler_active"])


async def test_a_step_is_run_when_it_comes_due_and_once(
    new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = new_instance()
    settings = settings_of(instance)
    monkeypatch.setattr(scheduler, "LOOK_AGAIN_MINUTES", 0.02)
    asked: list[int] = []

    def moment() -> datetime:
        """Nothing is due when the scheduler starts."""
        asked.append(1)
        return MONDAY if len(asked) <= 5 else TUESDAY

    stop, said = asyncio.Event(), list[str]()
    running = asyncio.create_task(
        run_scheduler(settings, stop, said.append, clock=moment, wake_s=0.05)
    )
    await until(lambda: any("scheduler queue: done" in message for message in said))
    stop.set()
    done = [t for t in await running if t["state"] != "skipped"]
    assert [(t["command"], t["state"]) for t in done] == [("scheduler queue", "done")]
    # Another scheduler, or a person, at the same time: nothing is left to do.
    again = await run_scheduler(
        settings, asyncio.Event(), said.append, once=True, clock=lambda: TUESDAY
    )
    assert [t for t in again if t["state"] != "skipped"] == []
    assert instance.rows("SELECT command, iso_week, outcome FROM pipeline_runs") == [
        ("scheduler queue", iso_week(MONDAY), "done")
    ]


async def test_an_open_circuit_is_sent_once_though_no_step_fails(
    new_instance: NewInstance,
) -> None:
    with serve_webhook() as (url, posts):
        role = {"ENGINE": "openai", "BASE_URL": "http://127.0.0.1:9/v1", "MODEL": "m"}
        variables = {
            f"MEDLIVE_ROLES__SCREENER__{name}": value for name, value in role.items()
        }
        settings = settings_of(
            instance := new_instance(), MEDLIVE_NOTIFY__WEBHOOK=url, **variables
        )
        opening = Opening(
            "127.0.0.1:9 (m)",
            "status 401: invalid key",
            False,
            datetime.now(UTC),
            datetime.now(UTC),
            60.0,
        )
        database = Database.connect(str(instance.url))
        # Of a worker's key, which is not in this process's environment.
        key = circuit_key("http://127.0.0.1:9/v1", "the workers' key", "m")
        await PostgresCircuits(database).swap(key, None, opening)
        await database.aclose()
        stop = asyncio.Event()
        running = asyncio.create_task(
            run_scheduler(
                settings, stop, lambda _: None, clock=lambda: MONDAY, wake_s=0.02
            )
        )
        await until(lambda: posts)
        stop.set()
        await running
    circuit = [post for post in posts if post.get("code") == "circuit_open"]
    assert [post["event"] for post in circuit] == ["problem"]
    assert "127.0.0.1:9 (m)" in circuit[0]["text"]
    assert "status 401: invalid key" in circuit[0]["text"]


@pytest.mark.thorough
async def test_the_next_scheduler_takes_over_from_one_that_was_killed(
    new_instance: NewInstance,
) -> None:
    instance = new_instance()
    settings, said, stop = settings_of(instance), list[str](), asyncio.Event()
    first = instance.start("scheduler")
    locked = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {SCHEDULER_LOCK}"
    await until(lambda: instance.one(locked) == 1)
    second = asyncio.create_task(
        run_scheduler(
            settings,
            stop,
            said.append,
            clock=lambda: TUESDAY + timedelta(days=70),
            wake_s=0.1,
        )
    )
    await until(lambda: said)
    assert said == ["another scheduler is active; waiting for it to end"]
    assert await is_scheduled(instance)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    week = iso_week(TUESDAY + timedelta(days=70))
    done = f"SELECT 1 FROM pipeline_runs WHERE command = 'scheduler queue' AND iso_week = '{week}'"
    await until(lambda: instance.rows(done))
    stop.set()
    await second
    assert not await is_scheduled(instance)


async def test_a_step_that_is_broken_off_ends_at_once_and_is_taken_again(
    new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = new_instance()
    begun = asyncio.Event()

    async def endless(
        database: Database, settings: Settings, week: str
    ) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    settings, stop = settings_of(instance), asyncio.Event()
    with monkeypatch.context() as patch:
        patch.setitem(scheduler.WORK, "queue", endless)
        running = asyncio.create_task(
            run_scheduler(
                settings, stop, lambda _: None, clock=lambda: TUESDAY, wake_s=30
            )
        )
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        stop.set()
        await asyncio.wait_for(running, LIMIT_S)
    runs = "SELECT outcome FROM pipeline_runs WHERE command = 'scheduler queue' ORDER BY id"
    assert instance.rows(runs) == [("running",)]
    await run_scheduler(
        settings, asyncio.Event(), lambda _: None, once=True, clock=lambda: TUESDAY
    )
    assert instance.rows(runs) == [("running",), ("done",)]


async def test_what_a_draining_scheduler_had_begun_is_broken_off_after_its_grace(
    new_instance: NewInstance,
) -> None:
    instance, begun, closed = new_instance(), asyncio.Event(), asyncio.Event()
    database = Database.connect(str(instance.url))

    async def endless(revision: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with open_app(database).open_async() as app:
        async with database.begin() as session:
            await defer_revisions(session, [1])
        works = {CURATE: endless}
        draining = asyncio.create_task(
            run_until_drained(app, database, works, concurrency=2, grace_s=0.1)
        )
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        draining.cancel()
        await asyncio.wait([draining], timeout=LIMIT_S)
        assert draining.done()
        assert closed.is_set()
    await database.aclose()
    # It waits again, with no attempt used, and whoever serves the queue takes it.
    assert instance.rows("SELECT status::text, attempts FROM procrastinate_jobs") == [
        ("todo", 0)
    ]


async def test_a_week_is_harvested_queued_and_not_harvested_again(
    new_instance: NewInstance,
) -> None:
    forum = Forum()
    forum.add(*(thread(n, posts=2) for n in range(4)))
    async with serve_forum(forum):
        # Everything is due from the week's first moment; the other sources are quarantined.
        names = ("SDN", "ICLINIQ", "DXY", "MEDLIVE")
        early = {
            f"MEDLIVE_SCHEDULE__HARVEST_SOURCES__{name}__HOUR": "0" for name in names
        }
        instance = new_instance(
            MEDLIVE_HARVEST__ALLOW_LOOPBACK="true",
            MEDLIVE_HARVEST__BACKOFF_S="0.01",
            MEDLIVE_SOURCES__SDN__BASE_URL=forum.url,
            MEDLIVE_SOURCES__SDN__BOARDS=f'["{BOARD}"]',
            MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S="0",
            MEDLIVE_SCHEDULE__QUEUE__WEEKDAY="mon",
            MEDLIVE_SCHEDULE__QUEUE__HOUR="0",
            **early,
        )
        execute(
            instance,
            "INSERT INTO sources (name, kind, quarantined_at, quarantine_reason) "
            "SELECT name, 'site', now(), 'no dates' FROM unnest(ARRAY['icliniq', 'dxy', 'medlive']) AS t (name)",
        )
        settings = settings_of(instance)
        first = await run_scheduler(
            settings, asyncio.Event(), lambda _: None, once=True
        )
        told = {t["command"].removeprefix("scheduler "): t["state"] for t in first}
        assert {told[f"harvest {name}"] for name in ("icliniq", "dxy", "medlive")} == {
            "skipped"
        }
        assert "quarantined: no dates" in {t["detail"] for t in first}
        assert (told["harvest sdn"], told["queue"]) == (
            "done",
            "done",
        )
        asked = len(forum.asked)
        again = await run_scheduler(
            settings, asyncio.Event(), lambda _: None, once=True
        )
        assert {t["command"] for t in again} & {
            "scheduler harvest sdn",
            "scheduler queue",
        } == set()
        assert len(forum.asked) == asked
    ((week, counts),) = instance.rows(
        "SELECT iso_week, counts FROM pipeline_runs WHERE command = 'scheduler harvest sdn'"
    )
    assert (week, counts["new"]) == (
        instance.one("SELECT iso_week FROM harvest_runs WHERE source = 'sdn'"),
        4,
    )
    ((passed, rejected),) = instance.rows(
        "SELECT counts -> 'passed', counts -> 'rejected' FROM pipeline_runs WHERE command = 'scheduler queue'"
    )
    assert passed + rejected == 4


def test_status_tells_what_is_overdue_and_who_is_quarantined(
    new_instance: NewInstance,
) -> None:
    instance = new_instance()
    done = instance.here("status", "--json").json
    assert (done["problems"], {s["overdue"] for s in done["steps"]}) == ([], {False})
    assert "not due yet" in instance.here("status").out
    healthy = instance.here("status", "--check")
    assert (healthy.out, healthy.err) == ("", "")
    execute(
        instance,
        "INSERT INTO sources (name, kind) VALUES ('sdn', 'site'), ('dxy', 'site')",
        "INSERT INTO harvest_runs (source, iso_week, started_at, finished_at, outcome, counts) "
        "VALUES ('sdn', to_char(now() - interval '3 weeks', 'IYYY.\"W\"IW'), now() - interval '3 weeks', "
        """now() - interval '3 weeks', 'done', '{"pages": 9, "conditional": 8, "not_modified": 6}')""",
    )
    overdue = instance.here("status", "--json", status=1)
    told = overdue.json
    assert {s["step"] for s in told["steps"] if s["overdue"]} == {
        "harvest:sdn",
        "queue",
        "freeze",
        "retention",
    }
    (sdn,) = (s for s in told["steps"] if s["step"] == "harvest:sdn")
    assert sdn["last"]["took"] == "0:00:00"
    assert (sdn["last"]["outcome"], sdn["last"]["in_short"]) == (
        "done",
        "pages 9, conditional 8, not_modified 6",
    )
    assert "harvest:sdn is overdue since" in overdue.err
    execute(
        instance,
        "UPDATE sources SET quarantined_at = now(), quarantine_reason = 'author fell to 3%'",
    )
    shown = instance.here("status", status=1).err
    assert shown.count("is quarantined since") == shown.count("author fell to 3%") == 2
    checked = instance.here("status", "--check", status=1)
    assert checked.err == ""
    codes = [line.partition(":")[0] for line in checked.out.splitlines()]
    assert codes == ["no_scheduler", *["source_quarantined"] * 2, *["step_overdue"] * 4]
    # What somebody has taken on is left out, and shown by `status`.
    assert (
        instance.here(
            "status", "ack", "no_scheduler", "--why", "cron does it", "--by", "ada"
        ).status
        == 0
    )
    assert instance.here("status", "--check", status=1).out.count("no_scheduler") == 0
    assert "acknowledged: no_scheduler" in instance.here("status", status=1).err
    wrong = instance.here("status", "ack", "no_scheduler", "--hours", "week", status=2)
    assert "--hours" in wrong.err
    assert (
        "no problem nothing is open"
        in instance.here("status", "ack", "nothing", status=2).err
    )


def test_a_dry_run_lists_every_step_and_does_nothing(new_instance: NewInstance) -> None:
    instance = new_instance(MEDLIVE_SCHEDULE__HARVEST_SOURCES__SDN__MINUTE="15")
    steps = instance.here("scheduler", "--dry-run", "--json").json
    assert [s["step"] for s in steps[4:]] == ["queue", "freeze", "verify", "retention"]
    assert [s["due"][14:16] for s in steps if s["step"] == "harvest:sdn"] == ["15"]
    assert "queue" in instance.here("scheduler", "--dry-run").out
    assert instance.one("SELECT count(*) FROM pipeline_runs") == 0
    # A name that is no source stops it before anything is done.
    time_of = "MEDLIVE_SCHEDULE__HARVEST_SOURCES__NOWHERE__"
    wrong = Instance(
        instance.home, instance.url, {f"{time_of}HOUR": "3", f"{time_of}WEEKDAY": "mon"}
    )
    assert "nowhere" in wrong.here("scheduler", "--once", status=2).err
