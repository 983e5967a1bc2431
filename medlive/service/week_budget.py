"""The budget of an ISO week: what was spent, over all processes, and when no further thread is begun."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from medlive.clock import iso_week, now, week_bounds
from medlive.config import BudgetSection
from medlive.db.audit.spending import total_spending
from medlive.db.session import Session
from medlive.llm.budget import BudgetSpent


class WeekSpent(BudgetSpent):
    """The week's budget is spent."""

    def __init__(self, message: str, retry_at: datetime) -> None:
        """`retry_at` is the next week's first moment."""
        super().__init__(
            message,
            hint="the next week goes on; [budget] in config/medlive.toml limits it",
        )
        self.retry_at = retry_at


async def read_spending(session: Session, budget: BudgetSection) -> dict[str, Any]:
    """What the present ISO week has cost, beside its budget, as JSON values.

    "usd" is None while a reply has no price: unknown, not free. "known_usd" is what the others cost, and "estimated"
    counts the replies whose tokens are an upper bound.
    """
    week = iso_week(now())
    total = await total_spending(session, *week_bounds(week))
    return {
        "week": week,
        "usd": None if total.unpriced else total.known_usd,
        "known_usd": total.known_usd,
        "unpriced": total.unpriced,
        "estimated": total.estimated,
        "budget_usd": budget.week_usd,
    }


def spent_text(week: Mapping[str, Any]) -> str | None:
    """That the budget of `read_spending`'s week is spent; None where it is not, or there is none."""
    limit, usd = week["budget_usd"], week["known_usd"]
    if limit is None or usd < limit:
        return None
    return f"The budget of {limit:g} US dollars for {week['week']} is spent ({usd:.2f})"
