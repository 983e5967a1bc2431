"""What Prometheus scrapes: the pipeline's state, read from the database that all processes share."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from medlive import __version__
from medlive.config import Settings
from medlive.db.audit.health import read_gauges
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.service.watch.checks import CHECKS, read_problems
from medlive.service.watch.facts import Facts, read_facts
from medlive.service.week_budget import week_limits

NAMES = {
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
"""The values of a metric's labels, and its own value."""


async def read_metrics(database: Database, settings: Settings) -> bytes:
    """Every metric in Prometheus' text format. Raises DatabaseUnavailable."""
    facts = await read_facts(database, settings)
    problems = await read_problems(database, facts)
    moment = facts.moment
    gauges = await database.ask(read_gauges, moment)
    registry = CollectorRegistry()
    metrics: dict[str, Gauge] = {}

    def add(name: str, *values: Any) -> None:
        name = f"medlive_{name}"
        text, labels = NAMES[name]
        if name not in metrics:
            metrics[name] = Gauge(name, text, labels.split(), registry=registry)
        *own, value = values
        (metrics[name].labels(*own) if own else metrics[name]).set(value)

    add("info", __version__, 1)
    for name, gauge in (
        ("threads", "threads"),
        ("recent_threads", "recent"),
        ("jobs", "jobs"),
        ("oldest_job_seconds", "oldest"),
    ):
        for row in gauges[gauge]:
            add(name, *row)
    for task, replies, unpriced, estimated, usd in gauges["spent"]:
        add("week_replies", task, replies)
        add("week_replies_unpriced", task, unpriced)
        add("week_replies_estimated", task, estimated)
        if usd is not None:
            add("week_spend_usd", task, usd)
    for check, severity in CHECKS.items():
        code = check.__name__
        own = [problem for problem in problems if problem.code == code]
        is_taken_on = bool(own) and all(p.is_acknowledged(moment) for p in own)
        add("problem", code, severity.value, bool(own))
        add("problem_acknowledged", code, is_taken_on)
    for name, values in _watched(facts):
        add(name, *values)
    return generate_latest(registry)


def _watched(facts: Facts) -> Iterator[tuple[str, Row]]:
    """Metric → what the checks' facts say of it."""
    for state in facts.steps:
        yield "step_overdue", (state.name, state.overdue)
        if run := state.latest:
            began = run.started_at.timestamp()
            yield "step_failed", (state.name, run.outcome is RunOutcome.FAILED)
            yield "step_last_run_timestamp_seconds", (state.name, began)
    failed = {jobs.queue: jobs.jobs for jobs in facts.failed_jobs}
    for queue, workers in facts.workers.items():
        yield "queue_workers", (queue, workers)
        yield "failed_jobs", (queue, failed.get(queue, 0))
    undelivered = Counter(message.place for message in facts.undelivered)
    for place in ("webhook", "email"):
        yield "undelivered_messages", (place, undelivered[place])
    for opening in facts.circuits:
        yield "circuit_open", (opening.endpoint, 1)
    for source in facts.sources:
        yield "source_quarantined", (source.name, source.quarantined_at is not None)
    if facts.scheduler_heard:
        silent = facts.moment - facts.scheduler_heard
        yield "scheduler_heard_seconds", (silent.total_seconds(),)
    for limit in week_limits(facts.week):
        yield "week_budget_usd", (limit.stage or "all", limit.limit)
    for place, _, free, size in facts.disks:
        yield "disk_free_bytes", (place, free)
        yield "disk_size_bytes", (place, size)
