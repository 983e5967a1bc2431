"""Means with intervals and bounds, overall and by slice, for all models at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medlive.evaluation.asking.registry import Cutoff
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.metrics import MOST, CaseScore, Metric
from medlive.evaluation.scoring.published import published_mean
from medlive.statistics.bootstrap import Floats, bootstrap_groups, bootstrap_ratios, intervals

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
}
AXIS: Final = "axis"
"""Slices that score cases only by one axis's criteria; cases without positive points on it are left out."""
CUTOFF: Final = "cutoff"
"""Slices of a model's cases by its cutoff: `UP_TO` and `AFTER`."""
UP_TO: Final = "up to the cutoff"
AFTER: Final = "after the cutoff"
KINDS: Final = (*SLICES, AXIS, CUTOFF)
"""Every kind of slice, in the order of a table."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval and its bounds over ungraded and unanswered cases."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    least: float
    most: float
    of: int
    """The number of cases in the bounds: n and those without a point score."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW


@dataclass(frozen=True, slots=True)
class Slice:
    """One value of one kind of slice."""

    kind: str
    value: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class AxisErrors:
    """How often an axis's criteria went wrong: a positive one unmet, or a negative one met."""

    axis: str
    n: int
    """Graded criteria."""
    errors: int
    low: float | None = None
    """The 95 % interval of the rate; cases are drawn, with all their criteria."""
    high: float | None = None

    @property
    def rate(self) -> float | None:
        """errors / n."""
        return self.errors / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class _Points:
    """Scores and their bounds, (items x models); NaN: no score, or not among the cases that bounds are over."""

    score: Floats
    low: Floats
    high: Floats

    def of(self, columns: Sequence[int]) -> "_Points":
        return _Points(self.score[:, columns], self.low[:, columns], self.high[:, columns])


@dataclass(frozen=True, slots=True)
class _Rubrics:
    """The criteria of cases that several models have, one after the other."""

    row: Places
    """Of each criterion the item."""
    points: Floats
    axis: Places
    """Its axis's place, -1 for none."""
    verdicts: Floats
    """(criteria x models): 1 met, 0 not met, NaN ungraded or unanswered."""


