"""Means with intervals and bounds, overall and by slice, for all models at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from medlive.evaluation.model import (
    EvaluationCase,
    EvaluationCriterion,
    cluster_numbers,
)
from medlive.evaluation.scoring.metrics import MOST, CaseScore, Metric
from medlive.evaluation.scoring.published import published_mean
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import (
    Comparison,
    Draws,
    Estimate,
    Floats,
    Resampling,
    Standing,
    bootstrap_groups,
    bootstrap_ratios,
    bounds_of,
    cluster_counts,
    cluster_sums,
    known_or_none,
    spread_of,
    tie_groups,
    too_few_for_mean,
)
from medlive.statistics.intervals import mean_bounds, too_few

Places = NDArray[np.int_]

FEW: Final = 30
"""Slices with fewer cases are greyed out."""

SLICES: Final[Mapping[str, Callable[[EvaluationCase], str | None]]] = {
    "month": lambda case: case.month,
    "theme": lambda case: case.theme,
    "specialty": lambda case: case.specialty,
    "language": lambda case: case.language or None,
    "source": lambda case: case.source,
    "first release": lambda case: case.first_release,
    "difficulty": lambda case: case.difficulty,
    "dialogue register": lambda case: case.dialogue_register,
}
AXIS: Final = "axis"
"""Slices that score cases only by one axis's criteria; cases without positive points on it are left out."""
AXES_DIFFER: Final = (
    "Axes cannot be compared with one another: an answer that says nothing errs on every criterion that earns points "
    "and on no penalty, and axes differ in how many of theirs are penalties. Compare models within an axis."
)
"""What a reader of figures by axis must know."""
CUTOFF: Final = "cutoff"
"""Slices of a model's cases by its cutoff: `UP_TO` and `AFTER`."""
UP_TO: Final = "up to the cutoff"
AFTER: Final = "after the cutoff"
_TIERS: Final = ("low", "medium", "high", UP_TO, AFTER)
KINDS: Final = (*SLICES, AXIS, CUTOFF)
"""Every kind of slice, in the order of a table."""


