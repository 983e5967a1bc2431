"""Options that several commands of `medlive eval` take."""

from pathlib import Path
from typing import Annotated

import typer

CasesOption = Annotated[
    str, typer.Option("--cases", help="A snapshot's folder or version, or a LiveMedBench JSON.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.")]
RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders.")]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Calls at once.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the key [OPENAI_API_KEY]."),
]
MetricOption = Annotated[
    str, typer.Option("--metric", help="paper (Equation 1) or published (LiveMedBench's metric_calc.py).")
]
