"""`medlive eval report`: runs as pages to read offline and to print."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.evaluation.options import RunsArgument, Scoring, SignedErrata
from medlive.cli.evaluation.score import registry_of, scored
from medlive.cli.options import grouped
from medlive.cli.output import say


@grouped
def report(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    *,
    how: Scoring,
    meta: Annotated[
        list[Path] | None, typer.Option("--meta", metavar="FILE", help="A meta.json of medlive eval meta.")
    ] = None,
    case_pages: Annotated[
        bool, typer.Option("--case-pages/--no-case-pages", help="A page for each case, with answers and verdicts.")
    ] = True,
    png: Annotated[
        bool, typer.Option("--png", help="Figures as PNG beside the SVG; needs the extra report.")
    ] = False,
    errata: SignedErrata,
) -> None:
    """Write a report of runs: pages to read offline, figures as SVG, and the numbers as JSON, CSV and TSV.

    index.html holds the figures and tables, cases.html a list of cases with filters, cases/ a page for each case.
    """
    from medlive.report.meta import read_meta
    from medlive.report.render import write_report

    metas = tuple(read_meta(path) for path in meta or ())
    table = scored(runs, how, errata)
    written = write_report(
        table, out, registry=registry_of(how.models), metas=metas, case_pages=case_pages, png=png
    )
    print(written.page)
    say(f"{written.cases} cases, {written.files} files, {written.size / 1e6:.1f} MB")
