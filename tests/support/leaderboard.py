"""The site's leaderboard as a browser shows it, and as `eval score` has it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from medlive.evaluation.scoring.estimates import ScoreEstimate
from medlive.evaluation.scoring.fresh import Window
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.score import score_runs


@contextmanager
def watched_page(browser: Any) -> Iterator[Any]:
    """A page in which no script may fail."""
    opened = browser.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console",
        lambda line: faults.append(line.text) if line.type == "error" else None,
    )
    yield opened
    opened.close()
    assert [f for f in faults if "favicon" not in f and "404" not in f] == []


def settle(page: Any) -> None:
    """Wait until the ranking is worked out."""
    page.wait_for_selector("#ranking[aria-busy=false]")


def shown(page: Any) -> dict[str, list[str]]:
    """Model → score, interval, n, tie group and rank range, as printed."""
    settle(page)
    rows = page.locator("#ranking tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    return {cells[1]: [*cells[2:4], cells[5], *cells[7:9]] for cells in rows}


def printed(share: float | None) -> str:
    """A share as a percentage."""
    return "–" if share is None else f"{100 * share:z.1f}"


def interval(one: ScoreEstimate) -> str:
    """An interval as the page shows it: the reason where there is none."""
    if one.low is None:
        return one.why or "–"
    return f"{printed(one.low)} to {printed(one.high)}"


def expected(runs: list[GradedRun], **how: Any) -> dict[str, list[str]]:
    """What `shown` must be."""
    found = {}
    for model in score_runs(runs, **how).models:
        one, place = model.overall, model.standing
        found[model.label] = [
            printed(one.value),
            interval(one),
            str(one.n),
            str(place.group) if place else "–",
            f"{place.rank_best} to {place.rank_worst}" if place else "–",
        ]
    return found


def window_of(since: str | None, until: str | None) -> Window:
    """A window of days."""
    return Window(
        date.fromisoformat(since) if since else None,
        date.fromisoformat(until) if until else None,
    )
