"""A clock that is ahead, or was: nothing is done for weeks that have not come, and nothing is silenced."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from medlive import clock
from medlive.clock import iso_week
from medlive.instance.loading import read_settings
from medlive.service.schedule.scheduler import run_scheduler
from tests.support.instance import Instance
from tests.support.receivers import serve_webhook

NewInstance = Callable[..., Instance]
# Due from the week's first moment, so that it is due whenever the tests are run.
EARLY = {
    "MEDLIVE_SCHEDULE__QUEUE__WEEKDAY": "mon",
    "MEDLIVE_SCHEDULE__QUEUE__HOUR": "0",
}
RUNS = "SELECT command, iso_week, outcome FROM pipeline_runs WHERE command = 'scheduler queue' ORDER BY id"
REAL = clock.now


async def take(instance: Instance, url: str = "") -> list[str]:
    """The steps that a scheduler does once by the real clocks."""
    variables = instance.environment() | (
        {"MEDLIVE_NOTIFY__WEBHOOK": url} if url else {}
    )
    settings = read_settings(variables)
    done = await run_scheduler(settings, asyncio.Event(), lambda _: None, once=True)
    return [
        f"{step['command']} {step['iso_week']}"
        for step in done
        if step["state"] == "done"
    ]


@pytest.mark.parametrize("days", [22, pytest.param(-22, marks=pytest.mark.thorough)])
async def test_a_clock_that_is_off_decides_nothing_and_is_said_once(
    new_instance: NewInstance, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    instance, week = new_instance(**EARLY), iso_week(REAL())
    monkeypatch.setattr(clock, "now", lambda: REAL() + timedelta(days=days))
    with serve_webhook() as (url, posts):
        assert f"scheduler queue {week}" in await take(instance, url)
        (sent,) = [post["text"] for post in posts if post.get("code") == "clock_off"]
    assert instance.rows(RUNS) == [("scheduler queue", week, "done")]
    said = f"{REAL() + timedelta(days=days):%Y-%m-%d}"
    assert f"this machine's clock says {said}" in sent
    monkeypatch.setattr(clock, "now", REAL)
    assert "queue" not in str(await take(instance))


async def test_what_a_clock_that_was_ahead_has_recorded_silences_nothing(
    new_instance: NewInstance,
) -> None:
    instance, week = new_instance(**EARLY), iso_week(REAL())
    ahead = iso_week(REAL() + timedelta(days=22))
    instance.change(
        "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at) "
        f"VALUES ('scheduler queue', '{ahead}', 'x', '{{}}', 'done', now())"
    )
    assert f"scheduler queue {week}" in await take(instance)
    await take(instance)
    assert instance.rows(RUNS) == [
        ("scheduler queue", ahead, "partial"),
        ("scheduler queue", week, "done"),
    ]


async def test_a_week_that_was_frozen_ahead_of_its_time_is_named(
    new_instance: NewInstance,
) -> None:
    instance = new_instance(
        MEDLIVE_SCHEDULE__FREEZE__WEEKDAY="mon", MEDLIVE_SCHEDULE__FREEZE__HOUR="0"
    )
    ahead = iso_week(REAL() + timedelta(days=22))
    columns = "version, state, frozen_at, manifest, manifest_digest, cases, criteria, publishable, why_not, path"
    instance.change(
        f"INSERT INTO snapshots ({columns}) VALUES ('{ahead}', 'frozen', now(), '{{}}', "
        f"'sha256:{'0' * 64}', 1, 1, true, '[]', 'x')"
    )
    steps = (
        await asyncio.to_thread(instance.here, "scheduler", "--dry-run", "--json")
    ).json
    (freeze,) = [step for step in steps if step["step"] == "freeze"]
    assert (freeze["status"], freeze["why"]) == (
        "blocked",
        f"{ahead} was frozen before its time: no earlier week can be frozen",
    )
