"""What the overview shows."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from medlive.clock import iso_week, now
from medlive.db.accounts import Account
from medlive.db.audit.listing import week_bounds
from medlive.db.audit.spending import Spent, spending
from medlive.db.audit.standing import Standing, list_standings
from medlive.db.audit.views import list_views
from medlive.db.curation.funnel import funnel
from medlive.db.session import Session
from medlive.db.tables.accounts import Role
from medlive.service.watch.status import read_health
from medlive.web.audit.pages import Link, OverviewPage
from medlive.web.site import Site

OUTCOMES: Final = (
    "pending",
    "rejected",
    "parked",
    "failed",
    "held",
    "kept",
    "withdrawn",
)


async def load_overview(
    site: Site, account: Account, tables: list[Link]
) -> OverviewPage:
    """Everything the overview shows."""
    health = await read_health(site.database, site.settings)
    async with site.database.begin() as session:
        standings = await list_standings(session)
        shown = {row.outcome for row in standings}
        return OverviewPage(
            tables=tables,
            views=await list_views(session, account.id),
            health=health,
            outcomes=[o for o in OUTCOMES if o in shown],
            by_source=_sum((s.source, s) for s in standings if not s.week),
            by_week=_sum((s.week, s) for s in standings if s.week),
            reasons=await funnel(session),
            spent=await _spent(session),
            may_act=account.may(Role.ADMIN),
        )


def _sum(rows: Iterable[tuple[str, Standing]]) -> Mapping[str, Mapping[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for key, standing in rows:
        row = sums.setdefault(key, {})
        row[standing.outcome] = row.get(standing.outcome, 0) + standing.n
    return sums


async def _spent(session: Session) -> dict[str, list[Spent]]:
    """What this week and the last one cost, in all and by source."""
    by_week: dict[str, list[Spent]] = {}
    for back in (0, 1):
        week = iso_week(now() - timedelta(weeks=back))
        by_week[week] = []
        for row in await spending(session, *week_bounds(week)):
            if row.by in ("all", "source") and row.replies:
                by_week[week].append(row)
    return by_week
