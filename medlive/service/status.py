"""What a maintainer sees first: the funnel, failures, costs and sources, read from the database."""

from dataclasses import asdict
from typing import Any

from medlive.config import Settings
from medlive.db.costs import costs
from medlive.db.funnel import funnel, recent_failures
from medlive.db.harvests import list_sources
from medlive.service.database import open_database


async def read_status(settings: Settings) -> dict[str, Any]:
    """Everything `medlive status` prints, as JSON values."""
    async with open_database(settings) as database, database.begin() as session:
        rows = await funnel(session)
        spent = await costs(session)
        failures = await recent_failures(session)
        sources = await list_sources(session)
    prices = [cost.cost_usd for cost in spent]
    return {
        "funnel": [[r.stage, r.outcome, r.reason, r.count] for r in rows],
        "kept": sum(r.count for r in rows if r.outcome == "kept"),
        "cost_usd": None if None in prices else sum(p for p in prices if p is not None),
        "costs": [asdict(cost) for cost in spent],
        "failures": [asdict(failure) for failure in failures],
        "sources": [asdict(source) for source in sources],
    }
