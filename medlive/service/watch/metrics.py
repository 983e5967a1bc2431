"""What Prometheus scrapes: the pipeline's state, read from the database that all processes share."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from medlive import __version__
from medlive.config import Settings
from medlive.db.audit.health import read_gauges
from medlive.db.session import Database
from medlive.service.week_budget import week_limits

from .checks import CHECKS, read_problems
from .facts import Facts, read_facts

NAMES = {
    "medlive_info": ("The program's version.", "version"),
    "medlive_problem": ("1 while a check finds a problem, else 0.", "code severity"),
    "medlive_problem_acknowledged": (
        "1 while somebody has acknowledged all that the check finds.",
        "code",
    ),
    "medlive_queue_workers": ("Processes that serve a queue.", "queue"),
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


async def read_metrics(database: Database, settings: Settings) -> bytes:
    """Every metric in Prometheus' text format. Raises DatabaseUnavailable."""
    facts = await read_facts(database, settings)
    problems = await read_problems(database, facts)
    moment = facts.moment
    gauges = await database.ask(read_gauges, moment)
    registry = CollectorRegistry()
    metrics = {}
    for name, (text, labels) in NAMES.items():
        metrics[name] = Gauge(name, text, labels.split(), registry=registry)

    def add(name: str, *labels: str, value: float) -> None:
        metrics[f"medlive_{name}"].labels(*labels).set(value)

    add("info", __version__, value=1)
    for name in ("threads", "recent_threads", "jobs", "oldest_job_seconds"):
        for *labels, value in gauges[name]:
            add(name, *labels, value=value)
    for task, replies, unpriced, estimated, usd in gauges["spent"]:
        add("week_replies", task, value=replies)
        add("week_replies_unpriced", task, value=unpriced)
        add("week_replies_estimated", task, value=estimated)
        if usd is not None:
            add("week_spend_usd", task, value=usd)
    for check, severity in CHECKS.items():
        code = check.__name__
        own = [problem for problem in problems if problem.code == code]
        is_taken_on = bool(own) and all(p.is_acknowledged(moment) for p in own)
        add("problem", code, severity.value, value=bool(own))
        add("problem_acknowledged", code, value=is_taken_on)
    for name, label, value in _watched(facts):
        add(name, label, value=value)
    return generate_latest(registry)


def _watched(facts: Facts) -> Iterator[tuple[str, str, float]]:
    """(metric, label, value) of what the checks' facts say."""
    for state in facts.steps:
        if run := state.latest:
            began = run.started_at.timestamp()
            yield "step_last_run_timestamp_seconds", state.name, began
    for queue, workers in facts.workers.items():
        yield "queue_workers", queue, workers
    for limit in week_limits(facts.spending):
        yield "week_budget_usd", limit.stage or "all", limit.limit
    for place, _, free, size in facts.disks:
        yield "disk_free_bytes", place, free
        yield "disk_size_bytes", place, size
