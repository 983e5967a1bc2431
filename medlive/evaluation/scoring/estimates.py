"""Means with intervals and bounds, overall and by slice, for all models at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from medlive.evaluation.model import EvaluationCase, cluster_numbers
from medlive.evaluation.scoring.metrics import MOST, CaseScore, Metric
from medlive.evaluation.scoring.published import published_mean
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import (
    Comparison,
    Floats,
    Standing,
    bootstrap_groups,
    bootstrap_ratios,
    bounds_of,
    cluster_counts,
    cluster_sums,
    support,
    tie_groups,
)
from medlive.statistics.intervals import mean_bounds, support_of

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


@dataclass(frozen=True, slots=True)
class ScoreEstimate:
    """A mean with its 95 % interval and its bounds over ungraded and unanswered cases."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    least: float
    most: float
    of: int
    """The number of cases in the bounds: n and those without a point score."""
    why: str = ""
    """Why a mean has no interval; empty where it has one, or there is no mean."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW

    def rank(self, name: str) -> tuple[bool, float, str]:
        """The key that puts models in order, the best first; those without a mean last, equals by name."""
        return self.mean is None, -(self.mean or 0.0), name


@dataclass(frozen=True, slots=True)
class Slice:
    """One value of one kind of slice."""

    kind: str
    value: str
    estimate: ScoreEstimate


@dataclass(frozen=True, slots=True)
class AxisErrors:
    """How often an axis's criteria went wrong: a positive one unmet, or a negative one met."""

    axis: str
    n: int
    errors: int
    low: float | None = None
    """The 95 % interval of the rate; cases are drawn, with all their criteria."""
    high: float | None = None
    why: str = ""
    """Why there is no interval."""

    @property
    def rate(self) -> float | None:
        """errors / n."""
        return self.errors / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Models with the same cases: they share the groups of a slice, and their criteria stand in one array."""

    models: list[int]
    cases: list[EvaluationCase]
    rows: Places
    """Of each case the item."""
    axes: list[str]
    row: Places
    """Of each criterion the item."""
    points: Floats
    axis: Places
    """Of each criterion its axis's place, -1 for none."""
    verdicts: Floats
    """(criteria x models): 1 met, 0 not met, NaN ungraded or unanswered."""


def _batch(
    models: list[int], scored: Sequence[Sequence[CaseScore]], rows: Places
) -> _Batch:
    cases = [score.case for score in scored[models[0]]]
    criteria = [criterion for case in cases for criterion in case.criteria]
    axes = sorted({c.axis for c in criteria if c.axis is not None})
    verdicts = []
    for model in models:
        own: list[bool | None] = []
        for score in scored[model]:
            own += [score.met.get(criterion.id) for criterion in score.case.criteria]
        verdicts.append(own)
    places = [axes.index(c.axis) if c.axis is not None else -1 for c in criteria]
    return _Batch(
        models=models,
        cases=cases,
        rows=rows,
        axes=axes,
        row=np.repeat(rows, [len(case.criteria) for case in cases]),
        points=np.array([c.points for c in criteria], dtype=np.float64),
        axis=np.array(places, dtype=np.int_),
        verdicts=np.array(verdicts, dtype=np.float64).T,
    )


def standings_of(
    overall: Mapping[str, ScoreEstimate], comparisons: Sequence[Comparison]
) -> dict[str, Standing]:
    """The standing of each model that has a mean."""
    means: dict[str, float] = {}
    for name, estimate in overall.items():
        if estimate.mean is not None:
            means[name] = estimate.mean
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


def _side(cutoff: Cutoff, case: EvaluationCase) -> str | None:
    seen = cutoff.before(case.post_time, case.month)
    if seen is None:
        return None
    return UP_TO if seen else AFTER


