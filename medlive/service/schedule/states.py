"""The state of every weekly step, from stored rows and settings. Imports little: `medlive status` needs it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from medlive.config import Settings, WeeklyTime
from medlive.db.runs import CURATION_QUEUE, STALLED_AFTER_S, load_history, queue_state
from medlive.db.session import Database
from medlive.service.harvest.settings import fetch_settings, select_sources
from medlive.service.schedule.steps import FREEZE, StepState, latest_slot, step_states, weekly_times

FREEZE_TIMEOUT = timedelta(hours=6)
"""How long a freeze waits for workers; then it freezes what is decided."""
NO_CONTACT = "a harvest needs a contact address: set MEDLIVE_HARVEST__CONTACT=you@example.org"


def step_times(settings: Settings) -> dict[str, WeeklyTime]:
    """Each step's weekly time, in the order of execution. Raises ConfigError."""
    return weekly_times(settings.schedule, select_sources(settings, []))


async def read_states(
    database: Database, settings: Settings, moment: datetime, *, again: bool = False, harvesting: bool = False
) -> list[StepState]:
    """The state of every step; a freeze waits while `harvesting`. Raises ConfigError and DatabaseUnavailable."""
    times = step_times(settings)
    async with database.begin() as session:
        history = await load_history(session)
        jobs, workers = await pending_jobs(session)
    blocked = {f"harvest:{source}": f"quarantined: {why}" for source, why in history.quarantined.items()}
    fetching = fetch_settings(settings)
    if fetching.contact is None and not fetching.allow_loopback:
        blocked = {f"harvest:{source}": NO_CONTACT for source in select_sources(settings, [])} | blocked
    deadline = latest_slot(moment, times[FREEZE]) + FREEZE_TIMEOUT
    if moment < deadline and (harvesting or (jobs and workers)):
        what = "a harvest is under way" if harvesting else "workers are curating queued threads"
        blocked[FREEZE] = f"{what}; it waits until {deadline:%a %H:%M} UTC"
    return step_states(times, history, moment, blocked=blocked, ignore_retry=again)


def summarize_counts(counts: Mapping[str, Any]) -> str:
    """Format a run's non-zero counts, or its problem, in one line."""
    if problem := counts.get("problem"):
        return str(problem)
    flat: dict[str, Any] = {}
    for key, value in counts.items():
        flat |= value if isinstance(value, Mapping) else {key: len(value) if isinstance(value, list) else value}
    return ", ".join(f"{key} {value}" for key, value in flat.items() if value) or "nothing new"


async def pending_jobs(session: Any) -> tuple[int, int]:
    """How many curation jobs are open, and how many workers are alive."""
    return await queue_state(session, CURATION_QUEUE, alive_within=timedelta(seconds=STALLED_AFTER_S))
