"""`medlive eval score`, `report` and `contamination`: runs side by side."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Option

from medlive.cli.evaluation.options import (
    RunsArgument,
    Scoring,
    SignedErrata,
    load_runs,
    read_allowed,
)
from medlive.cli.evaluation.records import print_records
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
from medlive.evaluation.log import some
from medlive.printable import printable_json

if TYPE_CHECKING:
    from medlive.evaluation.asking.registry import Registry
    from medlive.evaluation.protocols.portfolio import Portfolio
    from medlive.evaluation.scoring.contamination import (
        BookArm,
        ContaminationTable,
        ModelContamination,
    )
    from medlive.evaluation.scoring.estimates import AxisErrors, Estimate
    from medlive.evaluation.scoring.graded import GradedRun
    from medlive.evaluation.scoring.score import ModelScore, Rates, ScoreTable
    from medlive.statistics.contamination import Drop

ERRORS: Final = "errors by axis"

_MOST_IDLE = 5


def scored(runs: list[Path], how: Scoring, errata: SignedErrata) -> "ScoreTable":
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
    return score_runs(
        graded,
        metric=metric,
        errata=use,
        basis=basis,
        registry=registry,
        window=window,
        allow=read_allowed(how.allow),
        draws=how.draws,
        seed=how.seed,
    )


def registry_of(models: Path | None) -> "Registry":
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
            help="table, tsv, json or csv [as --out ends, or table].",
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
    as_json: JsonOption = False,
    errata: SignedErrata,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen is in the errata.json beside it; without one there, in
    that of the snapshots frozen here.
    """
    from medlive.report.tables import WRITERS, write_whole

    if as_json and format_ not in (None, "json"):
        raise UsageError(f"--json and --format {format_} exclude each other")
    if as_json:
        format_ = "json"
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
        f"--slice picks rows of a table or csv; {form} is one document": kind
        is not None
        and form in ("tsv", "json"),
        "--out writes tsv, json or csv; choose one with --format": out is not None
        and form == "table",
    }
    for problem, holds in problems.items():
        if holds:
            raise UsageError(problem)
    return form


def check_scored(table: "ScoreTable") -> None:
    """Raises CheckFailed where no model has a score."""
    if all(model.overall.mean is None for model in table.models):
        ungraded = sum(
            model.rates.ungraded < model.rates.criteria for model in table.models
        )
        why = "each has an ungraded criterion" if ungraded else "nothing is graded"
        hint = "medlive eval grade RUN grades it; a settled one waits for people: medlive eval judges settle RUN"
        raise CheckFailed(f"no case has a score: {why}", hint=hint)


def print_scores(table: "ScoreTable") -> None:
    """The score table for people: first, where cutoffs are known, on what no model can have seen."""
    _print_fresh(table)
    columns: dict[str, Callable[[ModelScore], object]] = {
        "model": lambda m: m.label,
        "score %": lambda m: _percent(m.overall.mean),
        "95 % interval": lambda m: _interval_of(m.overall),
    }
    for metric in table.companion_metrics:
        columns[f"{metric.value} %"] = partial(_companion, metric.value)
    columns |= {
        "n": lambda m: m.overall.n,
        "bounds %": lambda m: _interval(m.overall.least, m.overall.most),
        "tie group": lambda m: m.standing and m.standing.group,
        "unanswered": lambda m: _count(m.rates, m.rates.unanswered, "unanswered"),
        "truncated": lambda m: _count(m.rates, m.rates.truncated, "truncated"),
        "refused": lambda m: _count(m.rates, m.rates.refused, "refused"),
        "ungraded criteria": lambda m: _count(m.rates, m.rates.ungraded, "ungraded"),
    }
    if table.drops:
        columns["drop past its cutoff"] = lambda m: _drop_flag(table.drops.get(m.label))
    print_records(_title(table), table.models, columns)
    _print_few((model.label, model.overall.why) for model in table.models)
    _print_few(
        (f"{pair.first} and {pair.second}", pair.why) for pair in table.comparisons
    )
    _print_beside(table)
    differing = [one for one in table.coverage if one.missing]
    if differing:
        print_records(
            _marked(
                f"models scored on differing cases; --cases common takes the {table.common} common ones",
                table,
            ),
            differing,
            {
                "model": lambda c: c.label,
                "cases": lambda c: c.cases,
                "scored": lambda c: c.scored,
                "scored for others only": lambda c: len(c.missing),
                "e.g.": lambda c: ", ".join(c.missing[:3]),
            },
        )


def _companion(name: str, model: "ModelScore") -> str | None:
    return _percent(getattr(model.companions, name).mean)


