"""The weekly steps and which are due, computed from a moment, the configured times and the stored runs.

A step's *slot* is its latest weekly time before the moment. A step is done when a run of the slot's ISO week or a
later one is, so missed weeks are caught up once and no week is done twice. Imports little: `medlive status` needs
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

from medlive.clock import CLOCK_BOUND, iso_week, week_bounds
from medlive.config import ScheduleSection, Settings, WeeklyTime
from medlive.db.jobs import Queue
from medlive.db.release.weeks import (
    end_wait,
    load_waits,
    save_wait,
    week_standing,
)
from medlive.db.runs import CURATE, SCHEDULER, History, Run, load_history
from medlive.db.session import Database, Session, read_clock
from medlive.db.tables.intake import RunOutcome
from medlive.errors import ConfigError
from medlive.service.harvest.sources import fetch_settings, select_sources
from medlive.sources.registry import known_sites

WEEK = timedelta(days=7)
RETRY_AFTER = timedelta(hours=1)
"""How long a failed step waits, unless run with `--once`; twice as long after each further failure of the week."""
MOST_RETRY_AFTER = timedelta(hours=12)  # The longest such wait
OVERDUE_AFTER = timedelta(hours=24)
"""When an unfinished step is overdue: a polite harvest may take most of a day."""
PATIENCE = timedelta(hours=6)
"""How long retention waits for harvests, and how long after their begin harvests and the queueing are waited for."""
NO_CONTACT = (
    "a harvest needs a contact address: set MEDLIVE_HARVEST__CONTACT=you@example.org"
)
# The steps beside harvests; "queue" filters and queues new threads, and curates them where no worker does
QUEUE, FREEZE, RETENTION, BACKUP = "queue", "freeze", "retention", "backup"
VERIFY, PUBLISH, ANNOUNCE = "verify", "publish", "announce"
AFTER = {VERIFY: FREEZE, PUBLISH: VERIFY, ANNOUNCE: PUBLISH}
"""Step → the step that must be done first, for the same week; it follows at once."""
QUEUES = {QUEUE: Queue.FILTER, RETENTION: Queue.UPKEEP, BACKUP: Queue.BACKUP}
QUEUES |= dict.fromkeys((FREEZE, *AFTER), Queue.RELEASE)
"""Step → the queue of its jobs; a harvest is in `harvest`."""
AGAIN = "again"
"""In a run's counts: why it is to be run again soon, though it did not fail."""
_HARVEST = "harvest:"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


StepStatus = Literal["done", "due", "retry", "blocked"]
"""done for its slot, or not due before its first slot; due; failed for its slot, and waiting for the next attempt; or
due, but a person must remove an obstacle first."""


@dataclass(frozen=True)
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
    latest: Run | None
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
    for name in own:
        if name not in sources and name not in known_sites():
            raise ConfigError(
                f"schedule.harvest_sources.{name}: unknown source",
                hint=f"known sources: {', '.join(sources)}",
            )
    harvests = {
        _HARVEST + source: own.get(source, schedule.harvest) for source in sources
    }
    return {
        **harvests,
        QUEUE: schedule.queue,
        **dict.fromkeys((FREEZE, *AFTER), schedule.freeze),
        RETENTION: schedule.retention,
        BACKUP: schedule.backup,
    }


def due_at(week_of: datetime, time: WeeklyTime) -> datetime:
    """The moment of a weekly time in the ISO week that `week_of` lies in, in UTC."""
    day = week_of.astimezone(UTC).replace(
        hour=0,
        minute=0,
        second=0,
        microsecond=0,
    )
    monday = day - timedelta(days=day.weekday())
    days = _WEEKDAYS.index(time.weekday)
    return monday + timedelta(days=days, hours=time.hour, minutes=time.minute)


def latest_slot(moment: datetime, time: WeeklyTime) -> datetime:
    """The latest moment of a weekly time that is not after `moment`."""
    slot = due_at(moment, time)
    return slot if slot <= moment else slot - WEEK


def due_steps(states: list[StepState]) -> list[StepState]:
    """The due steps, earlier weeks first."""
    return sorted((s for s in states if s.status == "due"), key=lambda s: s.week)


