"""`medlive eval score`, `report` and `contamination`: runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Option

from medlive.cli.evaluation.options import (
    RunsArgument,
    Scoring,
    SignedErrata,
    load_runs,
)
from medlive.cli.options import (
    JsonOption,
    ReplaceOption,
    grouped,
    one_of,
    read_settings,
)
from medlive.cli.output import (
    dimmed,
    echo,
    echo_lines,
    new_file,
    print_result,
    print_table,
    say,
)
from medlive.errors import CheckFailed, UsageError
from medlive.printable import printable_json

if TYPE_CHECKING:
    from medlive.evaluation.protocols.portfolio import Portfolio
    from medlive.evaluation.scoring.graded import GradedRun

ERRORS: Final = "errors by axis"

_MOST_IDLE = 5


def scored(runs: list[Path], how: Scoring, errata: SignedErrata) -> Any:
    """The `ScoreTable` of run folders; warnings about a folder go to stderr."""
    from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.evaluation.scoring.fresh import Window
    from medlive.evaluation.scoring.metrics import Metric
    from medlive.evaluation.scoring.score import CaseBasis, score_runs
    from medlive.integrity.signing import public_key_of
    from medlive.service.paths import snapshots_path

    metric, mode = (
        one_of("--metric", Metric, how.metric),
        one_of("--errata", ErrataMode, errata.errata),
    )
    basis = one_of("--cases", CaseBasis, how.basis)
    window = Window(*(day and day.date() for day in (how.since, how.until)))
    if how.since and how.until and how.since > how.until:
        raise UsageError(f"no day is {window}")
    registry = registry_of(how.models)
    search = ErrataSearch(
        errata.errata_file,
        snapshots_path(read_settings()),
        public_key_of(errata.public_key),
        mode is ErrataMode.IGNORE,
    )
    graded = load_runs(runs, how.judge)
    if how.models and (
        idle := registry.without_run(run.run.info.model for run in graded)
    ):
        names = ", ".join(idle[:_MOST_IDLE]) + (" …" if len(idle) > _MOST_IDLE else "")
        say(f"{how.models}: {len(idle)} models have no run here: {names}")
    use = use_errata([run.run for run in graded], mode, search)
    how_many = {"draws": how.draws, "seed": how.seed}
    return score_runs(
        graded,
        metric=metric,
        errata=use,
        basis=basis,
        registry=registry,
        window=window,
        **how_many,
    )


def registry_of(models: Path | None) -> Any:
    """The `Registry` of that file, or of the settings."""
    from medlive.evaluation.asking.registry import load_registry, read_registry

    return (
        read_registry(models) if models else load_registry(read_settings().candidates)
    )


@grouped
def score(
    runs: RunsArgument,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            help="table, tsv, json, csv or parquet [as --out ends, or table].",
        ),
    ] = None,
    slice_: Annotated[
        str | None,
        Option(
            "--slice",
            metavar="KIND",
            help="month, theme, specialty, language, source, first-release, difficulty, dialogue-register, axis, "
            "cutoff or errors-by-axis.",
        ),
    ] = None,
    *,
    how: Scoring,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    replace: ReplaceOption = False,
    errata: SignedErrata,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen is in the errata.json beside it; without one there, in
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
        text = WRITERS[form](table, kind).decode("utf-8")
        echo_lines(printable_json(text) if form == "json" else text)
    for warning in table.warnings:
        say(warning)
    check_scored(table)


def _slice_kind(name: str | None) -> str | None:
    from medlive.evaluation.scoring.estimates import KINDS

    kind = None if name is None else name.replace("-", " ").replace("_", " ")
    if kind is not None and kind not in (*KINDS, ERRORS):
        raise UsageError(
            f"--slice {name}: choose {', '.join(k.replace(' ', '-') for k in (*KINDS, ERRORS))}"
        )
    return kind


def _form(name: str | None, out: Path | None, kind: str | None) -> str:
    """The format to write, by its name or by how the file's name ends. Raises UsageError where it does not fit."""
    from medlive.report.tables import WRITERS

    form = name or ("table" if out is None else out.suffix.lower().removeprefix("."))
    choices = ", ".join(WRITERS)
    if name is None and out is not None and form not in WRITERS:
        raise UsageError(
            f"--out {out}: its ending names no format",
            hint=f"choose {choices} with --format",
        )
    problems = {
        f"--format {form}: choose table, {choices}": form not in ("table", *WRITERS),
        f"--slice picks rows of a table, csv or parquet; {form} is one document": kind
        is not None
        and form in ("tsv", "json"),
        "--out writes tsv, json, csv or parquet; choose one with --format": out
        is not None
        and form == "table",
        "parquet is not text: name a file with --out": out is None
        and form == "parquet",
    }
    for problem, holds in problems.items():
        if holds:
            raise UsageError(problem)
    return form


