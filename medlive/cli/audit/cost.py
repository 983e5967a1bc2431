"""`medlive cost`: what engines cost in a week."""

from datetime import UTC, datetime

from medlive.cli.output import Result, priced, table_of, with_session

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
    from medlive.curation.model import Outcome
    from medlive.db.audit.spending import count_ended, spending
    from medlive.db.iso_weeks import parse_week, week_bounds

    chosen = week and parse_week(week)
    since, until = (
        week_bounds(chosen)
        if chosen
        else (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    )
    spendings = with_session(spending, since, until)
    kept = with_session(count_ended, Outcome.KEPT, since, until)
    parked = with_session(count_ended, Outcome.PARKED, since, until)
    total = next((s.cost_usd for s in spendings if s.by == "all"), 0.0)
    a_case = total / kept if kept and total is not None else None
    spent = list(map(vars, spendings))
    value = {
        "week": chosen,
        "spent": spent,
        "kept": kept,
        "parked": parked,
        "usd_a_kept_case": a_case,
    }
    each = "unknown" if a_case is None else f"{a_case:.4f}"
    title = f"Cost: {chosen or 'all weeks'}; {kept} cases kept, {each} USD each"
    if parked:
        title += f"; {parked} threads parked"
    return Result(value, [table_of(priced(spent), _SHOWN, title)])
