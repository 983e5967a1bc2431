"""What Prometheus scrapes: the pipeline's state, read from the database that all processes share."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from medlive import __version__
from medlive.clock import parse_moment
from medlive.config import Settings
from medlive.db.audit.gauges import Gauges, read_gauges
from medlive.db.harvest.harvests import SourceInfo
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.service.schedule.steps import BACKUP, StepState, command_of
from medlive.service.watch.checks import CHECKS
from medlive.service.watch.facts import read_facts
from medlive.service.watch.model import CERTIFICATES, Facts, Problem
from medlive.service.watch.problems import read_problems
from medlive.service.week_budget import week_limits

NAMES: Final = {
    "medlive_info": ("The program's version.", "version"),
    "medlive_problem": ("1 while a check finds a problem, else 0.", "code severity"),
    "medlive_problem_acknowledged": (
        "1 while somebody has acknowledged all that the check finds.",
        "code",
    ),
    "medlive_scheduler_active": ("1 while a scheduler works.", ""),
    "medlive_scheduler_heard_seconds": (
        "Seconds since a scheduler was last heard; absent if never.",
        "",
    ),
    "medlive_queue_workers": ("Processes that serve a queue.", "queue"),
    "medlive_queue_ready_jobs": ("Jobs that could begin now.", "queue"),
    "medlive_failed_jobs": ("Failed jobs that no later job has done.", "queue"),
    "medlive_undelivered_messages": (
        "Messages to operators that failed and are sent again.",
        "place",
    ),
    "medlive_backup_timestamp_seconds": (
        "When the latest weekly backup was made; absent if never.",
        "",
    ),
    "medlive_certificate_expiry_timestamp_seconds": (
        "When a certificate ends.",
        "host",
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
    "medlive_week_budget_spent_usd": (
        "What is known to be spent of each of these limits.",
        "stage",
    ),
    "medlive_budget_usd": ("[budget] max_usd of one run; absent without a limit.", ""),
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


async def read_metrics(database: Database, settings: Settings) -> bytes:
    """Every metric in Prometheus' text format. Raises DatabaseUnavailable."""
    facts = await read_facts(database, settings)
    problems = await read_problems(database, settings, facts)
    moment = facts.moment
    monday = (moment - timedelta(days=moment.weekday())).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    async with database.begin() as session:
        gauges = await read_gauges(
            session, recent=moment - timedelta(days=1), week=monday
        )
    registry = CollectorRegistry()
    made = {
        name: Gauge(name, text, labels.split(), registry=registry)
        for name, (text, labels) in NAMES.items()
    }
    for name, labels, value in (
        ("medlive_info", [__version__], 1),
        ("medlive_scheduler_active", [], facts.scheduler_active),
        *_found(problems),
        *_counted(gauges),
        *_watched(facts),
        *_weekly(facts.sources, facts.steps),
    ):
        gauge = made[name]
        (gauge.labels(*labels) if labels else gauge).set(float(value))
    for name, value in _without_labels(facts).items():
        if value is None:
            registry.unregister(made[name])
        else:
            made[name].set(value)
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
    for task, replies, unpriced, estimated, usd in gauges.spent:
        yield "medlive_week_replies", [task], replies
        yield "medlive_week_replies_unpriced", [task], unpriced
        yield "medlive_week_replies_estimated", [task], estimated
        if usd is not None:
            yield "medlive_week_spend_usd", [task], usd


def _weekly(
    sources: Sequence[SourceInfo], states: Sequence[StepState]
) -> Iterable[Sample]:
    for source in sources:
        yield (
            "medlive_source_quarantined",
            [source.name],
            source.quarantined_at is not None,
        )
    for state in states:
        yield "medlive_step_overdue", [state.name], state.overdue
        if (run := state.latest) is not None:
            yield "medlive_step_failed", [state.name], run.outcome is RunOutcome.FAILED
            yield (
                "medlive_step_last_run_timestamp_seconds",
                [state.name],
                run.started_at.timestamp(),
            )


def _found(problems: Sequence[Problem]) -> Iterable[Sample]:
    for check in CHECKS:
        own = [problem for problem in problems if problem.code == check.code]
        acknowledged = bool(own) and all(problem.is_acknowledged for problem in own)
        yield "medlive_problem", [check.code, check.severity.value], bool(own)
        yield "medlive_problem_acknowledged", [check.code], acknowledged


def _watched(facts: Facts) -> Iterable[Sample]:
    for queue, workers in facts.workers.items():
        yield "medlive_queue_workers", [queue], workers
    ready = {queue.queue: queue.ready for queue in facts.queues}
    failed = {jobs.queue: jobs.jobs for jobs in facts.failed_jobs}
    for queue in facts.workers:
        yield "medlive_queue_ready_jobs", [queue], ready.get(queue, 0)
        yield "medlive_failed_jobs", [queue], failed.get(queue, 0)
    for place in ("webhook", "email"):
        waiting = [message for message in facts.undelivered if message.place == place]
        yield "medlive_undelivered_messages", [place], len(waiting)
    for opening in facts.circuits:
        yield "medlive_circuit_open", [opening.endpoint], 1
    yield from _watched_places(facts)


def _watched_places(facts: Facts) -> Iterable[Sample]:
    """Budgets, disks and certificates."""
    for limit in week_limits(dict(facts.week)):
        yield "medlive_week_budget_usd", [limit.stage or "all"], limit.limit
        yield "medlive_week_budget_spent_usd", [limit.stage or "all"], limit.usd
    for disk in facts.local.disks if facts.local else ():
        yield "medlive_disk_free_bytes", [disk.place], disk.free
        yield "medlive_disk_size_bytes", [disk.place], disk.size
    certificates = facts.observations.get(CERTIFICATES)
    for host, certificate in (certificates.value if certificates else {}).items():
        if certificate["ends"] is not None:
            ends = parse_moment(certificate["ends"]).timestamp()
            yield "medlive_certificate_expiry_timestamp_seconds", [host], ends


def _without_labels(facts: Facts) -> dict[str, float | None]:
    """Metrics without labels that may be absent, which a gauge would show as 0."""
    heard, backup = facts.scheduler_heard, facts.history.done.get(command_of(BACKUP))
    return {
        "medlive_budget_usd": facts.settings.budget.max_usd,
        "medlive_scheduler_heard_seconds": None
        if heard is None
        else (facts.moment - heard).total_seconds(),
        "medlive_backup_timestamp_seconds": None
        if backup is None
        else backup.started_at.timestamp(),
    }