def check_scored(table: Any) -> None:
    """Raises CheckFailed where no model has a score."""
    if all(model.overall.mean is None for model in table.models):
        ungraded = sum(
            model.rates.ungraded < model.rates.criteria for model in table.models
        )
        why = "each has an ungraded criterion" if ungraded else "nothing is graded"
        hint = "medlive eval grade RUN grades it; a settled one waits for people: medlive eval judges settle RUN"
        raise CheckFailed(f"no case has a score: {why}", hint=hint)


def print_scores(table: Any) -> None:
    """The score table for people: first, where cutoffs are known, on what no model can have seen."""
    _print_fresh(table.fresh)
    others = [metric.value for metric in table.companion_metrics]
    print_table(
        [
            "model",
            "score %",
            "95 % interval",
            *(f"{name} %" for name in others),
            "n",
            "bounds %",
            "tie group",
            "unanswered",
            "truncated",
            "refused",
            "ungraded criteria",
            *(["drop past its cutoff"] if table.drops else []),
        ],
        [
            [
                m.label,
                _percent(m.overall.mean),
                _interval(m.overall.low, m.overall.high),
                *(_percent(getattr(m.companions, name).mean) for name in others),
                m.overall.n,
                _interval(m.overall.least, m.overall.most),
                m.standing.group if m.standing else None,
                *(
                    _count(m.rates, name)
                    for name in ("unanswered", "truncated", "refused", "ungraded")
                ),
                *([_drop_flag(table.drops.get(m.label))] if table.drops else []),
            ]
            for m in table.models
        ],
        title=_title(table),
    )
    _print_beside(table)
    differing = [c for c in table.coverage if c.missing]
    if differing:
        print_table(
            ["model", "cases", "scored", "scored for others only", "e.g."],
            [
                [c.label, c.cases, c.scored, len(c.missing), ", ".join(c.missing[:3])]
                for c in differing
            ],
            title=f"models scored on differing cases; --cases common takes the {table.common} common ones",
        )


def _print_beside(table: Any) -> None:
    """The core score, and how scores go with one another and with the length of the answers."""
    from medlive.evaluation.scoring.estimates import FEW
    from medlive.evaluation.scoring.metrics import CORE_POINTS

    print_table(
        ["model", "core %", "95 % interval", "n", "characters"],
        [_core_cells(model) for model in table.models],
        title=f"core score, over criteria of {CORE_POINTS} points and more either way; dim: under {FEW} cases",
    )
    beside = table.beside
    if beside.agreement:
        rows = [[a.over, a.n, _r(a.pearson), _r(a.spearman)] for a in beside.agreement]
        print_table(
            ["over", "n", "Pearson", "Spearman"],
            rows,
            title="the complete score against the paper score",
        )
    rows = [
        [c.figure, c.n, _r(c.pearson), _r(c.spearman), _r(c.partial)]
        for c in beside.lengths
    ]
    print_table(
        ["score", "answers", "Pearson", "Spearman", "partial"],
        rows,
        title="scores against the answers' length in characters; partial: given model and case",
    )


def _core_cells(model: Any) -> list[Any]:
    core, characters = model.companions.core, model.companions.characters
    cells = [
        model.label,
        _percent(core.mean),
        _interval(core.low, core.high),
        core.n,
        None if characters is None else f"{characters:.0f}",
    ]
    return dimmed(cells) if core.few else cells


