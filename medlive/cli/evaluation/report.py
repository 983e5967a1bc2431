"""`medlive eval report`: runs as pages to read offline and to print."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.evaluation.options import MetricOption, RunsArgument
from medlive.cli.evaluation.score import (
    BasisOption,
    DrawsOption,
    ErrataFileOption,
    ErrataOption,
    JudgeOption,
    ModelsOption,
    PublicKeyOption,
    SeedOption,
    registry_of,
    scored,
)
from medlive.cli.output import say


def report(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    metric: MetricOption = "paper",
    basis: BasisOption = "own",
    models: ModelsOption = None,
    judge: JudgeOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    meta: Annotated[
        list[Path] | None, typer.Option("--meta", metavar="FILE", help="A meta.json of medlive eval meta.")
    ] = None,
    case_pages: Annotated[
        bool, typer.Option("--case-pages/--no-case-pages", help="A page for each case, with answers and verdicts.")
    ] = True,
    png: Annotated[
        bool, typer.Option("--png", help="Figures as PNG beside the SVG; needs the extra report.")
    ] = False,
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Write a report of runs: pages to read offline, figures as SVG, and the numbers as JSON, CSV and TSV.

    index.html holds the figures and tables, cases.html a list of cases with filters, cases/ a page for each case.
    """
    from medlive.report.meta import read_meta
    from medlive.report.render import write_report

    metas = tuple(read_meta(path) for path in meta or ())
    registry = registry_of(models)
    table = scored(
        runs, metric=metric, errata=errata, errata_file=errata_file, public_key=public_key, models=models,
        draws=draws, seed=seed, basis=basis, judge=judge,
    )  # fmt: skip
    written = write_report(table, out, registry=registry, metas=metas, case_pages=case_pages, png=png)
    print(written.page)
    say(f"{written.cases} cases, {written.files} files, {written.size / 1e6:.1f} MB")
