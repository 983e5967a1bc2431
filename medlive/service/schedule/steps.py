"""The weekly steps and which are due, computed from a moment, the configured times and the stored runs.

A step's *slot* is its latest weekly time before the moment. A step is done when a run of the slot's ISO week or a
later one is, so missed weeks are caught up once and no week is done twice. Imports little: `medlive status` needs
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from medlive.clock import CLOCK_BOUND, iso_week
from medlive.config import ScheduleSection, Settings, WeeklyTime
from medlive.db import runs
from medlive.db.iso_weeks import week_bounds
from medlive.db.jobs import Queue
from medlive.db.release.weeks import (
    StepWait,
    WeekStanding,
    end_wait,
    load_waits,
    save_wait,
    week_standing,
)
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.errors import ConfigError
from medlive.service.harvest.sources import fetch_settings, select_sources
from medlive.sources.registry import known_sites

WEEK = timedelta(days=7)
RETRY_AFTER = timedelta(hours=1)
"""How long a failed step waits, unless run with `--once`; twice as long after each further failure of the week."""
MOST_RETRY_AFTER = timedelta(hours=12)
OVERDUE_AFTER = timedelta(hours=24)
"""When an unfinished step is overdue: a polite harvest may take most of a day."""
PATIENCE = timedelta(hours=6)
"""How long retention waits for a harvest, and for how long a harvest or a queueing may have begun before."""
NO_CONTACT = (
    "a harvest needs a contact address: set MEDLIVE_HARVEST__CONTACT=you@example.org"
)
QUEUE, FREEZE, RETENTION, BACKUP = "queue", "freeze", "retention", "backup"
VERIFY, PUBLISH, ANNOUNCE = "verify", "publish", "announce"
AFTER = {VERIFY: FREEZE, PUBLISH: VERIFY, ANNOUNCE: PUBLISH}
"""Step → the step that must be done first, for the same week; it follows at once."""
BY_HAND = {QUEUE: runs.CURATE, RETENTION: runs.PRUNE}
"""Step → the equivalent command for cron or by hand, where there is one that is recorded."""
QUEUES = {QUEUE: Queue.FILTER, RETENTION: Queue.UPKEEP, BACKUP: Queue.BACKUP}
QUEUES |= dict.fromkeys((FREEZE, *AFTER), Queue.RELEASE)
"""Step → the queue of its jobs; a harvest is in `harvest`."""
AGAIN = "again"
"""In a run's counts: why it is to be run again soon, though it did not fail."""
_HARVEST = "harvest:"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class StepStatus(StrEnum):
    """The status of a step at a moment."""

    DONE = "done"  # Done for its slot, or not due before its first slot
    DUE = "due"
    RETRY = "retry"  # Failed for its slot, and waiting for the next attempt
    BLOCKED = "blocked"  # Due, but a person must remove an obstacle first


@dataclass(frozen=True, slots=True)
class StepState:
    """One step at a moment: the ISO week it is run for, its status and its next time."""

    name: str  #  "harvest:SOURCE", "queue", "freeze", …; the name of its job too
    week: str
    slot: datetime  # Its latest weekly time before the moment
    status: StepStatus
    why: str | None  # Why it is blocked
    retry_at: datetime | None  # When a failed step is tried again
    next_at: datetime  # Its slot while it is not done, else its next weekly time
    overdue: bool  # Whether it is not done a day after its time; never on an instance without harvests
    latest: runs.Run | None
    waits: bool = False  # Whether it is blocked by steps or threads that it waits for

    @property
    def command(self) -> str:
        """Its name in `pipeline_runs`."""
        return command_of(self.name)

    @property
    def queue(self) -> Queue:
        """The queue of its job."""
        return QUEUES.get(self.name, Queue.HARVEST)

    @property
    def source(self) -> str | None:
        """The source of a harvest step; None for the others."""
        return source_of(self.name)


def source_of(name: str) -> str | None:
    """The source of a harvest step; None for the other steps."""
    return name.removeprefix(_HARVEST) if name.startswith(_HARVEST) else None


def weekly_times(
    schedule: ScheduleSection, sources: Mapping[str, Any]
) -> dict[str, WeeklyTime]:
    """Each step's time, in the order of execution. Raises ConfigError for an unknown source."""
    own = schedule.harvest_sources
    if unknown := [
        name for name in own if name not in sources and name not in known_sites()
    ]:
        raise ConfigError(
            f"schedule.harvest_sources.{unknown[0]}: unknown source",
            hint=f"known sources: {', '.join(sources)}",
        )
    harvests = {
        _HARVEST + source: own.get(source, schedule.harvest) for source in sources
    }
    release = dict.fromkeys((FREEZE, *AFTER), schedule.freeze)
    return {
        **harvests,
        QUEUE: schedule.queue,
        **release,
        RETENTION: schedule.retention,
        BACKUP: schedule.backup,
    }


