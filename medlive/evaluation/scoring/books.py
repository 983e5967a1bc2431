"""Open book against closed, on what neither can have seen (docs/contamination.md)."""

from dataclasses import dataclass, replace

import numpy as np

from medlive.evaluation.model import cluster_numbers
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import sides_of
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
    score_matrix,
)
from medlive.llm.registry import EMPTY, Cutoff, Registry
from medlive.statistics.bootstrap import (
    Comparison,
    Floats,
    Resampling,
    bootstrap_means,
    compare,
    holm_of_known,
)
from medlive.statistics.contamination import POST, Mean, mean_of


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
    baseline: Mean
    """Closed book on all of its cases."""
    closed_score: Mean
    open_score: Mean
    p: float | None
    """The pair's; None with fewer than 30 cases."""
    p_holm: float | None = None
    """Corrected for the number of arms that have one."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.pair.n < FEW


def score_arms(table: ScoreTable, registry: Registry = EMPTY) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    cases, scores = score_matrix(table)
    places = {model.label: place for place, model in enumerate(table.models)}
    resampling: Resampling = {
        "draws": table.draws,
        "seed": table.seed,
        "clusters": cluster_numbers(cases),
    }

    def mean(values: Floats) -> Mean:
        drawn = bootstrap_means(values[:, None], **resampling)[:, 0]
        estimate = mean_of(values, drawn, resampling["clusters"])
        return estimate if table.metric.clips_cases else estimate.clipped()

    def arm(opened: ModelScore, closed: ModelScore) -> BookArm:
        info = opened.run.run.info
        cutoff = registry.cutoff(info.model)
        columns = scores[:, places[opened.label]], scores[:, places[closed.label]]
        both = ~np.isnan(columns[0] + columns[1])
        if cutoff is not None:
            both &= sides_of(cutoff, cases) == POST
        open_book, closed_book = (np.where(both, own, np.nan) for own in columns)
        (pair,) = compare(
            [opened.label, closed.label],
            np.stack([open_book, closed_book], axis=1),
            **resampling,
        )
        return BookArm(
            model=info.model,
            pair=pair,
            closed_template=closed.run.run.info.template.name,
            open_template=info.template.name,
            cutoff=cutoff,
            baseline=mean(columns[1]),
            closed_score=mean(closed_book),
            open_score=mean(open_book),
            p=pair.p if pair.n >= FEW else None,
        )

    arms = []
    for opened in table.models:
        info = opened.run.run.info
        if not info.open_book:
            continue
        for closed in table.models:
            other = closed.run.run.info
            alike = (other.model, other.raw) == (info.model, info.raw)
            if alike and not other.open_book:
                arms.append(arm(opened, closed))
    corrected = holm_of_known(arm.p for arm in arms)
    return tuple(replace(arm, p_holm=p) for arm, p in zip(arms, corrected, strict=True))
