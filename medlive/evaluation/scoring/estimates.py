"""Mean scores with intervals and bounds, overall and by slice, for all models at once (`ScoreGrid`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np

from medlive.evaluation.model import (
    EvaluationCase,
    EvaluationCriterion,
    cluster_numbers,
)
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import (
    Draws,
    Resampling,
    bootstrap_groups,
    bootstrap_ratios,
    cluster_counts,
    cluster_sums,
    spread_over_draws,
)
from medlive.statistics.comparison import (
    Comparison,
    Standing,
    compare,
    tie_groups,
)
from medlive.statistics.contamination import POST, PRE, Sides
from medlive.statistics.estimate import Estimate, column_estimates, mean_estimates
from medlive.statistics.intervals import Floats, Places, mean_bounds, too_few

from .metrics import MOST, Metric, Scored
from .published import published_mean

FEW = 30
"""Figures of fewer cases are greyed out, or not computed."""

SLICES: Mapping[str, Callable[[EvaluationCase], str | None]] = {
    "month": lambda case: case.month,
    "theme": lambda case: case.theme,
    "specialty": lambda case: case.specialty,
    "language": lambda case: case.language or None,
    "source": lambda case: case.source,
    "first release": lambda case: case.first_release,
    "difficulty": lambda case: case.difficulty,
    "dialogue register": lambda case: case.dialogue_register,
}
AXIS = "axis"
"""Slices that score cases only by one axis's criteria; cases without positive points on it are left out."""
AXES_DIFFER = (
    "Axes cannot be compared with one another: an answer that says nothing errs on every criterion that earns points "
    "and on no penalty, and axes differ in how many of theirs are penalties. Compare models within an axis."
)
"""What a reader of figures by axis must know."""
CUTOFF = "cutoff"
"""Slices of a model's cases by its cutoff: `UP_TO` and `AFTER`."""
UP_TO = "up to the cutoff"
AFTER = "after the cutoff"
_TIERS = ("low", "medium", "high", UP_TO, AFTER)
KINDS = (*SLICES, AXIS, CUTOFF)
"""Every kind of slice, in the order of a table."""


def slice_order(value: str) -> tuple[int, str]:
    """The key that puts the values of a kind of slice in order: tiers as they rise, a cutoff's sides, else by name."""
    return (_TIERS.index(value) if value in _TIERS else -1, value)


def sides_of(
    cutoff: Cutoff | None,
    cases: Iterable[EvaluationCase],
) -> Sides:
    """`PRE` for a case up to the cutoff, `POST` for one after it, -1 where that is unknown."""
    sides = []
    for case in cases:
        seen = cutoff.before(case.post_time, case.month) if cutoff else None
        sides.append(-1 if seen is None else PRE if seen else POST)
    return np.array(sides, dtype=np.int_)


def rows_by(values: Iterable[str | None]) -> dict[str, Places]:
    """Value → the places where it is, values in the order of slices; None is left out."""
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        if value is not None:
            rows.setdefault(value, []).append(row)
    return {name: np.array(rows[name]) for name in sorted(rows, key=slice_order)}


