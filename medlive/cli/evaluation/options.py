"""Options that several commands of `medlive eval` take."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.errors import UsageError

CasesOption = Annotated[
    str, typer.Option("--cases", help="A snapshot's folder or version, or a LiveMedBench JSON.")
]


def _run(path: Path) -> Path:
    if inside := _held(path):
        raise UsageError(f"{path} is no run folder, but holds {len(inside)}", hint=f"name one, as {inside[0]}")
    return path


def _runs(paths: list[Path]) -> list[Path]:
    for path in paths:
        if inside := _held(path):
            raise UsageError(f"{path} is no run folder, but holds {len(inside)}", hint=f"name them: {path}/*")
    return paths


def _held(path: Path) -> list[Path]:
    """The runs in a folder that is none itself."""
    return [] if (path / "run.json").exists() else sorted(found.parent for found in path.glob("*/run.json"))


RunArgument = Annotated[Path, typer.Argument(help="A run folder.", callback=_run)]
RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders.", callback=_runs)]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Calls at once.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the key [OPENAI_API_KEY]."),
]
MetricOption = Annotated[
    str, typer.Option("--metric", help="paper (Equation 1) or published (LiveMedBench's metric_calc.py).")
]
GraderOption = Annotated[str | None, typer.Option("--grader", help="The grader's model id.")]
GraderUrlOption = Annotated[str | None, typer.Option("--base-url", help="The grader's endpoint.")]
ModeOption = Annotated[str, typer.Option("--mode", help="criterion: a call each; rubric: a call per case.")]
UnpinnedOption = Annotated[
    bool, typer.Option("--allow-unpinned", help="Accept replies that name another model than the one asked.")
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", help="Where runs share verdicts [MEDLIVE_HOME/cache/grades].", file_okay=False),
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Share no verdicts with other runs.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=1, metavar="SECONDS", help="The longest that an attempt may take [120]."),
]
MaxUsdOption = Annotated[float | None, typer.Option("--max-usd", min=0, help="Stop when this is spent.")]
MaxCallsOption = Annotated[int | None, typer.Option("--max-calls", min=1, help="Stop after this many calls.")]
MaxTokensOption = Annotated[
    int | None, typer.Option("--max-tokens", min=1, help="Stop after this many tokens, input and output.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what it would take; send nothing.")]
