"""What is due, from a moment, the times and the rows; no database and no clock."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.clock import iso_week
from medlive.config import ScheduleSection, Settings, WeeklyTime
from medlive.db.release.weeks import WeekStanding
from medlive.db.runs import HarvestHistory, History, Run
from medlive.db.tables.intake import RunOutcome
from medlive.errors import ConfigError
from medlive.service.schedule import scheduler
from medlive.service.schedule.scheduler import _Runner
from medlive.service.schedule.steps import (
    AFTER,
    BACKUP,
    RETRY_AFTER,
    WEEK,
    StepState,
    due_at,
    due_steps,
    latest_slot,
    recently_begun,
    step_states,
    weekly_times,
)
from medlive.service.waiting import Liveness
from medlive.snapshot.manifest import Partial
from tests.support.waiting import until

SCHEDULE = ScheduleSection(
    harvest_sources={"b": WeeklyTime(weekday="fri", hour=7, minute=30)}
)
TIMES = {
    name: at
    for name, at in weekly_times(SCHEDULE, {"a": None, "b": None}).items()
    if name != BACKUP
}
EMPTY = History({}, {}, {}, None, None, frozenset(), {})
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
MOMENTS = st.integers(0, 20 * 365 * 86_400).map(
    lambda s: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
)
WEEKLY = st.builds(
    WeeklyTime,
    weekday=st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
)


def run(week: str | None, at: datetime, outcome: RunOutcome = RunOutcome.DONE) -> Run:
    return Run(
        week,
        outcome,
        at,
        None if outcome is RunOutcome.RUNNING else at + timedelta(minutes=1),
        {},
    )


def harvested(at: datetime, *, first: datetime | None = None) -> HarvestHistory:
    return SimpleNamespace(
        first_at=first or at,
        latest=run(iso_week(at), at),
        done_week=iso_week(at),
        done_at=at + timedelta(minutes=1),
    )


def states(moment: datetime, history: History = EMPTY) -> Mapping[str, StepState]:
    return {state.name: state for state in step_states(TIMES, history, moment)}


def due(moment: datetime, history: History = EMPTY) -> list[tuple[str, str]]:
    return [(s.week, s.name) for s in due_steps(step_states(TIMES, history, moment))]


def test_each_source_has_its_own_time_and_the_others_the_common_one() -> None:
    assert list(TIMES) == [
        "harvest:a",
        "harvest:b",
        "queue",
        "freeze",
        *AFTER,
        "retention",
    ]
    assert due(MONDAY + timedelta(hours=2, minutes=59)) == []
    assert due(MONDAY + timedelta(hours=3)) == [("2026.W47", "harvest:a")]
    friday = MONDAY + timedelta(days=4, hours=7, minutes=30)
    assert due(friday - timedelta(seconds=1)) == [
        ("2026.W47", "harvest:a"),
        ("2026.W47", "queue"),
    ]
    assert ("2026.W47", "harvest:b") in due(friday)


def test_a_time_for_a_source_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="harvest_sources"):
        weekly_times(SCHEDULE, {"a": None})


@pytest.mark.parametrize(
    ("before", "week", "after"),
    [
        (datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC), "2026.W47", "2026.W48"),
        (datetime(2027, 1, 3, 23, 59, 59, tzinfo=UTC), "2026.W53", "2027.W01"),
        (datetime(2025, 12, 28, 23, 59, 59, tzinfo=UTC), "2025.W52", "2026.W01"),
    ],
)
def test_the_week_ends_on_sunday_at_midnight_utc(
    before: datetime, week: str, after: str
) -> None:
    schedule = ScheduleSection(
        harvest=WeeklyTime(weekday="mon", hour=0),
        freeze=WeeklyTime(weekday="sun", hour=23),
    )
    times = weekly_times(schedule, {"a": None})
    known = replace(EMPTY, weeks=frozenset({week}))

    def at(moment: datetime) -> dict[str, StepState]:
        return {s.name: s for s in step_states(times, known, moment)}

    last, first = at(before), at(before + timedelta(seconds=1))
    assert (last["harvest:a"].week, last["freeze"].week) == (week, week)
    # The new week's harvest, and the freeze that the old one has not had.
    assert (first["harvest:a"].week, first["freeze"].week) == (after, week)
    assert first["harvest:a"].slot == before + timedelta(seconds=1)
    assert first["freeze"].slot == last["freeze"].slot
    # Berlin's clocks or Chicago's make no difference.
    assert due_at(before.astimezone(), schedule.freeze) == last["freeze"].slot


@given(MOMENTS, WEEKLY)
def test_a_slot_is_the_one_weekly_time_of_the_last_seven_days(
    moment: datetime, time: WeeklyTime
) -> None:
    slot = latest_slot(moment, time)
    assert moment - WEEK < slot <= moment
    assert (slot.weekday(), slot.hour, slot.minute, slot.second) == (
        ["mon", "tue", "wed", "thu", "fri", "sat", "sun"].index(time.weekday),
        time.hour,
        time.minute,
        0,
    )


@pytest.mark.thorough
@given(st.lists(st.integers(1, 24 * 40), min_size=1, max_size=60))
def test_no_week_is_done_twice_and_none_that_was_seen_is_left_out(
    gaps: list[int],
) -> None:
    """A machine that is on at any hours: what is due is done at once, and the rows are what remains of it."""
    history, moment = EMPTY, MONDAY
    taken: list[tuple[str, str]] = []
    for gap in gaps:
        moment += timedelta(hours=gap)
        for _ in range(10):
            steps = due_steps(step_states(TIMES, history, moment))
            if not steps:
                break
            step = steps[0]
            taken.append((step.name, step.week))
            history = _after(history, step, moment)
        assert due_steps(step_states(TIMES, history, moment)) == []
        assert {s.status for s in step_states(TIMES, history, moment)} == {"done"}
    assert len(taken) == len(set(taken)) or _repeats(taken) == {"queue"}


def _repeats(taken: list[tuple[str, str]]) -> set[str]:
    return {name for name, week in taken if taken.count((name, week)) > 1}


def _after(history: History, step: StepState, moment: datetime) -> History:
    history = replace(history, weeks=history.weeks | {step.week})
    if step.source is not None:
        first = (
            history.harvests[step.source].first_at
            if step.source in history.harvests
            else moment
        )
        return replace(
            history,
            harvests={**history.harvests, step.source: harvested(moment, first=first)},
        )
    if step.name == "freeze":
        return replace(history, frozen_week=step.week, frozen_at=moment)
    ended = run(step.week, moment + timedelta(minutes=2))
    return replace(
        history,
        latest={**history.latest, step.command: ended},
        done={**history.done, step.command: ended},
    )


def test_weeks_that_were_missed_are_caught_up_once() -> None:
    history = EMPTY
    for hours in (3, 27, 103.5):
        moment = MONDAY + timedelta(hours=hours)
        for step in due_steps(step_states(TIMES, history, moment)):
            history = _after(history, step, moment)
    # Away from Friday for three weeks; back on a Monday before anything of that week is due.
    back = MONDAY + 4 * WEEK + timedelta(hours=1)
    assert due(back, history) == [
        ("2026.W50", "queue"),
        ("2026.W50", "freeze"),
        ("2026.W50", "retention"),
        ("2026.W51", "harvest:a"),
        ("2026.W51", "harvest:b"),
    ]
    for step in due_steps(step_states(TIMES, history, back)):
        history = _after(history, step, back)
    # What follows a freeze follows at once, one after the other, also later.
    for name in ("verify", "publish", "announce"):
        assert due(back + timedelta(hours=3), history) == [("2026.W50", name)]
        [step] = due_steps(step_states(TIMES, history, back))
        history = _after(history, step, back)
    # The harvest that caught up is that week's; its threads are queued at the week's own time.
    assert due(back + timedelta(hours=3), history) == []
    assert due(back + timedelta(days=2), history) == [("2026.W51", "queue")]


def test_nothing_is_caught_up_where_nothing_was_done() -> None:
    assert due(MONDAY + timedelta(hours=1)) == []
    # Two weeks in which nothing happened need no snapshot between them.
    idle = replace(
        EMPTY, frozen_week="2026.W44", weeks=frozenset({"2026.W43", "2026.W44"})
    )
    assert states(MONDAY, idle)["freeze"].status == "done"
    assert (
        states(MONDAY, replace(idle, weeks=frozenset({"2026.W45"})))["freeze"].week
        == "2026.W46"
    )
    assert (
        states(MONDAY, replace(idle, weeks=frozenset({"2026.W45"})))["freeze"].status
        == "due"
    )


def test_what_failed_waits_an_hour_and_what_was_killed_does_not() -> None:
    moment = MONDAY + timedelta(hours=4)
    command = "scheduler harvest a"
    failed = replace(
        EMPTY, latest={command: run("2026.W47", moment, RunOutcome.FAILED)}
    )
    state = states(moment, failed)["harvest:a"]
    assert (state.status, state.retry_at) == (
        "retry",
        moment + timedelta(minutes=1) + RETRY_AFTER,
    )
    assert due(moment + timedelta(minutes=60), failed) == []
    assert due(moment + timedelta(minutes=61), failed) == [("2026.W47", "harvest:a")]
    assert [
        s.name for s in due_steps(step_states(TIMES, failed, moment, ignore_retry=True))
    ] == ["harvest:a"]
    killed = replace(
        EMPTY, latest={command: run("2026.W47", moment, RunOutcome.RUNNING)}
    )
    assert due(moment, killed) == [("2026.W47", "harvest:a")]
    # Last week's failure delays nothing in this one.
    midnight = MONDAY + WEEK
    times = weekly_times(
        ScheduleSection(harvest=WeeklyTime(weekday="mon", hour=0)), {"a": None}
    )
    late = replace(
        EMPTY,
        latest={
            command: run("2026.W47", midnight - timedelta(minutes=9), RunOutcome.FAILED)
        },
    )
    assert [
        (s.week, s.name) for s in due_steps(step_states(times, late, midnight))
    ] == [("2026.W48", "harvest:a")]


def test_each_failure_in_a_week_doubles_the_wait_up_to_half_a_day() -> None:
    at, command = MONDAY + timedelta(hours=4), "scheduler harvest a"
    waits = []
    for failures in range(1, 40):
        latest = {command: run("2026.W47", at, RunOutcome.FAILED)}
        retry_at = states(
            at, replace(EMPTY, latest=latest, failures={command: failures})
        )["harvest:a"].retry_at
        assert retry_at is not None
        waits.append((retry_at - at - timedelta(minutes=1)) / timedelta(hours=1))
    assert waits == [1, 2, 4, 8] + [12] * 35


@pytest.mark.parametrize(
    ("hours", "outcome", "expected"),
    [
        (0, None, ["queue"]),  # it is due, and begins now
        (5.9, RunOutcome.RUNNING, ["queue"]),
        (6, RunOutcome.RUNNING, []),  # it hangs
        (0.1, RunOutcome.FAILED, []),
        (0.1, RunOutcome.PARTIAL, []),
        (0.1, RunOutcome.DONE, []),
    ],
)
def test_what_began_within_six_hours_and_is_under_way(
    hours: float, outcome: RunOutcome | None, expected: list[str]
) -> None:
    sunday = MONDAY + timedelta(days=6, hours=18)
    history = replace(
        EMPTY,
        weeks=frozenset({"2026.W47"}),
        harvests={n: harvested(MONDAY) for n in "ab"},
    )
    history = replace(
        history,
        harvests={
            n: SimpleNamespace(**vars(h) | {"done_week": "2026.W47"})
            for n, h in history.harvests.items()
        },
    )
    if outcome is not None:
        found = {
            "scheduler queue": run("2026.W47", sunday - timedelta(hours=hours), outcome)
        }
        history = replace(
            history, latest=found, done=found if outcome is RunOutcome.DONE else {}
        )
    found_states = step_states(TIMES, history, sunday, ignore_retry=True)
    assert recently_begun(found_states, history, sunday) == expected


def test_a_blocked_step_is_not_due_and_says_why() -> None:
    state = step_states(
        TIMES,
        EMPTY,
        MONDAY + timedelta(hours=4),
        blocked={"harvest:a": "quarantined: no posts"},
    )[0]
    assert (state.status, state.why) == ("blocked", "quarantined: no posts")


def test_a_harvest_that_ends_after_the_queueing_is_queued_too() -> None:
    tuesday = MONDAY + timedelta(days=1, hours=3)
    queued = run("2026.W47", tuesday)
    history = replace(
        EMPTY, latest={"scheduler queue": queued}, done={"scheduler queue": queued}
    )
    assert "queue" not in [step for _, step in due(tuesday, history)]
    late = replace(history, harvests={"a": harvested(tuesday + timedelta(hours=5))})
    assert ("2026.W47", "queue") in due(tuesday + timedelta(hours=6), late)
    # The next week's harvest waits for the next week's queueing.
    ahead = replace(
        history,
        weeks=frozenset({"2026.W47"}),
        frozen_week="2026.W47",
        harvests={"a": harvested(MONDAY + WEEK + timedelta(hours=3))},
    )
    assert due(MONDAY + WEEK + timedelta(hours=4), ahead) == [
        ("2026.W47", "verify"),
        ("2026.W47", "retention"),
    ]
    assert ("2026.W48", "queue") in due(tuesday + WEEK, ahead)


def test_what_a_person_or_cron_did_counts() -> None:
    tuesday = MONDAY + timedelta(days=1, hours=3)
    by_hand = run(None, tuesday + timedelta(minutes=10))
    history = replace(EMPTY, latest={"curate": by_hand}, done={"curate": by_hand})
    assert states(tuesday + timedelta(hours=1), history)["queue"].status == "done"
    early = run(None, tuesday - timedelta(minutes=10))
    assert (
        states(tuesday, replace(EMPTY, done={"curate": early}))["queue"].status == "due"
    )
    frozen = replace(EMPTY, frozen_week="2026.W47", frozen_at=tuesday)
    assert (
        states(MONDAY + timedelta(days=6, hours=20), frozen)["freeze"].status == "done"
    )


def test_overdue_is_a_day_after_the_first_time_that_was_missed_and_only_where_something_was_harvested() -> (
    None
):
    start = MONDAY + timedelta(hours=3)
    history = replace(
        EMPTY, harvests={"a": harvested(start)}, weeks=frozenset({"2026.W47"})
    )
    for days, expected in [
        (0.9, set()),
        (1.9, set()),
        (2.1, {"queue"}),
        (6.9, {"queue"}),
        (7.7, {"queue", "freeze"}),
        (7.9, {"queue", "freeze", "retention"}),
        (8.1, {"queue", "freeze", "retention", "harvest:a"}),
        # A second missed time begins no new day of grace.
        (14.01, {"queue", "freeze", "retention", "harvest:a"}),
        (40, {"queue", "freeze", "retention", "harvest:a"}),
    ]:
        found = states(start + timedelta(days=days), history)
        assert {name for name, state in found.items() if state.overdue} == expected, (
            days
        )
    assert found["harvest:a"].next_at == start + WEEK
    # Imports alone, or a source that was never harvested: due, never overdue.
    assert not any(s.overdue for s in states(start + timedelta(days=40)).values())
    assert not found["harvest:b"].overdue


class Rows:
    """Stands for the rows: what is due, and how often they were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        states = {s.name: s for s in step_states(TIMES, EMPTY, MONDAY + WEEK)}
        self.due = [states[name] for name in names]
        self.begun = list[str]()
        self.reads = self.wakes = 0
        self.is_done = True
        self.ends = {name: asyncio.Event() for name in names}
        database: Any = SimpleNamespace(read=nullcontext)
        self.moment = MONDAY + WEEK
        self.runner = _Runner(
            database,
            database,
            Settings(home=Path()),
            print,
            lambda: self.moment,
            once=False,
        )
        for name in ("ask_lock", "latest_act", "queue_lost"):
            monkeypatch.setattr(scheduler, name, self._give)
        monkeypatch.setattr(scheduler, "keep_looking", self._look)
        monkeypatch.setattr(self.runner, "_find_due", self._find_due)
        monkeypatch.setattr(self.runner, "_run_step", self._run_step)
        work = self.runner.work(database, Liveness(), 0.01)
        self.working = asyncio.create_task(work)

    async def wake_twice(self) -> None:
        wakes = self.wakes
        await until(lambda: self.wakes >= wakes + 4)

    async def _give(self, *_: object) -> int:
        self.wakes += 1
        return 1

    async def _look(self, *_: object) -> None:
        await asyncio.Event().wait()

    async def _find_due(self) -> list[StepState]:
        self.reads += 1
        return [s for s in self.due if (s.name, s.week) not in self.runner.tried]

    async def _run_step(self, step: StepState) -> bool:
        self.begun.append(step.name)
        self.runner.tried.add((step.name, step.week))
        await self.ends[step.name].wait()
        self.ends[step.name].clear()
        return self.is_done