def due_at(week_of: datetime, time: WeeklyTime) -> datetime:
    """The moment of a weekly time in the ISO week that `week_of` lies in, in UTC."""
    day = week_of.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monday = day - timedelta(days=day.weekday())
    return monday + timedelta(
        days=_WEEKDAYS.index(time.weekday), hours=time.hour, minutes=time.minute
    )


def latest_slot(moment: datetime, time: WeeklyTime) -> datetime:
    """The latest moment of a weekly time that is not after `moment`."""
    slot = due_at(moment, time)
    return slot if slot <= moment else slot - WEEK


def due_steps(states: list[StepState]) -> list[StepState]:
    """The due steps, earlier weeks first."""
    return sorted(
        (s for s in states if s.status is StepStatus.DUE), key=lambda s: s.week
    )


async def read_states(
    database: Database,
    settings: Settings,
    moment: datetime,
    *,
    again: bool = False,
    keep: bool = False,
) -> list[StepState]:
    """The state of every step. Raises ConfigError and DatabaseUnavailable.

    Args:
        again: Whether to ignore how long failed steps wait.
        keep: Whether to store since when steps wait, as the one scheduler does.
    """
    times = weekly_times(settings.schedule, select_sources(settings, []))
    if not settings.publish.weekly:
        del times[PUBLISH], times[ANNOUNCE]
    if not settings.backup.folder:
        del times[BACKUP]
    async with database.begin() as session:
        history = await runs.load_history(session, moment)
        stored = await load_waits(session)
        blocked = _obstacles(settings, history)
        states = step_states(
            times,
            history,
            moment,
            blocked=blocked,
            ignore_retry=again,
        )
        standing = None
        for state in states:
            if state.name == FREEZE and state.status is StepStatus.DUE:
                share = settings.schedule.failure_share
                standing = await week_standing(session, state.week, failure_share=share)
        waits = _Waits(
            moment, timedelta(hours=settings.schedule.freeze_wait_hours), stored
        )
        states = waits.apply(states, recently_begun(states, history, moment), standing)
        if keep:
            for (step, week), wait in waits.changed.items():
                if wait is None:
                    await end_wait(session, step, week)
                else:
                    await save_wait(session, step, week, wait)
    return states


def _obstacles(settings: Settings, history: runs.History) -> dict[str, str]:
    """Step → what keeps it from being run until a person does something, or time passes."""
    obstacles: dict[str, str] = {}
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        obstacles = {
            _HARVEST + source: NO_CONTACT for source in select_sources(settings, [])
        }
    for source, why in history.quarantined.items():
        obstacles[_HARVEST + source] = f"quarantined: {why}"
    if history.frozen_ahead is not None:
        obstacles[FREEZE] = (
            f"{history.frozen_ahead} was frozen before its time: no earlier week can be frozen"
        )
    return obstacles


def recently_begun(
    states: Sequence[StepState], history: runs.History, moment: datetime
) -> list[str]:
    """The harvests and the queueing that began less than PATIENCE ago and are under way, or begin now.

    A step that failed is not among them.
    """
    begun = []
    for state in states:
        if state.name != QUEUE and state.source is None:
            continue
        run = history.latest.get(state.command)
        outcome = run.outcome if run is not None and run.week == state.week else None
        failed = outcome in (RunOutcome.FAILED, RunOutcome.PARTIAL)
        due = state.status is StepStatus.DUE and not failed
        began = moment
        if run is not None and outcome is RunOutcome.RUNNING:
            began = run.started_at
        if due and moment - began < PATIENCE:
            begun.append(state.name)
    return begun


