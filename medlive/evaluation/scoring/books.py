"""Open book against closed, on what neither can have seen (docs/contamination.md)."""

from dataclasses import dataclass, replace

import numpy as np

from medlive.evaluation.scoring.estimates import FEW, sides_of
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
    score_matrix,
)
from medlive.llm.registry import EMPTY, Cutoff, Registry
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


def score_arms(
    table: ScoreTable,
    registry: Registry = EMPTY,
) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    cases, scores = score_matrix(table)
    columns = dict(zip((m.label for m in table.models), scores.T, strict=True))
    how = table.how

    def mean(values: Floats) -> Estimate:
        estimate = mean_estimate(values, **how)
        return estimate if table.metric.clips_cases else estimate.clipped()

    def arm(opened: ModelScore, closed: ModelScore) -> BookArm:
        info = opened.run.info
        cutoff = registry.cutoff(info.model)
        own, other = columns[opened.label], columns[closed.label]
        both = ~np.isnan(own + other)
        if cutoff is not None:
            both &= sides_of(cutoff, cases) == POST
        pair_scores = np.where(
            both,
            [own, other],
            np.nan,
        )
        (pair,) = compare(
            [opened.label, closed.label],
            pair_scores.T,
            **how,
        )
        return BookArm(
            model=info.model,
            pair=pair,
            closed_template=closed.run.info.template.name,
            open_template=info.template.name,
            cutoff=cutoff,
            baseline=mean(other),
            closed_score=mean(pair_scores[1]),
            open_score=mean(pair_scores[0]),
            p=pair.p if pair.n >= FEW else None,
        )

    arms = []
    for opened in table.models:
        info = opened.run.info
        if not info.open_book:
            continue
        for closed in table.models:
            other = closed.run.info
            alike = (other.model, other.raw) == (info.model, info.raw)
            if alike and not other.open_book:
                arms.append(arm(opened, closed))
    corrected = holm_of_known(arm.p for arm in arms)
    return tuple(replace(arm, p_holm=p) for arm, p in zip(arms, corrected, strict=True))
