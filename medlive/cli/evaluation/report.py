"""`medlive eval report`: pages of runs to read offline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.evaluation.options import RunsArgument, Scoring, SignedErrata
from medlive.cli.evaluation.score import scored
from medlive.cli.output import echo, say

if TYPE_CHECKING:
    from medlive.evaluation.protocols.portfolio import Portfolio


def report(
    runs: RunsArgument,
    out: Annotated[Path, Option()],
    *,
    how: Scoring,
    meta: list[Path] | None = None,
    protocols: Path | None = None,
    case_pages: Annotated[bool, Option("--case-pages/--no-case-pages")] = True,
    errata: SignedErrata,
) -> None:
    """Write a report of runs: pages to read offline, and the numbers as JSON, CSV and TSV.

    index.html holds the tables, and figures where medlive[plot] is installed; cases.html is a list of cases with
    filters, and cases/ has a page for each case.

    Args:
        out: The folder to write.
        meta: A meta.json of medlive eval meta.
        protocols: What protocol all wrote [protocols/, if of these models].
        case_pages: A page for each case.
    """
    from medlive.api import open_registry
    from medlive.report.meta import read_meta
    from medlive.report.render import write_report

    table = scored(runs, how, errata)
    judges = {m.run.grader.judge for m in table.models if m.run.grader}
    metas = tuple(read_meta(path, judges) for path in meta or ())
    page = write_report(
        table,
        out,
        registry=open_registry(how.models),
        metas=metas,
        portfolio=find_portfolio(protocols, [m.label for m in table.models]),
        case_pages=case_pages,
    )
    echo(page)


def find_portfolio(path: Path | None, models: list[str]) -> "Portfolio | None":
    """The protocols' results: those named, or what lies in their usual folder and is of these models."""
    from medlive.evaluation.protocols.portfolio import PORTFOLIO
    from medlive.report.portfolio import PLACE, read_portfolio

    if path is None and not (PLACE / PORTFOLIO).exists():
        return None
    portfolio = read_portfolio(path or PLACE)
    if path is None and not set(portfolio.models) & set(models):
        say(
            f"{PLACE} is about other models, so it is not in the report; --protocols names what is"
        )
        return None
    return portfolio