@dataclass
class _Waits:
    """Which due steps wait for others, each until its time limit has passed since it began to wait."""

    moment: datetime
    freeze_limit: timedelta
    stored: Mapping[tuple[str, str], StepWait]
    changed: dict[tuple[str, str], StepWait | None] = field(default_factory=dict)
    """What is to be stored; None: the step waits no more."""

    def apply(
        self,
        states: Sequence[StepState],
        recent: Sequence[str],
        standing: WeekStanding | None,
    ) -> list[StepState]:
        """The states, those that wait being blocked."""
        harvests = [name for name in recent if name.startswith(_HARVEST)]
        before = list(recent)
        if standing is not None and not standing.whole:
            before.append(f"its threads ({standing.in_short})")
        applied = []
        for state in states:
            if state.name == FREEZE:
                state = self._wait(state, before, self.freeze_limit)
            elif state.name == RETENTION:
                state = self._wait(state, harvests, PATIENCE)
            applied.append(state)
        # After those: the backup is to hold what the week releases, whenever that is.
        release = set()
        for state in applied:
            if state.name in (FREEZE, *AFTER) and _is_to_come(state):
                release.add((state.name, state.week))
        for place, state in enumerate(applied):
            if state.name == BACKUP:
                first = [name for name, week in sorted(release) if week == state.week]
                applied[place] = self._wait(state, first, self.freeze_limit + PATIENCE)
        return applied

    def _wait(
        self, state: StepState, others: Sequence[str], limit: timedelta
    ) -> StepState:
        key = (state.name, state.week)
        wait = self.stored.get(key)
        if state.status is not StepStatus.DUE:
            return state
        if not others:
            if wait is not None:
                self.changed[key] = None
            return state
        # A wait that was noted by a clock which was ahead begins now.
        since = self.moment if wait is None else min(self.moment, wait.since)
        is_over = (wait is not None and wait.is_over) or self.moment - since >= limit
        if wait != (now_stored := StepWait(since, is_over)):
            self.changed[key] = now_stored
        if is_over:
            return state
        why = f"waits for {', '.join(others)}, until {since + limit:%a %H:%M} UTC at the latest"
        return replace(state, status=StepStatus.BLOCKED, why=why, waits=True)


def _is_to_come(state: StepState) -> bool:
    """Whether a step is due or waits, and has not failed for its week."""
    run = state.latest
    failed = (
        run is not None and run.week == state.week and run.outcome is RunOutcome.FAILED
    )
    return not failed and (state.waits or state.status is StepStatus.DUE)


def summarize_counts(counts: Mapping[str, Any]) -> str:
    """Format a run's non-zero counts, or its problem, in one line."""
    if problem := counts.get("problem") or counts.get(AGAIN):
        return str(problem)
    flat: dict[str, Any] = {}
    for key, value in counts.items():
        if isinstance(value, Mapping):
            flat |= value
        else:
            flat[key] = len(value) if isinstance(value, list) else value
    shown = [f"{key} {value}" for key, value in flat.items() if value]
    return ", ".join(shown) or "nothing new"


def step_states(
    times: Mapping[str, WeeklyTime],
    history: runs.History,
    moment: datetime,
    *,
    blocked: Mapping[str, str] = MappingProxyType({}),
    ignore_retry: bool = False,
) -> list[StepState]:
    """The state of every step, in the order of `times`; with `ignore_retry` nothing waits after a failure.

    `blocked` maps steps to why they cannot be run.
    """
    states = []
    for name, time in times.items():
        slot = latest_slot(moment, time)
        slot_week, present = iso_week(slot), iso_week(moment)
        # A harvest fetches everything since the last one, so a missed one is caught up as the current week's.
        week = present if name.startswith(_HARVEST) else slot_week
        record = _read_record(
            name,
            time,
            slot_week,
            present,
            history,
        )
        status, retry_at, why = StepStatus.DONE, None, None
        if record.expected and not record.is_done(slot_week):
            retry_at = _retry_time(history, command_of(name), week, moment)
            is_waiting = retry_at is not None and not ignore_retry and moment < retry_at
            status = StepStatus.RETRY if is_waiting else StepStatus.DUE
            if (why := blocked.get(name)) is not None:
                status = StepStatus.BLOCKED
        pending = status is not StepStatus.DONE
        missed = min(_first_missed(time, record, slot), slot)
        overdue = False
        if pending and record.since is not None:
            overdue = moment > max(missed, record.since) + OVERDUE_AFTER
        state = StepState(
            name=name,
            week=week,
            slot=slot,
            status=status,
            why=why,
            retry_at=retry_at if status is StepStatus.RETRY else None,
            next_at=missed if pending else slot + WEEK,
            overdue=overdue,
            latest=record.latest,
        )
        states.append(state)
    return states


def _retry_time(
    history: runs.History, command: str, week: str, moment: datetime
) -> datetime | None:
    """When a step is tried again whose latest run failed in this week; None if it did not."""
    attempt = history.latest.get(command)
    if (
        attempt is None
        or attempt.week != week
        or attempt.outcome is not RunOutcome.FAILED
    ):
        return None
    ended = attempt.finished_at or attempt.started_at
    if ended > moment + CLOCK_BOUND:  # by a clock that was ahead: nobody waits for that
        return None
    doubled: timedelta = RETRY_AFTER * 2 ** min(
        history.failures.get(command, 1) - 1, 10
    )
    return ended + min(doubled, MOST_RETRY_AFTER)


