"""A week as a whole: what came, what fell, what it cost, what was held, what was shipped."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db.audit.spending import spending
from medlive.db.audit.standing import count_stages
from medlive.db.curation.by_paper import outcomes_by_paper
from medlive.db.curation.funnel import STAGES
from medlive.db.curation.proofs import proofs_made
from medlive.db.iso_weeks import week_bounds
from medlive.db.mapping import Record
from medlive.db.release.snapshots import (
    find_snapshot,
    load_fixed,
    load_kept_out,
    load_manifest,
)
from medlive.db.release.weeks import week_standing
from medlive.db.runs import Run, runs_of_week
from medlive.db.session import Session
from medlive.service.database import open_database
from medlive.service.schedule.steps import FREEZE, QUEUE, command_of, summarize_counts
from medlive.snapshot.manifest import headroom_of


async def read_week(settings: Settings, week: str) -> dict[str, Any]:
    """Everything that `medlive week show` prints, as JSON values. Raises DatabaseUnavailable and UsageError.

    "harvests" and "steps" have a row for the latest run of each; the cost of the queueing is that of all replies
    from its begin to the freeze's. "standing" says how many of the threads queued for the week are settled;
    "threads" counts those that changed in the week by where they stand now, from the filters on; "cost" is what the
    replies stored in the week cost in all; "by_paper" counts the decisions begun in the week beside what the paper's
    own rule would have made of them; "proofs" are those of the decisions begun in the week; "snapshot" is None
    before the week is frozen.
    """
    since, until = week_bounds(week)
    async with open_database(settings) as database, database.begin() as session:
        harvests, steps = await runs_of_week(session, week)
        counts = sorted(
            await count_stages(session, week), key=lambda row: STAGES.index(row[0])
        )
        total = await _spent(session, since, until)
        by_paper = await outcomes_by_paper(session, since, until)
        proofs = await proofs_made(session, since, until)
        snapshot = await _read_snapshot(session, week)
        standing = await week_standing(
            session, week, failure_share=settings.schedule.failure_share
        )
        costs = await _costs_of_steps(session, steps)
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
            {"stage": stage, "outcome": outcome, "reason": reason, "count": n}
            for stage, outcome, reason, n in counts
        ],
        "cost": total and vars(total),
        "by_paper": list(map(vars, by_paper)),
        "proofs": proofs
        | {"headroom": headroom_of(Counter(proofs["ordinary"])).model_dump()},
        "snapshot": snapshot,
    }


async def _costs_of_steps(
    session: Session, runs: Mapping[str, Run]
) -> dict[str, float | None]:
    """Step's command → US dollars; None where a reply has no price. Only threads are asked about."""
    queue, freeze = runs.get(command_of(QUEUE)), runs.get(command_of(FREEZE))
    if queue is None:
        return {}
    until = now()
    if freeze is not None:
        until = max(freeze.started_at, queue.finished_at or queue.started_at)
    total = await _spent(session, queue.started_at, until)
    return {command_of(QUEUE): total.cost_usd if total else 0.0}


async def _spent(session: Session, since: datetime, until: datetime) -> Record | None:
    """What all replies of a time cost; None without any."""
    rows = {row.by: row for row in await spending(session, since, until)}
    return rows.get("all")


async def _read_snapshot(session: Session, week: str) -> dict[str, Any] | None:
    info = await find_snapshot(session, week)
    if info is None:
        return None
    fixed = await load_fixed(session, week)
    kept_out = await load_kept_out(session, week)
    manifest = await load_manifest(session, week) or {}
    return {
        "state": info.state.value,
        "frozen_at": info.frozen_at,
        "cases": info.cases,
        "criteria": info.criteria,
        "held_out": fixed.numbers.held if fixed else None,
        "kept_out": dict(Counter(hit.gate for hit in kept_out)),
        "proof": manifest.get("counts", {}).get("proof"),
        "publishable": info.publishable,
        "why_not": info.why_not,
        "signed": info.signature is not None,
    }


def run_as_json(run: Run) -> dict[str, Any]:
    """A run of a step, as JSON values; times in UTC. Nobody knows how long one took that was begun several times."""
    span = None
    if run.finished_at is not None and run.starts == 1:
        span = run.finished_at - run.started_at
    return {
        "week": run.week,
        "outcome": run.outcome.value,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "seconds": None if span is None else span.total_seconds(),
        "took": None if span is None else format_duration(span),
        "counts": dict(run.counts),
        "in_short": summarize_counts(run.counts),
        "log": list(run.log),
    }


def format_duration(span: timedelta) -> str:
    """A duration for people, such as 3 h 20 min."""
    minutes, seconds = divmod(max(0, round(span.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
