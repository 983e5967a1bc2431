"""The sections of the report, one in each function; `SECTIONS` has them in order."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from markupsafe import Markup

from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.evaluation.root_causes import RootCause
from medlive.evaluation.scoring.ability import abilities_of
from medlive.evaluation.scoring.estimates import (
    AXIS,
    SLICES,
    ScoreEstimate,
    slice_order,
)
from medlive.evaluation.scoring.overlap import Profiles, WorstCases

from .html import Section, coefficient, missing, picture, render, soft
from .model import ONE_RUN, Report, spent_on, unpublishable
from .tables import beside_rows

_NO_SCORE = (
    "No model has a score: none of the cases is wholly graded. What is missing says why; medlive eval grade RUN "
    "grades what has an answer."
)
_RANKING = (
    "Mean score in per cent with its 95 % interval. Complete: over all criteria; paper: over those of the physician's "
    "advice; core: over those of 7 points and more, either way. Harm: the share of answers in which two judges "
    "confirm a severe harm, or any; omissions are in scores.json. Rank: the best and the worst place that the "
    "significant differences leave open. Tie group: the models that do not differ from the group's first at 5 %, "
    "after Holm's correction. Bounds: the least and the most that the ungraded and unanswered could make of the score."
)
MOST_SUSPECTS = 30  # cases or criteria in the table
_SCALE_CAPTION = (
    "Ability: the score that a model would have on all cases here, its own where it has them and elsewhere what the "
    "scores of the others lead to expect. On these cases: only what was not answered is in doubt; a model that "
    "answered everything has its plain mean. Cases of the kind: what other cases could have given; ranks and tie "
    "groups are made from it."
)


def ranking(report: Report) -> Section:
    """The section: models with their intervals and tie groups (LiveMedBench, Figure 4)."""
    rows = []
    for model in report.models:
        overall = model.overall
        if overall.value is not None:
            rows.append((model.label, overall.value, overall.low, overall.high))
    figure = missing(_NO_SCORE)
    if rows:
        note = f"{report.table.metric.value} score in %, with 95 % intervals"
        figure = picture(report.marked("Overall score"), note, rows)
    fresh = report.render("fresh.html")
    heads = [f"*{name}, %" for name, _ in beside_rows(report.table, report.models[0])]
    drawn = report.render(
        "ranking.html",
        unpublishable=unpublishable,
        beside_heads=heads,
        beside_rows=beside_rows,
    )
    return Section(
        "ranking",
        "Ranking",
        [soft(_RANKING), fresh, figure, drawn],
    )


def pairs(report: Report) -> Section:
    """The section: every pair on the cases that both are scored on."""
    part = missing(ONE_RUN)
    if report.table.comparisons:
        part = report.render("pairs.html")
    return Section("pairs", "Pairs", [part])


def one_scale(report: Report) -> Section:
    """The section: models that answered differing cases, and what cases and criteria tell of them."""
    table = abilities_of(report.table)
    parts = [soft(_SCALE_CAPTION)]
    if table.scale.why:
        parts.append(missing(table.scale.why.capitalize() + "."))
    drawn = report.render(
        "scale.html",
        abilities=table,
        plain={model.label: model.overall for model in report.models},
        suspects=table.suspects[:MOST_SUSPECTS],
    )
    return Section("scale", "One scale", [*parts, drawn])


_OWN = ("month", "specialty", "theme")
"""The kinds of slices with a section that is always there."""


def by_value(
    report: Report,
    kind: str,
) -> dict[str, list[ScoreEstimate | None]]:
    """Each value of a kind of slice, in order, with an estimate for each model, in the report's order."""
    values: dict[str, list[ScoreEstimate | None]] = {}
    for place, model in enumerate(report.models):
        for value, estimate in model.slices.get(kind, {}).items():
            row = values.setdefault(value, [None] * len(report.models))
            row[place] = estimate
    return {value: values[value] for value in sorted(values, key=slice_order)}


def other_slices(report: Report) -> Iterator[Section]:
    """The sections of the kinds of slices that have none in `SECTIONS`."""
    for kind in (*SLICES, AXIS):
        if kind not in _OWN and by_value(report, kind):
            name = f"by-{kind.replace(' ', '-')}"
            yield slices(report, kind, name, f"By {kind}")