@dataclass(frozen=True, slots=True)
class _StepRecord:
    """The stored history of a step."""

    done_week: str | None  # The latest week it was done for
    expected: bool  # Whether it is to be run at all
    latest: runs.Run | None
    # Delays count from the first harvest; None where only files are imported
    since: datetime | None
    # Whether a harvest has ended since, whose threads it should process
    reopened: bool = False

    def is_done(self, week: str) -> bool:
        return (
            not self.reopened and self.done_week is not None and self.done_week >= week
        )


def _first_missed(time: WeeklyTime, record: _StepRecord, slot: datetime) -> datetime:
    """The first weekly time that was missed."""
    if record.done_week is not None:
        monday, _ = week_bounds(record.done_week)
        return due_at(monday, time) + WEEK
    if record.since is not None:
        first = due_at(record.since, time)
        return first if first >= record.since else first + WEEK
    return slot


def _read_record(
    name: str, time: WeeklyTime, slot_week: str, present: str, history: runs.History
) -> _StepRecord:
    latest = history.latest.get(command_of(name))
    if name.startswith(_HARVEST):
        known = history.harvests.get(name.removeprefix(_HARVEST))
        if known is None:
            return _StepRecord(None, slot_week == present, latest, None)
        return _StepRecord(known.done_week, True, known.latest, known.first_at)
    since = min((h.first_at for h in history.harvests.values()), default=None)
    # An earlier week is caught up only where something was done by then, and since the last snapshot for a freeze.
    after = (history.frozen_week or "") if name == FREEZE else ""
    expected = slot_week == present or any(
        after < week <= slot_week for week in history.weeks
    )
    if name == FREEZE:
        at = history.frozen_at
        # The scheduler's own row ends after the snapshot is frozen, and has the counts.
        if at is not None and (
            latest is None or (latest.finished_at or latest.started_at) < at
        ):
            latest = runs.Run(
                history.frozen_week,
                RunOutcome.DONE,
                at,
                at,
                {},
            )
        return _StepRecord(history.frozen_week, expected, latest, since)
    if name in AFTER:
        first = (
            history.frozen_week if name == VERIFY else _done_week(AFTER[name], history)
        )
        # Nothing is overdue here: whoever freezes by cron need not verify by the scheduler.
        return _StepRecord(_done_week(name, history), first == slot_week, latest, None)
    done_week, reopened = _done_by_anyone(name, time, slot_week, history)
    return _StepRecord(
        done_week,
        expected,
        _newest(latest, history.latest.get(_by_hand(name))),
        since,
        reopened,
    )


def _done_week(name: str, history: runs.History) -> str | None:
    """The latest week that the scheduler did a step for."""
    run = history.done.get(command_of(name))
    return None if run is None else run.week


def _done_by_anyone(
    name: str, time: WeeklyTime, slot_week: str, history: runs.History
) -> tuple[str | None, bool]:
    """The latest week a step was done for, by the scheduler or by hand; whether a harvest has ended since."""
    scheduled = history.done.get(command_of(name))
    by_hand = history.done.get(_by_hand(name))
    weeks = []
    if scheduled is not None and scheduled.week is not None:
        weeks.append(scheduled.week)
    if by_hand is not None:
        weeks.append(iso_week(latest_slot(by_hand.started_at, time)))
    ended = _newest(scheduled, by_hand)
    reopened = False
    if name == QUEUE and ended is not None:
        reopened = _harvest_ended(history, ended.started_at, slot_week)
    return max(weeks, default=None), reopened


def _by_hand(name: str) -> str:
    return BY_HAND.get(name, command_of(name))


def _harvest_ended(history: runs.History, after: datetime, week: str) -> bool:
    """Whether a harvest of this week or an earlier one has ended after a moment."""
    for harvest in history.harvests.values():
        done_at, done_week = harvest.done_at, harvest.done_week or ""
        if done_at is not None and done_at > after and done_week <= week:
            return True
    return False


def command_of(name: str) -> str:
    """A step's name in `pipeline_runs`."""
    return f"{runs.SCHEDULER} {name.replace(':', ' ')}"


def _newest(*candidates: runs.Run | None) -> runs.Run | None:
    existing = [run for run in candidates if run is not None]
    return max(existing, key=lambda run: run.started_at, default=None)
