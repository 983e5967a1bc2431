"""The steps of a week and what is due, decided from a moment, the times of the configuration and the stored rows.

A step's *slot* is its latest weekly time that has come, and the ISO week of that time. A step is done when a run
of that week or a later one is; so a time that was missed is caught up once, however many weeks were missed, and no
week is done twice. Nothing here does I/O or asks for the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from medlive.clock import iso_week
from medlive.config import ScheduleSection, WeeklyTime
from medlive.db.steps import CURATE, PRUNE, SCHEDULER, History, Run
from medlive.db.tables import RunOutcome
from medlive.errors import ConfigError

WEEK = timedelta(days=7)
RETRY_AFTER = timedelta(hours=1)
"""How long a step that failed waits, unless a person asks with `--once`."""
OVERDUE_AFTER = timedelta(hours=24)
"""How long after its time a step that is not done is overdue: a polite harvest may take most of a day."""
QUEUE, FREEZE, RETENTION = "queue", "freeze", "retention"
BY_HAND = {QUEUE: CURATE, RETENTION: PRUNE}
"""Step → the command that does the same by hand or by cron."""
_HARVEST = "harvest:"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Standing(StrEnum):
    """How a step stands at a moment."""

    DONE = "done"
    """Done for its slot, or not due before its first slot."""
    DUE = "due"
    RETRY = "retry"
    """It failed for its slot and waits before it is tried again."""
    BLOCKED = "blocked"
    """It is due and cannot be taken, for a reason that a person must remove."""


@dataclass(frozen=True, slots=True)
class StepState:
    """One step at a moment: what it is due for, and when next."""

    name: str
    """ "harvest:SOURCE", "queue", "freeze" or "retention"; the name of its job too."""
    week: str
    """The ISO week that it is to be done for."""
    slot: datetime
    """Its latest time that has come."""
    standing: Standing
    why: str | None
    """Why it is blocked."""
    retry_at: datetime | None
    """When a step that failed is tried again."""
    next_at: datetime
    """When it is due next: its slot while it is not done, else its next weekly time."""
    overdue: bool
    """Whether it is not done a day after its time, on an instance that harvests."""
    latest: Run | None

    @property
    def command(self) -> str:
        """Its name in `pipeline_runs`."""
        return f"{SCHEDULER} {self.name.replace(':', ' ')}"

    @property
    def source(self) -> str | None:
        """The source of a harvest step; None for the others."""
        return self.name.removeprefix(_HARVEST) if self.name.startswith(_HARVEST) else None


def weekly_times(schedule: ScheduleSection, sources: Mapping[str, Any]) -> dict[str, WeeklyTime]:
    """Each step's time, in the order in which steps are taken. Raises ConfigError for a source without adapter."""
    for name in schedule.harvest_sources:
        if name not in sources:
            raise ConfigError(
                f"schedule.harvest_sources.{name}: no source is named {name!r}",
                hint=f"known sources: {', '.join(sources)}",
            )
    own = schedule.harvest_sources
    return {
        **{_HARVEST + source: own.get(source, schedule.harvest) for source in sources},
        QUEUE: schedule.queue,
        FREEZE: schedule.freeze,
        RETENTION: schedule.retention,
    }


def due_at(week_of: datetime, time: WeeklyTime) -> datetime:
    """The moment of a weekly time in the ISO week that `week_of` lies in, in UTC."""
    day = week_of.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monday = day - timedelta(days=day.weekday())
    return monday + timedelta(days=_WEEKDAYS.index(time.weekday), hours=time.hour, minutes=time.minute)


def latest_slot(moment: datetime, time: WeeklyTime) -> datetime:
    """The latest moment of a weekly time that is not after `moment`."""
    slot = due_at(moment, time)
    return slot if slot <= moment else slot - WEEK


def survey(
    times: Mapping[str, WeeklyTime],
    history: History,
    moment: datetime,
    *,
    blocked: Mapping[str, str] | None = None,
    again: bool = False,
) -> list[StepState]:
    """How every step stands, in the order of `times`.

    `blocked` says of steps why they cannot be taken; with `again` nothing waits after a failure.
    """
    return [
        _state(name, time, history, moment, blocked=(blocked or {}).get(name), again=again)
        for name, time in times.items()
    ]


def in_order(states: list[StepState]) -> list[StepState]:
    """The steps that are due, an earlier week's before a later one's."""
    return sorted((s for s in states if s.standing is Standing.DUE), key=lambda s: s.week)


