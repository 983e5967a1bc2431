"""Score runs (`scored`) and show scores in a terminal (`describe_scores`, `describe_slice`), for several commands."""

from collections.abc import Iterable, Iterator

from medlive import api
from medlive.cli.output import (
    Grid,
    Shown,
    dimmed,
    table_of,
)
from medlive.errors import CheckFailed
from medlive.evaluation.scoring.ability import abilities_of
from medlive.evaluation.scoring.companions import RATES
from medlive.evaluation.scoring.estimates import (
    AXES_DIFFER,
    AXIS,
    CUTOFF,
    FEW,
    ScoreEstimate,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.refusals import marked
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.integrity.log import some
from medlive.report.html import format_p, points
from medlive.statistics.estimate import Estimate
from medlive.statistics.intervals import TOO_FEW
from medlive.text.html import interval, percent

from .options import Scoring

ERRORS = "errors by axis"


def scored(how: Scoring) -> ScoreTable:
    """The `ScoreTable` of run folders; warnings about a folder go to stderr."""
    graded = how.load()
    return api.score(
        graded,
        metric=how.metric,
        since=how.since,
        until=how.until,
        common=how.basis == "common",
        errata=how.errata,
        errata_file=how.errata_file,
        public_key=how.public_key,
        allow=how.allow or (),
        draws=how.draws,
    )


def find_unscored(table: ScoreTable) -> CheckFailed | None:
    """The failure where no model has a score."""
    if any(model.overall.value is not None for model in table.models):
        return None
    return CheckFailed(
        "no case has a score",
        hint="the warnings say what is missing; medlive eval run and eval grade go on",
    )


def describe_scores(table: ScoreTable) -> Shown:
    """The score tables for people; the first, where cutoffs are known, is on cases that no model can have seen."""
    yield from _describe_fresh(table)
    rows, reasons = [], []
    for model in table.models:
        rows.append(_figures_of(model, table))
        reasons.append((model.label, model.overall.why))
    for pair in table.comparisons:
        reasons.append((f"{pair.first} and {pair.second}", pair.why))
    yield table_of(rows, list(rows[0]), _title(table))
    yield from _few_reasons(reasons)
    yield _describe_harm(table)
    differing = []
    for own in table.coverage:
        if own.missing:
            others = [len(own.missing), ", ".join(own.missing[:3])]
            differing.append([own.label, own.cases, own.scored, *others])
    if differing:
        columns = ["model", "cases", "scored", "scored for others only", "e.g."]
        title = f"models scored on differing cases; --cases common takes the {table.common} common ones"
        yield Grid(columns, differing, marked(title, table.overridden))
        # What models would score on all cases, although they answered differing ones.
        expected = []
        for ability in abilities_of(table).scale.abilities:
            here = interval(ability.low, ability.high)
            of_kind = interval(ability.wide_low, ability.wide_high)
            row = [ability.name, percent(ability.value), here, of_kind]
            expected.append([*row, ability.n, ability.why])
        columns = ["model", "ability %", "on these cases", "cases of the kind", "n"]
        title = "ability: the score expected on all cases (docs/scale.md)"
        yield Grid([*columns, "note"], expected, marked(title, table.overridden))


def _figures_of(model: ModelScore, table: ScoreTable) -> dict[str, object]:
    """A model's row, by column."""
    overall, companions, rates = model.overall, model.companions, model.rates
    row: dict[str, object] = {
        "model": model.label,
        "score %": percent(overall.value),
        "95 % interval": _interval_of(overall),
    }
    if any(other.harm.read for other in table.models):
        row["severe harm %"] = percent(model.harm.severe.value)
        row["any harm %"] = percent(model.harm.any.value)
    for metric in table.companion_metrics:
        row[f"{metric} %"] = percent(getattr(companions, metric).value)
    row |= {
        "core %": percent(companions.core.value),
        "n": overall.n,
        "bounds %": interval(overall.least, overall.most),
        "tie group": model.standing and model.standing.group,
    }
    for name in ("unanswered", "truncated", "refused", "ungraded"):
        count = getattr(rates, name)
        total = rates.criteria if name == "ungraded" else rates.cases
        share = f"{count} ({percent(count / total)} %)" if count else "0"
        row["ungraded criteria" if name == "ungraded" else name] = share
    if table.drops:
        drop = table.drops.get(model.label)
        row["drop past its cutoff"] = drop and (
            f"{points(drop.difference)} before it, p={format_p(drop.p)}"
        )
    return row


def _score_cells(label: str, estimate: Estimate) -> list[object]:
    """A label, the score in percent and its interval."""
    return [label, percent(estimate.value), _interval_of(estimate)]


def _describe_harm(table: ScoreTable) -> Grid:
    """How often answers hold harm, by what they say and by what they leave out."""
    rows = []
    for model in table.models:
        harm = model.harm
        row: list[object] = [model.label, harm.read or "not read for harm"]
        for name in RATES:
            rate = getattr(harm, name)
            bounds = "" if rate.low is None else f" ({_interval_of(rate)})"
            row.append(None if rate.value is None else f"{percent(rate.value)}{bounds}")
        judges, controls = harm.reader, None
        if judges is not None and harm.checker != judges:
            judges += f", checked by {harm.checker}"
        if (figures := harm.controls) is not None:
            controls = (
                f"{figures.found} of {figures.slips} slips, {figures.alarms} of {figures.excellent} "
                "false alarms"
            )
            controls = f"FAILED: {controls}" if figures.failed else controls
        rows.append([*row, harm.unconfirmed, judges, controls])
    rates = [f"{title} %" for title in RATES.values()]
    title = (
        "share of answers with a confirmed harm, and of those that leave out a criterion of 9 points and more "
        "(severe), 7 and more (any)"
    )
    columns = ["model", "read", *rates, "unconfirmed", "judges", "controls"]
    return Grid(columns, rows, marked(title, table.overridden))


def _describe_fresh(table: ScoreTable) -> Shown:
    """Scores on cases posted after the latest cutoff; nothing where the table has no such part."""
    fresh = table.fresh
    if fresh is None:
        return
    which = f"after {fresh.after}, the latest cutoff ({', '.join(fresh.set_by)})"
    rows = []
    for model in fresh.models:
        group = model.standing and model.standing.group
        row = [*_score_cells(model.label, model.overall), model.overall.n, group]
        rows.append(dimmed(row) if model.overall.few else row)
    if rows:
        title = f"cases posted {which}: no model here can have seen them ({fresh.common} common); dim: under 30"
        columns = ["model", "score %", "95 % interval", "n", "tie group"]
        yield Grid(columns, rows, marked(title, table.overridden))
    else:
        yield f"no case was posted {which}: every score may rest on memory"
    if fresh.unknown:
        names = ", ".join(fresh.unknown)
        yield f"cutoff unknown, so not ranked on cases after every cutoff: {names}"


def describe_slice(table: ScoreTable, kind: str) -> Shown:
    """The scores by value of one kind of slice, or the error rates by axis; a row of under 30 cases is dim."""
    rows, reasons = [], []
    for value, label, estimate in _parts(table, kind):
        row = [value, *_score_cells(label, estimate), estimate.n]
        few = False
        if isinstance(estimate, ScoreEstimate):
            row.append(interval(estimate.least, estimate.most))
            few = estimate.few
        rows.append(dimmed(row) if few else row)
        reasons.append((f"{value}, {label}", estimate.why))
    columns = [kind, "model", "%", "95 % interval", "n", "bounds %"]
    title = f"{_title(table)}; dim: fewer than {FEW} cases"
    if kind == ERRORS:
        columns = ["axis", "model", "error rate %", "95 % interval", "graded criteria"]
        title = _title(table)
    yield Grid(columns, rows, title)
    if kind in (AXIS, ERRORS):
        yield AXES_DIFFER
    yield from _few_reasons(reasons)
    if kind == CUTOFF:
        for model in table.models:
            if model.cutoff is None:
                yield f"{model.label}: cutoff unknown"


def _parts(
    table: ScoreTable,
    kind: str,
) -> list[tuple[str, str, Estimate]]:
    """The rows of a kind of slice: the slice's value, the model's label, the estimate."""
    parts: list[tuple[str, str, Estimate]] = []
    for model in table.models:
        if kind == ERRORS:
            parts += [(axis, model.label, rate) for axis, rate in model.axes.items()]
        for value, estimate in model.slices.get(kind, {}).items():
            parts.append((value, model.label, estimate))
    # "up to the cutoff" goes before "after" it, which is the reverse of the alphabet.
    return sorted(parts, key=lambda part: part[0], reverse=kind == CUTOFF)


def _title(table: ScoreTable) -> str:
    """A table's title: metric, cases, graders and bootstrap."""
    posted = f", posted {table.window}" if str(table.window) else ""
    # Without added criteria "complete" and "paper" are the same: not a result.
    same = table.advice_only and table.metric.clips_cases
    equal = " (every criterion rests on advice: complete = paper)" if same else ""
    graders = cases_and_graders(model.run for model in table.models)
    return marked(
        f"{table.metric} metric{equal} on {graders}; {table.basis} cases "
        f"({table.common} common{posted}), bootstrap of {table.draws} draws, seed {table.seed}",
        table.overridden,
    )


def _interval_of(estimate: Estimate) -> str:
    """The interval, or that there is too little for one; `_few_reasons` gives the reason."""
    if estimate.low is None and estimate.why:
        return TOO_FEW
    return interval(estimate.low, estimate.high)


def _few_reasons(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Why figures have no interval, those of one reason together."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        if why:
            names_by_reason.setdefault(why, []).append(name)
    for why, names in names_by_reason.items():
        yield f"{why}: {some(names)}"


def cases_and_graders(runs: Iterable[GradedRun]) -> str:
    """The cases and the graders of a table's figures, for its title."""
    cases, graders = set(), set()
    for run in runs:
        cases.add(run.info.cases.name)
        if (grader := run.grader) is not None:
            graders.add(f"{grader.model} ({grader.engine} engine, {grader.mode} mode)")
    return f"{', '.join(sorted(cases))}, graded by {', '.join(sorted(graders)) or 'nobody'}"
