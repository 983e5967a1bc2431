"""What Prometheus scrapes: the pipeline's state, read from the database that all processes share."""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from medlive import __version__
from medlive.clock import now
from medlive.config import Settings
from medlive.db.audit.gauges import Gauges, read_gauges
from medlive.db.curation.circuits import open_circuits
from medlive.db.harvest.harvests import SourceInfo, list_sources
from medlive.db.runs import is_scheduler_active
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.service.schedule.steps import StepState, read_states
from medlive.service.status import configured_circuits

NAMES: Final = {
    "medlive_info": ("The program's version.", "version"),
    "medlive_scheduler_active": ("1 while a scheduler works.", ""),
    "medlive_threads": ("Threads by where they stand.", "stage outcome reason"),
    "medlive_recent_threads": ("Threads that engines decided within a day.", "outcome"),
    "medlive_jobs": ("Jobs in the queue.", "queue status"),
    "medlive_oldest_job_seconds": ("Age of a queue's oldest waiting job.", "queue"),
    "medlive_week_replies": ("Replies stored since Monday, UTC.", "task"),
    "medlive_week_replies_unpriced": ("Those of them without a price.", "task"),
    "medlive_week_spend_usd": ("What the others cost in US dollars.", "task"),
    "medlive_budget_usd": ("[budget] max_usd of one run; absent without a limit.", ""),
    "medlive_circuit_open": ("1 for a configured endpoint that is not asked for a while.", "endpoint"),
    "medlive_source_quarantined": ("1 while a source is quarantined.", "source"),
    "medlive_step_overdue": ("1 when a weekly step is not done a day after its time.", "step"),
    "medlive_step_failed": ("1 when a weekly step's last run failed.", "step"),
    "medlive_step_last_run_timestamp_seconds": ("When a weekly step last began.", "step"),
    "medlive_disk_free_bytes": ("Free space where MEDLIVE_HOME lies.", ""),
    "medlive_disk_size_bytes": ("Size of that file system.", ""),
}
"""Metric → its help and its labels."""


async def read_metrics(database: Database, settings: Settings, *, clock: Callable[[], datetime] = now) -> bytes:
    """Every metric in Prometheus' text format. Raises DatabaseUnavailable."""
    moment = clock()
    monday = (moment - timedelta(days=moment.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    async with database.begin() as session:
        gauges = await read_gauges(session, recent=moment - timedelta(days=1), week=monday)
        sources = await list_sources(session)
        circuits = await open_circuits(session, configured_circuits(settings))
        active = await is_scheduler_active(session)
    states = await read_states(database, settings, moment)
    registry = CollectorRegistry()
    made = {name: Gauge(name, text, labels.split(), registry=registry) for name, (text, labels) in NAMES.items()}
    for name, labels, value in (
        ("medlive_info", [__version__], 1),
        ("medlive_scheduler_active", [], active),
        *_counted(gauges),
        *(("medlive_circuit_open", [opening.endpoint], 1) for opening in circuits),
        *_weekly(sources, states),
        *_disk(settings),
    ):
        gauge = made[name]
        (gauge.labels(*labels) if labels else gauge).set(float(value))
    if settings.budget.max_usd is None:
        registry.unregister(made["medlive_budget_usd"])
    else:
        made["medlive_budget_usd"].set(settings.budget.max_usd)
    return generate_latest(registry)


Sample = tuple[str, Sequence[str], Any]
"""A metric's name, the values of its labels, its own value."""


def _counted(gauges: Gauges) -> Iterable[Sample]:
    for *labels, count in gauges.threads:
        yield "medlive_threads", labels, count
    for outcome, count in gauges.recent:
        yield "medlive_recent_threads", [outcome], count
    for queue, status, count in gauges.jobs:
        yield "medlive_jobs", [queue, status], count
    for queue, seconds in gauges.oldest:
        yield "medlive_oldest_job_seconds", [queue], seconds
    for task, replies, unpriced, usd in gauges.spent:
        yield "medlive_week_replies", [task], replies
        yield "medlive_week_replies_unpriced", [task], unpriced
        yield "medlive_week_spend_usd", [task], usd


def _weekly(sources: Sequence[SourceInfo], states: Sequence[StepState]) -> Iterable[Sample]:
    for source in sources:
        yield "medlive_source_quarantined", [source.name], source.quarantined_at is not None
    for state in states:
        yield "medlive_step_overdue", [state.name], state.overdue
        if (run := state.latest) is not None:
            yield "medlive_step_failed", [state.name], run.outcome is RunOutcome.FAILED
            yield "medlive_step_last_run_timestamp_seconds", [state.name], run.started_at.timestamp()


def _disk(settings: Settings) -> Iterable[Sample]:
    if os.path.isdir(settings.home):
        usage = shutil.disk_usage(settings.home)
        yield "medlive_disk_free_bytes", [], usage.free
        yield "medlive_disk_size_bytes", [], usage.total
