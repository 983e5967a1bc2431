"""Compare open-book with closed-book runs of one model, on cases that it cannot have seen."""

from dataclasses import dataclass, replace

import numpy as np

from medlive.evaluation.asking.registry import EMPTY, Cutoff, Registry
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import ScoreTable, score_matrix
from medlive.statistics.bootstrap import Floats, bootstrap_means, compare, holm
from medlive.statistics.contamination import Mean, mean_of


@dataclass(frozen=True, slots=True)
class BookArm:
    """One model with and without evidence."""

    model: str
    closed: str
    """The run's label."""
    closed_template: str
    open: str
    open_template: str
    cutoff: Cutoff | None
    """None is unknown: then the comparison is on all common cases, and `fresh` is false."""
    fresh: bool
    """Whether the comparison is on cases after the cutoff alone."""
    baseline: Mean
    """Closed book on all of its cases."""
    closed_score: Mean
    """Closed book on the cases compared."""
    open_score: Mean
    n: int
    """The cases compared: fresh where `fresh`, and scored in both runs."""
    difference: float | None
    """Open less closed."""
    low: float | None
    high: float | None
    p: float | None
    """Two-sided, of the paired difference; None with fewer than 30 cases."""
    p_holm: float | None
    """Corrected for the number of arms that have one."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW


def score_arms(table: ScoreTable, registry: Registry = EMPTY) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    infos = [model.run.run.info for model in table.models]
    arms = [
        _arm(table, opened, closed, registry.cutoff(info.model))
        for opened, info in enumerate(infos)
        for closed, other in enumerate(infos)
        if info.open_book and not other.open_book and (other.model, other.raw) == (info.model, info.raw)
    ]
    with_p = [place for place, arm in enumerate(arms) if arm.p is not None]
    for place, p in zip(with_p, holm([arms[i].p or 0.0 for i in with_p]), strict=True):
        arms[place] = replace(arms[place], p_holm=p)
    return tuple(arms)


def _arm(table: ScoreTable, opened: int, closed: int, cutoff: Cutoff | None) -> BookArm:
    cases, scores = score_matrix(table)
    sides = [cutoff.before(c.post_time, c.month) if cutoff else False for c in cases]
    columns = (scores[:, closed], scores[:, opened])
    both = np.array([side is False for side in sides], dtype=np.bool_) & ~np.isnan(columns[0] + columns[1])
    first, second = (np.where(both, column, np.nan) for column in columns)
    (pair,) = compare(["open", "closed"], np.stack([second, first], axis=1), draws=table.draws, seed=table.seed)
    of_open, of_closed = table.models[opened], table.models[closed]
    return BookArm(
        of_open.run.run.info.model, of_closed.label, of_closed.run.run.info.template.name, of_open.label,
        of_open.run.run.info.template.name, cutoff, cutoff is not None, _mean(columns[0], table),
        _mean(first, table), _mean(second, table), pair.n, pair.difference, pair.low, pair.high,
        pair.p if pair.n >= FEW else None, None,
    )  # fmt: skip


def _mean(values: Floats, table: ScoreTable) -> Mean:
    drawn = bootstrap_means(values[:, None], draws=table.draws, seed=table.seed)[:, 0]
    if table.metric is not Metric.PUBLISHED:
        return mean_of(values, drawn)
    found = mean_of(values, np.clip(drawn, 0.0, 1.0))
    return found if found.mean is None else replace(found, mean=min(1.0, max(0.0, found.mean)))