async def read_states(
    database: Database,
    settings: Settings,
    moment: datetime | None = None,
    *,
    again: bool = False,
    keep: bool = False,
) -> list[StepState]:
    """The state of every step. Raises ConfigError and DatabaseUnavailable.

    Args:
        moment: None for the present one, by the database's clock.
        again: Whether to ignore how long failed steps wait.
        keep: Whether to store since when steps wait, as the one scheduler does.
    """
    times = weekly_times(settings.schedule, select_sources(settings, []))
    if not settings.publish.weekly:
        del times[PUBLISH], times[ANNOUNCE]
    if not settings.backup.folder:
        del times[BACKUP]
    freeze_limit = timedelta(hours=settings.schedule.freeze_wait_hours)
    limits = {
        FREEZE: freeze_limit,
        RETENTION: PATIENCE,
        BACKUP: freeze_limit + PATIENCE,
    }
    async with database.begin() as session:
        moment = moment or await read_clock(session)
        history = await load_history(session, moment)
        stored = await load_waits(session)
        blocked = _obstacles(settings, history)
        states = step_states(
            times, history, moment, blocked=blocked, ignore_retry=again
        )
        recent = recently_begun(states, history, moment)
        # In this order: the backup comes last, and waits for steps that themselves wait.
        for place, state in enumerate(states):
            if state.status != "due" or state.name not in limits:
                continue
            others = await _waited_for(session, settings, state, states, recent)
            if not others:
                if keep:
                    await end_wait(session, state.name, state.week)
                continue
            known = stored.get((state.name, state.week))
            since, is_over = known or (moment, False)
            # A wait that was noted by a clock which was ahead begins now.
            since, limit = min(moment, since), limits[state.name]
            is_over = is_over or moment - since >= limit
            if keep and (since, is_over) != known:
                await save_wait(session, state.name, state.week, (since, is_over))
            if not is_over:
                until = f"{since + limit:%a %H:%M} UTC at the latest"
                why = f"waits for {', '.join(others)}, until {until}"
                states[place] = replace(state, status="blocked", why=why, waits=True)
    return states


async def _waited_for(
    session: Session,
    settings: Settings,
    state: StepState,
    states: Sequence[StepState],
    recent: Sequence[str],
) -> list[str]:
    """What a freeze, retention or backup that is due waits for."""
    if state.name == RETENTION:
        return [name for name in recent if name.startswith(_HARVEST)]
    if state.name == FREEZE:
        standing = await week_standing(
            session, state.week, failure_share=settings.schedule.failure_share
        )
        if standing.whole:
            return [*recent]
        return [*recent, f"its threads ({standing.in_short})"]
    # A backup is to hold what the week releases, whenever that is.
    release = []
    for other in states:
        if other.name in (FREEZE, *AFTER) and other.week == state.week:
            is_to_come = other.waits or other.status == "due"
            if is_to_come and not has_failed(other.latest, other.week):
                release.append(other.name)
    return sorted(release)


def has_failed(run: Run | None, week: str) -> TypeGuard[Run]:
    """Whether a step's latest run is of this week and failed."""
    return run is not None and run.week == week and run.outcome is RunOutcome.FAILED


def _obstacles(settings: Settings, history: History) -> dict[str, str]:
    """Step → what keeps it from being run until a person does something, or time passes."""
    obstacles: dict[str, str] = {}
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        for source in select_sources(settings, []):
            obstacles[_HARVEST + source] = NO_CONTACT
    for source, why in history.quarantined.items():
        obstacles[_HARVEST + source] = f"quarantined: {why}"
    if history.frozen_ahead:
        obstacles[FREEZE] = (
            f"{history.frozen_ahead} was frozen before its time: no earlier week can be frozen"
        )
    return obstacles


def recently_begun(
    states: Sequence[StepState], history: History, moment: datetime
) -> list[str]:
    """The harvests and the queueing that began less than PATIENCE ago and are under way, or begin now.

    A step that failed is not among them.
    """
    begun = []
    for state in states:
        if state.status != "due" or (state.name != QUEUE and state.source is None):
            continue
        run, began = history.latest.get(state.command), moment
        if run and run.week == state.week:
            if run.outcome in (RunOutcome.FAILED, RunOutcome.PARTIAL):
                continue
            if run.outcome is RunOutcome.RUNNING:
                began = run.started_at
        if moment - began < PATIENCE:
            begun.append(state.name)
    return begun


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
    history: History,
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
        # A harvest fetches everything since the last one, so a missed one is caught up as the current week's.
        week = iso_week(moment if name.startswith(_HARVEST) else slot)
        done_week, is_due, latest = _read_history(name, time, moment, history)
        since = _delays_count_from(name, history)
        status: StepStatus = "done"
        retry_at: datetime | None = None
        next_at, overdue = slot + WEEK, False
        if is_due:
            status = "due"
            if name in blocked:
                status = "blocked"
            elif not ignore_retry:
                retry_at = _retry_time(history, command_of(name), week, moment)
                status = "retry" if retry_at else "due"
            next_at = slot
            if start := week_bounds(done_week)[1] if done_week else since:
                first = due_at(start, time)
                next_at = min(slot, first if first >= start else first + WEEK)
            if since:
                overdue = moment > max(next_at, since) + OVERDUE_AFTER
        states.append(
            StepState(
                name=name,
                week=week,
                slot=slot,
                status=status,
                why=blocked.get(name) if is_due else None,
                retry_at=retry_at,
                next_at=next_at,
                overdue=overdue,
                latest=latest,
            )
        )
    return states


