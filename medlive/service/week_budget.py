"""The budget of an ISO week: what was spent, over all processes, and when no further thread is begun."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from medlive.clock import iso_week, now, week_bounds
from medlive.config import BudgetSection
from medlive.db.audit.spending import stage_spending
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


class WeekLimit(NamedTuple):
    """One of a week's limits, and what counts against it."""

    week: str
    stage: str  # "" for the limit of all stages together
    usd: float  # What is known to be spent
    limit: float

    @property
    def is_spent(self) -> bool:
        """Whether it is reached."""
        return self.usd >= self.limit

    @property
    def spent_text(self) -> str:
        """That it is spent, for messages."""
        what = f"The budget for the {self.stage}" if self.stage else "The budget"
        return f"{what} of {self.limit:g} US dollars for {self.week} is spent ({self.usd:.2f})"


async def read_spending(
    session: Session,
    budget: BudgetSection,
    *,
    waiting: int = 0,
    usd_a_thread: float | None = None,
) -> dict[str, Any]:
    """What the present ISO week has cost by stage, beside its budget, as JSON values.

    "usd" is None while a reply has no price: unknown, not free. "known_usd", by stage "known_stages", is what the
    others cost, and "estimated" counts the replies whose tokens are an upper bound. "projected_usd" adds `waiting`
    threads at `usd_a_thread` each; None where that is unknown.
    """
    week = iso_week(now())
    since, until = week_bounds(week)
    known_stages: dict[str, float] = {}
    unpriced = estimated = 0
    for stage in await stage_spending(session, since, until):
        known_stages[stage.stage] = stage.known_usd
        unpriced += stage.unpriced
        estimated += stage.estimated
    known = sum(known_stages.values())
    total = None if unpriced else known
    return {
        "week": week,
        "usd": total,
        "known_usd": known,
        "unpriced": unpriced,
        "estimated": estimated,
        "budget_usd": budget.week_usd,
        "known_stages": known_stages,
        "stage_budget_usd": dict(budget.stage_week_usd),
        "waiting": waiting,
        "projected_usd": None
        if usd_a_thread is None or total is None
        else total + waiting * usd_a_thread,
    }


def week_limits(week: Mapping[str, Any]) -> Iterator[WeekLimit]:
    """The limits in a result of `read_spending`, the one for all stages first."""
    name = week["week"]
    if week["budget_usd"] is not None:
        yield WeekLimit(name, "", week["known_usd"], week["budget_usd"])
    for stage, limit in week["stage_budget_usd"].items():
        yield WeekLimit(name, stage, week["known_stages"].get(stage, 0.0), limit)
