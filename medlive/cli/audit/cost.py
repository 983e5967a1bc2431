"""`medlive cost`: what engines cost in a week."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, with_session


def cost(
    week: Annotated[
        str | None,
        Option(
            help="Replies stored in this ISO week: 2026.W47, this or last; without it all."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show replies, tokens and money by stage, task, engine and source; unknown where a reply has no price."""
    from medlive.curation.model import Outcome
    from medlive.db.audit.listing import week_bounds
    from medlive.db.audit.spending import count_ended, spending
    from medlive.service.audit import parse_week

    chosen = week and parse_week(week)
    since, until = (
        week_bounds(chosen)
        if chosen
        else (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    )
    found = with_session(lambda session: spending(session, since, until))
    kept = with_session(
        lambda session: count_ended(session, Outcome.KEPT, since, until)
    )
    parked = with_session(
        lambda session: count_ended(session, Outcome.PARKED, since, until)
    )
    total = next((s.cost_usd for s in found if s.by == "all"), 0.0)
    a_case = total / kept if kept and total is not None else None
    value = {
        "week": chosen,
        "spent": [asdict(s) | {"cost_usd": s.cost_usd} for s in found],
        "kept": kept,
        "parked": parked,
        "usd_a_kept_case": a_case,
    }
    rows = []
    for s in found:
        tokens = (s.input_tokens, s.cached_tokens, s.output_tokens)
        unknown = (s.unpriced, s.estimated)
        row = [s.by, s.name or None, s.replies, *tokens, _money(s.cost_usd), *unknown]
        rows.append(row)
    columns = [
        "by",
        "what",
        "replies",
        "tokens in",
        "cached",
        "tokens out",
        "USD",
        "without a price",
        "by upper bound",
    ]
    title = (
        f"Cost: {chosen or 'all weeks'}; {kept} cases kept, {_money(a_case)} USD each"
    )
    if parked:
        title += f"; {parked} threads parked"
    print_result(value, as_json, lambda: print_table(columns, rows, title=title))


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"