@dataclass(frozen=True, kw_only=True)
class ScoreEstimate(Estimate):
    """A mean with its 95 % interval, and its bounds over all scores that ungraded and unanswered cases could have."""

    least: float | None
    most: float | None
    """`least` and `most`: the bounds; None without a case."""
    of: int
    """The number of cases in the bounds: n and those without a point score."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW

    def rank(
        self,
        name: str,
    ) -> tuple[bool, float, str]:
        """The key that puts models in order, the best first; those without a mean last, equals by name."""
        return self.value is None, -(self.value or 0.0), name

    def row(self) -> dict[str, Any]:
        """The JSON form."""
        row: dict[str, Any] = {"mean": self.value}
        for name in ("n", "low", "high", "least", "most", "of", "why"):
            row[name] = getattr(self, name)
        return row


Slices = dict[str, dict[str, ScoreEstimate]]
"""Kind → value → estimate, in the order of `KINDS` and of their values; only where a model has a case that can have a
score."""


def axis_rows(axes: Mapping[str, Estimate]) -> list[dict[str, Any]]:
    """The JSON form of errors by axis."""
    rows = []
    for axis, rate in axes.items():
        row = {
            "axis": axis,
            "n": rate.n,
            "errors": round((rate.value or 0.0) * rate.n),
            "low": rate.low,
            "high": rate.high,
            "why": rate.why,
        }
        rows.append(row)
    return rows


def cases_by_id(
    scored: Scored,
) -> dict[str, EvaluationCase]:
    """Every model's cases, each as the first model has it.

    In the models' own order where it is the same for all, else in that of their ids, so that draws of cases, and with
    them intervals and ties, do not depend on which model comes first.
    """
    by_id: dict[str, EvaluationCase] = {}
    orders = set()
    for cases in scored.values():
        orders.add(tuple(score.case_id for score in cases))
        for score in cases:
            by_id.setdefault(score.case_id, score.case)
    return by_id if len(orders) == 1 else dict(sorted(by_id.items()))


class ScoreGrid:
    """Every case's score by every model (an item is a case), and the estimates from one set of bootstrap draws.

    `labels` name the models; `cases` are those of all models, in the order of `cases_by_id`; `how` says how they are
    drawn.
    """

    def __init__(
        self,
        scored: Scored,
        metric: Metric,
        **draws: Unpack[Draws],
    ) -> None:
        self._scored = scored
        self.labels = list(scored)
        self._published = metric is Metric.PUBLISHED
        self._clips_mean = not metric.clips_cases
        by_id = cases_by_id(scored)
        self.cases = tuple(by_id.values())
        self.how: Resampling = {
            **draws,
            "clusters": cluster_numbers(self.cases),
        }
        self._places = {case_id: place for place, case_id in enumerate(by_id)}
        self._all = np.arange(len(self.cases))
        # Scores and their bounds, (3 x items x models).
        self._points = np.full(
            (3, len(self.cases), len(scored)),
            np.nan,
        )
        for column, own in enumerate(scored.values()):
            for case in own:
                self._points[:, self._places[case.case_id], column] = case.points

    @property
    def score(self) -> Floats:
        """(items x models), NaN where a model has no score for an item."""
        return np.asarray(self._points[0])

    @property
    def common(self) -> int:
        """How many items every model has a score for."""
        return int((~np.isnan(self.score)).all(axis=1).sum())

    def rank(
        self,
    ) -> tuple[dict[str, ScoreEstimate], list[Comparison], dict[str, Standing]]:
        """`overall`; every pair of models on the cases that both have a score for; each model's place, with ties."""
        overall = self.overall()
        comparisons = compare(self.labels, self.score, **self.how)
        means = {}
        for label, estimate in overall.items():
            if estimate.value is not None:
                means[label] = estimate.value
        return overall, comparisons, tie_groups(means, comparisons)

    def overall(self) -> dict[str, ScoreEstimate]:
        """Each model's estimate over all its cases; under the published metric its mean is the published script's."""
        (estimates,) = self._means(self._points, [self._all])
        overall = dict(zip(self.labels, estimates, strict=True))
        if self._published:
            for label, scores in self._scored.items():
                figures = [s.figure for s in scores if s.figure is not None]
                overall[label] = _published(overall[label], figures)
        return overall

    def _means(
        self,
        points: Floats,
        groups: Sequence[Places],
    ) -> Iterator[list[ScoreEstimate]]:
        """The mean scores of each group, by model.

        Args:
            points: (3 x items x models): scores, lower and upper bounds; NaN for no score, and for no bounds.
            groups: The items of each group, by their rows.
        """
        unit = (0.0, 1.0) if self._clips_mean else (-np.inf, np.inf)
        drawn = bootstrap_groups(points[0], groups, **self.how)
        clusters = self.how.get("clusters")
        for group, rows in enumerate(groups):
            own = points[:, rows]
            counts = (~np.isnan(own)).sum(axis=1)
            means = np.nansum(own, axis=1) / np.maximum(counts, 1)
            mean, least, most = np.clip(means, *unit).tolist()
            figures = mean_estimates(
                own[0],
                drawn[:, group],
                None if clusters is None else clusters[rows],
            )
            estimates = []
            for model, figure in enumerate(figures):
                fields = asdict(figure.clipped() if self._clips_mean else figure)
                fields["value"] = mean[model] if figure.n else None
                of = int(counts[1, model])
                estimate = ScoreEstimate(
                    **fields,
                    least=least[model] if of else None,
                    most=most[model] if of else None,
                    of=of,
                )
                estimates.append(estimate)
            yield estimates

    def slices(
        self,
        cutoffs: Mapping[str, Cutoff | None],
    ) -> dict[str, Slices]:
        """Each model's slices; `cutoffs` are the models', in the order of `labels`."""
        slices: list[Slices] = [{} for _ in self.labels]
        models: Sequence[int] = range(len(self.labels))
        for kind, value_of in SLICES.items():
            groups = rows_by(map(value_of, self.cases))
            self._add(slices, kind, groups, models)
        for axis, criteria in self._axes.items():
            (estimates,) = self._means(self._axis_points(criteria), [self._all])
            for own, estimate in zip(slices, estimates, strict=True):
                if estimate.of:
                    own.setdefault(AXIS, {})[axis] = estimate
        for cutoff in dict.fromkeys(filter(None, cutoffs.values())):
            sides = sides_of(cutoff, self.cases)
            names = [{PRE: UP_TO, POST: AFTER}.get(side) for side in sides]
            own_cutoffs = enumerate(cutoffs.values())
            models = [place for place, own in own_cutoffs if own == cutoff]
            self._add(slices, CUTOFF, rows_by(names), models)
        return dict(zip(self.labels, slices, strict=True))

    def _add(
        self,
        slices: list[Slices],
        kind: str,
        groups: Mapping[str, Places],
        models: Sequence[int],
    ) -> None:
        """Add a kind of slice to `slices` of these models; `groups` are the rows of each value's cases."""
        points = self._points[:, :, models]
        estimates = self._means(points, list(groups.values()))
        for value, of_models in zip(groups, estimates, strict=True):
            for model, estimate in zip(models, of_models, strict=True):
                if estimate.of:
                    slices[model].setdefault(kind, {})[value] = estimate

    @cached_property
    def _axes(self) -> dict[str, "_Criteria"]:
        """Axis → its criteria; where runs have a case in several forms, the criteria of each form."""
        starts: dict[int, int] = {}
        rows: list[int] = []
        criteria: list[EvaluationCriterion] = []
        for own in self._scored.values():
            for score in own:
                if id(score.case) not in starts:
                    starts[id(score.case)] = len(criteria)
                    criteria += score.case.criteria
                    place = self._places[score.case_id]
                    rows += [place] * len(score.case.criteria)
        weights = np.zeros((len(criteria), len(self.labels)))
        verdicts = np.full(weights.shape, np.nan)
        for column, own in enumerate(self._scored.values()):
            for score in own:
                start = starts[id(score.case)]
                for row, criterion in enumerate(score.case.criteria, start):
                    weights[row, column] = criterion.points
                    met = score.met.get(criterion.id)
                    if met is not None:
                        verdicts[row, column] = met
        items = np.array(rows, dtype=np.int_)
        names = np.array([criterion.axis or "" for criterion in criteria])
        axes = {}
        for axis in sorted(set(names.tolist()) - {""}):
            is_own = names == axis
            axes[axis] = _Criteria(
                items=items[is_own],
                weights=weights[is_own],
                verdicts=verdicts[is_own],
                n=len(self.cases),
            )
        return axes

    def _axis_points(self, criteria: "_Criteria") -> Floats:
        """`case_score` over an axis's criteria alone, for all cases and models."""
        weights = criteria.weights
        # A criterion of another run's form of the case has no weight here.
        ungraded = np.isnan(criteria.verdicts) & (weights != 0.0)
        met = np.where(
            criteria.verdicts == 1.0,
            weights,
            0.0,
        )
        doubtful = np.where(ungraded, weights, 0.0)
        most = criteria.by_item(np.maximum(weights, 0.0))
        sure = criteria.by_item(met)
        gain = criteria.by_item(np.maximum(doubtful, 0.0))
        loss = criteria.by_item(np.minimum(doubtful, 0.0))
        least, greatest = (-MOST, MOST) if self._clips_mean else (0.0, 1.0)
        # Sums and quotients of large points may overflow.
        with np.errstate(all="ignore"):
            sums = np.stack([sure, sure + loss, sure + gain])
            points = np.clip(sums / most, least, greatest)
        if not self._published:
            missing = criteria.by_item(ungraded.astype(np.float64))
            points[0][missing > 0] = np.nan
        points[:, most <= 0] = np.nan
        return np.asarray(points)

    def axis_errors(self) -> dict[str, dict[str, Estimate]]:
        """How often each axis's criteria went wrong, by model: a positive one unmet, or a negative one met.

        The rate is over graded criteria, which n counts; axes are in the order of their names.
        """
        errors: dict[str, dict[str, Estimate]] = {label: {} for label in self.labels}
        clusters = self.how.get("clusters")
        for axis, criteria in self._axes.items():
            known = ~np.isnan(criteria.verdicts)
            # NaN equals neither, so ungraded criteria are not errors.
            mistakes = criteria.verdicts == (criteria.weights < 0)
            # Both (items x models); items are drawn with all their trials.
            hits = criteria.by_item(mistakes.astype(np.float64))
            trials = criteria.by_item(known.astype(np.float64))
            drawn = bootstrap_ratios(hits, trials, **self.how)
            totals = trials.sum(axis=0)
            rates = hits.sum(axis=0) / np.maximum(totals, 1)
            counts = cluster_counts(trials > 0, clusters)
            ends = mean_bounds(
                rates,
                spread_over_draws(drawn[:, 0]),
                counts,
            )
            rarer = np.where(
                rates <= 0.5,
                hits,
                trials - hits,
            )
            reasons = too_few(cluster_sums(rarer, clusters), counts)
            estimates = column_estimates(rates, ends, totals, reasons)
            for of_model, rate in zip(errors.values(), estimates, strict=True):
                if rate.n:
                    of_model[axis] = rate
        return errors


