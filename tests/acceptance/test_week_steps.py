"""The steps of a week: shown with what they took and logged, run again or cleared beside a scheduler at work."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from medlive.clock import iso_week, now
from medlive.config import ScheduleSection
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.errors import CheckFailed
from medlive.instance.loading import read_settings
from medlive.service.schedule import scheduler
from medlive.service.schedule.rerun import clear_step, run_again
from medlive.service.schedule.scheduler import run_scheduler
from medlive.service.schedule.steps import (
    BACKUP,
    FREEZE,
    PUBLISH,
    VERIFY,
    latest_slot,
    read_states,
)
from medlive.service.work.jobs import defer_step
from tests.support.instance import Instance
from tests.support.waiting import until

NewInstance = Callable[..., Instance]
# Due from the week's first moment, so that it is due whenever the tests are run.
EARLY = {
    "MEDLIVE_SCHEDULE__QUEUE__WEEKDAY": "mon",
    "MEDLIVE_SCHEDULE__QUEUE__HOUR": "0",
}
RUNS = "SELECT outcome FROM pipeline_runs WHERE command = 'scheduler queue' ORDER BY id"
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


async def test_a_step_is_run_again_and_cleared_beside_a_scheduler(
    new_instance: NewInstance,
) -> None:
    instance, week = new_instance(**EARLY), iso_week(now())
    settings, stop = read_settings(instance.environment()), asyncio.Event()
    running = asyncio.create_task(
        run_scheduler(settings, stop, lambda _: None, wake_s=0.05)
    )
    await until(lambda: instance.rows(RUNS) == [("done",)])
    database = Database.connect(str(instance.url))
    run = await run_again(database, settings, "queue", by="ada")
    assert run is not None
    assert (run.week, run.outcome.value) == (week, "done")
    assert instance.rows(RUNS) == [("partial",), ("done",)]
    await clear_step(database, settings, "queue", reason="Another list.", by="ada")
    await until(lambda: instance.rows(RUNS) == [("partial",), ("partial",), ("done",)])
    stop.set()
    await running
    async with database.begin() as session:
        await defer_step(session, Queue.FILTER, "queue", week)
    for act in (run_again, clear_step):
        with pytest.raises(CheckFailed):
            await act(database, settings, "queue")
    await database.aclose()
    log = "SELECT by, action, subject, reason, details FROM audit_log ORDER BY number"
    assert instance.rows(log) == [
        ("ada", "run_step", "step:queue", None, {"week": week}),
        ("ada", "clear_step", "step:queue", "Another list.", {"week": week}),
    ]


def test_what_cannot_be_run_or_cleared_says_why(new_instance: NewInstance) -> None:
    instance, week = new_instance(**EARLY), iso_week(now())
    assert "unknown step 'cure'" in instance.here("week", "run", "cure", status=2).err
    assert (
        f"nothing is recorded of queue for {week}"
        in instance.here("week", "clear", "queue", status=2).err
    )
    frozen = iso_week(latest_slot(now(), ScheduleSection().freeze))
    columns = "version, state, frozen_at, manifest, manifest_digest, cases, criteria, publishable, why_not, path"
    instance.change(
        f"INSERT INTO snapshots ({columns}) VALUES ('{frozen}', 'frozen', now(), '{{}}', "
        f"'sha256:{'0' * 64}', 1, 1, true, '[]', 'x')"
    )
    refused = instance.here("week", "clear", "freeze", status=2)
    assert f"{frozen} is frozen and stays as it is" in refused.err


def test_weeks_are_shown_with_what_their_steps_took_and_logged(
    new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = new_instance(**EARLY)

    async def fails(*_: Any) -> dict[str, Any]:
        logging.getLogger("medlive.test").warning(
            "the password is %s", "postgresql://u:hunter2@host/db"
        )
        return {"problem": "no room"}

    monkeypatch.setitem(scheduler.WORK, "queue", fails)
    assert (
        "queue failed: no room" in instance.here("week", "run", "queue", status=1).err
    )
    instance.change(
        "UPDATE pipeline_runs SET started_at = started_at - interval '125 minutes'"
    )
    shown = instance.here("week", "show", "this", "--json").json
    (step,) = shown["steps"]
    assert (step["outcome"], step["in_short"], step["cost_usd"]) == (
        "failed",
        "no room",
        0.0,
    )
    assert step["took"].startswith("2:05:")
    (line,) = step["log"]
    assert line.endswith("warning the password is postgresql://u:***@host/db")
    page = instance.here("week", "show").out
    assert "2:05:" in page
    assert f"  {line}" in page.splitlines()


async def test_a_failed_step_is_logged_as_an_error(
    new_instance: NewInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(*_: Any) -> dict[str, Any]:
        return {"problem": "no room"}

    monkeypatch.setitem(scheduler.WORK, "queue", fails)
    settings = read_settings(new_instance(**EARLY).environment())
    await run_scheduler(settings, asyncio.Event(), lambda _: None, once=True)
    message = f"{iso_week(now())} scheduler queue: failed: no room"
    assert [
        record.levelname for record in caplog.records if record.getMessage() == message
    ] == ["ERROR"]


async def test_a_backup_waits_for_the_weeks_release_unless_that_failed(
    new_instance: NewInstance, tmp_path: Path
) -> None:
    instance = new_instance(
        MEDLIVE_BACKUP__FOLDER=str(tmp_path / "backups"), MEDLIVE_PUBLISH__WEEKLY="true"
    )
    week, settings = iso_week(MONDAY), read_settings(instance.environment())
    database = Database.connect(str(instance.url))
    late = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)

    def ran(step: str, outcome: str) -> None:
        instance.change(
            "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at) "
            f"VALUES ('scheduler {step}', '{week}', 'x', '{{}}', '{outcome}', now())"
        )

    async def waits() -> str:
        (state,) = [
            s for s in await read_states(database, settings, late) if s.name == BACKUP
        ]
        return (state.why or "") if state.waits else state.status

    ran("queue", "done")
    assert await waits() == "waits for freeze, until Tue 05:30 UTC at the latest"
    ran(FREEZE, "failed")
    assert await waits() == "due"
    columns = "version, state, frozen_at, manifest, manifest_digest, cases, criteria, publishable, why_not, path"
    instance.change(
        f"INSERT INTO snapshots ({columns}) VALUES ('{week}', 'frozen', now(), '{{}}', "
        f"'sha256:{'0' * 64}', 1, 1, true, '[]', 'x')"
    )
    assert await waits() == "waits for verify, until Tue 05:30 UTC at the latest"
    ran(VERIFY, "done")
    assert await waits() == "waits for publish, until Tue 05:30 UTC at the latest"
    ran(PUBLISH, "done")
    ran("announce", "done")
    assert await waits() == "due"
    await database.aclose()