class ScoreGrid:
    """Every case's score by every model, and the estimates that one set of draws gives of them."""

    def __init__(
        self,
        scored: Sequence[Sequence[CaseScore]],
        metric: Metric,
        draws: int,
        seed: int,
    ) -> None:
        """`scored` holds each model's cases, no case twice."""
        self._scored = scored
        self._published = metric is Metric.PUBLISHED
        self._clips_mean = not metric.clips_cases
        cases = cases_by_id(scored)
        order = {case_id: place for place, case_id in enumerate(cases)}
        self.clusters = cluster_numbers(cases.values())
        """Of each item; None: each is its own."""
        self._how: dict[str, Any] = {
            "draws": draws,
            "seed": seed,
            "clusters": self.clusters,
        }
        self._rows: list[Places] = []
        for own in scored:
            places = [order[score.case.case_id] for score in own]
            self._rows.append(np.array(places, dtype=np.int_))
        # Scores and their bounds, NaN for no score, and for a case that the bounds are not over.
        self._points = np.full((3, len(order), len(scored)), np.nan)
        batches: dict[tuple[int, ...], list[int]] = {}
        for place, (own, rows) in enumerate(zip(scored, self._rows, strict=True)):
            self._points[:, rows, place] = self._points_of(own)
            batches.setdefault(tuple(id(c.case) for c in own), []).append(place)
        self._batches = [
            _batch(models, scored, self._rows[models[0]]) for models in batches.values()
        ]

    def _points_of(self, cases: Sequence[CaseScore]) -> Floats:
        """(3 x cases): one model's scores, and their lower and upper bounds."""
        scores: list[float] = []
        lows: list[float] = []
        highs: list[float] = []
        for case in cases:
            if self._published:
                bounded = case.non_finite is None
            else:
                bounded = not case.unscorable
            scores.append(np.nan if case.score is None else case.score)
            lows.append(case.low if bounded else np.nan)
            highs.append(case.high if bounded else np.nan)
        return np.array([scores, lows, highs], dtype=np.float64)

    @property
    def score(self) -> Floats:
        """(items x models), NaN where a model has no score for an item."""
        return np.asarray(self._points[0])

    def overall(self) -> list[ScoreEstimate]:
        """Each model's estimate over all its cases."""
        return self._whole_cases(
            list(range(len(self._scored))), np.zeros(len(self.score), dtype=np.int_), 1
        )[0]

    def slices(self, cutoffs: Sequence[Cutoff | None]) -> list[list[Slice]]:
        """Each model's slices, in the order of `KINDS` and of their values."""
        out: list[list[Slice]] = [[] for _ in self._scored]
        for batch in self._batches:
            for kind, value_of in SLICES.items():
                self._add(out, batch, batch.models, kind, map(value_of, batch.cases))
            self._add_axes(out, batch)
            by_cutoff: dict[Cutoff, list[int]] = {}
            for place in batch.models:
                if (cutoff := cutoffs[place]) is not None:
                    by_cutoff.setdefault(cutoff, []).append(place)
            for cutoff, models in by_cutoff.items():
                sides = [_side(cutoff, case) for case in batch.cases]
                self._add(out, batch, models, CUTOFF, sides)
        return out

    def _add(
        self,
        out: list[list[Slice]],
        batch: _Batch,
        models: list[int],
        kind: str,
        by_case: Iterable[str | None],
    ) -> None:
        values = list(by_case)
        names = sorted(
            {value for value in values if value is not None}, key=slice_order
        )
        places: dict[str | None, int] = {
            name: place for place, name in enumerate(names)
        }
        groups = np.full(len(self.score), -1, dtype=np.int_)
        groups[batch.rows] = [places.get(value, -1) for value in values]
        estimates = self._whole_cases(models, groups, len(names))
        for name, of_models in zip(names, estimates, strict=True):
            for place, estimate in zip(models, of_models, strict=True):
                out[place].append(Slice(kind, name, estimate))

    def _add_axes(self, out: list[list[Slice]], batch: _Batch) -> None:
        for number, axis in enumerate(batch.axes):
            points = self._axis_points(batch, np.flatnonzero(batch.axis == number))
            in_slice = ~np.isnan(points[1][:, 0])
            if in_slice.any():
                estimates = self._estimates(points, np.where(in_slice, 0, -1), 1)[0]
                for place, estimate in zip(batch.models, estimates, strict=True):
                    out[place].append(Slice(AXIS, axis, estimate))

    def _axis_points(self, batch: _Batch, own: Places) -> list[Floats]:
        """`case_score` over one axis's criteria alone, for all cases and models of a batch."""
        row, weight, verdicts = (
            batch.row[own],
            batch.points[own, None],
            batch.verdicts[own],
        )
        most = self._by_item(row, np.maximum(weight, 0.0))
        open_ = np.isnan(verdicts)
        sure = self._by_item(row, np.where(verdicts == 1.0, weight, 0.0))
        loss = self._by_item(row, np.where(open_, np.minimum(weight, 0.0), 0.0))
        gain = self._by_item(row, np.where(open_, np.maximum(weight, 0.0), 0.0))
        least, greatest = (-MOST, MOST) if self._clips_mean else (0.0, 1.0)
        # Sums and quotients of large points may overflow.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            points = [
                np.clip(total / most, least, greatest)
                for total in (sure, sure + loss, sure + gain)
            ]
        if not self._published:
            points[0][self._by_item(row, open_.astype(np.float64)) > 0] = np.nan
        for values in points:
            values[most[:, 0] <= 0] = np.nan
        return points

    def axis_errors(self) -> list[tuple[AxisErrors, ...]]:
        """Each model's errors by axis, sorted by its name."""
        out: list[list[AxisErrors]] = [[] for _ in self._scored]
        everything = np.zeros(len(self.score), dtype=np.int_)
        for batch in self._batches:
            for number, axis in enumerate(batch.axes):
                own = np.flatnonzero(batch.axis == number)
                verdicts, negative = batch.verdicts[own], batch.points[own, None] < 0
                graded = self._by_item(
                    batch.row[own], (~np.isnan(verdicts)).astype(np.float64)
                )
                # NaN equals neither, so ungraded criteria are not errors.
                wrong = self._by_item(
                    batch.row[own], (verdicts == negative).astype(np.float64)
                )
                drawn = bootstrap_ratios(wrong, graded, everything, 1, **self._how)
                rates = wrong.sum(axis=0) / np.maximum(graded.sum(axis=0), 1)
                counts = cluster_counts(graded > 0, self.clusters)
                ends = np.stack(mean_bounds(rates, drawn[:, 0].std(axis=0), counts))
                rarer = np.where(rates <= 0.5, wrong, graded - wrong)
                based_on = support_of(cluster_sums(rarer, self.clusters), counts)
                ends = np.where(based_on.enough(), ends, np.nan)
                reasons = based_on.reasons()
                totals = graded.sum(axis=0).astype(int)
                errors = wrong.sum(axis=0).astype(int)
                for column, place in enumerate(batch.models):
                    if totals[column]:
                        figures = AxisErrors(
                            axis=axis,
                            n=int(totals[column]),
                            errors=int(errors[column]),
                            low=_end(ends[0, column]),
                            high=_end(ends[1, column]),
                            why=reasons[column],
                        )
                        out[place].append(figures)
        return [tuple(figures) for figures in out]

    def _by_item(self, row: Places, values: Floats) -> Floats:
        """Sums of criteria's values by item: (items x columns)."""
        columns = [
            np.bincount(row, weights=column, minlength=len(self.score))
            for column in values.T
        ]
        return np.stack(columns, axis=1)

    def _whole_cases(
        self, models: list[int], groups: Places, count: int
    ) -> list[list[ScoreEstimate]]:
        """The estimates of whole cases' scores, by group and model."""
        out = self._estimates(
            [values[:, models] for values in self._points], groups, count
        )
        for column, place in enumerate(models if self._published else ()):
            # The published script sums in its own order and includes non-finite figures.
            figures: list[list[float]] = [[] for _ in range(count)]
            own = groups[self._rows[place]].tolist()
            for group, case in zip(own, self._scored[place], strict=True):
                if group >= 0 and case.figure is not None:
                    figures[group].append(case.figure)
            for of_models, figures_of in zip(out, figures, strict=True):
                of_models[column] = _published(of_models[column], figures_of)
        return out

    def _estimates(
        self, points: Sequence[Floats], groups: Places, count: int
    ) -> list[list[ScoreEstimate]]:
        """By group and column of `points`: scores and their bounds, each (items x columns)."""
        drawn = bootstrap_groups(points[0], groups, count, **self._how)
        out = []
        for group in range(count):
            rows = np.flatnonzero(groups == group)
            (n, mean), (total, least), (_, most) = (
                self._means(values[rows]) for values in points
            )
            clusters = None if self.clusters is None else self.clusters[rows]
            ends = np.stack(bounds_of(points[0][rows], drawn[:, group], clusters))
            ends = np.clip(ends, 0.0, 1.0) if self._clips_mean else ends
            reasons = support(points[0][rows], clusters).reasons()
            estimates = []
            for column in range(points[0].shape[1]):
                known = bool(n[column])
                estimate = ScoreEstimate(
                    n=int(n[column]),
                    mean=float(mean[column]) if known else None,
                    low=_end(ends[0, column]),
                    high=_end(ends[1, column]),
                    least=float(least[column]),
                    most=float(most[column]),
                    of=int(total[column]),
                    why=reasons[column] if known else "",
                )
                estimates.append(estimate)
            out.append(estimates)
        return out

    def _means(self, values: Floats) -> tuple[Places, Floats]:
        """n and the mean of what is known, along the first axis; 0 where nothing is."""
        n = (~np.isnan(values)).sum(axis=0)
        mean = np.nansum(values, axis=0) / np.maximum(n, 1)
        return n, np.clip(mean, 0.0, 1.0) if self._clips_mean else mean


def _end(bound: float) -> float | None:
    """An interval's end; None for a single cluster, or if no draw had a case."""
    return None if np.isnan(bound) else float(bound)


def _published(estimate: ScoreEstimate, figures: Sequence[float]) -> ScoreEstimate:
    """Return the estimate with the published script's mean.

    A non-finite figure alone determines the mean: there is no interval, and no verdict would change it.
    """
    if not figures:
        return estimate
    n, mean = len(figures), published_mean(figures)
    if n == estimate.n:
        return replace(
            estimate,
            mean=mean,
            least=min(estimate.least, mean),
            most=max(estimate.most, mean),
        )
    return ScoreEstimate(
        n=n, mean=mean, low=None, high=None, least=mean, most=mean, of=n
    )
