"""The page of several protocols side by side: ranks, how alike tasks rank models, each protocol's tables."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from medlive.evaluation.protocols.model import format_cell
from medlive.evaluation.protocols.portfolio import PORTFOLIO, Portfolio
from medlive.report.html import page, render, upper_first, utf8
from medlive.report.meta import read_json
from medlive.report.tables import write_whole

PLACE: Final = Path("protocols")
"""Where `protocol all` writes by default."""


def portfolio_page(
    portfolio: Portfolio,
    nav: Sequence[tuple[str, str]] = (),
) -> str:
    """The page; `nav` are other pages."""
    body = render(
        "portfolio.html",
        portfolio=portfolio,
        overridden=portfolio.overridden,
        numeric=lambda table, place: (
            not any(isinstance(row[place], str) for row in table.rows)
        ),
        cell=format_cell,
        states=lambda reasons: "; ".join(f"{n}: {why}" for why, n in reasons.items()),
        slug=_slug,
        upper_first=upper_first,
    )
    parts = [("#ranks", "Ranks"), ("#alike", "How alike tasks are")]
    for task in portfolio.tasks:
        parts.append((f"#{_slug(task.task)}", task.task))
    return page("medlive: protocols", body, [*nav, *parts])


def write_portfolio(portfolio: Portfolio, folder: Path) -> Path:
    """Write `portfolio.json` and `portfolio.html` into a folder; return the page. Raises BadInput."""
    files = {
        PORTFOLIO: portfolio.model_dump_json(indent=1) + "\n",
        "portfolio.html": portfolio_page(portfolio),
    }
    for name, text in files.items():
        write_whole(folder / name, utf8(text))
    return folder / "portfolio.html"


def read_portfolio(path: Path) -> Portfolio:
    """A `portfolio.json`, or that of a folder. Raises BadInput."""
    return read_json(
        path / PORTFOLIO if path.is_dir() else path,
        Portfolio,
        PORTFOLIO,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
