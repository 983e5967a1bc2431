"""The page of several protocols side by side: ranks, how alike tasks rank models, gaps, each protocol's tables."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from medlive.charts import (
    Cell,
    Frame,
    Interval,
    IntervalGroup,
    IntervalRow,
    Scale,
    intervals,
    matrix,
)
from medlive.evaluation.log import writing
from medlive.evaluation.protocols.model import Table, format_cell
from medlive.evaluation.protocols.portfolio import PORTFOLIO, Portfolio, TaskResults
from medlive.evaluation.runs.folder import write_whole
from medlive.report.html import Figures, missing, page, render, upper_first
from medlive.report.meta import read_json

PLACE: Final = Path("protocols")
"""Where `protocol all` writes by default."""
_NO_GAPS: Final = (
    "No gap: it takes models on tasks of both sides, knowledge (coverage, checklist) and execution (number, "
    "query), or passive and active safety."
)


def portfolio_page(
    portfolio: Portfolio, figures: Figures, nav: Sequence[tuple[str, str]] = ()
) -> str:
    """The page; what it draws is added to `figures`, `nav` are other pages."""
    _, ranks, alike, gaps = portfolio.tables
    drawn = {
        "ranks": _matrix(figures, "protocol-ranks", ranks, Scale.FROM_LOW),
        "alike": _matrix(figures, "protocol-tasks", alike, Scale.AROUND_ZERO),
        "gaps": _gaps(figures, gaps),
    }
    forests = {
        task.task: [_forest(figures, task, table) for table in task.tables]
        for task in portfolio.tasks
    }
    body = render(
        "portfolio.html",
        portfolio=portfolio,
        drawn=drawn,
        forests=forests,
        numeric=_numeric,
        cell=format_cell,
        states=lambda reasons: "; ".join(f"{n}: {why}" for why, n in reasons.items()),
        slug=_slug,
        upper_first=upper_first,
    )
    parts = [("#ranks", "Ranks"), ("#alike", "How alike tasks are"), ("#gaps", "Gaps")]
    tasks = [(f"#{_slug(task.task)}", task.task) for task in portfolio.tasks]
    return page(
        "medlive: protocols", body, [*nav, *parts, *tasks], styles=figures.styles
    )


def write_portfolio(portfolio: Portfolio, folder: Path) -> Path:
    """Write `portfolio.json`, `portfolio.html` and its figures into a folder; return the page. Raises BadInput."""
    figures = Figures()
    html = portfolio_page(portfolio, figures)
    files = {
        PORTFOLIO: portfolio.model_dump_json(indent=1) + "\n",
        "portfolio.html": html,
    }
    files |= {f"figures/{name}.svg": svg for name, svg in figures.drawn.items()}
    with writing(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(folder / name, text.encode("utf-8", "backslashreplace"))
    return folder / "portfolio.html"


def read_portfolio(path: Path) -> Portfolio:
    """A `portfolio.json`, or that of a folder. Raises BadInput."""
    return read_json(path / PORTFOLIO if path.is_dir() else path, Portfolio, PORTFOLIO)


def _matrix(figures: Figures, name: str, table: Table, scale: Scale) -> Markup:
    """Ranks, the first the deepest, or correlations."""
    sign = -1.0 if scale is Scale.FROM_LOW else 1.0
    cells = []
    for row in table.rows:
        cells.append([_cell(cell, sign) for cell in row[1:]])
    rows, columns = [str(row[0]) for row in table.rows], list(table.columns[1:])
    frame = Frame(table.title, table.note, note=table.note)
    return figures.add(
        name, frame, lambda frame: matrix(frame, rows, columns, cells, scale=scale)
    )


def _cell(value: object, sign: float) -> Cell:
    if isinstance(value, int | float):
        return Cell(sign * value, f"{value:.2g}")
    return Cell(None, "NA")


def _gaps(figures: Figures, table: Table) -> Markup:
    """Both gaps of every model, around nothing."""
    rows = []
    for row in table.rows:
        marks = [_mark(cell) for cell in row[-2:]]
        if any(marks):
            rows.append(IntervalRow(str(row[0]), marks))
    if not rows:
        return missing(_NO_GAPS)
    names = list(table.columns[-2:])
    frame = Frame("Gaps between sides", table.note, note=table.note)
    groups = [IntervalGroup("", rows)]

    def draw(frame: Frame) -> str:
        return intervals(
            frame, names, groups, origin=0.0, axis="difference of means, 0 to 1"
        )

    return figures.add("protocol-gaps", frame, draw)


def _mark(cell: object) -> Interval | None:
    if not isinstance(cell, float):
        return None
    return Interval(cell, text=f"{cell:+.3f}")


def _forest(figures: Figures, task: TaskResults, table: Table) -> Markup:
    """A table's values with their intervals; nothing for a table without."""
    rows = [
        IntervalRow(label, [Interval(value, low, high, _span(value, low, high))])
        for label, value, low, high in table.estimates
        if value is not None
    ]
    if not rows:
        return Markup()
    axis = table.columns[list(table.columns).index("low") - 1]
    frame = Frame(
        f"{table.title}: {axis}",
        f"{table.title}, with 95 % intervals.",
        note=table.note,
    )

    def draw(frame: Frame) -> str:
        return intervals(frame, [""], [IntervalGroup("", rows)], axis=axis)

    return figures.add(f"protocol-{_slug(task.task)}-{_slug(table.title)}", frame, draw)


def _span(value: float, low: float | None, high: float | None) -> str:
    ends = (
        ""
        if low is None or high is None
        else f" ({format_cell(low)} to {format_cell(high)})"
    )
    return format_cell(value) + ends


def _numeric(table: Table, place: int) -> bool:
    """Whether a column holds numbers alone."""
    return all(not isinstance(row[place], str) for row in table.rows)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
