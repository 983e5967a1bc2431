"""A week is frozen when its threads are settled, by stored facts; or it says why they are not."""

import asyncio
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.demo.samples import SampleThread
from medlive.instance.loading import read_settings
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.schedule.steps import read_states
from tests.support.bad_endpoint import bad_endpoint, ok
from tests.support.instance import Instance, write_lines, write_models
from tests.support.serving import serving
from tests.support.threads import as_import

NewInstance = Callable[..., Instance]
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
SUNDAY = MONDAY + timedelta(days=6, hours=18, minutes=1)
WEEK, NEXT = iso_week(MONDAY), iso_week(MONDAY + timedelta(days=7))
TODO = "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL"
STATES = {
    "no worker is connected": (),
    "all jobs are delayed": (
        "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour'",
    ),
    "a dead worker had begun": (
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour')",
        "UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT max(id) FROM procrastinate_workers)",
    ),
    "the jobs have failed": (TODO, "UPDATE procrastinate_jobs SET status = 'failed'"),
    "the jobs are gone": ("DELETE FROM procrastinate_jobs",),
}
PARTIAL = "SELECT version, manifest -> 'partial' FROM snapshots ORDER BY version"


def settings_of(instance: Instance) -> Settings:
    return read_settings(instance.environment())


async def take(instance: Instance, moment: datetime) -> dict[str, tuple[str, str]]:
    """What a scheduler does at a moment, but for harvests."""
    done = await run_scheduler(
        settings_of(instance),
        asyncio.Event(),
        lambda _: None,
        once=True,
        clock=lambda: moment,
    )
    steps = {
        step["command"].removeprefix("scheduler "): (step["state"], step["detail"])
        for step in done
    }
    return {
        name: step for name, step in steps.items() if not name.startswith("harvest")
    }


async def import_kept(
    instance: Instance, samples: list[SampleThread], first: int, last: int
) -> None:
    lines = [as_import(t) for t in samples if t.expect.outcome == "kept"][first:last]
    path = write_lines(instance.home / f"threads-{first}.jsonl", lines)
    await asyncio.to_thread(instance.here, "import", path)


async def queue(instance: Instance, moment: datetime) -> None:
    """The week's queueing beside a worker, which is gone afterwards and has decided nothing."""
    database = Database.connect(str(instance.url))
    async with serving(database, [Queue.CURATE]):
        assert (await take(instance, moment))["queue"][0] == "done"
    await database.aclose()


@pytest.mark.thorough
async def test_a_freeze_waits_whoever_is_connected_and_its_limit_makes_a_partial_week(
    new_instance: NewInstance, samples: list[SampleThread]
) -> None:
    instance = new_instance()
    await import_kept(instance, samples, 0, 2)
    await asyncio.to_thread(instance.here, "curate")
    await import_kept(instance, samples, 2, 5)
    await queue(instance, MONDAY + timedelta(days=2))
    database = Database.connect(str(instance.url))
    for name, changes in STATES.items():
        for change in changes:
            instance.change(change)
        states = await read_states(database, settings_of(instance), SUNDAY)
        (freeze,) = [state for state in states if state.name == "freeze"]
        assert (freeze.status, freeze.why) == (
            "blocked",
            "waits for its threads (2 of 5, because 3 wait (not begun 3)), until Mon 18:01 UTC at the latest",
        ), name
    await database.aclose()
    # A scheduler that looks at its time, another one a day later: the limit counts from the first look.
    assert (await take(instance, SUNDAY))["freeze"][0] == "skipped"
    late = SUNDAY + timedelta(hours=24)
    assert (await take(instance, late))["freeze"][0] == "done"
    because = "3 wait (not begun 3); the time limit of 24 hours had passed"
    assert instance.rows(PARTIAL) == [
        (WEEK, {"decided": 2, "queued": 5, "because": because})
    ]
    line = f"{WEEK} is partial: 2 of 5, because {because}"
    checked = await asyncio.to_thread(instance.here, "status", "--check", status=1)
    assert line in checked.out
    folder = instance.home / "snapshots" / f"medlive-{WEEK}"
    sums = (folder / "SHA256SUMS").read_bytes()
    shutil.rmtree(folder)
    await asyncio.to_thread(instance.here, "snapshot", "freeze", "--week", WEEK)
    assert (folder / "SHA256SUMS").read_bytes() == sums
    assert f"The week is partial: 2 of 5, because {because}" in (
        folder / "CHANGES.md"
    ).read_text("utf-8")
    assert (
        await asyncio.to_thread(instance.here, "snapshot", "verify", WEEK)
    ).status == 0
    # The rest enters the next week, which is whole.
    await asyncio.to_thread(instance.here, "curate")
    assert (await take(instance, SUNDAY + timedelta(days=7)))["freeze"][0] == "done"
    assert instance.rows(PARTIAL)[1:] == [(NEXT, None)]
    assert instance.rows("SELECT cases FROM snapshots ORDER BY version") == [(2,), (5,)]
    assert (
        line
        not in (
            await asyncio.to_thread(instance.here, "status", "--check", status=None)
        ).out
    )