def _r(correlation: float | None) -> str | None:
    return None if correlation is None else f"{correlation:z.3f}"


def _print_fresh(fresh: Any) -> None:
    if fresh is None:
        return
    which = f"after {fresh.after}, the latest cutoff ({', '.join(fresh.set_by)})"
    if fresh.models:
        print_table(
            ["model", "score %", "95 % interval", "n", "tie group"],
            [
                dimmed(_fresh_cells(m)) if m.overall.few else _fresh_cells(m)
                for m in fresh.models
            ],
            title=f"cases posted {which}: no model here can have seen them ({fresh.common} common); dim: under 30",
        )
    else:
        say(f"no case was posted {which}: every score may rest on memory")
    if fresh.unknown:
        say(
            f"cutoff unknown, so not ranked on cases after every cutoff: {', '.join(fresh.unknown)}"
        )


def _fresh_cells(m: Any) -> list[Any]:
    of = m.overall
    return [
        m.label,
        _percent(of.mean),
        _interval(of.low, of.high),
        of.n,
        m.standing.group if m.standing else None,
    ]


def _drop_flag(drop: Any) -> str | None:
    return drop and f"{_points(drop.difference)} before it, p={_p(drop.p)}"


def print_slice(table: Any, kind: str) -> None:
    """One kind of slice for people, value by value; a slice under 30 cases is dim."""
    from medlive.evaluation.scoring.estimates import CUTOFF, FEW

    if kind == ERRORS:
        found = sorted(
            ((a, m.label) for m in table.models for a in m.axes),
            key=lambda one: one[0].axis,
        )
        rows = [
            [a.axis, label, _percent(a.rate), _interval(a.low, a.high), a.n]
            for a, label in found
        ]
        head = ["axis", "model", "error rate %", "95 % interval", "graded criteria"]
        print_table(head, rows, title=_title(table))
        return
    # The parts of a cutoff stand in the order of time, which is the alphabet's from its end.
    slices = sorted(
        (
            (s.value, m.label, s.estimate)
            for m in table.models
            for s in m.slices
            if s.kind == kind
        ),
        key=lambda one: one[0],
        reverse=kind == CUTOFF,
    )
    rows = []
    for value, label, e in slices:
        cells = [
            value,
            label,
            _percent(e.mean),
            _interval(e.low, e.high),
            e.n,
            _interval(e.least, e.most),
        ]
        rows.append(dimmed(cells) if e.few else cells)
    head = [kind, "model", "%", "95 % interval", "n", "bounds %"]
    print_table(head, rows, title=f"{_title(table)}; dim: fewer than {FEW} cases")
    for m in table.models if kind == CUTOFF else ():
        if m.cutoff is None:
            say(f"{m.label}: cutoff unknown")


def _title(table: Any) -> str:
    posted = f", posted {table.window}" if str(table.window) else ""
    # Where no criterion was added, the two metrics are one: no finding.
    same = table.beside.advice_only and table.metric.clips_cases
    equal = " (every criterion rests on advice: complete = paper)" if same else ""
    return (
        f"{table.metric.value} metric{equal} on {rests_on([m.run for m in table.models])}; {table.basis.value} cases "
        f"({table.common} common{posted}), bootstrap of {table.draws} draws, seed {table.seed}"
    )


def rests_on(runs: "Sequence[GradedRun]") -> str:
    """The cases and the graders of a table's figures, for its title."""
    cases = sorted({run.run.info.cases.name for run in runs})
    graders = sorted(
        {
            f"{run.grader.model} ({run.grader.engine} engine, {run.grader.mode} mode)"
            for run in runs
            if run.grader
        }
    )
    return f"{', '.join(cases)}, graded by {', '.join(graders) or 'nobody'}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:z.1f}"


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None else f"{_percent(low)} to {_percent(high)}"


def _count(rates: Any, name: str) -> str:
    count, share = getattr(rates, name), rates.shares[name]
    return f"{count} ({100 * share:.1f} %)" if count else "0"