def slices(
    report: Report,
    kind: str,
    name: str,
    title: str,
) -> Section:
    """The section of a kind of slice: a heat map of specialties and themes (LiveMedBench, Figures 1 and 5)."""
    values = by_value(report, kind)
    part = missing(f"No scored case names a {kind}.")
    if values:
        part = report.render("slices.html", kind=kind, values=values)
    return Section(name, title, [part])


_CONTAMINATION = "Contamination"
_NO_CUTOFFS = (
    "No cutoff of any of these models is known, so no drop is claimed. Write each model's cutoff and where it is "
    'stated into config/models.toml ([candidates."MODEL"]: cutoff, cutoff_source, confidence, or released).'
)

_NO_DROP = "No model has cases on both sides of its cutoff: take cases from before and after it to see a drop."
_DROPS = (
    "Mean score up to each model's cutoff less that after it, on disjoint sets, in points of 100; above 0: "
    "worse on what the model cannot have seen; n before / after."
)
_NO_ARMS = "Whether rewriting hides memorisation is unknown: no model was also run on the threads' own words."


def contamination(report: Report) -> Section:
    """The section: drops, differences in differences, placebo dates, adjusted mixes, the paper's own figure."""
    table = report.contamination
    if table is None:
        return Section("contamination", _CONTAMINATION, [missing(_NO_CUTOFFS)])
    caption = missing(_NO_DROP)
    if any(model.drop and model.drop.difference is not None for model in table.models):
        caption = soft(_DROPS)
    parts = [caption, report.render("contamination.html")]
    for model in table.models:
        parts += [soft(f"{model.label}: {note}.") for note in model.notes]
    if not table.arms:
        parts.append(soft(_NO_ARMS))
    return Section("contamination", _CONTAMINATION, parts)


MOST_LISTED = 10
"""The most criteria that the table of each sign lists."""
_NO_CRITERION = "No criterion is graded: nothing is known of what is met."


@dataclass
class CriterionCount:
    """A criterion and how many of the models that were graded on it met it."""

    case: EvaluationCase
    criterion: EvaluationCriterion
    met: int = 0
    graded: int = 0

    @property
    def share(self) -> float:
        """met / graded."""
        return self.met / self.graded


def met_by_criterion(report: Report) -> list[CriterionCount]:
    """Every criterion that any model was graded on."""
    rated: dict[tuple[str, str], CriterionCount] = {}
    for model in report.models:
        for score in model.cases:
            for criterion in score.case.criteria:
                met = score.met.get(criterion.id)
                if met is not None:
                    key = (score.case_id, criterion.id)
                    fresh = CriterionCount(score.case, criterion)
                    count = rated.setdefault(key, fresh)
                    count.met += met
                    count.graded += 1
    return list(rated.values())


def criteria(report: Report) -> Section:
    """The section: positive criteria that the smallest share of models met, negative ones that the largest share met;
    errors by axis (LiveMedBench, Table 3)."""
    rated = met_by_criterion(report)
    if not rated:
        return Section("criteria", "Criteria", [missing(_NO_CRITERION)])
    # Among equal shares, the most points first.
    rated.sort(key=lambda row: (-abs(row.criterion.points), row.case.case_id))
    positive = [row for row in rated if row.criterion.points > 0]
    harms = [row for row in rated if row.criterion.points < 0 and row.met]
    positive.sort(key=lambda row: row.share)
    harms.sort(key=lambda row: -row.share)
    lists = report.render(
        "criteria.html",
        least=positive[:MOST_LISTED],
        harms=harms[:MOST_LISTED],
        rated=rated,
    )
    return Section("criteria", "Criteria", [lists, report.render("axes.html")])


_COSTS = (
    "Of the answers, without their grading; those that failed count as nothing. Unknown: an answer's tokens or price "
    "are not on record, as of imported answers, or of a model without a price."
)


def costs(report: Report) -> Section:
    """The section: tokens and money by model; what is not on record is unknown."""
    names = ("input_tokens", "output_tokens", "cost_usd")
    rows = []
    for model in report.models:
        rows.append((model.label, [spent_on(model.run, name) for name in names]))
    drawn = report.render("costs.html", rows=rows)
    return Section("costs", "Cost and tokens", [soft(_COSTS), drawn])


_ALIKE = "How alike the models are"


def overlap(report: Report) -> Section:
    """The section: shared worst cases, and correlations over themes and specialties (Figures 16 to 18)."""
    if report.worst is None:
        return Section("overlap", _ALIKE, [missing(ONE_RUN)])
    parts = [_worst(report, report.worst)]
    parts += [_profile(report, profiles) for profiles in report.profiles]
    return Section("overlap", _ALIKE, parts)