async def test_a_step_that_becomes_due_while_it_runs_is_run_again_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows(monkeypatch, "harvest:a", "queue")
    await until(lambda: rows.begun == ["harvest:a", "queue"])
    rows.ends["harvest:a"].set()
    await rows.wake_twice()  # the harvest has ended, and is not run again
    assert rows.begun == ["harvest:a", "queue"]
    rows.ends["queue"].set()
    await until(lambda: rows.begun[2:] == ["harvest:a", "queue"])
    rows.working.cancel()


async def test_steps_to_be_run_again_are_begun_by_the_clock_and_the_rows_read_at_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows(monkeypatch, "harvest:a", "queue")
    rows.is_done = False  # each waits for something else
    await until(lambda: len(rows.begun) == 2)
    for end in rows.ends.values():
        end.set()
    await until(lambda: not rows.runner.running)
    await rows.wake_twice()
    reads = rows.reads
    await rows.wake_twice()
    assert (rows.begun, rows.reads) == (["harvest:a", "queue"], reads)
    rows.moment += timedelta(minutes=scheduler.LOOK_AGAIN_MINUTES)
    await until(lambda: len(rows.begun) == 4)
    rows.working.cancel()


async def test_cron_queues_lost_threads_before_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()

    def note(name: str, answer: object) -> Any:
        async def call(*_: object, **__: object) -> object:
            asked.append(name)
            return answer

        return call

    nothing: Any = None
    runner = _Runner(nothing, nothing, Settings(home=Path()), print, nothing, once=True)
    for name in ("ask_lock", "queue_lost", "look"):
        monkeypatch.setattr(scheduler, name, note(name, True))
    monkeypatch.setattr(runner, "_find_due", note("steps", []))
    await runner.work(nothing, Liveness(), 0.01)
    assert asked == ["ask_lock", "queue_lost", "steps", "look"]


def test_a_week_that_was_frozen_in_part_is_not_whole() -> None:
    failed_alike = Partial(decided=2, queued=10, because="8 failed; a person")
    frozen = WeekStanding("2026.W47", 10, 2, 0, 8, 0, partial=failed_alike)
    assert not frozen.whole
    assert frozen.in_short == "2 of 10, because 8 failed; a person"