@grouped
def report(
    runs: RunsArgument,
    out: Annotated[Path, Option(help="The folder to write.")],
    *,
    how: Scoring,
    meta: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="A meta.json of medlive eval meta."),
    ] = None,
    protocols: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="What protocol all wrote [protocols/, if of these models].",
        ),
    ] = None,
    case_pages: Annotated[
        bool, Option("--case-pages/--no-case-pages", help="A page for each case.")
    ] = True,
    png: Annotated[
        bool,
        Option("--png", help="Figures as PNG beside the SVG; needs the extra report."),
    ] = False,
    errata: SignedErrata,
) -> None:
    """Write a report of runs: pages to read offline, figures as SVG, and the numbers as JSON, CSV and TSV.

    index.html holds the figures and tables, cases.html a list of cases with filters, cases/ a page for each case.
    """
    from medlive.report.meta import read_meta
    from medlive.report.render import write_report

    table = scored(runs, how, errata)
    judges = {m.run.grader.judge for m in table.models if m.run.grader}
    metas = tuple(read_meta(path, judges) for path in meta or ())
    registry, portfolio = (
        registry_of(how.models),
        find_portfolio(protocols, [m.label for m in table.models]),
    )
    written = write_report(
        table,
        out,
        registry=registry,
        metas=metas,
        portfolio=portfolio,
        case_pages=case_pages,
        png=png,
    )
    echo(written.page)
    say(f"{written.cases} cases, {written.files} files, {written.size / 1e6:.1f} MB")


def find_portfolio(path: Path | None, models: list[str]) -> "Portfolio | None":
    """The protocols' results: those named, or what lies in their usual folder and is of these models."""
    from medlive.evaluation.protocols.portfolio import PORTFOLIO
    from medlive.report.portfolio import PLACE, read_portfolio

    if path is None and not (PLACE / PORTFOLIO).exists():
        return None
    found = read_portfolio(path or PLACE)
    if path is None and not set(found.models) & set(models):
        say(
            f"{PLACE} is about other models, so it is not in the report; --protocols names what is"
        )
        return None
    return found


@grouped
def contamination(
    runs: RunsArgument,
    *,
    how: Scoring,
    permutations: Annotated[
        int, Option(min=99, max=1_000_000, help="Random permutations of a p-value.")
    ] = 4999,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Write the JSON there as well.")
    ] = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    errata: SignedErrata,
) -> None:
    """Compare each model on what it may have seen in training with what it cannot have seen.

    The cutoffs are in the tables [candidates."MODEL"] of config/models.toml; a model without one is "unknown".
    docs/contamination.md defines every figure.
    """
    from medlive.evaluation.scoring.contamination import contamination as analyse
    from medlive.evaluation.scoring.contamination import score_arms
    from medlive.report.tables import (
        arms_rows,
        contamination_json,
        json_bytes,
        write_whole,
    )

    if out is not None:
        new_file(out, replace)
    registry = registry_of(how.models)
    table = scored(runs, how, errata)
    found = analyse(table, registry, permutations=permutations)
    arms = score_arms(table, registry)
    plain = contamination_json(found) | {"open_book_against_closed": arms_rows(arms)}
    if out is not None:
        write_whole(out, json_bytes(plain))
        say(f"written: {out}")
    notes = [
        f"{model.label}: {note}"
        for model in found.models
        if model.cutoff
        for note in model.notes
    ]
    on = rests_on([model.run for model in table.models])
    print_result(
        plain, as_json, lambda: _print(found, arms, on), notes=[*found.warnings, *notes]
    )


