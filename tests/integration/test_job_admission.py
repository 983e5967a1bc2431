"""Whoever may insert jobs makes no worker do what its queue is not for: each of these is refused, and says why."""

import asyncio
import json
from datetime import timedelta

import pytest
from sqlalchemy import text

from medlive.clock import iso_week, now
from medlive.config import PublishSection, Settings
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.errors import CheckFailed
from medlive.service.schedule.scheduler import step_work
from medlive.service.work.jobs import open_app, run_step_job, run_until_stopped
from medlive.service.work.taken import CURATE, PROVE, STEP, Jobs, Readiness, Works
from tests.support.waiting import LIMIT_S

WEEK = "2026.W47"
STEPS = {
    "queue": Queue.FILTER,
    "freeze": Queue.RELEASE,
    "verify": Queue.RELEASE,
    "publish": Queue.RELEASE,
    "announce": Queue.RELEASE,
    "retention": Queue.UPKEEP,
    "backup": Queue.BACKUP,
    "harvest:sdn": Queue.HARVEST,
}

Planted = tuple[str, str, dict[str, object]]


def _planted() -> list[Planted]:
    """(task, queue, arguments) of jobs that medlive never queues."""
    jobs: list[Planted] = []
    queues = [*Queue]
    for number, (step, own) in enumerate(STEPS.items()):
        others = [queue for queue in queues if queue is not own]
        queue = others[number % len(others)]
        jobs.append((STEP, queue, {"step": step, "week": WEEK}))
    for queue in queues:
        if queue is not Queue.CURATE:
            jobs.append((CURATE, queue, {"revision": 1}))
            jobs.append((PROVE, queue, {"case_id": "ml-1", "revision": 1}))
    weeks = ("2026.W54", "2026.W00", "0000.W01", "../2026.W47", "2026.W47\n", "", "x")
    future = iso_week(now() + timedelta(days=14))
    for week in (*weeks, 202647, None, ["2026.W47"], "9999.W01", future):
        jobs.append((STEP, Queue.RELEASE, {"step": "freeze", "week": week}))
    for step in ("publish", "announce"):
        jobs.append((STEP, Queue.RELEASE, {"step": step, "week": WEEK}))
    for unknown in ("harvest:evil", "harvest:", "harvest:../x", "drop", "", 7):
        jobs.append((STEP, Queue.HARVEST, {"step": unknown, "week": WEEK}))
    added: list[dict[str, object]] = [
        {"job": 1},
        {"event": "x"},
        {"self": 1},
        {"settings": {}},
    ]
    for more in added:
        jobs.append((STEP, Queue.RELEASE, {"step": "freeze", "week": WEEK, **more}))
    for case_id in ("", "..", 7, None):
        jobs.append((PROVE, Queue.CURATE, {"case_id": case_id, "revision": 1}))
    for revision in (0, -1, True, "1", 1.5, None):
        jobs.append((CURATE, Queue.CURATE, {"revision": revision}))
    jobs.append(("builtin_tasks:remove_old_jobs", Queue.UPKEEP, {"max_hours": 0}))
    return jobs


async def test_a_job_that_medlive_never_queues_is_refused(
    database: Database, settings: Settings
) -> None:
    ran: list[str] = []

    async def curate(revision: int) -> None:
        ran.append(f"curated {revision}")

    works: Works = {
        CURATE: curate,
        STEP: step_work(database, settings),
    }
    jobs = _planted()
    assert len(jobs) == 53
    insert = text(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, args)"
        " VALUES (:queue, :task, CAST(:args AS jsonb))"
    )
    async with database.begin() as session:
        for task, queue, arguments in jobs:
            values = {"queue": queue, "task": task, "args": json.dumps(arguments)}
            await session.execute(insert, values)
    stop = asyncio.Event()
    async with open_app(database).open_async() as app, asyncio.timeout(LIMIT_S):
        worker = asyncio.create_task(
            run_until_stopped(
                Jobs(app, database, works, Readiness()),
                [*Queue],
                concurrency=8,
                stop=stop,
            )
        )
        query = text("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'failed'")
        while True:
            async with database.begin() as session:
                if not await session.scalar(query):
                    break
            await asyncio.sleep(0.1)
        stop.set()
        await worker
    assert ran == []
    async with database.begin() as session:
        runs = await session.scalar(text("SELECT count(*) FROM pipeline_runs"))
        reasons = await session.scalars(text("SELECT reason FROM job_failures"))
        assert runs == 0
        for reason in reasons:
            assert "refused" in reason


async def test_nothing_is_announced_before_it_is_published(
    database: Database, settings: Settings
) -> None:
    weekly = PublishSection(weekly=True, at="/nowhere")
    work = step_work(database, settings.model_copy(update={"publish": weekly}))
    for step, before in (("publish", "verify"), ("announce", "publish")):
        with pytest.raises(CheckFailed, match=f"{before} of {WEEK} is not done"):
            await work(step, WEEK)


async def test_a_step_in_its_own_queue_is_taken(database: Database) -> None:
    done: list[str] = []

    async def work(step: str, week: str) -> None:
        done.append(f"{step} {week}")

    async with open_app(database).open_async() as app:
        for step, queue in STEPS.items():
            await run_step_job(app, database, {STEP: work}, queue, step, WEEK)
    assert done == [f"{step} {WEEK}" for step in STEPS]