def slice_order(value: str) -> tuple[int, str]:
    """The key that puts the values of a kind of slice in order: tiers as they rise, a cutoff's sides, else by name."""
    return (_TIERS.index(value) if value in _TIERS else -1, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEstimate(Estimate):
    """A mean with its 95 % interval and its bounds over ungraded and unanswered cases."""

    least: float
    most: float
    of: int
    """The number of cases in the bounds: n and those without a point score."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW

    def rank(self, name: str) -> tuple[bool, float, str]:
        """The key that puts models in order, the best first; those without a mean last, equals by name."""
        return self.value is None, -(self.value or 0.0), name

    def row(self) -> dict[str, Any]:
        """The JSON form."""
        names = ("n", "low", "high", "least", "most", "of", "why")
        return {"mean": self.value} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Slice:
    """One value of one kind of slice."""

    kind: str
    value: str
    estimate: ScoreEstimate

    def row(self) -> dict[str, Any]:
        """The JSON form."""
        estimate = self.estimate.row()
        return {"kind": self.kind, "value": self.value, "estimate": estimate}


def axis_rows(axes: Mapping[str, Estimate]) -> list[dict[str, Any]]:
    """The JSON form of errors by axis."""
    rows = []
    for axis, rate in axes.items():
        errors = round((rate.value or 0.0) * rate.n)
        row = {"axis": axis, "n": rate.n, "errors": errors}
        rows.append(row | {"low": rate.low, "high": rate.high, "why": rate.why})
    return rows


def standings_of(
    overall: Mapping[str, ScoreEstimate], comparisons: Sequence[Comparison]
) -> dict[str, Standing]:
    """The standing of each model that has a mean."""
    means: dict[str, float] = {}
    for name, estimate in overall.items():
        if estimate.value is not None:
            means[name] = estimate.value
    return {standing.name: standing for standing in tie_groups(means, comparisons)}


def cases_by_id(
    scored: Sequence[Sequence[CaseScore]],
) -> dict[str, EvaluationCase]:
    """Every model's cases in the order of their first mention, each as the first model has it."""
    by_id: dict[str, EvaluationCase] = {}
    for cases in scored:
        for score in cases:
            by_id.setdefault(score.case.case_id, score.case)
    return by_id


def matrix(scored: Sequence[Sequence[CaseScore]]) -> Floats:
    """(cases as `cases_by_id` x models): scores, NaN where there is none."""
    rows = {case_id: row for row, case_id in enumerate(cases_by_id(scored))}
    values = np.full((len(rows), len(scored)), np.nan)
    for column, own in enumerate(scored):
        for case in own:
            if case.score is not None:
                values[rows[case.case.case_id], column] = case.score
    return values


def estimate_means(
    points: Floats,
    groups: Places | None = None,
    count: int = 1,
    *,
    clips_mean: bool = False,
    **how: Unpack[Resampling],
) -> list[list[ScoreEstimate]]:
    """The mean scores of items by group and model.

    Args:
        points: (3 x items x models): scores and their bounds, NaN for no score, and where the bounds are not over it.
        groups: Each item's, from 0, or -1 for none; None: all are in one.
        count: How many groups there are.
        clips_mean: Whether means are clipped to [0, 1].
        how: How items are drawn.
    """
    if groups is None:
        groups = np.zeros(points.shape[1], dtype=np.int_)
    unit = (0.0, 1.0) if clips_mean else (-np.inf, np.inf)
    drawn = bootstrap_groups(points[0], groups, count, **how)
    clusters = how.get("clusters")
    estimates = []
    for group in range(count):
        rows = np.flatnonzero(groups == group)
        own = points[:, rows]
        n = (~np.isnan(own)).sum(axis=1)
        mean, least, most = np.clip(
            np.nansum(own, axis=1) / np.maximum(n, 1), *unit
        ).tolist()
        places = None if clusters is None else clusters[rows]
        ends = np.clip(bounds_of(own[0], drawn[:, group], places), *unit)
        reasons = too_few_for_mean(own[0], places)
        of_models = []
        for model, known in enumerate(n[0].tolist()):
            estimate = ScoreEstimate(
                value=mean[model] if known else None,
                low=known_or_none(ends[0, model]),
                high=known_or_none(ends[1, model]),
                n=known,
                why=reasons[model] if known else "",
                least=least[model],
                most=most[model],
                of=int(n[1, model]),
            )
            of_models.append(estimate)
        estimates.append(of_models)
    return estimates


class ScoreGrid:
    """Every case's score by every model, and the estimates that one set of draws gives of them."""

    def __init__(
        self,
        scored: Sequence[Sequence[CaseScore]],
        metric: Metric,
        **draws: Unpack[Draws],
    ) -> None:
        """`scored` holds each model's cases, no case twice."""
        self._scored = scored
        self._published = metric is Metric.PUBLISHED
        self._clips_mean = not metric.clips_cases
        self._cases = cases_by_id(scored)
        clusters = cluster_numbers(self._cases.values())
        self.how: Resampling = {**draws, "clusters": clusters}
        self._places = {case_id: place for place, case_id in enumerate(self._cases)}
        self._points = np.full((3, len(self._cases), len(scored)), np.nan)
        self._has_case = np.zeros(self._points.shape[1:], dtype=np.bool_)
        for column, own in enumerate(scored):
            rows = [self._places[score.case.case_id] for score in own]
            points = [self._points_of(score) for score in own]
            self._has_case[rows, column] = True
            self._points[:, rows, column] = np.array(points).reshape(-1, 3).T

    def _points_of(self, case: CaseScore) -> tuple[float, float, float]:
        """A score with its bounds."""
        score = np.nan if case.score is None else case.score
        bounded = not case.unscorable
        if self._published:
            bounded = case.non_finite is None
        return (score, case.low, case.high) if bounded else (score, np.nan, np.nan)

    @property
    def score(self) -> Floats:
        """(items x models), NaN where a model has no score for an item."""
        return np.asarray(self._points[0])

    @property
    def common(self) -> int:
        """The items that every model has a score for."""
        return int((~np.isnan(self.score)).all(axis=1).sum())

    def overall(self) -> list[ScoreEstimate]:
        """Each model's estimate over all its cases."""
        everything = np.zeros(len(self._cases), dtype=np.int_)
        return self._whole_cases(range(len(self._scored)), everything, 1)[0]

    def _whole_cases(
        self, models: Sequence[int], groups: Places, count: int
    ) -> list[list[ScoreEstimate]]:
        """By group and model."""
        out = self._estimates(self._points[:, :, models], groups, count)
        for column, place in enumerate(models if self._published else ()):
            # The published script sums in its own order and includes non-finite figures.
            figures: list[list[float]] = [[] for _ in range(count)]
            for score in self._scored[place]:
                group = groups[self._places[score.case.case_id]]
                if group >= 0 and score.figure is not None:
                    figures[group].append(score.figure)
            for of_models, own in zip(out, figures, strict=True):
                of_models[column] = _published(of_models[column], own)
        return out

    def slices(self, cutoffs: Sequence[Cutoff | None]) -> list[list[Slice]]:
        """Each model's slices, in the order of `KINDS` and of their values."""
        out: list[list[Slice]] = [[] for _ in self._scored]
        cases, everybody = self._cases.values(), range(len(self._scored))
        for kind, value_of in SLICES.items():
            self._add(out, kind, [value_of(case) for case in cases], everybody)
        for axis, criteria in self._axes().items():
            (estimates,) = self._estimates(self._axis_points(criteria))
            for own, estimate in zip(out, estimates, strict=True):
                if estimate.of:
                    own.append(Slice(AXIS, axis, estimate))
        for cutoff in dict.fromkeys(filter(None, cutoffs)):
            sides: list[str | None] = []
            for case in cases:
                seen = cutoff.before(case.post_time, case.month)
                sides.append(None if seen is None else UP_TO if seen else AFTER)
            models = [place for place, own in enumerate(cutoffs) if own == cutoff]
            self._add(out, CUTOFF, sides, models)
        return out

    def _add(
        self,
        out: list[list[Slice]],
        kind: str,
        values: Sequence[str | None],
        models: Sequence[int],
    ) -> None:
        """Add a kind of slice to models, by its value of each case."""
        names = sorted({v for v in values if v is not None}, key=slice_order)
        places: dict[str | None, int] = {name: at for at, name in enumerate(names)}
        groups = np.array([places.get(v, -1) for v in values], dtype=np.int_)
        estimates = self._whole_cases(models, groups, len(names))
        for group, of_models in enumerate(estimates):
            has_cases = self._has_case[groups == group].any(axis=0)
            for place, estimate in zip(models, of_models, strict=True):
                if has_cases[place]:
                    out[place].append(Slice(kind, names[group], estimate))

    @cached_property
    def _criteria(self) -> "_Criteria":
        """All criteria, each as often as runs have its case in another form."""
        starts: dict[int, int] = {}
        rows: list[int] = []
        criteria: list[EvaluationCriterion] = []
        for own in self._scored:
            for score in own:
                if id(score.case) not in starts:
                    starts[id(score.case)] = len(criteria)
                    criteria += score.case.criteria
                    place = self._places[score.case.case_id]
                    rows += [place] * len(score.case.criteria)
        points = np.array([criterion.points for criterion in criteria], dtype=float)
        weights = np.zeros((len(criteria), len(self._scored)))
        verdicts = np.full(weights.shape, np.nan)
        for column, own in enumerate(self._scored):
            places: list[int] = []
            met: list[bool | None] = []
            for score in own:
                start, of_case = starts[id(score.case)], score.case.criteria
                places += range(start, start + len(of_case))
                met += [score.met.get(criterion.id) for criterion in of_case]
            weights[places, column] = points[places]
            verdicts[places, column] = np.array(met, dtype=float)
        axes = np.array([criterion.axis or "" for criterion in criteria], dtype=np.str_)
        return _Criteria(np.array(rows, dtype=np.int_), axes, weights, verdicts)

    def _axes(self) -> dict[str, "_Criteria"]:
        """The criteria of each axis, by its name."""
        criteria, axes = self._criteria, {}
        for axis in np.unique(criteria.axis).tolist():
            own = criteria.axis == axis
            axes[axis] = _Criteria(*(column[own] for column in criteria))
        axes.pop("", None)
        return axes

    def _axis_points(self, criteria: "_Criteria") -> Floats:
        """`case_score` over an axis's criteria alone, for all cases and models."""
        weights, verdicts = criteria.weights, criteria.verdicts
        # A criterion of another run's form of the case has no weight here.
        ungraded = np.isnan(verdicts) & (weights != 0.0)
        most = self._by_item(criteria, np.maximum(weights, 0.0))
        sure = self._by_item(criteria, np.where(verdicts == 1.0, weights, 0.0))
        doubtful = np.where(ungraded, weights, 0.0)
        gain = self._by_item(criteria, np.maximum(doubtful, 0.0))
        loss = self._by_item(criteria, np.minimum(doubtful, 0.0))
        least, greatest = (-MOST, MOST) if self._clips_mean else (0.0, 1.0)
        # Sums and quotients of large points may overflow.
        with np.errstate(all="ignore"):
            sums = np.stack([sure, sure + loss, sure + gain])
            points = np.clip(sums / most, least, greatest)
        if not self._published:
            missing = self._by_item(criteria, ungraded.astype(np.float64))
            points[0][missing > 0] = np.nan
        points[:, most <= 0] = np.nan
        return np.asarray(points)

    def axis_errors(self) -> list[dict[str, Estimate]]:
        """How often each axis's criteria went wrong, by model: a positive one unmet, or a negative one met.

        The share of the graded ones, which n counts; axes are in the order of their names.
        """
        errors: list[dict[str, Estimate]] = [{} for _ in self._scored]
        for axis, criteria in self._axes().items():
            known = (~np.isnan(criteria.verdicts)).astype(np.float64)
            # NaN equals neither, so ungraded criteria are not errors.
            mistakes = criteria.verdicts == (criteria.weights < 0)
            wrong = self._by_item(criteria, mistakes.astype(np.float64))
            rates = self._rates(wrong, self._by_item(criteria, known))
            for of_model, rate in zip(errors, rates, strict=True):
                if rate.n:
                    of_model[axis] = rate
        return errors

    def _rates(self, hits: Floats, trials: Floats) -> list[Estimate]:
        """Σ hits / Σ trials of each model, both (items x models); items are drawn with all their trials."""
        everything = np.zeros(len(trials), dtype=np.int_)
        drawn = bootstrap_ratios(hits, trials, everything, 1, **self.how)[:, 0]
        totals = trials.sum(axis=0)
        rates = hits.sum(axis=0) / np.maximum(totals, 1)
        clusters = self.how.get("clusters")
        counts = cluster_counts(trials > 0, clusters)
        low, high = mean_bounds(rates, spread_of(drawn), counts)
        rarer = np.where(rates <= 0.5, hits, trials - hits)
        reasons = too_few(cluster_sums(rarer, clusters), counts)
        estimates = []
        for place, why in enumerate(reasons):
            estimate = Estimate(
                value=float(rates[place]),
                low=None if why else float(low[place]),
                high=None if why else float(high[place]),
                n=int(totals[place]),
                why=why,
            )
            estimates.append(estimate)
        return estimates

    def _by_item(self, criteria: "_Criteria", values: Floats) -> Floats:
        """Sums of criteria by item: (items x models)."""
        items = len(self._cases)
        sums = [np.bincount(criteria.row, column, items) for column in values.T]
        return np.stack(sums, axis=1)

    def _estimates(
        self, points: Floats, groups: Places | None = None, count: int = 1
    ) -> list[list[ScoreEstimate]]:
        clips = self._clips_mean
        return estimate_means(points, groups, count, clips_mean=clips, **self.how)


class _Criteria(NamedTuple):
    """Criteria in arrays."""

    row: Places
    """The item of each."""
    axis: NDArray[np.str_]
    """"" for none."""
    weights: Floats
    """(criteria x models): points, 0 for a model without the case."""
    verdicts: Floats
    """(criteria x models): 1 met, 0 not met, NaN ungraded or unanswered."""


def _published(estimate: ScoreEstimate, figures: Sequence[float]) -> ScoreEstimate:
    """Return the estimate with the published script's mean.

    A non-finite figure alone determines the mean: there is no interval, and no verdict would change it.
    """
    if not figures:
        return estimate
    n, mean = len(figures), published_mean(figures)
    if n != estimate.n:
        return ScoreEstimate(value=mean, n=n, least=mean, most=mean, of=n)
    least, most = min(estimate.least, mean), max(estimate.most, mean)
    return replace(estimate, value=mean, least=least, most=most)