class Grid:
    """Every case's score by every model, and the estimates that one set of draws gives of them."""

    def __init__(
        self,
        scored: Sequence[Sequence[CaseScore]],
        metric: Metric,
        draws: int,
        seed: int,
    ) -> None:
        """`scored` holds each model's cases, no case twice."""
        self._scored, self._metric, self._draws, self._seed = scored, metric, draws, seed
        order = {cid: place for place, cid in enumerate(dict.fromkeys(c.case.case_id for m in scored for c in m))}
        self._rows = [np.array([order[c.case.case_id] for c in cases], dtype=np.int_) for cases in scored]
        self._points = _Points(*(np.full((len(order), len(scored)), np.nan) for _ in range(3)))
        for place, (cases, rows) in enumerate(zip(scored, self._rows, strict=True)):
            published = metric is Metric.PUBLISHED
            bounded = np.array(
                [c.non_finite is None if published else not c.unscorable for c in cases], dtype=np.bool_
            )
            self._points.score[rows, place] = [np.nan if c.score is None else c.score for c in cases]
            self._points.low[rows, place] = np.where(bounded, [c.low for c in cases], np.nan)
            self._points.high[rows, place] = np.where(bounded, [c.high for c in cases], np.nan)
        # Models with identical cases share the groups of a slice.
        batches: dict[tuple[int, ...], list[int]] = {}
        for place, cases in enumerate(scored):
            batches.setdefault(tuple(id(c.case) for c in cases), []).append(place)
        self._batches = list(batches.values())
        self._read: dict[int, tuple[list[str], _Rubrics]] = {}
        # The published script sums in its own order and includes non-finite figures.
        self._figures = [[c.figure for c in cases] for cases in scored] if metric is Metric.PUBLISHED else None

    @property
    def score(self) -> Floats:
        """(items x models), NaN where a model has no score for an item."""
        return self._points.score

    def overall(self) -> list[Estimate]:
        """Each model's estimate over all its cases."""
        everything = np.zeros(len(self.score), dtype=np.int_)
        return self._estimates(self._points, everything, 1, range(len(self._scored)))[0]

    def slices(self, cutoffs: Sequence[Cutoff | None]) -> list[list[Slice]]:
        """Each model's slices, in the order of `KINDS` and of their values."""
        out: list[list[Slice]] = [[] for _ in self._scored]
        for batch in self._batches:
            for kind, value_of in SLICES.items():
                by_case = [value_of(c.case) for c in self._scored[batch[0]]]
                values = sorted({value for value in by_case if value is not None})
                numbers = {value: place for place, value in enumerate(values)}
                places = [-1 if value is None else numbers[value] for value in by_case]
                self._add(out, batch, kind, values, self._placed(batch, places))
            self._add_axes(out, batch)
            for cutoff in dict.fromkeys(cutoffs[place] for place in batch):
                if cutoff is not None:
                    own = [place for place in batch if cutoffs[place] == cutoff]
                    seen = [cutoff.before(c.case.post_time, c.case.month) for c in self._scored[batch[0]]]
                    places = [-1 if s is None else 0 if s else 1 for s in seen]
                    self._add(out, own, CUTOFF, [UP_TO, AFTER], self._placed(batch, places))
        return out

    def axis_errors(self) -> list[tuple[AxisErrors, ...]]:
        """Each model's errors by axis, sorted by its name."""
        out: list[list[AxisErrors]] = [[] for _ in self._scored]
        everything = np.zeros(len(self.score), dtype=np.int_)
        for batch in self._batches:
            axes, rubrics = self._rubrics(batch)
            for number, axis in enumerate(axes):
                own = np.flatnonzero(rubrics.axis == number)
                verdicts, negative = rubrics.verdicts[own], rubrics.points[own, None] < 0
                graded = self._by_item(rubrics.row[own], (~np.isnan(verdicts)).astype(np.float64))
                # NaN equals neither, so ungraded criteria are not errors.
                wrong = self._by_item(rubrics.row[own], (verdicts == negative).astype(np.float64))
                lows, highs = intervals(self._ratios(wrong, graded, everything))
                for column, place in enumerate(batch):
                    n, errors = int(graded[:, column].sum()), int(wrong[:, column].sum())
                    low, high = float(lows[0, column]), float(highs[0, column])
                    if n:
                        firm = n > 1 and not np.isnan(low)
                        out[place].append(AxisErrors(axis, n, errors, *((low, high) if firm else (None, None))))
        return [tuple(found) for found in out]

    def _ratios(self, above: Floats, below: Floats, groups: Places) -> Floats:
        return bootstrap_ratios(above, below, groups, 1, draws=self._draws, seed=self._seed)

    def _placed(self, batch: Sequence[int], places: Sequence[int]) -> Places:
        """The group of each item, from that of each case of the batch."""
        groups = np.full(len(self.score), -1, dtype=np.int_)
        groups[self._rows[batch[0]]] = places
        return groups

    def _add(
        self, out: list[list[Slice]], batch: Sequence[int], kind: str, values: Sequence[str], groups: Places
    ) -> None:
        estimates = self._estimates(self._points.of(batch), groups, len(values), batch)
        present = np.bincount(groups[groups >= 0], minlength=len(values))
        for number, value in enumerate(values):
            if present[number]:
                for column, place in enumerate(batch):
                    out[place].append(Slice(kind, value, estimates[number][column]))

    def _add_axes(self, out: list[list[Slice]], batch: Sequence[int]) -> None:
        axes, rubrics = self._rubrics(batch)
        for number, axis in enumerate(axes):
            own = np.flatnonzero(rubrics.axis == number)
            points = self._axis_points(rubrics, own)
            in_slice = ~np.isnan(points.low[:, 0])
            if in_slice.any():
                estimates = self._estimates(points, np.where(in_slice, 0, -1), 1)[0]
                for column, place in enumerate(batch):
                    out[place].append(Slice(AXIS, axis, estimates[column]))

    def _axis_points(self, rubrics: _Rubrics, own: Places) -> _Points:
        """`case_score` over one axis's criteria alone, for all cases and models of a batch."""
        row, weight, verdicts = rubrics.row[own], rubrics.points[own, None], rubrics.verdicts[own]
        most = self._by_item(row, np.maximum(weight, 0.0))
        open_ = np.isnan(verdicts)
        sure = self._by_item(row, np.where(verdicts == 1.0, weight, 0.0))
        loss = self._by_item(row, np.where(open_, np.minimum(weight, 0.0), 0.0))
        gain = self._by_item(row, np.where(open_, np.maximum(weight, 0.0), 0.0))
        paper = self._metric is Metric.PAPER
        # Sums and quotients of large points may overflow.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            score, low, high = sure / most, (sure + loss) / most, (sure + gain) / most
        least, greatest = (0.0, 1.0) if paper else (-MOST, MOST)
        score, low, high = (np.clip(x, least, greatest) for x in (score, low, high))
        if paper:
            score = np.where(self._by_item(row, open_.astype(np.float64)) > 0, np.nan, score)
        blank = most[:, 0] <= 0
        for found in (score, low, high):
            found[blank] = np.nan
        return _Points(score, low, high)

    def _rubrics(self, batch: Sequence[int]) -> tuple[list[str], _Rubrics]:
        """The axes of a batch's cases, sorted, and its criteria."""
        if batch[0] in self._read:
            return self._read[batch[0]]
        cases = [c.case for c in self._scored[batch[0]]]
        rows = self._rows[batch[0]]
        criteria = [c for case in cases for c in case.criteria]
        axes = sorted({c.axis for c in criteria if c.axis is not None})
        numbers: dict[str | None, int] = {axis: place for place, axis in enumerate(axes)} | {None: -1}
        verdicts = []
        for place in batch:
            met = chain.from_iterable(_verdicts(c) for c in self._scored[place])
            verdicts.append(np.array(list(met), dtype=np.float64))
        self._read[batch[0]] = (
            axes,
            _Rubrics(
                np.repeat(rows, [len(case.criteria) for case in cases]),
                np.array([c.points for c in criteria], dtype=np.float64),
                np.array([numbers[c.axis] for c in criteria], dtype=np.int_),
                np.stack(verdicts, axis=1),
            ),
        )
        return self._read[batch[0]]

    def _by_item(self, row: Places, values: Floats) -> Floats:
        """Sums of criteria's values by item: (items x columns)."""
        columns = [np.bincount(row, weights=column, minlength=len(self.score)) for column in values.T]
        return np.stack(columns, axis=1)

    def _estimates(
        self, points: _Points, groups: Places, count: int, models: Sequence[int] = ()
    ) -> list[list[Estimate]]:
        """By group and model; `models` are the columns' places where these are means of whole cases."""
        drawn = bootstrap_groups(points.score, groups, count, draws=self._draws, seed=self._seed)
        if self._metric is Metric.PUBLISHED:
            drawn = np.clip(drawn, 0.0, 1.0)
        lows, highs = intervals(drawn)
        out = []
        for group in range(count):
            rows = np.flatnonzero(groups == group)
            n, mean = self._means(points.score[rows])
            of, least = self._means(points.low[rows])
            _, most = self._means(points.high[rows])
            out.append(
                [
                    Estimate(
                        n=int(n[i]),
                        mean=float(mean[i]) if n[i] else None,
                        low=_firm(lows[group, i], int(n[i])),
                        high=_firm(highs[group, i], int(n[i])),
                        least=float(least[i]) if of[i] else 0.0,
                        most=float(most[i]) if of[i] else 0.0,
                        of=int(of[i]),
                    )
                    for i in range(points.score.shape[1])
                ]
            )
        if self._figures is not None:
            for column, place in enumerate(models):
                for group, figures in enumerate(self._grouped(place, groups, count)):
                    out[group][column] = _published(out[group][column], figures)
        return out

    def _grouped(self, place: int, groups: Places, count: int) -> list[list[float]]:
        """A model's figures by group, in the order of its cases."""
        found: list[list[float]] = [[] for _ in range(count)]
        figures = self._figures[place] if self._figures else ()
        for group, figure in zip(groups[self._rows[place]].tolist(), figures, strict=True):
            if group >= 0 and figure is not None:
                found[group].append(figure)
        return found

    def _means(self, values: Floats) -> tuple[Places, Floats]:
        n = (~np.isnan(values)).sum(axis=0)
        mean = np.nansum(values, axis=0) / np.maximum(n, 1)
        return n, np.clip(mean, 0.0, 1.0) if self._metric is Metric.PUBLISHED else mean


def _firm(bound: float, n: int) -> float | None:
    """An interval's end; None for a single case, or if no draw had a case."""
    return float(bound) if n > 1 and not np.isnan(bound) else None


def _published(estimate: Estimate, figures: Sequence[float]) -> Estimate:
    """Return the estimate with the published script's mean.

    A non-finite figure alone determines the mean: there is no interval, and no verdict would change it.
    """
    if not figures:
        return estimate
    mean = published_mean(figures)
    if len(figures) == estimate.n:
        return replace(estimate, mean=mean, least=min(estimate.least, mean), most=max(estimate.most, mean))
    n = len(figures)
    return Estimate(n=n, mean=mean, low=None, high=None, least=mean, most=mean, of=n)


def _verdicts(score: CaseScore) -> Iterable[bool | None]:
    """The verdicts in the order of the criteria; None where ungraded or unanswered."""
    return [score.met.get(criterion.id) for criterion in score.case.criteria]
