"""Which of the dashboard's queries are empty where nothing has happened yet, and why that is right.

All others give data there, and every query does in an instance that is in use (`stages.make_busy`).
"""

import json
from collections.abc import Mapping

from tests.monitors.prometheus import MONITORING

NO_REPLIES = "no reply was stored this week"
NO_LIMIT = "no limit is configured"
EMPTY_AT_FIRST: Mapping[str, str] = {
    "sum by (outcome) (medlive_recent_threads)": "no thread was decided within a day",
    'sum(medlive_recent_threads{outcome="failed"}) / sum(medlive_recent_threads)': (
        "no thread was decided within a day"
    ),
    "sum by (queue, status) (medlive_jobs)": "nothing was ever queued",
    "max by (queue) (medlive_oldest_job_seconds)": "nothing waits",
    "sum by (task) (medlive_week_spend_usd)": NO_REPLIES,
    "medlive_week_budget_usd": NO_LIMIT,
    "sum by (task) (delta(medlive_week_replies[1h]))": NO_REPLIES,
    "medlive_problem == 1": "nothing is wrong",
    "sum(medlive_week_replies_unpriced)": NO_REPLIES,
    "sum(medlive_week_replies_estimated)": NO_REPLIES,
}
"""Query → why it is empty at first."""


def dashboard_queries() -> dict[str, str]:
    """Query → its panel's title."""
    text = (MONITORING / "dashboard.json").read_text("utf-8")
    queries = {}
    for panel in json.loads(text)["panels"]:
        for target in panel["targets"]:
            queries[target["expr"]] = panel["title"]
    return queries