def _state(
    name: str, time: WeeklyTime, history: History, moment: datetime, *, blocked: str | None, again: bool
) -> StepState:
    slot = latest_slot(moment, time)
    slot_week, present = iso_week(slot), iso_week(moment)
    command = f"{SCHEDULER} {name.replace(':', ' ')}"
    attempt = history.latest.get(command)
    # A harvest brings everything since the last one, so one that was missed is caught up as the present week's.
    week = present if name.startswith(_HARVEST) else slot_week
    facts = _facts(name, time, slot_week, present, history)
    standing, retry_at, why = Standing.DONE, None, None
    if facts.expected and not facts.is_done(slot_week):
        standing = Standing.DUE
        if attempt is not None and attempt.week == week and attempt.outcome is RunOutcome.FAILED:
            retry_at = (attempt.finished_at or attempt.started_at) + RETRY_AFTER
            if not again and moment < retry_at:
                standing = Standing.RETRY
        if blocked is not None:
            standing, why = Standing.BLOCKED, blocked
    is_open = standing is not Standing.DONE
    missed = min(_first_missed(time, facts, slot), slot)
    return StepState(
        name=name,
        week=week,
        slot=slot,
        standing=standing,
        why=why,
        retry_at=retry_at if standing is Standing.RETRY else None,
        next_at=missed if is_open else slot + WEEK,
        overdue=is_open and facts.since is not None and moment > max(missed, facts.since) + OVERDUE_AFTER,
        latest=facts.latest,
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rows say of a step."""

    done_week: str | None
    """The latest week that it is done for."""
    expected: bool
    """Whether it is to be done at all."""
    latest: Run | None
    since: datetime | None
    """Since when a delay counts: since anything was harvested here; never where only files are imported."""
    reopened: bool = False
    """Whether something came after it that it should have met."""

    def is_done(self, week: str) -> bool:
        return not self.reopened and self.done_week is not None and self.done_week >= week


def _first_missed(time: WeeklyTime, facts: _Facts, slot: datetime) -> datetime:
    """The first weekly time that nothing was done for."""
    if facts.done_week is not None:
        year, week = facts.done_week.split(".W")
        return due_at(datetime.fromisocalendar(int(year), int(week), 1).replace(tzinfo=UTC), time) + WEEK
    if facts.since is not None:
        first = due_at(facts.since, time)
        return first if first >= facts.since else first + WEEK
    return slot


def _facts(name: str, time: WeeklyTime, slot_week: str, present: str, history: History) -> _Facts:
    since = min((h.first_at for h in history.harvests.values()), default=None)
    # A week before the present one is caught up only where something was done in it or before it.
    begun = slot_week == present or any(week <= slot_week for week in history.weeks)
    command = f"{SCHEDULER} {name.replace(':', ' ')}"
    own, own_done = history.latest.get(command), history.done.get(command)
    if name.startswith(_HARVEST):
        known = history.harvests.get(name.removeprefix(_HARVEST))
        if known is None:
            return _Facts(None, slot_week == present, own, None)
        return _Facts(known.done_week, True, known.latest, known.first_at)
    if name == FREEZE:
        if slot_week != present:
            # What nothing was done for since the last snapshot needs none.
            begun = any((history.frozen_week or "") < week <= slot_week for week in history.weeks)
        frozen = None
        if history.frozen_at is not None:
            frozen = Run(history.frozen_week, RunOutcome.DONE, history.frozen_at, history.frozen_at, {})
        # The scheduler's own row ends after the snapshot is frozen, and has the counts.
        is_own = own is not None and (frozen is None or (own.finished_at or own.started_at) >= frozen.started_at)
        return _Facts(history.frozen_week, begun, own if is_own else frozen, since)
    by_hand = history.done.get(BY_HAND[name])
    weeks = [own_done.week] if own_done is not None and own_done.week is not None else []
    if by_hand is not None:
        weeks.append(iso_week(latest_slot(by_hand.started_at, time)))
    ended = _newest(own_done, by_hand)
    reopened = (
        name == QUEUE
        and ended is not None
        and any(
            h.done_at is not None and h.done_at > ended.started_at and (h.done_week or "") <= slot_week
            for h in history.harvests.values()
        )
    )
    latest = _newest(own, history.latest.get(BY_HAND[name]))
    return _Facts(max(weeks, default=None), begun, latest, since, reopened)


def _newest(*runs: Run | None) -> Run | None:
    return max((r for r in runs if r is not None), key=lambda run: run.started_at, default=None)
