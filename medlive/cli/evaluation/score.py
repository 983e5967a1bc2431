"""`medlive eval score`, `report` and `contamination`: runs side by side."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from medlive.cli.evaluation.options import (
    OutOption,
    RunsArgument,
    Scoring,
    SignedErrata,
    load_runs,
)
from medlive.cli.evaluation.records import (
    p_value,
    percent,
    percents,
    points,
    records,
    rests_on,
)
from medlive.cli.options import JsonOption, ReplaceOption, one_of
from medlive.cli.output import (
    Grid,
    Result,
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
    from medlive.evaluation.scoring.harm_rates import HarmRates
    from medlive.evaluation.scoring.score import (
        ModelScore,
        Rates,
        ScoreTable,
    )
    from medlive.statistics.bootstrap import Estimate
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
    if any(model.overall.value is not None for model in table.models):
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
        "score %": lambda m: percent(m.overall.value),
        "95 % interval": lambda m: _interval_of(m.overall),
    }
    if any(model.harm.read for model in table.models):
        columns["severe harm %"] = lambda m: percent(m.harm.severe.value)
        columns["any harm %"] = lambda m: percent(m.harm.any.value)
    for metric in table.companion_metrics:
        columns[f"{metric.value} %"] = partial(_companion, metric.value)
    columns |= {
        "n": lambda m: m.overall.n,
        "bounds %": lambda m: percents(m.overall.least, m.overall.most),
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
            "ability %": lambda a: percent(a.value),
            "on these cases": lambda a: percents(a.low, a.high),
            "cases of the kind": lambda a: percents(a.wide_low, a.wide_high),
            "n": lambda a: a.n,
            "note": lambda a: a.why,
        },
    )


def _companion(name: str, model: "ModelScore") -> str | None:
    return percent(getattr(model.companions, name).value)


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
            "core %": lambda m: percent(m.companions.core.value),
            "95 % interval": lambda m: _interval_of(m.companions.core),
            "n": lambda m: m.companions.core.n,
            "characters": lambda m: _whole(m.companions.characters),
        },
        dim=lambda m: m.companions.core.few,
    )
    title = "scores against the answers' length in characters; partial: given model and case"
    yield records(
        _marked(title, table),
        table.lengths,
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
    if rate.value is None:
        return None
    bounds = "" if rate.low is None else f" ({_interval_of(rate)})"
    return f"{percent(rate.value)}{bounds}"


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
                "score %": lambda m: percent(m.overall.value),
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
    return f"{points(drop.difference)} before it, p={p_value(drop.p)}"


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
            "%": lambda row: percent(row[1].estimate.value),
            "95 % interval": lambda row: _interval_of(row[1].estimate),
            "n": lambda row: row[1].estimate.n,
            "bounds %": lambda row: percents(
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
        for axis, rate in model.axes.items():
            axes.append((axis, model.label, rate))
            reasons.append((f"{axis}, {model.label}", rate.why))
    axes.sort(key=lambda row: row[0])
    yield records(
        _title(table),
        axes,
        {
            "axis": lambda row: row[0],
            "model": lambda row: row[1],
            "error rate %": lambda row: percent(row[2].value),
            "95 % interval": lambda row: _interval_of(row[2]),
            "graded criteria": lambda row: row[2].n,
        },
    )
    yield AXES_DIFFER
    yield from _few_reasons(reasons)


def _title(table: "ScoreTable") -> str:
    posted = f", posted {table.window}" if str(table.window) else ""
    # Where no criterion was added, the two metrics are one: no finding.
    same = table.advice_only and table.metric.clips_cases
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


def _interval_of(estimate: "Estimate") -> str | None:
    """The interval, or that there is too little for one; `_few_reasons` gives the reason."""
    from medlive.statistics.intervals import TOO_FEW

    if estimate.low is None and estimate.why:
        return TOO_FEW
    return percents(estimate.low, estimate.high)


def _few_reasons(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Why figures have no interval, those of one reason together."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        if why:
            names_by_reason.setdefault(why, []).append(name)
    for why, names in names_by_reason.items():
        yield f"{why}: {some(names)}"


def _count(rates: "Rates", count: int, name: str) -> str:
    return f"{count} ({percent(rates.shares[name])} %)" if count else "0"
