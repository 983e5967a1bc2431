"""`medlive cost`: what engines cost in a week."""

from datetime import UTC, datetime

from medlive.cli.output import Result, counted, fields_of, table_of, with_session
from medlive.clock import parse_week, week_bounds
from medlive.curation.model import Outcome
from medlive.db.audit.spending import count_ended, spending

_SHOWN = (
    "by",
    "name",
    "replies",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_usd",
    "unpriced",
    "estimated",
)


def cost(
    week: str | None = None,
) -> Result:
    """Show replies, tokens and money by stage, task, engine and source; unknown where a reply has no price.

    Args:
        week: Replies stored in this ISO week: 2026.W47, this or last; without it all.
    """
    chosen = None if week is None else parse_week(week)
    bounds = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    if chosen:
        bounds = week_bounds(chosen)
    kept = with_session(count_ended, Outcome.KEPT, *bounds)
    parked = with_session(count_ended, Outcome.PARKED, *bounds)
    total: float | None = 0.0
    spent, shown = [], []
    for part in with_session(spending, *bounds):
        spent.append(fields_of(part, _SHOWN))
        price = "unknown" if part.cost_usd is None else part.cost_usd
        shown.append(spent[-1] | {"cost_usd": price})
        if part.by == "all":
            total = part.cost_usd
    a_case = total / kept if kept and total is not None else None
    value = {
        "week": chosen,
        "spent": spent,
        "kept": kept,
        "parked": parked,
        "usd_a_kept_case": a_case,
    }
    each = "unknown" if a_case is None else f"{a_case:.4f}"
    title = (
        f"Cost: {chosen or 'all weeks'}; {counted(kept, 'case')} kept, {each} USD each"
    )
    if parked:
        title += f"; {counted(parked, 'thread')} parked"
    return Result(value, [table_of(shown, _SHOWN, title)])
