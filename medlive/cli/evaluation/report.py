"""`medlive eval report`: write the scores of runs and their answers as pages to read offline."""

from pathlib import Path

from medlive import api
from medlive.cli.output import echo
from medlive.report.model import read_meta
from medlive.report.render import read_portfolio, write_report

from .options import Scoring
from .tables import scored


def report(
    how: Scoring,
    *,
    out: Path,
    meta: list[Path] | None = None,
    protocols: Path | None = None,
) -> None:
    """Write a report of runs: pages to read offline, and the numbers as JSON, CSV and TSV.

    index.html holds tables and figures; cases.html is a list of cases with filters, and cases/ has a page for each
    case.

    Args:
        out: The folder to write.
        meta: A file with what medlive eval meta --json printed; repeatable.
        protocols: The folder or portfolio.json that medlive eval protocol all wrote.
    """
    table = scored(how)
    judges = {m.run.grader.judge for m in table.models if m.run.grader}
    page = write_report(
        table,
        out,
        registry=api.open_registry(),
        metas=tuple(read_meta(path, judges) for path in meta or ()),
        portfolio=read_portfolio(protocols) if protocols else None,
    )
    echo(page)
