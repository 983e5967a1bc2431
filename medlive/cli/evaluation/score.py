"""`medlive eval score`, `report` and `contamination`: runs side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from typer import Option

from medlive.cli.evaluation.options import (
    OutOption,
    RunsArgument,
    Scoring,
    SignedErrata,
    load_runs,
)
from medlive.cli.evaluation.records import records
from medlive.cli.options import JsonOption, ReplaceOption, one_of
from medlive.cli.output import (
    Grid,
    Result,
    dimmed,
    echo,
    echo_lines,
    new_file,
    say,
    show_result,
)
from medlive.errors import CheckFailed, UsageError
from medlive.guard.printable import printable_json
from medlive.integrity.log import some

if TYPE_CHECKING:
    from medlive.evaluation.harm import ControlFigures
    from medlive.evaluation.protocols.portfolio import Portfolio
    from medlive.evaluation.scoring.contamination import (
        BookArm,
        ContaminationTable,
        ModelContamination,
    )
    from medlive.evaluation.scoring.estimates import AxisErrors, Estimate
    from medlive.evaluation.scoring.graded import GradedRun
    from medlive.evaluation.scoring.harm_rates import HarmRates
    from medlive.evaluation.scoring.score import ModelScore, Rates, ScoreTable
    from medlive.statistics.contamination import Drop

ERRORS: Final = "errors by axis"

_MOST_IDLE = 5


def scored(runs: list[Path], how: Scoring, errata: SignedErrata) -> "ScoreTable":
    """The `ScoreTable` of run folders; warnings about a folder go to stderr."""
    from medlive.api import open_registry, score
    from medlive.evaluation.scoring.score import CaseBasis

    graded = load_runs(runs, how.judge)
    registry = open_registry(how.models)
    idle = registry.without_run(run.run.info.model for run in graded)
    if how.models and idle:
        names = ", ".join(idle[:_MOST_IDLE]) + (" …" if len(idle) > _MOST_IDLE else "")
        say(f"{how.models}: {len(idle)} models have no run here: {names}")
    return score(
        graded,
        metric=how.metric,
        since=how.since,
        until=how.until,
        common=one_of("--cases", CaseBasis, how.basis) is CaseBasis.COMMON,
        models=registry,
        errata=errata.errata,
        errata_file=errata.errata_file,
        public_key=errata.public_key,
        allow=how.allow or (),
        draws=how.draws,
        seed=how.seed,
    )


def score(
    runs: RunsArgument,
    format_: str | None = None,
    slice_: Annotated[str | None, Option(metavar="KIND")] = None,
    *,
    how: Scoring,
    out: OutOption = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    errata: SignedErrata,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing. Exit status 1 where none has a score.

    What was withdrawn since a run's snapshot was frozen is in the errata.json beside it; without one there, in
    that of the snapshots frozen here.

    Args:
        format_: table, tsv, json or csv [as --out ends, or table].
        slice_: month, theme, specialty, language, source, first-release, difficulty, dialogue-register, axis,
            cutoff or errors-by-axis.
    """
    from medlive.report.tables import WRITERS, write_whole

    if as_json and format_ not in (None, "json"):
        raise UsageError(f"--json and --format {format_} exclude each other")
    kind = _slice_kind(slice_)
    form = _form("json" if as_json else format_, out, kind)
    if out is not None:
        new_file(out, replace)
    table = scored(runs, how, errata)
    if form == "table":
        shown = describe_scores(table) if kind is None else describe_slice(table, kind)
        show_result(Result(None, shown))
    elif out is not None:
        write_whole(out, WRITERS[form](table, kind))
        say(f"written: {out}")
    else:
        text = WRITERS[form](table, kind).decode("utf-8")
        echo_lines(printable_json(text) if form == "json" else text)
    for warning in table.warnings:
        say(warning)
    if (failure := find_unscored(table)) is not None:
        raise failure


