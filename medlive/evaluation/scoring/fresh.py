"""The ranking on what was posted after every model's cutoff, and the models whose scores drop past their own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import EvaluationCase, cluster_numbers
from medlive.evaluation.scoring.estimates import (
    FEW,
    ScoreEstimate,
    ScoreGrid,
    standings_of,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, Metric
from medlive.llm.registry import Cutoff
from medlive.statistics.bootstrap import Comparison, Standing, compare, holm
from medlive.statistics.contamination import Drop, Sides, drop

PERMUTATIONS: Final = 4999
ALPHA: Final = 0.05


@dataclass(frozen=True, slots=True)
class Window:
    """The days of posting that are scored, both inclusive; None: no end."""

    since: date | None = None
    until: date | None = None

    def __str__(self) -> str:
        """The window in words."""
        ends = [f"since {self.since}"] if self.since else []
        return " ".join([*ends, f"until {self.until}"] if self.until else ends)

    def has(self, case: EvaluationCase) -> bool:
        """Whether the case was posted within; one without a day is in no window."""
        day = day_of(case)
        if day is None:
            return False
        since, until = self.since or date.min, self.until or date.max
        return since.isoformat() <= day <= until.isoformat()

    def of(self, runs: Sequence[GradedRun]) -> list[GradedRun]:
        """The runs with these cases alone. Raises UsageError if a run is left with none."""
        out = []
        for run in runs:
            kept = tuple(case for case in run.run.cases if self.has(case))
            if not kept:
                raise UsageError(
                    f"{run.label}: none of its {len(run.run.cases)} cases was posted {self}"
                )
            out.append(replace(run, run=replace(run.run, cases=kept)))
        return out


ALWAYS: Final = Window()


@dataclass(frozen=True, slots=True)
class FreshScore:
    """One model on the cases after every cutoff."""

    label: str
    overall: ScoreEstimate
    standing: Standing | None


@dataclass(frozen=True, slots=True)
class FreshRanking:
    """The models whose cutoff is known, best first, on cases that none of them can have seen in training."""

    after: date
    """The latest cutoff."""
    set_by: tuple[str, ...]
    """The models that have it."""
    unknown: tuple[str, ...]
    """Models without a known cutoff: not ranked."""
    models: tuple[FreshScore, ...]
    """Empty where no case was posted later."""
    comparisons: tuple[Comparison, ...]
    common: int
    """Cases that all of them are scored on."""


def sides_of(cutoff: Cutoff | None, cases: Iterable[EvaluationCase]) -> Sides:
    """0 for a case up to the cutoff, 1 for one after it, -1 where that is unknown."""
    sides = []
    for case in cases:
        seen = cutoff.before(case.post_time, case.month) if cutoff else None
        sides.append(-1 if seen is None else 1 - seen)
    return np.array(sides, dtype=np.int_)


def rank_fresh(
    labels: Sequence[str],
    scored: Sequence[Sequence[CaseScore]],
    cutoffs: Sequence[Cutoff | None],
    metric: Metric,
    *,
    draws: int,
    seed: int,
) -> FreshRanking | None:
    """The ranking on the cases after every model's cutoff; None where none is known."""
    ranked = [place for place, cutoff in enumerate(cutoffs) if cutoff is not None]
    last = _latest(cutoffs)
    if last is None:
        return None
    ranking = FreshRanking(
        after=last.day,
        set_by=_labels_with(labels, cutoffs, last.day),
        unknown=_labels_with(labels, cutoffs, None),
        models=(),
        comparisons=(),
        common=0,
    )
    cases = [_cases_after(last, scored[place]) for place in ranked]
    if not any(cases):
        return ranking
    names = [labels[place] for place in ranked]
    grid = ScoreGrid(cases, metric, draws, seed)
    comparisons = compare(
        names, grid.score, draws=draws, seed=seed, clusters=grid.clusters
    )
    overall = dict(zip(names, grid.overall(), strict=True))
    standings = standings_of(overall, comparisons)
    models = []
    for name in sorted(overall, key=lambda name: overall[name].rank(name)):
        models.append(FreshScore(name, overall[name], standings.get(name)))
    return replace(
        ranking,
        models=tuple(models),
        comparisons=tuple(comparisons),
        common=int((~np.isnan(grid.score)).all(axis=1).sum()),
    )


def _latest(cutoffs: Sequence[Cutoff | None]) -> Cutoff | None:
    """The first of the cutoffs with the latest day; None where none is known."""
    last: Cutoff | None = None
    for cutoff in cutoffs:
        if cutoff is not None and (last is None or cutoff.day > last.day):
            last = cutoff
    return last


def _labels_with(
    labels: Sequence[str], cutoffs: Sequence[Cutoff | None], day: date | None
) -> tuple[str, ...]:
    """The models whose cutoff is that day; None: those without a cutoff."""
    out = []
    for label, cutoff in zip(labels, cutoffs, strict=True):
        own = None if cutoff is None else cutoff.day
        if own == day:
            out.append(label)
    return tuple(out)


def _cases_after(cutoff: Cutoff, cases: Sequence[CaseScore]) -> tuple[CaseScore, ...]:
    """The cases that were certainly posted after a cutoff."""
    after = []
    for score in cases:
        if cutoff.before(score.case.post_time, score.case.month) is False:
            after.append(score)
    return tuple(after)


def significant_drops(
    labels: Sequence[str],
    scored: Sequence[Sequence[CaseScore]],
    cutoffs: Sequence[Cutoff | None],
    **how: Any,
) -> Mapping[str, Drop]:
    """By label, the drops past a model's own cutoff that survive Holm's correction over all models that have one.

    `how`: draws and seed. Both sides need 30 cases. p is by permutation, only where the interval leaves 0 out.
    """
    drops: dict[str, Drop] = {}
    for label, cases, cutoff in zip(labels, scored, cutoffs, strict=True):
        if cutoff is None:
            continue
        scores = [np.nan if c.score is None else c.score for c in cases]
        values = np.array(scores, dtype=np.float64)
        of_cases = [score.case for score in cases]
        clusters = cluster_numbers(of_cases)
        sides = sides_of(cutoff, of_cases)
        own = drop(values, sides, clusters=clusters, **how)
        if min(own.n_pre, own.n_post) >= FEW:
            if own.low is not None and own.low > 0:
                own = drop(
                    values,
                    sides,
                    permutations=PERMUTATIONS,
                    clusters=clusters,
                    **how,
                )
            drops[label] = own
    corrected = holm([1.0 if own.p is None else own.p for own in drops.values()])
    significant = {}
    for label, p in zip(drops, corrected, strict=True):
        if p < ALPHA:
            significant[label] = replace(drops[label], p=p)
    return significant
