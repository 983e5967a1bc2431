"""What Prometheus scrapes: the pipeline's state, read from the database that all processes share."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily

from medlive import __version__
from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db.audit.gauges import read_gauges
from medlive.db.iso_weeks import week_bounds
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.db.tables.watch import OpenProblemRow
from medlive.service.watch.checks import CHECKS
from medlive.service.watch.facts import read_facts
from medlive.service.watch.model import Facts
from medlive.service.watch.problems import read_problems
from medlive.service.week_budget import week_limits

NAMES: Final = {
    "medlive_info": ("The program's version.", "version"),
    "medlive_problem": ("1 while a check finds a problem, else 0.", "code severity"),
    "medlive_problem_acknowledged": (
        "1 while somebody has acknowledged all that the check finds.",
        "code",
    ),
    "medlive_scheduler_heard_seconds": (
        "Seconds since a scheduler was last heard; absent if never.",
        "",
    ),
    "medlive_queue_workers": ("Processes that serve a queue.", "queue"),
    "medlive_failed_jobs": ("Failed jobs that no later job has done.", "queue"),
    "medlive_undelivered_messages": (
        "Messages to operators that failed and are sent again.",
        "place",
    ),
    "medlive_threads": ("Threads by where they stand.", "stage outcome reason"),
    "medlive_recent_threads": ("Threads that engines decided within a day.", "outcome"),
    "medlive_jobs": ("Jobs in the queue.", "queue status"),
    "medlive_oldest_job_seconds": ("Age of a queue's oldest waiting job.", "queue"),
    "medlive_week_replies": ("Replies stored since Monday, UTC.", "task"),
    "medlive_week_replies_unpriced": ("Those of them without a price.", "task"),
    "medlive_week_replies_estimated": (
        "Those counted by an upper bound of their tokens.",
        "task",
    ),
    "medlive_week_spend_usd": (
        "What the replies with a price cost in US dollars; absent if none has one.",
        "task",
    ),
    "medlive_week_budget_usd": (
        "[budget] week_usd and stage_week_usd; absent without a limit.",
        "stage",
    ),
    "medlive_circuit_open": (
        "1 for a configured endpoint that is not asked for a while.",
        "endpoint",
    ),
    "medlive_source_quarantined": ("1 while a source is quarantined.", "source"),
    "medlive_step_overdue": (
        "1 when a weekly step is not done a day after its time.",
        "step",
    ),
    "medlive_step_failed": ("1 when a weekly step's last run failed.", "step"),
    "medlive_step_last_run_timestamp_seconds": (
        "When a weekly step last began.",
        "step",
    ),
    "medlive_disk_free_bytes": (
        "Free space of each file system that is written to.",
        "place",
    ),
    "medlive_disk_size_bytes": ("Size of that file system.", "place"),
}
"""Metric → its help and its labels."""


Row = tuple[Any, ...]
"""A metric's name, the values of its labels, its own value."""


class _Families(NamedTuple):
    """What Prometheus' client prints."""

    families: Iterable[GaugeMetricFamily]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self.families


async def read_metrics(database: Database, settings: Settings) -> bytes:
    """Every metric in Prometheus' text format. Raises DatabaseUnavailable."""
    facts = await read_facts(database, settings)
    problems = await read_problems(database, facts)
    moment = facts.moment
    monday, _ = week_bounds(iso_week(moment))
    async with database.begin() as session:
        gauges = await read_gauges(
            session, recent=moment - timedelta(days=1), week=monday
        )
    families = {}
    for name, (text, labels) in NAMES.items():
        families[name] = GaugeMetricFamily(name, text, labels=labels.split())
    families["medlive_info"].add_metric([__version__], 1)
    rows = (
        _counted(gauges),
        _watched(facts),
        _steps(facts),
        _problems(problems, moment),
    )
    for name, *values, figure in chain.from_iterable(rows):
        families[name].add_metric(list(map(str, values)), float(figure))
    return generate_latest(_Families(families.values()))


def _counted(gauges: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    for row in gauges["threads"]:
        yield "medlive_threads", *row
    for row in gauges["recent"]:
        yield "medlive_recent_threads", *row
    for row in gauges["jobs"]:
        yield "medlive_jobs", *row
    for row in gauges["oldest"]:
        yield "medlive_oldest_job_seconds", *row
    for task, replies, unpriced, estimated, usd in gauges["spent"]:
        yield "medlive_week_replies", task, replies
        yield "medlive_week_replies_unpriced", task, unpriced
        yield "medlive_week_replies_estimated", task, estimated
        if usd is not None:
            yield "medlive_week_spend_usd", task, usd


def _steps(facts: Facts) -> Iterator[Row]:
    for state in facts.steps:
        yield "medlive_step_overdue", state.name, state.overdue
        if (run := state.latest) is not None:
            began = run.started_at.timestamp()
            yield "medlive_step_failed", state.name, run.outcome is RunOutcome.FAILED
            yield "medlive_step_last_run_timestamp_seconds", state.name, began


def _problems(problems: Sequence[OpenProblemRow], moment: datetime) -> Iterator[Row]:
    for check in CHECKS:
        own = [problem for problem in problems if problem.code == check.code]
        acknowledged = bool(own) and all(p.is_acknowledged(moment) for p in own)
        yield "medlive_problem", check.code, check.severity.value, bool(own)
        yield "medlive_problem_acknowledged", check.code, acknowledged


def _watched(facts: Facts) -> Iterator[Row]:
    failed = {jobs.queue: jobs.jobs for jobs in facts.failed_jobs}
    for queue, workers in facts.workers.items():
        yield "medlive_queue_workers", queue, workers
        yield "medlive_failed_jobs", queue, failed.get(queue, 0)
    undelivered = Counter(message.place for message in facts.undelivered)
    for place in ("webhook", "email"):
        yield "medlive_undelivered_messages", place, undelivered[place]
    for opening in facts.circuits:
        yield "medlive_circuit_open", opening.endpoint, 1
    for source in facts.sources:
        quarantined = source.quarantined_at is not None
        yield "medlive_source_quarantined", source.name, quarantined
    if facts.scheduler_heard is not None:
        silent = facts.moment - facts.scheduler_heard
        yield "medlive_scheduler_heard_seconds", silent.total_seconds()
    for limit in week_limits(dict(facts.week)):
        yield "medlive_week_budget_usd", limit.stage or "all", limit.limit
    for disk in facts.local.disks if facts.local else ():
        yield "medlive_disk_free_bytes", disk.place, disk.free
        yield "medlive_disk_size_bytes", disk.place, disk.size