def _slice_kind(name: str | None) -> str | None:
    from medlive.evaluation.scoring.estimates import KINDS

    if name is None:
        return None
    kind = name.replace("-", " ").replace("_", " ")
    kinds = (*KINDS, ERRORS)
    if kind not in kinds:
        raise UsageError(
            f"--slice {name}: choose {', '.join(kinds).replace(' ', '-').replace(',-', ', ')}"
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
    if form not in ("table", *WRITERS):
        raise UsageError(f"--format {form}: choose table, {choices}")
    if kind is not None and form in ("tsv", "json"):
        raise UsageError(
            f"--slice picks rows of a table or csv; {form} is one document"
        )
    if out is not None and form == "table":
        raise UsageError("--out writes tsv, json or csv; choose one with --format")
    return form


def find_unscored(table: "ScoreTable") -> CheckFailed | None:
    """The failure where no model has a score."""
    if any(model.overall.mean is not None for model in table.models):
        return None
    why = "nothing is graded"
    if any(model.rates.ungraded < model.rates.criteria for model in table.models):
        why = "each has an ungraded criterion"
    hint = "medlive eval grade RUN grades it; a settled one waits for people: medlive eval judges settle RUN"
    return CheckFailed(f"no case has a score: {why}", hint=hint)


def print_scores(table: "ScoreTable") -> None:
    """Print the score table for people."""
    show_result(Result(None, describe_scores(table)))


def describe_scores(table: "ScoreTable") -> Iterator[Grid | str]:
    """The score table for people: first, where cutoffs are known, on what no model can have seen."""
    yield from _describe_fresh(table)
    columns: dict[str, Callable[[ModelScore], object]] = {
        "model": lambda m: m.label,
        "score %": lambda m: _percent(m.overall.mean),
        "95 % interval": lambda m: _interval_of(m.overall),
    }
    if any(model.harm.read for model in table.models):
        columns["severe harm %"] = lambda m: _percent(m.harm.severe.mean)
        columns["any harm %"] = lambda m: _percent(m.harm.any.mean)
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
    yield records(_title(table), table.models, columns)
    reasons = [(model.label, model.overall.why) for model in table.models]
    for pair in table.comparisons:
        reasons.append((f"{pair.first} and {pair.second}", pair.why))
    yield from _few_reasons(reasons)
    yield from _describe_harm(table)
    yield from _describe_beside(table)
    differing = [coverage for coverage in table.coverage if coverage.missing]
    if differing:
        title = f"models scored on differing cases; --cases common takes the {table.common} common ones"
        yield records(
            _marked(title, table),
            differing,
            {
                "model": lambda c: c.label,
                "cases": lambda c: c.cases,
                "scored": lambda c: c.scored,
                "scored for others only": lambda c: len(c.missing),
                "e.g.": lambda c: ", ".join(c.missing[:3]),
            },
        )
        yield _abilities(table)


def _abilities(table: "ScoreTable") -> Grid:
    """What models would score on all cases, although they answered differing ones."""
    from medlive.evaluation.scoring.ability import abilities_of

    rows = abilities_of(table).scale.abilities
    title = "ability: the score expected on all cases (docs/scale.md)"
    return records(
        _marked(title, table),
        rows,
        {
            "model": lambda a: a.name,
            "ability %": lambda a: _percent(a.value),
            "on these cases": lambda a: _interval(a.low, a.high),
            "cases of the kind": lambda a: _interval(a.wide_low, a.wide_high),
            "n": lambda a: a.n,
            "note": lambda a: a.why,
        },
    )


def _companion(name: str, model: "ModelScore") -> str | None:
    return _percent(getattr(model.companions, name).mean)


def _describe_beside(table: "ScoreTable") -> Iterator[Grid]:
    """The core score, and how scores go with one another and with the length of the answers."""
    from medlive.evaluation.scoring.estimates import FEW
    from medlive.evaluation.scoring.metrics import CORE_POINTS

    title = f"core score, over criteria of {CORE_POINTS} points and more either way; dim: under {FEW} cases"
    yield records(
        _marked(title, table),
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
        yield records(
            _marked("the complete score against the paper score", table),
            beside.agreement,
            {
                "over": lambda a: a.over,
                "n": lambda a: a.n,
                "Pearson": lambda a: _r(a.pearson),
                "Spearman": lambda a: _r(a.spearman),
            },
        )
    title = "scores against the answers' length in characters; partial: given model and case"
    yield records(
        _marked(title, table),
        beside.lengths,
        {
            "score": lambda c: c.figure,
            "answers": lambda c: c.n,
            "Pearson": lambda c: _r(c.pearson),
            "Spearman": lambda c: _r(c.spearman),
            "partial": lambda c: _r(c.partial),
        },
    )


def _describe_harm(table: "ScoreTable") -> Iterator[Grid]:
    """How often answers hold harm, by what they say and by what they leave out."""
    from medlive.report.tables import HARM_RATES

    columns: dict[str, Callable[[ModelScore], object]] = {
        "model": lambda m: m.label,
        "read": lambda m: m.harm.read or "not read for harm",
    }
    for name, title in HARM_RATES.items():
        columns[f"{title} %"] = partial(_rate, name)
    columns |= {
        "unconfirmed": lambda m: m.harm.unconfirmed,
        "judges": lambda m: _judges_of_harm(m.harm),
        "controls": lambda m: _controls(m.harm.controls),
    }
    title = (
        "share of answers with a confirmed harm, and of those that leave out a criterion of 9 points and more "
        "(severe), 7 and more (any)"
    )
    yield records(_marked(title, table), table.models, columns)


def _rate(name: str, model: "ModelScore") -> str | None:
    rate = getattr(model.harm, name)
    if rate.mean is None:
        return None
    bounds = "" if rate.low is None else f" ({_interval_of(rate)})"
    return f"{_percent(rate.mean)}{bounds}"


def _judges_of_harm(harm: "HarmRates") -> str | None:
    if harm.reader is None:
        return None
    same = harm.checker == harm.reader
    return harm.reader if same else f"{harm.reader}, checked by {harm.checker}"


def _controls(controls: "ControlFigures | None") -> str | None:
    """How many planted slips were found, and in how many excellent answers harm was confirmed."""
    if controls is None:
        return None
    text = (
        f"{controls.found} of {controls.slips} slips, {controls.alarms} of {controls.excellent} "
        "false alarms"
    )
    return f"FAILED: {text}" if controls.failed else text


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _r(correlation: float | None) -> str | None:
    return None if correlation is None else f"{correlation:z.3f}"


def _describe_fresh(table: "ScoreTable") -> Iterator[Grid | str]:
    fresh = table.fresh
    if fresh is None:
        return
    which = f"after {fresh.after}, the latest cutoff ({', '.join(fresh.set_by)})"
    if fresh.models:
        title = f"cases posted {which}: no model here can have seen them ({fresh.common} common); dim: under 30"
        yield records(
            _marked(title, table),
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
        yield f"no case was posted {which}: every score may rest on memory"
    if fresh.unknown:
        names = ", ".join(fresh.unknown)
        yield f"cutoff unknown, so not ranked on cases after every cutoff: {names}"


def _drop_flag(drop: "Drop | None") -> str | None:
    if drop is None:
        return None
    return f"{_points(drop.difference)} before it, p={_p(drop.p)}"


def describe_slice(table: "ScoreTable", kind: str) -> Iterator[Grid | str]:
    """One kind of slice for people, value by value; a slice under 30 cases is dim."""
    from medlive.evaluation.scoring.estimates import AXES_DIFFER, AXIS, CUTOFF, FEW

    if kind == ERRORS:
        yield from _describe_errors(table)
        return
    slices, reasons = [], []
    for model in table.models:
        for part in model.slices:
            if part.kind == kind:
                slices.append((model.label, part))
    # The parts of a cutoff stand in the order of time, which is the alphabet's from its end.
    slices.sort(key=lambda row: row[1].value, reverse=kind == CUTOFF)
    yield records(
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
        yield AXES_DIFFER
    for label, part in slices:
        reasons.append((f"{part.value}, {label}", part.estimate.why))
    yield from _few_reasons(reasons)
    if kind == CUTOFF:
        for model in table.models:
            if model.cutoff is None:
                yield f"{model.label}: cutoff unknown"


def _describe_errors(table: "ScoreTable") -> Iterator[Grid | str]:
    """The error rates by axis."""
    from medlive.evaluation.scoring.estimates import AXES_DIFFER

    axes, reasons = [], []
    for model in table.models:
        for axis in model.axes:
            axes.append((model.label, axis))
            reasons.append((f"{axis.axis}, {model.label}", axis.why))
    axes.sort(key=lambda row: row[1].axis)
    yield records(
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
    yield AXES_DIFFER
    yield from _few_reasons(reasons)


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


def _marked(title: str, table: "ScoreTable") -> str:
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
    """The interval, or that there is too little for one; `_few_reasons` gives the reason."""
    from medlive.statistics.intervals import TOO_FEW

    if estimate.low is None and estimate.why:
        return TOO_FEW
    return _interval(estimate.low, estimate.high)


def _few_reasons(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Why figures have no interval, those of one reason together."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        if why:
            names_by_reason.setdefault(why, []).append(name)
    for why, names in names_by_reason.items():
        yield f"{why}: {some(names)}"


def _count(rates: "Rates", count: int, name: str) -> str:
    return f"{count} ({_percent(rates.shares[name])} %)" if count else "0"


def report(
    runs: RunsArgument,
    out: Annotated[Path, Option()],
    *,
    how: Scoring,
    meta: list[Path] | None = None,
    protocols: Path | None = None,
    case_pages: Annotated[bool, Option("--case-pages/--no-case-pages")] = True,
    errata: SignedErrata,
) -> None:
    """Write a report of runs: pages to read offline, and the numbers as JSON, CSV and TSV.

    index.html holds the tables, and figures where medlive[plot] is installed; cases.html is a list of cases with
    filters, and cases/ has a page for each case.

    Args:
        out: The folder to write.
        meta: A meta.json of medlive eval meta.
        protocols: What protocol all wrote [protocols/, if of these models].
        case_pages: A page for each case.
    """
    from medlive.api import open_registry
    from medlive.report.meta import read_meta
    from medlive.report.render import write_report

    table = scored(runs, how, errata)
    judges = {m.run.grader.judge for m in table.models if m.run.grader}
    metas = tuple(read_meta(path, judges) for path in meta or ())
    written = write_report(
        table,
        out,
        registry=open_registry(how.models),
        metas=metas,
        portfolio=find_portfolio(protocols, [m.label for m in table.models]),
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
    portfolio = read_portfolio(path or PLACE)
    if path is None and not set(portfolio.models) & set(models):
        say(
            f"{PLACE} is about other models, so it is not in the report; --protocols names what is"
        )
        return None
    return portfolio


def contamination(
    runs: RunsArgument,
    *,
    how: Scoring,
    permutations: Annotated[int, Option(min=99, max=1_000_000)] = 4999,
    out: OutOption = None,
    replace: ReplaceOption = False,
    errata: SignedErrata,
) -> Result:
    """Compare each model on what it may have seen in training with what it cannot have seen.

    The cutoffs are in the tables [candidates."MODEL"] of config/models.toml; a model without one is "unknown".
    docs/contamination.md defines every figure.

    Args:
        permutations: Random permutations of a p-value.
    """
    from medlive import api
    from medlive.evaluation.scoring.contamination import score_arms
    from medlive.report.tables import (
        arms_rows,
        contamination_json,
        json_bytes,
        write_whole,
    )

    if out is not None:
        new_file(out, replace)
    registry = api.open_registry(how.models)
    table = scored(runs, how, errata)
    study = api.contamination(table, models=registry, permutations=permutations)
    arms = score_arms(table, registry)
    plain = contamination_json(study) | {"open_book_against_closed": arms_rows(arms)}
    notes = [*study.warnings]
    if out is not None:
        write_whole(out, json_bytes(plain))
        notes.append(f"written: {out}")
    for model in study.models:
        if model.cutoff:
            notes += [f"{model.label}: {note}" for note in model.notes]
    on = _marked(rests_on([model.run for model in table.models]), table)
    return Result(plain, _describe_contamination(study, arms, on), notes)


def _describe_contamination(
    study: "ContaminationTable",
    arms: "Sequence[BookArm]",
    cases_and_graders: str,
) -> Iterator[Grid | str]:
    metric = f"{study.metric.value} metric"
    clipped = "" if study.metric.clips_cases else ", cases and means not clipped"
    columns = ["model", "cutoff", "basis", "n pre/post", "pre %", "post %", "drop"]
    yield Grid(
        [*columns, "95 % interval", "p", "p (Holm)"],
        map(_drop_cells, study.models),
        f"drop past the cutoff ({metric}{clipped}, points of 100) on {cases_and_graders}; dim: under 30 "
        "cases on a side",
    )
    known = [model for model in study.models if model.cutoff is not None]
    if not known:
        return
    yield Grid(
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
        "beside it: difference-in-differences, mix adjustment, placebos, the paper's own figure; "
        f"on {cases_and_graders}",
    )
    if (pooled := study.pooled) is not None:
        effect = f"{_points(pooled.effect)} {_rests(pooled)}"
        yield f"Having seen a case, over {pooled.models} models: {effect}"
    for arm in study.arms:
        beyond = f"{_points(arm.drop.difference) or '–'} {_rests(arm.drop)}"
        yield f"{arm.model}: drop of {arm.raw} beyond that of {arm.rewritten}: {beyond}"
    if arms:
        yield records(
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


class _Span(Protocol):
    """A difference with its interval."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


class _Sides(_Span, Protocol):
    """One of two sides, with their sizes."""

    @property
    def n_pre(self) -> int: ...
    @property
    def n_post(self) -> int: ...


def _rests(sides: _Sides) -> str:
    """What a difference of two sides rests on."""
    few = ", which is few" if _few(sides) else ""
    return f"({_span(sides) or 'no interval'}; n {sides.n_pre}/{sides.n_post}{few})"


def _drop_cells(m: "ModelContamination") -> Sequence[object]:
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


def _more_cells(m: "ModelContamination") -> Sequence[object]:
    against = f"{len(m.did_against)} models"
    beyond: list[object] = [None, None, against]
    if (did := m.did) is not None:
        against += f" ({did.n_pre}/{did.n_post})"
        beyond = _faint_if_few([_points(did.effect), _span(did), against], did)
    adjusted: list[object] = [None, None, None]
    # The finest mix that leaves both sides anything.
    for mix in m.mixes:
        if (estimate := mix.adjusted).difference is not None:
            lost = f"{estimate.lost_pre}/{estimate.lost_post} ({mix.by})"
            cells = [_points(estimate.difference), _span(estimate), lost]
            adjusted = _faint_if_few(cells, estimate)
    rest = [
        m.placebo and f"{m.placebo.at_least} of {len(m.placebo.drops)}",
        m.paper and _points(m.paper.difference),
    ]
    whole = [m.label, *beyond, *adjusted, *rest]
    return dimmed(whole) if m.few else whole


def _faint_if_few(cells: Sequence[object], sides: _Sides) -> list[object]:
    return [*dimmed(cells)] if _few(sides) else [*cells]


def _few(sides: _Sides) -> bool:
    from medlive.evaluation.scoring.estimates import FEW

    return min(sides.n_pre, sides.n_post) < FEW


def _points(difference: float | None) -> str | None:
    return None if difference is None else f"{100 * difference:+z.1f}"


def _span(span: _Span) -> str | None:
    return None if span.low is None else f"{_points(span.low)} to {_points(span.high)}"


def _p(p: float | None) -> str:
    from medlive.report.html import format_p

    return format_p(p)