def _print(found: Any, arms: Any, on: str) -> None:
    clipped = "" if found.metric.clips_cases else ", cases and means not clipped"
    print_table(
        [
            "model",
            "cutoff",
            "basis",
            "n pre/post",
            "pre %",
            "post %",
            "drop",
            "95 % interval",
            "p",
            "p (Holm)",
        ],
        [_drop_cells(m) for m in found.models],
        title=f"drop past the cutoff ({found.metric.value} metric{clipped}, points of 100) on {on}; dim: under 30 "
        "cases on a side",
    )
    known = [m for m in found.models if m.cutoff is not None]
    if not known:
        return
    print_table(
        [
            "model",
            "beyond others",
            "95 % interval",
            "held against (n seen/fresh)",
            "adjusted for mix",
            "95 % interval",
            "lost",
            "placebos as large",
            "full % − post % (the paper's)",
            "newer than the model %",
            "n",
        ],
        [_more_cells(m) for m in known],
        title="beside it: difference-in-differences, mix adjustment, placebos, the paper's own figure",
    )
    if found.pooled is not None:
        e = found.pooled
        echo(
            f"Having seen a case, over {e.models} models: {_points(e.effect)} {_rests(e)}"
        )
    for arm in found.arms:
        beyond = f"{_points(arm.drop.difference) or '–'} {_rests(arm.drop)}"
        echo(f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {beyond}")
    if arms:
        print_table(
            [
                "model",
                "cases",
                "n",
                "baseline %",
                "closed book %",
                "open book %",
                "difference",
                "95 % interval",
                "p (Holm)",
            ],
            [dimmed(_arm_cells(a)) if a.few else _arm_cells(a) for a in arms],
            title=f"open book against closed ({found.metric.value} metric) on {on}; dim: under 30 cases",
        )


def _rests(of: Any) -> str:
    """What a difference of two sides rests on."""
    return f"({_span(of) or 'no interval'}; n {of.n_pre}/{of.n_post}{', which is few' if _few(of) else ''})"


def _arm_cells(a: Any) -> list[Any]:
    return [
        a.model,
        "after the cutoff" if a.fresh else "all (cutoff unknown)",
        a.n,
        _percent(a.baseline.mean),
        _percent(a.closed_score.mean),
        _percent(a.open_score.mean),
        _points(a.difference),
        _span(a),
        _p(a.p_holm),
    ]


def _drop_cells(m: Any) -> list[Any]:
    if m.cutoff is None or m.drop is None:
        return [m.label, "unknown", *[None] * 8]
    d = m.drop
    cells = [
        m.label,
        m.cutoff.text,
        m.cutoff.basis.value,
        f"{d.n_pre}/{d.n_post}",
        _percent(d.pre),
        _percent(d.post),
        _points(d.difference),
        _span(d),
        _p(d.p),
        _p(m.p_holm),
    ]
    return dimmed(cells) if m.few else cells


def _more_cells(m: Any) -> list[Any]:
    against = f"{len(m.did_against)} models"
    beyond: list[Any] = [None, None, against]
    if (did := m.did) is not None:
        beyond = [
            _points(did.effect),
            _span(did),
            f"{against} ({did.n_pre}/{did.n_post})",
        ]
    adjusted: list[Any] = [None, None, None]
    one: Any = None
    # The finest mix that leaves both sides anything.
    if (
        mix := next(
            (x for x in reversed(m.mixes) if x.adjusted.difference is not None), None
        )
    ) is not None:
        one = mix.adjusted
        adjusted = [
            _points(one.difference),
            _span(one),
            f"{one.lost_pre}/{one.lost_post} ({mix.by})",
        ]
    rest = [
        m.placebo and f"{m.placebo.at_least} of {len(m.placebo.drops)}",
        m.paper and _points(m.paper.difference),
        m.newer and _percent(m.newer.mean),
        m.newer and m.newer.n,
    ]
    if m.few:
        return dimmed([m.label, *beyond, *adjusted, *rest])
    beyond, adjusted = (
        dimmed(c) if _few(of) else c for c, of in ((beyond, did), (adjusted, one))
    )
    return [m.label, *beyond, *adjusted, *rest]


def _few(of: Any) -> bool:
    from medlive.evaluation.scoring.estimates import FEW

    return of is not None and min(of.n_pre, of.n_post) < FEW


def _points(difference: float | None) -> str | None:
    return None if difference is None else f"{100 * difference:+z.1f}"


def _span(of: Any) -> str | None:
    return None if of.low is None else f"{_points(of.low)} to {_points(of.high)}"


def _p(p: float | None) -> str:
    from medlive.report.html import format_p

    return format_p(p)
