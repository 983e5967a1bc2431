"""The status report: funnel, failures, costs, sources and steps, read from the database."""

import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from medlive.clock import now
from medlive.config import DEFAULT_KEY_VARIABLE, RoleSettings, Settings
from medlive.db.curation.circuits import open_circuits
from medlive.db.curation.funnel import funnel, recent_failures
from medlive.db.curation.replies import Answers, Cost, Costs, costs
from medlive.db.harvest.harvests import list_sources
from medlive.db.jobs import Queue, count_ready
from medlive.db.runs import is_scheduler_active, load_history
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.db.waits import count_waiting
from medlive.llm.circuit import circuit_key, circuit_name
from medlive.service.database import open_database
from medlive.service.harvest.sources import not_modified_share
from medlive.service.paths import encoder_settings, index_path
from medlive.service.schedule.steps import StepState, StepStatus, read_states, summarize_counts
from medlive.service.week_budget import find_spent, read_week


async def read_steps(settings: Settings) -> list[dict[str, Any]]:
    """Every weekly step as JSON values, without running any. Raises ConfigError and DatabaseUnavailable."""
    async with open_database(settings) as database:
        return [step_as_json(state) for state in await read_states(database, settings, now())]


async def read_problems(settings: Settings) -> list[str]:
    """One line for each thing a person must look at. Raises ConfigError and DatabaseUnavailable."""
    async with open_database(settings) as database:
        problems: list[str] = (await read_health(database, settings, now()))["problems"]
        return problems


async def read_health(database: Database, settings: Settings, moment: datetime) -> dict[str, Any]:
    """Sources, weekly steps, the week's money and open circuits as JSON values, and whether a scheduler runs.

    "problems" has one line for each thing a person must look at: an open circuit, a spent budget, a quarantined
    source, a step that failed or is overdue.
    """
    async with database.begin() as session:
        sources = await list_sources(session)
        harvests = (await load_history(session)).harvests
        circuits = await open_circuits(session, configured_circuits(settings))
        week = await read_week(session, settings.budget)
        active = await is_scheduler_active(session)
    steps = [step_as_json(state) for state in await read_states(database, settings, moment)]
    spent = find_spent(week)
    problems = [str(opening) for opening in circuits]
    problems += [spent] if spent else []
    problems += [
        f"{s.name} is quarantined since {s.quarantined_at:%Y-%m-%d %H:%M} UTC: {s.quarantine_reason}"
        for s in sources
        if s.quarantined_at is not None
    ]
    for step in steps:
        if step["overdue"]:
            why = f": {step['last']['in_short']}" if _failed(step) else ""
            problems.append(f"{step['step']} is overdue since {step['due']:%Y-%m-%d %H:%M} UTC{why}")
        elif step["status"] != StepStatus.DONE.value and _failed(step):
            problems.append(f"{step['step']} failed for {step['week']}: {step['last']['in_short']}")
    latest = {name: history.latest.counts for name, history in harvests.items()}
    return {
        "sources": [
            {**asdict(s), "not_modified_share": not_modified_share(latest.get(s.name, {}))} for s in sources
        ],
        "steps": steps,
        "week": week,
        "circuits": [asdict(opening) for opening in circuits],
        "scheduler_active": active,
        "problems": problems,
    }


def configured_circuits(settings: Settings) -> set[str]:
    """The keys of the roles' circuits; their endpoints where a role's key is not in this environment.

    The workers' may hold it: then their circuit has another key than this process could make.
    """
    used: list[RoleSettings] = [role for _, role in settings.roles]
    return {
        circuit_name(role.base_url, role.model)
        if (key := os.environ.get(role.api_key_env or DEFAULT_KEY_VARIABLE)) is None
        else circuit_key(role.base_url, key, role.model)
        for role in used
        if role.engine == "openai" and role.base_url and role.model
    }


def _failed(step: dict[str, Any]) -> bool:
    last = step["last"]
    return last is not None and last["week"] == step["week"] and last["outcome"] == RunOutcome.FAILED.value


async def read_status(settings: Settings, *, clock: Callable[[], datetime] = now) -> dict[str, Any]:
    """Everything `medlive status` prints, as JSON values: `read_health`, costs, and what the week will cost."""
    from medlive.evidence.manifest import describe_retriever  # imports NumPy

    async with open_database(settings) as database:
        async with database.begin() as session:
            rows = await funnel(session)
            spent = await costs(session)
            failures = await recent_failures(session)
            queued, usd = await count_waiting(session, Queue.CURATE), spent.total.cost_usd
            waiting = await count_ready(session, Queue.CURATE) + queued.delayed
            mean = usd / spent.curated if usd is not None and spent.curated else None
            week = await read_week(session, settings.budget, waiting=waiting, usd_a_thread=mean)
        health = await read_health(database, settings, clock())
    return (
        {
            "funnel": [[r.stage, r.outcome, r.reason, r.count] for r in rows],
            "kept": sum(r.count for r in rows if r.outcome == "kept"),
            "ever_kept": spent.kept,
            "cost_usd": spent.total.cost_usd,
            "costs": [cost_as_json(cost, spent) for cost in spent.tasks],
            "stages": [cost_as_json(cost, spent) for cost in (*spent.stages, spent.total)],
            "answers": [answers_as_json(answers) for answers in spent.answers],
            "curated": spent.curated,
            "failures": [asdict(failure) for failure in failures],
            "retriever": describe_retriever(
                index_path(settings), encoder_settings(settings), settings.evidence.retriever
            ),
        }
        | health
        | {"week": week | {"delayed": queued.delayed, "delayed_until": queued.next_at}}
    )


def cost_as_json(cost: Cost, spent: Costs) -> dict[str, Any]:
    """The cost of a task or stage, in all and per curated thread and kept case; None if unknown."""
    usd = cost.cost_usd
    return {
        **asdict(cost),
        "cost_usd": usd,
        "usd_a_curated_thread": usd / spent.curated if usd is not None and spent.curated else None,
        "usd_a_kept_case": usd / spent.kept if usd is not None and spent.kept else None,
        "cached_share": cost.cached_share,
    }


def answers_as_json(answers: Answers) -> dict[str, Any]:
    """The outcomes of a stage's calls, as counts and as shares; None without calls."""
    ends = ("repairs", "invalid", "refused", "truncated")
    return {**asdict(answers), **{f"{end}_share": answers.share(getattr(answers, end)) for end in ends}}


def step_as_json(state: StepState) -> dict[str, Any]:
    """A step as `medlive status` and `medlive scheduler --dry-run` show it; times in UTC."""
    last = None
    if (run := state.latest) is not None:
        last = {
            "week": run.week, "outcome": run.outcome.value, "started_at": run.started_at,
            "finished_at": run.finished_at, "counts": dict(run.counts), "in_short": summarize_counts(run.counts),
        }  # fmt: skip
    return {
        "step": state.name, "week": state.week, "status": state.status.value, "why": state.why,
        "due": state.next_at, "retry_at": state.retry_at, "overdue": state.overdue, "last": last,
    }  # fmt: skip
