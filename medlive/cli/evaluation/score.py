"""`medlive eval score`: runs side by side."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from medlive.cli.evaluation.options import MetricOption, RunsArgument
from medlive.cli.output import ReplaceOption, new_file, print_table, say
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.scoring.graded import GradedRun

Choice = TypeVar("Choice", bound=StrEnum)
ERRORS: Final = "errors by axis"

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


ModelsOption = Annotated[
    Path | None,
    typer.Option("--models", metavar="FILE", help="The models' cutoffs [models.toml of the settings]."),
]
DrawsOption = Annotated[int, typer.Option("--draws", min=1, max=100_000, help="Draws of the bootstrap.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Where the draws begin.")]
BasisOption = Annotated[
    str,
    typer.Option(
        "--cases", help="own: each model on its run's cases; common: all on the cases all are scored on."
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(
        "--judge", metavar="DIGEST", help="This grader's verdicts, by digest or model [of the one with the most]."
    ),
]


_MOST_IDLE = 5


def scored(
    runs: list[Path],
    *,
    metric: str = "paper",
    errata: str = "warn",
    errata_file: Path | None = None,
    public_key: str | None = None,
    models: Path | None = None,
    draws: int = 1000,
    seed: int = 0,
    basis: str = "own",
    judge: str | None = None,
) -> Any:
    """The `ScoreTable` of run folders, by the options' texts; what was odd in a folder goes to stderr."""
    from medlive.config import load_settings
    from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.evaluation.scoring.metrics import Metric
    from medlive.evaluation.scoring.score import CaseBasis, load_all, score_runs
    from medlive.integrity.public_key import public_key_of
    from medlive.service.paths import snapshots_path

    chosen_metric = _one_of("--metric", Metric, metric)
    mode = _one_of("--errata", ErrataMode, errata)
    chosen_basis = _one_of("--cases", CaseBasis, basis)
    registry = registry_of(models)
    search = ErrataSearch(
        errata_file, snapshots_path(load_settings().settings), public_key_of(public_key), mode is ErrataMode.IGNORE
    )
    twice = [path for place, path in enumerate(runs) if path.resolve() in {p.resolve() for p in runs[:place]}]
    if twice:
        raise UsageError(f"{twice[0]} is given more than once")
    graded = load_all(runs, judge=judge)
    for path, run in zip(runs, graded, strict=True):
        for note in run.notes:
            say(f"{path}: {note}")
    if models and (idle := registry.without_run(run.run.info.model for run in graded)):
        told = ", ".join(idle[:_MOST_IDLE]) + (" …" if len(idle) > _MOST_IDLE else "")
        say(f"{models}: of {len(idle)} models there is no run here: {told}")
    use = use_errata([run.run for run in graded], mode, search)
    return score_runs(
        graded, metric=chosen_metric, draws=draws, seed=seed, errata=use, basis=chosen_basis, registry=registry
    )


def registry_of(models: Path | None) -> Any:
    """The `Registry` of that file, or of the settings."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.registry import load_registry, read_registry

    return read_registry(models) if models else load_registry(load_settings().settings.candidates)


def _one_of(option: str, kind: type[Choice], text: str) -> Choice:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text}: choose {' or '.join(kind)}") from None


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


def score(
    runs: RunsArgument,
    metric: MetricOption = "paper",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="table, tsv (as LiveMedBench prints it), json, csv or parquet [as --out ends, or table].",
        ),
    ] = None,
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="KIND",
            help="By month, theme, specialty, language, source, first-release, axis, cutoff or errors-by-axis.",
        ),
    ] = None,
    basis: BasisOption = "own",
    models: ModelsOption = None,
    judge: JudgeOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    replace: ReplaceOption = False,
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen stands in the errata.json beside it; without one there, in
    that of the snapshots frozen here.
    """
    from medlive.evaluation.scoring.estimates import KINDS
    from medlive.report.tables import WRITERS, write_whole

    kind = None if slice_ is None else slice_.replace("-", " ").replace("_", " ")
    if kind is not None and kind not in (*KINDS, ERRORS):
        kinds = ", ".join((*KINDS, ERRORS)).replace(" ", "-").replace(",-", ", ")
        raise UsageError(f"--slice {slice_}: choose {kinds}")
    if out is not None and format_ is None and (format_ := out.suffix.lower().removeprefix(".")) not in WRITERS:
        raise UsageError(
            f"--out {out}: its ending names no format", hint=f"choose {', '.join(WRITERS)} with --format"
        )
    format_ = format_ or "table"
    if format_ != "table" and format_ not in WRITERS:
        raise UsageError(f"--format {format_}: choose table, {', '.join(WRITERS)}")
    if kind is not None and format_ in ("tsv", "json"):
        raise UsageError(f"--slice picks rows of a table, csv or parquet; {format_} is one document")
    if out is not None and format_ == "table":
        raise UsageError("--out writes tsv, json, csv or parquet; choose one with --format")
    if format_ == "parquet" and out is None:
        raise UsageError("parquet is no text: name a file with --out")
    if out is not None:
        new_file(out, replace)
    table = scored(
        runs, metric=metric, errata=errata, errata_file=errata_file, public_key=public_key, models=models,
        draws=draws, seed=seed, basis=basis, judge=judge,
    )  # fmt: skip
    if format_ == "table":
        if kind is None:
            print_scores(table)
        else:
            print_slice(table, kind)
        check_scored(table)
        return
    data = WRITERS[format_](table, kind)
    if out is not None:
        write_whole(out, data)
        say(f"written: {out}")
    else:
        print(data.decode("utf-8"), end="")
    for warning in table.warnings:
        say(warning)
    check_scored(table)