def _print_beside(table: "ScoreTable") -> None:
    """The core score, and how scores go with one another and with the length of the answers."""
    from medlive.evaluation.scoring.estimates import FEW
    from medlive.evaluation.scoring.metrics import CORE_POINTS

    print_records(
        _marked(
            f"core score, over criteria of {CORE_POINTS} points and more either way; dim: under {FEW} cases",
            table,
        ),
        table.models,
        {
            "model": lambda m: m.label,
            "core %": lambda m: _percent(m.companions.core.mean),
            "95 % interval": lambda m: _interval_of(m.companions.core),
            "n": lambda m: m.companions.core.n,
            "characters": lambda m: _whole(m.companions.characters),
        },
        dim=lambda m: m.companions.core.few,
    )
    beside = table.beside
    if beside.agreement:
        print_records(
            _marked("the complete score against the paper score", table),
            beside.agreement,
            {
                "over": lambda a: a.over,
                "n": lambda a: a.n,
                "Pearson": lambda a: _r(a.pearson),
                "Spearman": lambda a: _r(a.spearman),
            },
        )
    print_records(
        _marked(
            "scores against the answers' length in characters; partial: given model and case",
            table,
        ),
        beside.lengths,
        {
            "score": lambda c: c.figure,
            "answers": lambda c: c.n,
            "Pearson": lambda c: _r(c.pearson),
            "Spearman": lambda c: _r(c.spearman),
            "partial": lambda c: _r(c.partial),
        },
    )


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _r(correlation: float | None) -> str | None:
    return None if correlation is None else f"{correlation:z.3f}"


def _print_fresh(table: "ScoreTable") -> None:
    fresh = table.fresh
    if fresh is None:
        return
    which = f"after {fresh.after}, the latest cutoff ({', '.join(fresh.set_by)})"
    if fresh.models:
        print_records(
            _marked(
                f"cases posted {which}: no model here can have seen them ({fresh.common} common); dim: under 30",
                table,
            ),
            fresh.models,
            {
                "model": lambda m: m.label,
                "score %": lambda m: _percent(m.overall.mean),
                "95 % interval": lambda m: _interval_of(m.overall),
                "n": lambda m: m.overall.n,
                "tie group": lambda m: m.standing and m.standing.group,
            },
            dim=lambda m: m.overall.few,
        )
    else:
        say(f"no case was posted {which}: every score may rest on memory")
    if fresh.unknown:
        say(
            f"cutoff unknown, so not ranked on cases after every cutoff: {', '.join(fresh.unknown)}"
        )


def _drop_flag(drop: "Drop | None") -> str | None:
    if drop is None:
        return None
    return f"{_points(drop.difference)} before it, p={_p(drop.p)}"


def print_slice(table: "ScoreTable", kind: str) -> None:
    """One kind of slice for people, value by value; a slice under 30 cases is dim."""
    from medlive.evaluation.scoring.estimates import AXES_DIFFER, AXIS, CUTOFF, FEW

    if kind == ERRORS:
        _print_errors(table)
        return
    slices = []
    for model in table.models:
        slices += [(model.label, one) for one in model.slices if one.kind == kind]
    # The parts of a cutoff stand in the order of time, which is the alphabet's from its end.
    slices.sort(key=lambda row: row[1].value, reverse=kind == CUTOFF)
    print_records(
        f"{_title(table)}; dim: fewer than {FEW} cases",
        slices,
        {
            kind: lambda row: row[1].value,
            "model": lambda row: row[0],
            "%": lambda row: _percent(row[1].estimate.mean),
            "95 % interval": lambda row: _interval_of(row[1].estimate),
            "n": lambda row: row[1].estimate.n,
            "bounds %": lambda row: _interval(
                row[1].estimate.least, row[1].estimate.most
            ),
        },
        dim=lambda row: row[1].estimate.few,
    )
    if kind == AXIS:
        echo(AXES_DIFFER)
    _print_few((f"{one.value}, {label}", one.estimate.why) for label, one in slices)
    if kind == CUTOFF:
        for model in table.models:
            if model.cutoff is None:
                say(f"{model.label}: cutoff unknown")


def _print_errors(table: "ScoreTable") -> None:
    """The error rates by axis."""
    from medlive.evaluation.scoring.estimates import AXES_DIFFER

    axes = []
    for model in table.models:
        axes += [(model.label, axis) for axis in model.axes]
    axes.sort(key=lambda row: row[1].axis)
    print_records(
        _title(table),
        axes,
        {
            "axis": lambda row: row[1].axis,
            "model": lambda row: row[0],
            "error rate %": lambda row: _percent(row[1].rate),
            "95 % interval": lambda row: _interval_of(row[1]),
            "graded criteria": lambda row: row[1].n,
        },
    )
    echo(AXES_DIFFER)
    _print_few((f"{axis.axis}, {label}", axis.why) for label, axis in axes)


