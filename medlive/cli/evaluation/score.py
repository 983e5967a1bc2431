"""`medlive eval score`: runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from medlive.cli.evaluation.options import RunsArgument, Scoring, SignedErrata
from medlive.cli.options import ReplaceOption, grouped, one_of
from medlive.cli.output import dimmed, new_file, print_table, say
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.scoring.graded import GradedRun

ERRORS: Final = "errors by axis"

_MOST_IDLE = 5


def scored(runs: list[Path], how: Scoring = Scoring(), errata: SignedErrata = SignedErrata()) -> Any:  # noqa: B008
    """The `ScoreTable` of run folders; warnings about a folder go to stderr."""
    from medlive.config import load_settings
    from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.evaluation.scoring.graded import load_graded
    from medlive.evaluation.scoring.metrics import Metric
    from medlive.evaluation.scoring.score import CaseBasis, score_runs
    from medlive.integrity.signing import public_key_of
    from medlive.service.paths import snapshots_path

    metric, mode = one_of("--metric", Metric, how.metric), one_of("--errata", ErrataMode, errata.errata)
    basis = one_of("--cases", CaseBasis, how.basis)
    registry = registry_of(how.models)
    search = ErrataSearch(
        errata.errata_file, snapshots_path(load_settings().settings), public_key_of(errata.public_key),
        mode is ErrataMode.IGNORE,
    )  # fmt: skip
    twice = [path for place, path in enumerate(runs) if path.resolve() in {p.resolve() for p in runs[:place]}]
    if twice:
        raise UsageError(f"{twice[0]} is given more than once")
    graded = [load_graded(path, judge=how.judge) for path in runs]
    for path, run in zip(runs, graded, strict=True):
        for note in run.notes:
            say(f"{path}: {note}")
    if how.models and (idle := registry.without_run(run.run.info.model for run in graded)):
        names = ", ".join(idle[:_MOST_IDLE]) + (" …" if len(idle) > _MOST_IDLE else "")
        say(f"{how.models}: of {len(idle)} models there is no run here: {names}")
    use = use_errata([run.run for run in graded], mode, search)
    return score_runs(
        graded, metric=metric, draws=how.draws, seed=how.seed, errata=use, basis=basis, registry=registry
    )


def registry_of(models: Path | None) -> Any:
    """The `Registry` of that file, or of the settings."""
    from medlive.config import load_settings
    from medlive.evaluation.asking.registry import load_registry, read_registry

    return read_registry(models) if models else load_registry(load_settings().settings.candidates)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


@grouped
def score(
    runs: RunsArgument,
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
    *,
    how: Scoring,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    replace: ReplaceOption = False,
    errata: SignedErrata,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen stands in the errata.json beside it; without one there, in
    that of the snapshots frozen here.
    """
    from medlive.report.tables import WRITERS, write_whole

    kind = _slice_kind(slice_)
    form = _form(format_, out, kind)
    if out is not None:
        new_file(out, replace)
    table = scored(runs, how, errata)
    if form == "table" and kind is not None:
        print_slice(table, kind)
    elif form == "table":
        print_scores(table)
    elif out is not None:
        write_whole(out, WRITERS[form](table, kind))
        say(f"written: {out}")
    else:
        print(WRITERS[form](table, kind).decode("utf-8"), end="")
    for warning in table.warnings:
        say(warning)
    check_scored(table)


def _slice_kind(name: str | None) -> str | None:
    from medlive.evaluation.scoring.estimates import KINDS

    if name is None:
        return None
    kind = name.replace("-", " ").replace("_", " ")
    if kind not in (*KINDS, ERRORS):
        kinds = ", ".join((*KINDS, ERRORS)).replace(" ", "-").replace(",-", ", ")
        raise UsageError(f"--slice {name}: choose {kinds}")
    return kind


def _form(name: str | None, out: Path | None, kind: str | None) -> str:
    """The format to write, by its name or by how the file's name ends. Raises UsageError where it does not fit."""
    from medlive.report.tables import WRITERS

    if out is not None and name is None and (name := out.suffix.lower().removeprefix(".")) not in WRITERS:
        raise UsageError(
            f"--out {out}: its ending names no format", hint=f"choose {', '.join(WRITERS)} with --format"
        )
    form = name or "table"
    if form != "table" and form not in WRITERS:
        raise UsageError(f"--format {form}: choose table, {', '.join(WRITERS)}")
    if kind is not None and form in ("tsv", "json"):
        raise UsageError(f"--slice picks rows of a table, csv or parquet; {form} is one document")
    if out is not None and form == "table":
        raise UsageError("--out writes tsv, json, csv or parquet; choose one with --format")
    if form == "parquet" and out is None:
        raise UsageError("parquet is no text: name a file with --out")
    return form


def check_scored(table: Any) -> None:
    """Raises CheckFailed where no model has a score."""
    if all(model.overall.mean is None for model in table.models):
        raise CheckFailed(
            "no case has a score: nothing is graded", hint="medlive eval grade RUN makes the verdicts"
        )


def print_scores(table: Any) -> None:
    """The score table for people."""
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
    differing = [c for c in table.coverage if c.missing]
    if differing:
        print_table(
            ["model", "cases", "scored", "scored for others only", "e.g."],
            [[c.label, c.cases, c.scored, len(c.missing), ", ".join(c.missing[:3])] for c in differing],
            title=f"models scored on differing cases; --cases common takes the {table.common} common ones",
        )


def print_slice(table: Any, kind: str) -> None:
    """One kind of slice for people, value by value; a slice under 30 cases is dim."""
    from medlive.evaluation.scoring.estimates import CUTOFF, FEW

    if kind == ERRORS:
        head = ["axis", "model", "error rate %", "95 % interval", "graded criteria"]
        rows = [
            [axis, m.label, _percent(a.rate), _interval(a.low, a.high), a.n]
            for axis in sorted({a.axis for m in table.models for a in m.axes})
            for m in table.models
            for a in m.axes
            if a.axis == axis
        ]
        print_table(head, rows, title=_title(table))
        return
    values = {s.value for m in table.models for s in m.slices if s.kind == kind}
    # The parts of a cutoff stand in the order of time, which is the alphabet's from its end.
    rows = [
        _slice_cells(value, m, e, FEW)
        for value in sorted(values, reverse=kind == CUTOFF)
        for m in table.models
        if (e := m.slice(kind, value)) is not None
    ]
    head = [kind, "model", "%", "95 % interval", "n", "bounds %"]
    print_table(head, rows, title=f"{_title(table)}; dim: fewer than {FEW} cases")
    for m in table.models if kind == CUTOFF else ():
        if m.cutoff is None:
            say(f"{m.label}: cutoff unknown")


def _slice_cells(value: str, model: Any, e: Any, few: int) -> list[Any]:
    cells = [value, model.label, _percent(e.mean), _interval(e.low, e.high), e.n, _interval(e.least, e.most)]
    return dimmed(cells) if e.n < few else cells


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
