"""`medlive eval report`: pages of runs to read offline."""

from pathlib import Path

from medlive import api
from medlive.cli.evaluation.options import Scoring
from medlive.cli.evaluation.tables import scored
from medlive.cli.output import echo, say
from medlive.evaluation.protocols.portfolio import PORTFOLIO, Portfolio
from medlive.report.model import read_meta
from medlive.report.render import PLACE, read_portfolio, write_report


def report(
    how: Scoring,
    *,
    out: Path,
    meta: list[Path] | None = None,
    protocols: Path | None = None,
    case_pages: bool = True,
) -> None:
    """Write a report of runs: pages to read offline, and the numbers as JSON, CSV and TSV.

    index.html holds tables and figures; cases.html is a list of cases with filters, and cases/ has a page for each
    case.

    Args:
        out: The folder to write.
        meta: A meta.json of medlive eval meta.
        protocols: What protocol all wrote [protocols/, if of these models].
        case_pages: A page for each case.
    """
    table = scored(how)
    judges = {m.run.grader.judge for m in table.models if m.run.grader}
    page = write_report(
        table,
        out,
        registry=api.open_registry(how.models),
        metas=tuple(read_meta(path, judges) for path in meta or ()),
        portfolio=find_portfolio(protocols, [m.label for m in table.models]),
        case_pages=case_pages,
    )
    echo(page)


def find_portfolio(path: Path | None, models: list[str]) -> Portfolio | None:
    """The protocols' results: those named, or what lies in their usual folder and is of these models."""
    if path is None and not (PLACE / PORTFOLIO).exists():
        return None
    portfolio = read_portfolio(path or PLACE)
    if path is None and not set(portfolio.models) & set(models):
        say(
            f"{PLACE} is about other models, so it is not in the report; --protocols names what is"
        )
        return None
    return portfolio
