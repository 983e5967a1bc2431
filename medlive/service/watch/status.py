"""The status report: funnel, failures, what the week cost, sources and steps, read from the database."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from medlive.config import Settings
from medlive.db import watch as db_watch
from medlive.db.audit.health import failed_threads
from medlive.db.audit.spending import mean_thread_cost
from medlive.db.curation.funnel import funnel
from medlive.db.curation.parking import count_parked
from medlive.db.curation.replies import count_answers
from medlive.db.jobs import Queue, count_open
from medlive.db.mapping import Record
from medlive.db.session import Database
from medlive.db.tables.watch import OpenProblemRow
from medlive.db.waits import count_waiting
from medlive.instance.paths import encoder_settings, index_path
from medlive.service.harvest.sources import not_modified_share
from medlive.service.schedule.steps import StepState, read_states
from medlive.service.watch import checks
from medlive.service.watch.facts import Facts, read_facts
from medlive.service.watch.week import run_as_json
from medlive.service.week_budget import read_week


async def read_steps(database: Database, settings: Settings) -> list[dict[str, Any]]:
    """Every weekly step as JSON values, without running any. Raises ConfigError and DatabaseUnavailable."""
    return [step_as_json(state) for state in await read_states(database, settings)]


async def read_problems(database: Database, settings: Settings) -> list[dict[str, Any]]:
    """Each thing a person must look at, as JSON values. Raises ConfigError and DatabaseUnavailable."""
    facts = await read_facts(database, settings)
    return _problems_as_json(await checks.read_problems(database, facts), facts)


def _problems_as_json(
    problems: Iterable[OpenProblemRow], facts: Facts
) -> list[dict[str, Any]]:
    return [
        {
            "code": problem.code,
            "subject": problem.subject,
            "severity": problem.severity.value,
            "text": problem.text,
            "next_step": problem.next_step,
            "acknowledged": problem.is_acknowledged(facts.moment),
        }
        for problem in problems
    ]


async def acknowledge(
    database: Database,
    settings: Settings,
    code: str,
    *,
    lasts: timedelta | None,
    why: str | None,
    by: str | None,
) -> list[dict[str, Any]]:
    """Take on every problem of a code, so that no more messages are sent about it; the problems.

    Raises UsageError when no problem of this code is open, ConfigError, and DatabaseUnavailable.
    """
    facts = await read_facts(database, settings)
    found = await checks.read_problems(database, facts)
    async with database.begin() as session:
        await db_watch.save_seen(session, found)
        seen = {problem.key for problem in found}
        await db_watch.end_unseen(session, seen, checks.ENDS_AFTER)
    async with database.begin() as session:
        problems = await db_watch.acknowledge(
            session, code, lasts=lasts, why=why, by=by
        )
    return [{"code": p.code, "subject": p.subject, "text": p.text} for p in problems]


async def read_health(database: Database, settings: Settings) -> dict[str, Any]:
    """Sources, weekly steps, the week's money and open circuits as JSON values, and whether a scheduler runs.

    "problems" has each thing a person must look at.
    """
    facts = await read_facts(database, settings)
    problems = await checks.read_problems(database, facts)
    sources = []
    for source in facts.sources:
        harvests = facts.history.harvests.get(source.name)
        counts = {} if harvests is None else harvests.latest.counts
        sources.append(
            {**source._asdict(), "not_modified_share": not_modified_share(counts)}
        )
    return {
        "sources": sources,
        "steps": [step_as_json(state) for state in facts.steps],
        "week": dict(facts.week),
        "circuits": [asdict(opening) for opening in facts.circuits],
        "scheduler_active": facts.scheduler_active,
        "scheduler_heard": facts.scheduler_heard,
        "workers": {queue: n for queue, n in facts.workers.items() if n},
        "problems": _problems_as_json(problems, facts),
    }


async def read_status(database: Database, settings: Settings) -> dict[str, Any]:
    """Everything `medlive status` prints, as JSON values: the funnel, `read_health`, and what the week will cost."""
    from medlive.evidence.manifest import describe_retriever  # imports NumPy

    async with database.begin() as session:
        rows = await funnel(session)
        answers = await count_answers(session)
        failures = await failed_threads(session, most=20)
        parked = await count_parked(session)
        queued = await count_waiting(session, Queue.CURATE)
        waiting = await count_open(session, Queue.CURATE)
        mean = await mean_thread_cost(session)
        week = await read_week(
            session, settings.budget, waiting=waiting, usd_a_thread=mean
        )
    section, index = settings.evidence, index_path(settings)
    retriever = describe_retriever(index, encoder_settings(settings), section.retriever)
    if section.online:
        local = retriever if index.exists() else "no local index"
        retriever = f"{' + '.join(section.online)} online; {local}"
    health = await read_health(database, settings)
    return (
        {
            "funnel": [row.cells for row in rows],
            "kept": sum(r.count for r in rows if r.outcome == "kept"),
            "answers": list(map(answers_as_json, answers)),
            "parked": vars(parked),
            "failures": list(map(vars, failures)),
            "retriever": retriever,
        }
        | health
        | {"week": week | {"delayed": queued.delayed, "delayed_until": queued.next_at}}
    )


def answers_as_json(answers: Record) -> dict[str, Any]:
    """The outcomes of a stage's calls, as counts and as shares; None without calls."""
    values = dict(vars(answers))
    for end in ("repairs", "invalid", "refused", "truncated"):
        values[f"{end}_share"] = values[end] / answers.calls if answers.calls else None
    return values


def step_as_json(state: StepState) -> dict[str, Any]:
    """A step as `medlive status` and `medlive scheduler --dry-run` show it; times in UTC."""
    return {
        "step": state.name,
        "week": state.week,
        "status": state.status.value,
        "why": state.why,
        "due": state.next_at,
        "retry_at": state.retry_at,
        "overdue": state.overdue,
        "last": state.latest and run_as_json(state.latest),
    }
