"""Open book against closed, on what neither can have seen (docs/contamination.md)."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from medlive.evaluation.scoring.estimates import FEW, sides_of
from medlive.evaluation.scoring.score import ScoreTable
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import (
    Comparison,
    Estimate,
    Floats,
    compare,
    holm_of_known,
    mean_estimate,
)
from medlive.statistics.contamination import POST


@dataclass(frozen=True, slots=True)
class BookArm:
    """One model with and without evidence."""

    model: str
    pair: Comparison
    """The open run against the closed, on the cases that both are scored on: those after the cutoff, where it is
    known."""
    closed_template: str
    open_template: str
    cutoff: Cutoff | None
    baseline: Estimate
    """Closed book on all of its cases."""
    closed_score: Estimate
    open_score: Estimate
    p: float | None
    """The pair's; None with fewer than 30 cases."""
    p_holm: float | None = None
    """Corrected for the number of arms that have one."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.pair.n < FEW


def score_arms(table: ScoreTable) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    grid = table.grid
    columns = dict(zip(grid.labels, grid.score.T, strict=True))

    def mean(values: Floats) -> Estimate:
        estimate = mean_estimate(values, **grid.how)
        return estimate if table.metric.clips_cases else estimate.clipped()

    arms = []
    for opened, closed in product(table.models, repeat=2):
        info, other = opened.run.info, closed.run.info
        alike = (other.model, other.raw) == (info.model, info.raw)
        if not (info.open_book and alike) or other.open_book:
            continue
        labels = [opened.label, closed.label]
        pair_scores = np.array([columns[label] for label in labels])
        both = ~np.isnan(pair_scores).any(axis=0)
        if opened.cutoff is not None:
            both &= sides_of(opened.cutoff, grid.cases) == POST
        pair_scores = np.where(both, pair_scores, np.nan)
        (pair,) = compare(labels, pair_scores.T, **grid.how)
        arm = BookArm(
            model=info.model,
            pair=pair,
            closed_template=other.template.name,
            open_template=info.template.name,
            cutoff=opened.cutoff,
            baseline=mean(columns[closed.label]),
            closed_score=mean(pair_scores[1]),
            open_score=mean(pair_scores[0]),
            p=pair.p if pair.n >= FEW else None,
        )
        arms.append(arm)
    corrected = holm_of_known(arm.p for arm in arms)
    return tuple(replace(arm, p_holm=p) for arm, p in zip(arms, corrected, strict=True))