def _retry_time(
    history: History, command: str, week: str, moment: datetime
) -> datetime | None:
    """When a step is tried again whose latest run failed in this week; None: now, or it did not fail."""
    attempt = history.latest.get(command)
    if not has_failed(attempt, week):
        return None
    ended = _end_of(attempt)
    doublings = min(history.failures.get(command, 1) - 1, 10)
    wait: timedelta = min(RETRY_AFTER * 2**doublings, MOST_RETRY_AFTER)
    # Nobody waits for what a clock that was ahead has noted.
    is_waiting = ended - CLOCK_BOUND <= moment < ended + wait
    return ended + wait if is_waiting else None


def _delays_count_from(name: str, history: History) -> datetime | None:
    """The moment from which a step can be overdue: the first harvest (of its source); None: it never is.

    Nothing is overdue where only files are imported, nor is what follows a freeze: whoever freezes by cron need not
    verify by the scheduler.
    """
    if name in AFTER:
        return None
    if source := source_of(name):
        own = history.harvests.get(source)
        return None if own is None else own.first_at
    return min((h.first_at for h in history.harvests.values()), default=None)


def _read_history(
    name: str, time: WeeklyTime, moment: datetime, history: History
) -> tuple[str | None, bool, Run | None]:
    """The latest week that a step was done for, whether it is due for its slot's week, and its latest run."""
    slot_week = iso_week(latest_slot(moment, time))
    is_expected = slot_week == iso_week(moment)
    latest, done_week = history.latest.get(command_of(name)), _week_done(name, history)
    if source := source_of(name):
        if known := history.harvests.get(source):
            done_week, is_expected, latest = known.done_week, True, known.latest
    elif name in AFTER:
        is_expected = slot_week == _week_done(AFTER[name], history)
    else:
        # An earlier week is caught up only if something ran by then (for a freeze: since the last frozen week).
        after = ""
        if name == FREEZE:
            after = done_week or ""
            if at := history.frozen_at:
                # The scheduler's run ends after its freeze, and has the counts; a later freeze was by hand.
                by_hand = Run(done_week, RunOutcome.DONE, at, at, {})
                latest = max(latest or by_hand, by_hand, key=_end_of)
        elif name == QUEUE:
            latest = _newest(latest, history.latest.get(CURATE))
            if done := history.done.get(CURATE):
                week = iso_week(latest_slot(done.started_at, time))
                done_week = max(week, done_week or "")
        is_expected |= any(after < week <= slot_week for week in history.weeks)
    is_due = (done_week or "") < slot_week
    is_due |= name == QUEUE and _has_late_threads(history, slot_week)
    return done_week, is_due and is_expected, latest


def _week_done(name: str, history: History) -> str | None:
    """The latest week that the scheduler did a step for; a freeze by hand counts too."""
    if name == FREEZE:
        return history.frozen_week
    run = history.done.get(command_of(name))
    return None if run is None else run.week


def _has_late_threads(history: History, week: str) -> bool:
    """Whether a harvest for a week, or an earlier one, ended after the latest queueing began."""
    queueing = _newest(history.done.get(command_of(QUEUE)), history.done.get(CURATE))
    if queueing is None:
        return False
    for harvest in history.harvests.values():
        is_after = harvest.done_at and harvest.done_at > queueing.started_at
        if is_after and (harvest.done_week or "") <= week:
            return True
    return False


def _end_of(run: Run) -> datetime:
    """When a run ended; when it began, while it has not."""
    return run.finished_at or run.started_at


def command_of(name: str) -> str:
    """A step's name in `pipeline_runs`."""
    return f"{SCHEDULER} {name.replace(':', ' ')}"


def _newest(*candidates: Run | None) -> Run | None:
    """The run that began last; None without any."""
    return max(
        filter(None, candidates),
        key=lambda run: run.started_at,
        default=None,
    )