def _worst(report: Report, worst: WorstCases) -> Markup:
    """How far the models' worst cases overlap."""
    if not worst.k:
        return missing(
            "The models have too few scored cases in common for worst cases to be compared."
        )
    pairs = worst.jaccard[np.tril_indices(len(worst.jaccard), -1)]
    mean = f"; the mean over {len(pairs)} pairs is {coefficient(float(pairs.mean()))}"
    caption = (
        f"The {worst.k} lowest cases of each model among the {worst.common} that all are scored on; by chance two "
        f"such sets share {coefficient(worst.by_chance)}{mean}. No interval: a count of just these."
    )
    return soft(caption) + report.render(
        "matrix.html",
        title=f"Jaccard overlap of the bottom {worst.k}",
        labels=[model.label for model in report.models],
        rows=worst.jaccard,
        least=0,
        tooltip=coefficient,
    )


def _profile(report: Report, profiles: Profiles) -> Markup:
    """Correlations between the values of a kind of slice."""
    n = len(report.models)
    if len(profiles.values) < 2 or np.isnan(profiles.between_values).all():
        return missing(
            f"No correlation by {profiles.kind}: it needs three models or more, and two values with at least 5 "
            f"scored cases of every model; here are {n} models and {len(profiles.values)} such values."
        )
    few = "; so few say little" if n < 6 else ""
    caption = soft(
        f"Pearson's r over {n} models' mean scores{few}; the 95 % interval of each (Fisher's z, n = {n} models) "
        "is in the tooltip."
    )
    if profiles.left_out:
        names = ", ".join(profiles.left_out)
        caption += soft(f"Left out, for too few scored cases: {names}.")
    return caption + report.render(
        "matrix.html",
        title=f"Correlation by {profiles.kind}",
        labels=profiles.values,
        rows=profiles.between_values,
        least=-1,
        tooltip=lambda r: f"{r:.3f}{fisher_interval(r, n)}",
    )


def fisher_interval(r: float, n: int) -> str:
    """The 95 % interval of Pearson's r by Fisher's z, and n, as text; only n if n < 4 or r is 1 or -1."""
    if n < 4 or abs(r) > 1 - 1e-12:
        return f" (n={n})"
    z, half = math.atanh(r), 1.959964 / math.sqrt(n - 3)
    return f" ({math.tanh(z - half):.3f} to {math.tanh(z + half):.3f}, n={n})"


_NO_META = (
    "The grader was not held against people. Run medlive eval meta RUN --human FILE --json > meta.json, and give "
    "that file to this report with --meta."
)
_LENGTH = (
    "Characters of an answer against its score. Partial: Pearson's r given the model and the case, so that neither "
    "long-winded models nor questions that need much count (ClinConsensus, Table 11). A score that pays for length "
    "has a high one; the core score is there to be compared."
)


def _from_template(
    name: str,
    title: str,
    template: str,
    caption: str = "",
) -> Callable[[Report], Section]:
    """Return a function that makes a section from a template alone."""

    def make(report: Report) -> Section:
        drawn = report.render(template, causes=tuple(RootCause))
        return Section(name, title, [soft(caption), drawn] if caption else [drawn])

    return make


def reliability(report: Report) -> Section:
    """How far graders agree with people; each table says what its meta.json overrode too."""
    parts = []
    for meta in report.metas:
        overridden = (*report.table.overridden, *meta.overridden)
        parts.append(
            render(
                "reliability.html",
                meta=meta,
                overridden=overridden,
            )
        )
    title = "Reliability of the grader"
    return Section("reliability", title, parts or [missing(_NO_META)])


SECTIONS: tuple[Callable[[Report], Section], ...] = (
    ranking,
    pairs,
    one_scale,
    _from_template("length", "Length of answers", "length.html", _LENGTH),
    _from_template("missing", "What is missing", "rates.html"),
    partial(slices, kind="month", name="months", title="Over time"),
    contamination,
    _from_template("books", "Open and closed book", "books.html"),
    partial(slices, kind="specialty", name="specialties", title="By specialty"),
    partial(slices, kind="theme", name="themes", title="By theme"),
    criteria,
    costs,
    _from_template("causes", "Root causes", "causes.html"),
    reliability,
    overlap,
)
"""The functions that make the first page's sections, in order; `other_slices` come after them."""
