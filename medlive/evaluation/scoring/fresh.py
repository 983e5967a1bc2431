"""Rank models on cases posted after every cutoff (`rank_fresh`); find scores that drop past the model's own cutoff."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Unpack

from medlive.errors import UsageError
from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import EvaluationCase
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import Draws
from medlive.statistics.comparison import Comparison, Standing, holm
from medlive.statistics.contamination import Drop, drop, permutation_p

from .estimates import (
    FEW,
    ScoreEstimate,
    ScoreGrid,
    sides_of,
)
from .graded import GradedRun
from .metrics import CaseScore, Metric, Scored

PERMUTATIONS = 4999
ALPHA = 0.05
"""A drop counts below this corrected p."""


@dataclass(frozen=True)
class Window:
    """The days of posting that are scored, from `since` to `until`, both included; None: no limit."""

    since: date | None = None
    until: date | None = None

    def __str__(self) -> str:
        """The window in words."""
        ends = []
        if self.since:
            ends.append(f"since {self.since}")
        if self.until:
            ends.append(f"until {self.until}")
        return " ".join(ends)

    def has(self, case: EvaluationCase) -> bool:
        """Whether the case was posted within; one without a day is in no window."""
        day = day_of(case)
        if day is None:
            return False
        since, until = self.since or date.min, self.until or date.max
        return since.isoformat() <= day <= until.isoformat()

    def narrow(
        self,
        runs: Sequence[GradedRun],
    ) -> list[GradedRun]:
        """The runs without the cases outside the window. Raises UsageError if a run is left with none."""
        narrowed = []
        for run in runs:
            kept = tuple(case for case in run.cases if self.has(case))
            if not kept:
                raise UsageError(
                    f"{run.label}: none of its {len(run.cases)} cases was posted {self}"
                )
            narrowed.append(replace(run, run=replace(run.run, cases=kept)))
        return narrowed


ALWAYS = Window()
"""No limit."""


@dataclass(frozen=True)
class FreshScore:
    """One model on the cases after every cutoff."""

    label: str
    overall: ScoreEstimate
    standing: Standing | None


@dataclass(frozen=True)
class FreshRanking:
    """The models whose cutoff is known, best first, on cases that none of them can have seen in training."""

    after: date
    """The latest cutoff of the models."""
    set_by: tuple[str, ...]
    """The models whose cutoff that is."""
    unknown: tuple[str, ...]
    """Models without a known cutoff: not ranked."""
    models: tuple[FreshScore, ...]
    """Empty where no case was posted later."""
    comparisons: tuple[Comparison, ...]
    common: int
    """Cases that all of them are scored on."""


def rank_fresh(
    scored: Scored,
    cutoffs: Mapping[str, Cutoff | None],
    metric: Metric,
    **draws: Unpack[Draws],
) -> FreshRanking | None:
    """The ranking on the cases after every model's cutoff; None where none is known."""
    last = max(
        filter(None, cutoffs.values()),
        key=lambda cutoff: cutoff.day,
        default=None,
    )
    if last is None:
        return None
    latest = []
    unknown = []
    after: dict[str, list[CaseScore]] = {}
    for label, cutoff in cutoffs.items():
        if cutoff is None:
            unknown.append(label)
            continue
        if cutoff.day == last.day:
            latest.append(label)
        after[label] = []
        for score in scored[label]:
            if last.before(score.case.post_time, score.case.month) is False:
                after[label].append(score)
    models: list[FreshScore] = []
    comparisons: list[Comparison] = []
    common = 0
    if any(after.values()):
        grid = ScoreGrid(after, metric, **draws)
        overall, comparisons, standings = grid.rank()
        for name in sorted(overall, key=lambda name: overall[name].rank(name)):
            models.append(FreshScore(name, overall[name], standings.get(name)))
        common = grid.common
    return FreshRanking(
        after=last.day,
        set_by=tuple(latest),
        unknown=tuple(unknown),
        models=tuple(models),
        comparisons=tuple(comparisons),
        common=common,
    )


def significant_drops(
    grid: ScoreGrid,
    cutoffs: Mapping[str, Cutoff | None],
) -> Mapping[str, Drop]:
    """By label, the drops past a model's own cutoff that survive Holm's correction over all models that have one.

    A drop needs `FEW` (30) cases on each side of the cutoff. p is by permutation; where the interval holds 0 it counts
    as 1 and is not computed. A rise counts in the correction as well, as it does in `eval contamination`.
    """
    drops: dict[str, Drop] = {}
    for label, values in zip(grid.labels, grid.score.T, strict=True):
        sides = sides_of(cutoffs[label], grid.cases)
        figures = drop(values, sides, **grid.how)
        if min(figures.n_pre, figures.n_post) < FEW:
            continue
        low, high = figures.low, figures.high
        if low is None or high is None or not low <= 0 <= high:
            p = permutation_p(values, sides, PERMUTATIONS, **grid.how)
            figures = replace(figures, p=p)
        drops[label] = figures
    corrected = holm([1.0 if own.p is None else own.p for own in drops.values()])
    significant = {}
    for label, p in zip(drops, corrected, strict=True):
        low = drops[label].low
        if p < ALPHA and low is not None and low > 0:
            significant[label] = replace(
                drops[label],
                p=p,
            )
    return significant
