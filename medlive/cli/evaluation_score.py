"""`medlive eval score|report`: runs side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from medlive.cli.evaluation_options import MetricOption, RunsArgument
from medlive.cli.output import print_json, print_table, say
from medlive.config import load_settings
from medlive.errors import BadInput, UsageError

ErrataOption = Annotated[
    str, typer.Option("--errata", help="Of what was withdrawn since: warn, apply (leave it out) or ignore.")
]
ErrataFileOption = Annotated[
    Path | None, typer.Option("--errata-file", metavar="FILE", help="These errata [those beside the snapshot].")
]
PublicKeyOption = Annotated[
    str | None,
    typer.Option("--public-key", metavar="KEY", help="minisign's key, or its file, that must have signed them."),
]


def _scored(runs: list[Path], metric: str, errata: str, errata_file: Path | None, public_key: str | None) -> Any:
    from medlive.evaluation.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.evaluation.metrics import Metric
    from medlive.evaluation.score import load_graded, score_runs
    from medlive.service.paths import snapshots_path

    if metric not in set(Metric):
        raise UsageError(f"--metric {metric}: choose paper or published")
    if errata not in set(ErrataMode):
        raise UsageError(f"--errata {errata}: choose warn, apply or ignore")
    mode = ErrataMode(errata)
    search = ErrataSearch(
        errata_file, snapshots_path(load_settings().settings), _public_key(public_key), mode is ErrataMode.IGNORE
    )
    graded = [load_graded(path) for path in runs]
    use = use_errata([run.run for run in graded], mode, search)
    return score_runs(graded, metric=Metric(metric), errata=use)


def _public_key(text: str | None) -> Any:
    """The key in a file of that name, or in the text itself; None for none."""
    from medlive.snapshot.signing import PublicKey

    if text is None:
        return None
    try:
        return PublicKey.parse(Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text)
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInput(f"{text} cannot be read: {exc}") from exc


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


def score(
    runs: RunsArgument,
    metric: MetricOption = "paper",
    format_: Annotated[
        str, typer.Option("--format", help="table, tsv (as LiveMedBench prints it), or json.")
    ] = "table",
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing.

    What was withdrawn since a run's snapshot was frozen stands in the errata.json beside it; without one there, in
    that of the snapshots frozen here.
    """
    table = _scored(runs, metric, errata, errata_file, public_key)
    if format_ == "tsv":
        print(table.tsv(), end="")
    elif format_ == "json":
        from medlive.report.tables import scores_json

        print_json(scores_json(table))
    elif format_ == "table":
        print_scores(table)
    else:
        raise UsageError(f"--format {format_}: choose table, tsv or json")


def print_scores(table: Any, *, warnings: bool = True) -> None:
    """The score table for people; its warnings go to stderr."""
    print_table(
        ["model", "score %", "95 % interval", "n", "bounds %", "tie group", "unanswered", "ungraded criteria"],
        [
            [
                m.label, _percent(m.overall.mean), f"{_percent(m.overall.low)} to {_percent(m.overall.high)}",
                m.overall.n, f"{_percent(m.overall.least)} to {_percent(m.overall.most)}",
                m.standing.group if m.standing else None, m.rates.unanswered, m.rates.ungraded,
            ]
            for m in table.models
        ],
        title=f"{table.metric.value} metric, {table.common} common cases, bootstrap of {table.draws} draws",
    )  # fmt: skip
    for warning in table.warnings if warnings else ():
        say(warning)


def report(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    metric: MetricOption = "paper",
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Write a report of runs: one page to read offline, and the figures as JSON and CSV."""
    from medlive.report.render import write_report

    print(write_report(_scored(runs, metric, errata, errata_file, public_key), out))
