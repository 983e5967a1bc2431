"""What the overview shows."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from fastapi import Request, Response

from medlive.clock import iso_week, now
from medlive.db.accounts import Account
from medlive.db.audit.spending import Spent, spending
from medlive.db.audit.standing import count_by_source, count_by_week
from medlive.db.curation.funnel import funnel
from medlive.db.iso_weeks import week_bounds
from medlive.db.tables.accounts import Role
from medlive.service.watch.status import read_health
from medlive.web.pages import Link, render
from medlive.web.site import Site

OUTCOMES = (
    "pending",
    "rejected",
    "parked",
    "failed",
    "held",
    "kept",
    "withdrawn",
)


async def overview_page(
    request: Request, site: Site, account: Account, tables: list[Link]
) -> Response:
    """How the threads fared, what runs next, what it costs, and what needs a person."""
    health = await read_health(site.database, site.settings)
    async with site.database.begin() as session:
        by_source = await count_by_source(session)
        by_week = await count_by_week(session)
        reasons = await funnel(session)
        spent: dict[str, list[Spent]] = {}
        for back in (0, 1):
            week = iso_week(now() - timedelta(weeks=back))
            spent[week] = []
            for row in await spending(session, *week_bounds(week)):
                if row.by in ("all", "source") and row.replies:
                    spent[week].append(row)
    shown = {outcome for _, outcome, _ in by_source}
    return render(
        request,
        "audit/overview.html",
        tables=tables,
        health=health,
        outcomes=[outcome for outcome in OUTCOMES if outcome in shown],
        by_source=_by_first(by_source),
        by_week=_by_first(by_week),
        reasons=reasons,
        spent=spent,
        may_act=account.may(Role.ADMIN),
    )


def _by_first(rows: Iterable[Any]) -> Mapping[str, Mapping[str, int]]:
    """Source or week → outcome → threads."""
    counts: dict[str, dict[str, int]] = {}
    for key, outcome, n in rows:
        counts.setdefault(key, {})[outcome] = n
    return counts