def check_scored(table: Any) -> None:
    """Raises CheckFailed where no model has a score."""
    if all(model.overall.mean is None for model in table.models):
        raise CheckFailed(
            "no case has a score: nothing is graded", hint="medlive eval grade RUN makes the verdicts"
        )


def print_scores(table: Any, *, warnings: bool = True) -> None:
    """The score table for people; its warnings go to stderr."""
    print_table(
        ["model", "score %", "95 % interval", "n", "bounds %", "tie group", "unanswered", "truncated", "refused",
         "ungraded criteria"],
        [
            [
                m.label, _percent(m.overall.mean), _interval(m.overall.low, m.overall.high),
                m.overall.n, _interval(m.overall.least, m.overall.most),
                m.standing.group if m.standing else None,
                *(_count(m.rates, name) for name in ("unanswered", "truncated", "refused", "ungraded")),
            ]
            for m in table.models
        ],
        title=_title(table),
    )  # fmt: skip
    differing = [c for c in table.coverage if c.lacking]
    if differing:
        print_table(
            ["model", "cases", "scored", "scored for others only", "e.g."],
            [[c.label, c.cases, c.scored, len(c.lacking), ", ".join(c.lacking[:3])] for c in differing],
            title=f"models scored on differing cases; --cases common takes the {table.common} common ones",
        )
    for warning in table.warnings if warnings else ():
        say(warning)


def print_slice(table: Any, kind: str) -> None:
    """One kind of slice for people, value by value; a slice under 30 cases is dim."""
    from rich.text import Text

    from medlive.evaluation.scoring.estimates import CUTOFF, FEW

    head = ["model", "%", "95 % interval", "n", "bounds %"]
    rows: list[list[Any]] = []
    if kind == ERRORS:
        head = ["axis", "model", "error rate %", "95 % interval", "graded criteria"]
        for axis in sorted({a.axis for m in table.models for a in m.axes}):
            for m in table.models:
                rows += [
                    [axis, m.label, _percent(a.rate), _interval(a.low, a.high), a.n]
                    for a in m.axes
                    if a.axis == axis
                ]
    else:
        head = [kind, *head]
        values = {s.value for m in table.models for s in m.slices if s.kind == kind}
        # The parts of a cutoff stand in the order of time, which is the alphabet's from its end.
        for value in sorted(values, reverse=kind == CUTOFF):
            for m in table.models:
                if (e := m.slice(kind, value)) is not None:
                    cells = [value, m.label, _percent(e.mean), _interval(e.low, e.high), e.n,
                             _interval(e.least, e.most)]  # fmt: skip
                    dim = [Text("–" if c is None else str(c), style="dim") for c in cells]
                    rows.append(dim if e.n < FEW else cells)
    print_table(head, rows, title=_title(table) + ("" if kind == ERRORS else f"; dim: fewer than {FEW} cases"))
    if kind == CUTOFF:
        for m in table.models:
            if m.cutoff is None:
                say(f"{m.label}: cutoff unknown")
    for warning in table.warnings:
        say(warning)


def _title(table: Any) -> str:
    return (
        f"{table.metric.value} metric on {rests_on([m.run for m in table.models])}; {table.basis.value} cases "
        f"({table.common} common), bootstrap of {table.draws} draws, seed {table.seed}"
    )


def rests_on(runs: "Sequence[GradedRun]") -> str:
    """The cases and the graders that a table's figures rest on, for its title."""
    cases = sorted({run.run.info.cases.name for run in runs})
    graders = sorted({f"{run.grader.model} ({run.grader.mode} mode)" for run in runs if run.grader})
    return f"{', '.join(cases)}, graded by {', '.join(graders) or 'nobody'}"


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None else f"{_percent(low)} to {_percent(high)}"


def _count(rates: Any, name: str) -> str:
    count, share = getattr(rates, name), rates.shares[name]
    return f"{count} ({100 * share:.1f} %)" if count else "0"
