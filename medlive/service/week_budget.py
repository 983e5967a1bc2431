"""The budget of an ISO week: what was spent, over all processes, and when no further thread is begun."""

from datetime import datetime
from typing import Any

from medlive.clock import iso_week, now
from medlive.config import BudgetSection
from medlive.db.audit.listing import week_bounds
from medlive.db.audit.spending import count_kept, stage_spending
from medlive.db.session import Database, Session
from medlive.llm.budget import BudgetSpent


class WeekSpent(BudgetSpent):
    """The week's budget is spent."""

    def __init__(self, message: str, retry_at: datetime) -> None:
        """`retry_at` is the next week's first moment."""
        super().__init__(message, hint="the next week goes on; [budget] in config/medlive.toml limits it")
        self.retry_at = retry_at


async def check_week(database: Database, budget: BudgetSection) -> None:
    """Raise WeekSpent once a limit of the week is reached; threads under way are finished, and may exceed it."""
    if budget.week_usd is None and not budget.stage_week_usd:
        return
    async with database.begin() as session:
        week = await read_week(session, budget)
    if (spent := find_spent(week)) is not None:
        raise WeekSpent(spent, week_bounds(week["week"])[1])


async def read_week(
    session: Session, budget: BudgetSection, *, waiting: int = 0, usd_a_thread: float | None = None
) -> dict[str, Any]:
    """What the present ISO week has cost by stage, beside its budget, as JSON values.

    "projected_usd" adds `waiting` threads at `usd_a_thread` each; None where that is unknown.
    """
    week = iso_week(now())
    since, until = week_bounds(week)
    stages = await stage_spending(session, since, until)
    kept, total = await count_kept(session, since, until), sum(stages.values())
    return {
        "week": week, "usd": total, "budget_usd": budget.week_usd, "stages": stages,
        "stage_budget_usd": dict(budget.stage_week_usd), "kept": kept,
        "usd_a_kept_case": total / kept if kept else None, "waiting": waiting,
        "projected_usd": None if usd_a_thread is None else total + waiting * usd_a_thread,
    }  # fmt: skip


def find_spent(week: dict[str, Any]) -> str | None:
    """Which limit of `read_week` is reached; None: none is."""
    limits = [("", week["usd"], week["budget_usd"])]
    limits += [
        (f" for the {s}", week["stages"].get(s, 0.0), limit) for s, limit in week["stage_budget_usd"].items()
    ]
    for what, usd, limit in limits:
        if limit is not None and usd >= limit:
            return f"The budget{what} of {limit:g} US dollars for {week['week']} is spent ({usd:.2f})"
    return None
