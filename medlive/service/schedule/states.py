"""The state of every weekly step, from stored rows and settings. Imports little: `medlive status` needs it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from medlive.config import Settings, WeeklyTime
from medlive.db.session import Database
from medlive.db.steps import CURATION_QUEUE, STALLED_AFTER_S, load_history, queue_state
from medlive.service.harvest.settings import chosen, fetch_settings
from medlive.service.schedule.steps import FREEZE, StepState, latest_slot, survey, weekly_times

FREEZE_PATIENCE = timedelta(hours=6)
"""How long a freeze waits for workers that still curate; then it freezes what is decided."""
NO_CONTACT = "a harvest needs a contact address: set MEDLIVE_HARVEST__CONTACT=you@example.org"


def step_times(settings: Settings) -> dict[str, WeeklyTime]:
    """Each step's weekly time, in the order in which steps are taken. Raises ConfigError."""
    return weekly_times(settings.schedule, chosen(settings, []))


async def read_states(
    database: Database, settings: Settings, moment: datetime, *, again: bool = False, harvesting: bool = False
) -> list[StepState]:
    """How every step stands; a freeze waits while `harvesting`. Raises ConfigError and DatabaseUnavailable."""
    times = step_times(settings)
    async with database.begin() as session:
        history = await load_history(session)
        jobs, workers = await pending_jobs(session)
    blocked = {f"harvest:{source}": f"quarantined: {why}" for source, why in history.quarantined.items()}
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        blocked = {f"harvest:{source}": NO_CONTACT for source in chosen(settings, [])} | blocked
    last_call = latest_slot(moment, times[FREEZE]) + FREEZE_PATIENCE
    if moment < last_call and (harvesting or (jobs and workers)):
        what = "a harvest is under way" if harvesting else "workers have threads that were queued"
        blocked[FREEZE] = f"{what}; it waits until {last_call:%a %H:%M} UTC"
    return survey(times, history, moment, blocked=blocked, again=again)


def in_short(counts: Mapping[str, Any]) -> str:
    """A run's counts in a line: those that are not zero, or its problem."""
    if problem := counts.get("problem"):
        return str(problem)
    flat: dict[str, Any] = {}
    for key, value in counts.items():
        flat |= value if isinstance(value, Mapping) else {key: len(value) if isinstance(value, list) else value}
    return ", ".join(f"{key} {value}" for key, value in flat.items() if value) or "nothing new"


async def pending_jobs(session: Any) -> tuple[int, int]:
    """How many curation jobs are open, and how many workers are alive."""
    return await queue_state(session, CURATION_QUEUE, alive_within=timedelta(seconds=STALLED_AFTER_S))