@pytest.mark.thorough
async def test_after_missed_weeks_the_freeze_waits_for_the_queue_that_is_due_with_it(
    new_instance: NewInstance, samples: list[SampleThread]
) -> None:
    instance = new_instance()
    await import_kept(instance, samples, 0, 3)
    instance.change(
        "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at) "
        f"VALUES ('scheduler retention', '{WEEK}', 'x', '{{}}', 'done', now())"
    )
    back = MONDAY + timedelta(days=15)
    database = Database.connect(str(instance.url))
    async with serving(database, [Queue.CURATE]):
        done = await take(instance, back)
    await database.aclose()
    assert (done["queue"][0], done["freeze"][0]) == ("done", "skipped")
    assert "0 of 3, because 3 wait" in done["freeze"][1]
    await asyncio.to_thread(instance.here, "curate")
    assert (await take(instance, back + timedelta(hours=1)))["freeze"][0] == "done"
    assert instance.rows(
        "SELECT version, cases, manifest -> 'partial' FROM snapshots"
    ) == [(NEXT, 3, None)]


async def test_a_week_whose_threads_fail_alike_is_not_whole_and_an_empty_one_is_not_frozen(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> None:
    instance = new_instance(
        MEDLIVE_CONFIG=str(write_models(tmp_path / "config", "http://127.0.0.1:9/v1"))
    )
    await import_kept(instance, samples, 0, 3)
    async with bad_endpoint([ok("rubbish")]) as endpoint:
        write_models(tmp_path / "config", endpoint.url)
        done = await take(instance, SUNDAY)
        problem = "3 of 3 threads failed, most with invalid_reply"
        assert done["queue"] == ("failed", problem)
        assert "0 of 3, because 3 failed (invalid_reply 3)" in done["freeze"][1]
        late = await take(instance, SUNDAY + timedelta(hours=24))
    assert late["freeze"][0] == "failed"
    assert late["freeze"][1].startswith(
        f"no case is ready for {WEEK}: 0 were kept out, 0 are held out"
    )
    assert instance.rows("SELECT version FROM snapshots") == []


@pytest.mark.thorough
async def test_a_person_may_freeze_a_partial_week_and_is_named_in_the_log(
    new_instance: NewInstance, samples: list[SampleThread]
) -> None:
    instance = new_instance()
    await import_kept(instance, samples, 0, 1)
    await asyncio.to_thread(instance.here, "curate")
    await import_kept(instance, samples, 1, 3)
    await queue(instance, MONDAY + timedelta(days=2))

    def here(*arguments: str, status: int | None = 0) -> Any:
        return asyncio.to_thread(instance.here, *arguments, status=status)

    refused = await here("snapshot", "freeze", "--week", WEEK, status=1)
    assert f"{WEEK} is not whole: 1 of 3, because 2 wait (not begun 2)" in refused.err
    assert (
        "--by says who freezes"
        in (await here("snapshot", "freeze", "--by", "ada", status=2)).err
    )
    done = await here(
        "snapshot", "freeze", "--week", WEEK, "--partial", "--by", "ada", "--json"
    )
    because = "2 wait (not begun 2); frozen so by a person"
    assert done.json["partial"] == {"decided": 1, "queued": 3, "because": because}
    assert instance.rows("SELECT by, action, subject, details FROM audit_log") == [
        ("ada", "freeze_partial", f"snapshot:{WEEK}", {"decided": 1, "queued": 3})
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("state", ["pending", "failed"])
async def test_a_failure_that_a_job_tries_again_waits_and_a_single_other_one_is_settled(
    new_instance: NewInstance, samples: list[SampleThread], state: str
) -> None:
    instance = new_instance()
    await import_kept(instance, samples, 0, 3)
    await asyncio.to_thread(instance.here, "curate")
    # One of three has failed, with or without a job that tries it again.
    instance.change(
        "UPDATE thread_standings SET outcome = 'failed', reason = 'refused' WHERE thread_id = 1"
    )
    if state == "pending":
        instance.change(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status, queueing_lock, args, scheduled_at)"
            " SELECT 'curate', 'medlive:curate_revision', 'todo', 'curate:' || revision_id,"
            " jsonb_build_object('revision', revision_id), now() + interval '4 hours'"
            " FROM thread_standings WHERE thread_id = 1"
        )
    database = Database.connect(str(instance.url))
    states = await read_states(database, settings_of(instance), SUNDAY)
    await database.aclose()
    (freeze,) = [step for step in states if step.name == "freeze"]
    assert ("2 of 3, because 1 wait (refused 1)" in (freeze.why or "")) is (
        state == "pending"
    )
    assert ("its threads" in (freeze.why or "")) is (state == "pending")
