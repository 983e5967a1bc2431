"""The status report, and a week as a whole: funnel, failures, cost, sources, steps, what was held and shipped."""

from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from medlive.clock import now, week_bounds
from medlive.config import Settings
from medlive.db import watch as db_watch
from medlive.db.audit.health import failed_threads
from medlive.db.audit.spending import Spent, mean_thread_cost, spending
from medlive.db.curation.funnel import funnel, outcomes_by_paper
from medlive.db.curation.parking import count_parked
from medlive.db.curation.proofs import proofs_made
from medlive.db.jobs import Queue, count_waiting
from medlive.db.release.snapshots import (
    find_snapshot,
    load_fixed,
    load_kept_out,
)
from medlive.db.release.weeks import week_standing
from medlive.db.runs import Run, runs_of_week
from medlive.db.session import Database, Session
from medlive.instance.paths import index_path
from medlive.service.release.withdraw import check_given_reason, check_person_name
from medlive.service.schedule.steps import (
    FREEZE,
    QUEUE,
    StepState,
    command_of,
    summarize_counts,
)
from medlive.service.week_budget import read_spending
from medlive.snapshot.manifest import headroom_of

from . import checks
from .facts import Facts, read_facts


async def read_problems(
    database: Database, settings: Settings, facts: Facts | None = None
) -> list[dict[str, Any]]:
    """Each problem that a person must look at, by `facts` (None: those of now), as JSON values.

    Raises ConfigError and DatabaseUnavailable.
    """
    facts = facts or await read_facts(database, settings)
    return [
        {
            "code": problem.code,
            "subject": problem.subject,
            "severity": problem.severity,
            "text": problem.text,
            "next_step": problem.next_step,
            "acknowledged": problem.is_acknowledged(facts.moment),
        }
        for problem in await checks.read_problems(database, facts)
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
    """Acknowledge every problem of a code, so that no messages are sent about it for `lasts` (None: until it ends).

    Returns the problems. Raises UsageError when no problem of this code is open, ConfigError, and DatabaseUnavailable.
    """
    why, by = check_given_reason(why), check_person_name(by)
    problems = await checks.read_problems(
        database, await read_facts(database, settings)
    )
    await database.ask(db_watch.save_seen, problems)
    problems = await database.ask(
        db_watch.acknowledge,
        code,
        patience=checks.ENDS_AFTER,
        lasts=lasts,
        why=why,
        by=by,
    )
    return [{"code": p.code, "subject": p.subject, "text": p.text} for p in problems]


async def read_health(database: Database, settings: Settings) -> dict[str, Any]:
    """Sources and weekly steps as JSON values, and whether a scheduler runs.

    "problems" is as `read_problems` returns it.
    """
    facts = await read_facts(database, settings)
    return {
        "sources": list(map(vars, facts.sources)),
        "steps": list(map(step_as_json, facts.steps)),
        "scheduler_active": facts.scheduler_active,
        "problems": await read_problems(database, settings, facts),
    }


async def read_status(database: Database, settings: Settings) -> dict[str, Any]:
    """Everything `medlive status` prints, as JSON values: the funnel, `read_health`, and what the week will cost."""
    from medlive.evidence.manifest import describe_retriever  # imports NumPy

    async with database.begin() as session:
        rows = await funnel(session)
        failures = await failed_threads(session, most=20)
        parked = await count_parked(session)
        queued = await count_waiting(session, Queue.CURATE)
        week = await read_spending(
            session,
            settings.budget,
            waiting=queued.open,
            usd_a_thread=await mean_thread_cost(session),
        )
    section, index = settings.evidence, index_path(settings)
    retriever = describe_retriever(index, section.retriever)
    if section.online:
        local = retriever if index.exists() else "no local index"
        retriever = f"{' + '.join(section.online)} online; {local}"
    return {
        "funnel": list(map(list, rows)),
        "kept": sum(r.threads for r in rows if r.outcome == "kept"),
        "parked": vars(parked),
        "failures": list(map(vars, failures)),
        "retriever": retriever,
        **await read_health(database, settings),
        "week": week | {"delayed": queued.delayed, "delayed_until": queued.next_at},
    }


def step_as_json(state: StepState) -> dict[str, Any]:
    """A step as `medlive status` and `medlive scheduler --dry-run` show it; times in UTC."""
    return {
        "step": state.name,
        "week": state.week,
        "status": state.status,
        "why": state.why,
        "due": state.next_at,
        "retry_at": state.retry_at,
        "overdue": state.overdue,
        "last": state.latest and run_as_json(state.latest),
    }


async def read_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Everything that `medlive week show` prints, as JSON values. Raises DatabaseUnavailable and UsageError.

    "harvests" and "steps" have a row for the latest run of each; the cost of the queueing is that of all replies
    from its begin to the freeze's. "standing" says how many of the threads queued for the week are settled;
    "threads" counts those that changed in the week by their present stage and outcome, from the filters on; "cost" is
    what the replies stored in the week cost in all; "by_paper" counts the decisions begun in the week beside what the
    paper's own rule would have made of them; "proofs" are those of the decisions begun in the week; "snapshot" is None
    before the week is frozen.
    """
    since, until = week_bounds(week)
    async with database.begin() as session:
        harvests, steps = await runs_of_week(session, week)
        counts = await funnel(session, week)
        total = await _spent(session, since, until)
        by_paper = await outcomes_by_paper(session, since, until)
        proofs = await proofs_made(session, since, until)
        snapshot = await _read_snapshot(session, week)
        standing = await week_standing(
            session, week, failure_share=settings.schedule.failure_share
        )
        # Only threads are asked about: the queueing cost what was replied from its begin to the freeze's.
        costs: dict[str, float | None] = {}
        queue, freeze = steps.get(command_of(QUEUE)), steps.get(command_of(FREEZE))
        if queue:
            ended = now()
            if freeze:
                end = queue.finished_at or queue.started_at
                ended = max(freeze.started_at, end)
            spent = await _spent(session, queue.started_at, ended)
            costs[command_of(QUEUE)] = spent.cost_usd if spent else 0.0
    return {
        "week": week,
        "harvests": [{"name": n} | run_as_json(run) for n, run in harvests.items()],
        "steps": [
            {"name": name, "cost_usd": costs.get(name)} | run_as_json(run)
            for name, run in steps.items()
        ],
        "standing": asdict(standing)
        | {"whole": standing.whole, "in_short": standing.in_short},
        "threads": [
            {"stage": stage, "outcome": outcome, "reason": reason or "", "count": n}
            for stage, outcome, reason, n in counts
        ],
        "cost": total and vars(total),
        "by_paper": list(map(vars, by_paper)),
        "proofs": proofs
        | {"headroom": headroom_of(Counter(proofs["ordinary"])).model_dump()},
        "snapshot": snapshot,
    }


async def _spent(session: Session, since: datetime, until: datetime) -> Spent | None:
    """What all replies of a time cost; None without any."""
    rows = {row.by: row for row in await spending(session, since, until)}
    return rows.get("all")


async def _read_snapshot(session: Session, week: str) -> dict[str, Any] | None:
    """A week's snapshot in short; None before its freeze begins."""
    info = await find_snapshot(session, week)
    if info is None:
        return None
    fixed = await load_fixed(session, week)
    return {
        "state": info.state,
        "frozen_at": info.frozen_at,
        "cases": info.cases,
        "criteria": info.criteria,
        "held_out": fixed.numbers.held if fixed else None,
        "kept_out": Counter(hit.gate for hit in await load_kept_out(session, week)),
        "publishable": info.publishable,
        "why_not": info.why_not,
        "signed": info.signature is not None,
    }


def run_as_json(run: Run) -> dict[str, Any]:
    """A run of a step, as JSON values; times in UTC. "took" is None unless it ended and was begun once."""
    took = None
    if run.finished_at and run.starts == 1:
        span = run.finished_at - run.started_at
        took = str(timedelta(seconds=max(0, round(span.total_seconds()))))
    return {
        "week": run.week,
        "outcome": run.outcome.value,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "took": took,
        "counts": dict(run.counts),
        "in_short": summarize_counts(run.counts),
        "log": list(run.log),
    }
