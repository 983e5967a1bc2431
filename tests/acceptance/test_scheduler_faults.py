"""The scheduler beside what hangs, fails or holds a lock: the week goes on, and nothing is failed for nothing."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db.session import Database, advisory_lock
from medlive.demo.samples import SampleThread
from medlive.instance.loading import read_settings
from medlive.service.schedule.scheduler import run_scheduler, run_step
from medlive.service.schedule.steps import read_states
from tests.support.bad_endpoint import bad_endpoint, hangs
from tests.support.instance import Instance, write_lines, write_models
from tests.support.threads import as_import
from tests.support.waiting import until

NewInstance = Callable[..., Instance]
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
RUNS = "SELECT outcome FROM pipeline_runs WHERE command = %s ORDER BY id"


def at(step: str, moment: datetime) -> dict[str, str]:
    """The settings by which a step is due at that moment."""
    name = f"MEDLIVE_SCHEDULE__{step.upper()}__"
    return {
        f"{name}WEEKDAY": DAYS[moment.weekday()],
        f"{name}HOUR": str(moment.hour),
        f"{name}MINUTE": str(moment.minute),
    }


def settings_of(instance: Instance) -> Settings:
    return read_settings(instance.environment())


@asynccontextmanager
async def scheduled(instance: Instance, clock: Callable[[], datetime]) -> Any:
    """A scheduler that wakes often; yields what it says."""
    stop, said = asyncio.Event(), list[str]()
    running = asyncio.create_task(
        run_scheduler(
            settings_of(instance), stop, said.append, clock=clock, wake_s=0.05
        )
    )
    try:
        yield said
    finally:
        stop.set()
        await running


@pytest.mark.thorough
async def test_a_freeze_waits_for_an_endpoint_that_hangs_and_at_its_limit_says_what_is_missing(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> None:
    start = datetime(2026, 11, 16, 9, tzinfo=UTC)
    freeze_at, moment = start + timedelta(hours=7), [start]
    instance = new_instance(
        MEDLIVE_CONFIG=str(tmp_path / "config"),
        **at("queue", start),
        **at("freeze", freeze_at),
        **at("retention", start - timedelta(hours=9)),
    )
    kept = [as_import(t) for t in samples if t.expect.outcome == "kept"]
    write_models(tmp_path / "config", "http://127.0.0.1:9/v1", engine="rules")
    await asyncio.to_thread(
        instance.here, "import", write_lines(tmp_path / "ready.jsonl", kept[:3])
    )
    await asyncio.to_thread(instance.here, "curate")
    instance.change("DELETE FROM pipeline_runs")  # that by hand counts as the queue's
    await asyncio.to_thread(
        instance.here, "import", write_lines(tmp_path / "hang.jsonl", kept[3:27])
    )
    async with bad_endpoint([hangs]) as endpoint:
        write_models(tmp_path / "config", endpoint.url, timeout_s=3600)
        async with scheduled(instance, lambda: moment[0]) as said:
            await until(lambda: endpoint.under_way >= 10)
            moment[0] = freeze_at
            await until(
                lambda: any("scheduler freeze: waits for" in line for line in said)
            )
            assert instance.rows(RUNS, ["scheduler freeze"]) == []
            moment[0] = freeze_at + timedelta(hours=24)
            await until(
                lambda: instance.rows(RUNS, ["scheduler freeze"]) == [("done",)]
            )
            assert endpoint.under_way >= 10
    because = "24 wait (not begun 24); the time limit of 24 hours had passed"
    partial = {"decided": 3, "queued": 27, "because": because}
    assert instance.rows("SELECT version, manifest -> 'partial' FROM snapshots") == [
        (iso_week(freeze_at), partial)
    ]
    assert instance.rows(RUNS, ["scheduler queue"]) == [("running",)]


async def test_a_catch_up_after_downtime_freezes_after_what_has_just_begun(
    new_instance: NewInstance,
) -> None:
    start = datetime(2026, 11, 16, tzinfo=UTC)
    instance = new_instance()
    settings = settings_of(instance)
    instance.change(
        "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at) "
        f"VALUES ('scheduler retention', '{iso_week(start)}', 'x', '{{}}', 'done', now())"
    )
    database = Database.connect(str(instance.url))
    late = start + timedelta(days=8, hours=9)

    async def freeze_at(moment: datetime, *, keep: bool = True) -> tuple[str, str]:
        (state,) = [
            s
            for s in await read_states(database, settings, moment, keep=keep)
            if s.name == "freeze"
        ]
        return state.status, state.why or ""

    waits = ("blocked", "waits for queue, until Wed 09:00 UTC at the latest")
    assert await freeze_at(late) == waits
    # Whoever only looks stores nothing; who looks later, after a restart too, sees since when it waits.
    assert (await freeze_at(late + timedelta(hours=23), keep=False)) == waits
    assert await freeze_at(late + timedelta(hours=24), keep=False) == ("due", "")
    # Noted by a clock that was ahead: from now on.
    assert (await freeze_at(late - timedelta(hours=1)))[
        1
    ] == "waits for queue, until Wed 08:00 UTC at the latest"
    assert await freeze_at(late + timedelta(hours=23)) == ("due", "")
    await database.aclose()


@pytest.mark.parametrize("days", [21, -21])
async def test_a_clock_that_jumps_is_noticed_at_the_next_wake(
    new_instance: NewInstance, days: int
) -> None:
    instance = new_instance()
    moment, asked = [datetime(2026, 11, 17, 4, tzinfo=UTC)], list[datetime]()

    def clock() -> datetime:
        asked.append(moment[0])
        return moment[0]

    weeks = "SELECT iso_week FROM pipeline_runs WHERE command = 'scheduler queue' AND outcome = 'done' ORDER BY id"
    async with scheduled(instance, clock) as said:
        await until(lambda: len(instance.rows(weeks)) == 1)
        moment[0] += timedelta(days=days)
        if days > 0:
            await until(lambda: len(instance.rows(weeks)) == 2)
        else:  # those weeks are done; when the clock is right again, it goes on
            await until(lambda: asked.count(moment[0]) > 9)
            moment[0] += timedelta(days=28)
            await until(lambda: len(instance.rows(weeks)) == 2)
    assert len(set(instance.rows(weeks))) == 2, said


async def test_retention_and_harvest_wait_for_each_other_and_neither_fails(
    new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = new_instance(MEDLIVE_HARVEST__ALLOW_LOOPBACK="true")
    settings, week = settings_of(instance), iso_week(datetime.now(UTC))
    instance.change("INSERT INTO sources (name, kind) VALUES ('sdn', 'site')")
    database = Database.connect(str(instance.url))

    async def sources(session: Any) -> list[str]:
        return ["sdn"]

    monkeypatch.setattr("medlive.db.harvest.fetches.archived_sources", sources)
    async with advisory_lock(database, "harvest sdn"):
        for step in ("retention", "harvest:sdn"):
            await run_step(database, settings, step, week)
    for command in ("scheduler retention", "scheduler harvest sdn"):
        assert instance.rows(RUNS, [command]) == [("partial",)]
    today = datetime.now(UTC)
    # of the next week, past every harvest's time
    wednesday = today + timedelta(days=9 - today.weekday())
    states = {s.name: s for s in await read_states(database, settings, wednesday)}
    assert states["harvest:sdn"].status == "due"
    assert states["retention"].waits
    assert "harvest:sdn" in (states["retention"].why or "")
    await run_step(database, settings, "retention", week)
    assert instance.rows(RUNS, ["scheduler retention"]) == [("partial",), ("done",)]
    await database.aclose()