def _title(table: "ScoreTable") -> str:
    posted = f", posted {table.window}" if str(table.window) else ""
    # Where no criterion was added, the two metrics are one: no finding.
    same = table.beside.advice_only and table.metric.clips_cases
    equal = " (every criterion rests on advice: complete = paper)" if same else ""
    graders = rests_on([m.run for m in table.models])
    return _marked(
        f"{table.metric.value} metric{equal} on {graders}; {table.basis.value} cases "
        f"({table.common} common{posted}), bootstrap of {table.draws} draws, seed {table.seed}",
        table,
    )


def _marked(title: str, table: Any) -> str:
    from medlive.evaluation.scoring.refusals import marked

    return marked(title, table.overridden)


def rests_on(runs: "Sequence[GradedRun]") -> str:
    """The cases and the graders of a table's figures, for its title."""
    cases = sorted({run.run.info.cases.name for run in runs})
    graders = set()
    for run in runs:
        if (grader := run.grader) is not None:
            graders.add(f"{grader.model} ({grader.engine} engine, {grader.mode} mode)")
    return f"{', '.join(cases)}, graded by {', '.join(sorted(graders)) or 'nobody'}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:z.1f}"


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None else f"{_percent(low)} to {_percent(high)}"


def _interval_of(estimate: "Estimate | AxisErrors") -> str | None:
    """The interval, or that there is too little for one; `_print_few` gives the reason."""
    from medlive.statistics.intervals import TOO_FEW

    if estimate.low is None and estimate.why:
        return TOO_FEW
    return _interval(estimate.low, estimate.high)


def _print_few(reasons: Iterable[tuple[str, str]]) -> None:
    """Why figures have no interval, those of one reason together."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        if why:
            names_by_reason.setdefault(why, []).append(name)
    for why, names in names_by_reason.items():
        echo(f"{why}: {some(names)}")


def _count(rates: "Rates", count: int, name: str) -> str:
    return f"{count} ({_percent(rates.shares[name])} %)" if count else "0"


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
    errata: SignedErrata,
) -> None:
    """Write a report of runs: pages to read offline, and the numbers as JSON, CSV and TSV.

    index.html holds the tables, and figures where medlive[plot] is installed; cases.html is a list of cases with
    filters, and cases/ has a page for each case.
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
    notes = [*found.warnings]
    for model in found.models:
        if model.cutoff:
            notes += [f"{model.label}: {note}" for note in model.notes]
    on = _marked(rests_on([model.run for model in table.models]), table)
    show = partial(_print, found, arms, on)
    print_result(plain, as_json, show, notes=notes)


def _print(
    found: "ContaminationTable", arms: "Sequence[BookArm]", cases_and_graders: str
) -> None:
    metric = f"{found.metric.value} metric"
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
        map(_drop_cells, found.models),
        title=f"drop past the cutoff ({metric}{clipped}, points of 100) on {cases_and_graders}; dim: under 30 "
        "cases on a side",
    )
    known = [model for model in found.models if model.cutoff is not None]
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
        ],
        map(_more_cells, known),
        title="beside it: difference-in-differences, mix adjustment, placebos, the paper's own figure; "
        f"on {cases_and_graders}",
    )
    if (pooled := found.pooled) is not None:
        effect = f"{_points(pooled.effect)} {_rests(pooled)}"
        echo(f"Having seen a case, over {pooled.models} models: {effect}")
    for arm in found.arms:
        beyond = f"{_points(arm.drop.difference) or '–'} {_rests(arm.drop)}"
        echo(f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {beyond}")
    if arms:
        print_records(
            f"open book against closed ({metric}) on {cases_and_graders}; dim: under 30 cases",
            arms,
            {
                "model": lambda a: a.model,
                "cases": lambda a: (
                    "after the cutoff" if a.cutoff else "all (cutoff unknown)"
                ),
                "n": lambda a: a.pair.n,
                "baseline %": lambda a: _percent(a.baseline.mean),
                "closed book %": lambda a: _percent(a.closed_score.mean),
                "open book %": lambda a: _percent(a.open_score.mean),
                "difference": lambda a: _points(a.pair.difference),
                "95 % interval": lambda a: _span(a.pair),
                "p (Holm)": lambda a: _p(a.p_holm),
            },
            dim=lambda a: a.few,
        )


def _rests(of: Any) -> str:
    """What a difference of two sides rests on."""
    return f"({_span(of) or 'no interval'}; n {of.n_pre}/{of.n_post}{', which is few' if _few(of) else ''})"


def _drop_cells(m: "ModelContamination") -> list[Any]:
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


def _more_cells(m: "ModelContamination") -> list[Any]:
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