class _Criteria(NamedTuple):
    """The criteria of one axis as arrays, a row each."""

    items: Places
    """The row of each criterion's item (case)."""
    weights: Floats
    """(criteria x models): points, 0 for a model without the case."""
    verdicts: Floats
    """(criteria x models): 1 met, 0 not met, NaN ungraded or unanswered."""
    n: int
    """How many items there are."""

    def by_item(self, values: Floats) -> Floats:
        """Sums of criteria by item: (items x models)."""
        sums = np.zeros((self.n, values.shape[1]))
        np.add.at(sums, self.items, values)
        return sums


def _published(estimate: ScoreEstimate, figures: Sequence[float]) -> ScoreEstimate:
    """Return the estimate with the published script's mean.

    A non-finite figure alone determines the mean: there is no interval, and no verdict would change it.
    """
    if not figures:
        return estimate
    n = len(figures)
    mean = published_mean(figures)
    if n != estimate.n:
        return ScoreEstimate(
            value=mean,
            n=n,
            least=mean,
            most=mean,
            of=n,
        )
    # All figures are finite, and every finite one has bounds.
    assert estimate.least is not None
    assert estimate.most is not None
    return replace(
        estimate,
        value=mean,
        least=min(estimate.least, mean),
        most=max(estimate.most, mean),
    )
