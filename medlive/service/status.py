"""What a maintainer sees first: the funnel, failures, costs, sources and steps, read from the database."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db.costs import costs
from medlive.db.funnel import funnel, recent_failures
from medlive.db.harvests import list_sources
from medlive.db.steps import is_scheduler_active, load_history
from medlive.service.database import open_database
from medlive.service.steps import StepState
from medlive.service.weekly import in_short, read_states


async def read_status(settings: Settings, *, clock: Callable[[], datetime] = now) -> dict[str, Any]:
    """Everything `medlive status` prints, as JSON values.

    "problems" holds a line for each thing that asks for a person: a quarantined source, an overdue step.
    """
    moment = clock()
    async with open_database(settings) as database:
        async with database.begin() as session:
            rows = await funnel(session)
            spent = await costs(session)
            failures = await recent_failures(session)
            sources = await list_sources(session)
            harvests = (await load_history(session)).harvests
            active = await is_scheduler_active(session)
        steps = [step_as_json(state) for state in await read_states(database, settings, moment)]
    prices = [cost.cost_usd for cost in spent]
    problems = [
        f"{s.name} is quarantined since {s.quarantined_at:%Y-%m-%d %H:%M} UTC: {s.quarantine_reason}"
        for s in sources
        if s.quarantined_at is not None
    ]
    problems += [f"{s['step']} is overdue since {s['due']:%Y-%m-%d %H:%M} UTC" for s in steps if s["overdue"]]
    return {
        "funnel": [[r.stage, r.outcome, r.reason, r.count] for r in rows],
        "kept": sum(r.count for r in rows if r.outcome == "kept"),
        "cost_usd": None if None in prices else sum(p for p in prices if p is not None),
        "costs": [asdict(cost) for cost in spent],
        "failures": [asdict(failure) for failure in failures],
        "sources": [
            {
                **asdict(source),
                "not_modified_share": not_modified_share(
                    harvests[source.name].latest.counts if source.name in harvests else {}
                ),
            }
            for source in sources
        ],
        "steps": steps,
        "scheduler_active": active,
        "problems": problems,
    }


def step_as_json(state: StepState) -> dict[str, Any]:
    """A step as `medlive status` and `medlive scheduler --dry-run` tell it; times in UTC."""
    last = state.latest
    return {
        "step": state.name,
        "week": state.week,
        "standing": state.standing.value,
        "why": state.why,
        "due": state.next_at,
        "retry_at": state.retry_at,
        "overdue": state.overdue,
        "last": None
        if last is None
        else {
            "week": last.week,
            "outcome": last.outcome.value,
            "started_at": last.started_at,
            "finished_at": last.finished_at,
            "counts": dict(last.counts),
            "in_short": in_short(last.counts),
        },
    }


def not_modified_share(counts: Mapping[str, Any]) -> float | None:
    """The share of a harvest's conditional requests that were answered 304; None when it made none."""
    asked = counts.get("conditional", 0)
    return counts.get("not_modified", 0) / asked if asked else None
