"""What stands beside a headline score: the complete and the paper score, the core score, the length of answers.

All of them are Equation 1, whatever the headline's metric (docs/method.md §2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.evaluation.model import ADVICE, EvaluationCase
from medlive.evaluation.scoring.estimates import ScoreEstimate, ScoreGrid
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, Metric, core_case
from medlive.statistics.bootstrap import Floats
from medlive.statistics.correlation import partial, pearson, spearman

CORE: Final = "core"
Narrow = Callable[[EvaluationCase], EvaluationCase]


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """One model's figures beside its headline score."""

    complete: ScoreEstimate
    """Equation 1 over criteria of every origin."""
    paper: ScoreEstimate
    """Equation 1 over criteria of origin `advice`; equal to `complete` where there are no others."""
    core: ScoreEstimate
    """Equation 1 over the criteria of `CORE_POINTS` and more, either way, that count under the headline's metric;
    cases without such a positive criterion have none."""
    characters: float | None
    """The mean length of the answers that have a headline score; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAgreement:
    """How the complete and the paper score correlate, where both are known."""

    over: str
    """"models" (their means), "cases" (means over the models) or "answers"."""
    n: int
    pearson: float | None
    spearman: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControl:
    """How a score goes with the length of the answers, in characters (ClinConsensus, Table 11)."""

    figure: str
    """A metric's name, or `CORE`."""
    n: int
    """Answers with a score."""
    pearson: float | None
    spearman: float | None
    partial: float | None
    """Pearson's r given the model and the case; None with one model, which leaves nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What stands beside the headline scores of a table."""

    advice_only: bool
    """Whether every criterion rests on the advice, so that the complete score is the paper's."""
    models: tuple[Companions, ...]
    """In the order of the runs."""
    agreement: tuple[MetricAgreement, ...]
    """Empty where `advice_only`: a score agrees with itself."""
    lengths: tuple[LengthControl, ...]


class NarrowedCases:
    """Cases with some of their criteria; the same object for the same case, so that models still share cases."""

    def __init__(self, narrow: Narrow) -> None:
        self._narrow = narrow
        self._made: dict[int, tuple[EvaluationCase, EvaluationCase]] = {}

    def of(self, cases: Sequence[EvaluationCase]) -> tuple[EvaluationCase, ...]:
        """The cases with the criteria that are kept."""
        return tuple(self._one(case) for case in cases)

    def runs(self, runs: Sequence[GradedRun]) -> list[GradedRun]:
        """The runs on these cases."""
        narrowed = []
        for run in runs:
            folder = replace(run.run, cases=self.of(run.run.cases))
            narrowed.append(replace(run, run=folder))
        return narrowed

    def _one(self, case: EvaluationCase) -> EvaluationCase:
        # The case is kept beside what was made of it: a freed object's id may be given to another.
        known = self._made.get(id(case))
        if known is None:
            known = self._made[id(case)] = (case, self._narrow(case))
        return known[1]


def advice_alone(runs: Sequence[GradedRun]) -> bool:
    """Whether every criterion of the runs rests on the advice."""
    for run in runs:
        for case in run.run.cases:
            if any(criterion.origin != ADVICE for criterion in case.criteria):
                return False
    return True


def beside(
    runs: Sequence[GradedRun],
    scored: Sequence[Sequence[CaseScore]],
    metric: Metric,
    *,
    draws: int,
    seed: int,
) -> Beside:
    """Return what stands beside the headline scores of a table.

    Args:
        runs: The runs with the criteria of every origin.
        scored: The headline scores of each run; only their cases count.
        metric: The headline's.
        draws: Bootstrap draws.
        seed: Seed of the draws.
    """
    ids = []
    for own in scored:
        ids.append({score.case.case_id for score in own})

    def under(narrow: Narrow) -> _Scores:
        cases = []
        narrowed = NarrowedCases(narrow).runs(runs)
        for run, wanted in zip(narrowed, ids, strict=True):
            every = run.case_scores(Metric.COMPLETE)
            cases.append(tuple(c for c in every if c.case.case_id in wanted))
        return _Scores(cases, ScoreGrid(cases, Metric.COMPLETE, draws, seed))

    alone = advice_alone(runs)
    complete = under(lambda case: case)
    paper = complete if alone else under(Metric.PAPER.counted)
    core = under(lambda case: core_case(metric.counted(case)))
    estimates = [scores.grid.overall() for scores in (complete, paper, core)]
    models = []
    for place, (run, own) in enumerate(zip(runs, scored, strict=True)):
        model = Companions(
            complete=estimates[0][place],
            paper=estimates[1][place],
            core=estimates[2][place],
            characters=_mean_length(run, own),
        )
        models.append(model)
    by_figure = {metric.value: scored}
    if not alone and metric.advice_only:
        by_figure[Metric.COMPLETE.value] = complete.cases
    elif not alone:
        by_figure[Metric.PAPER.value] = paper.cases
    by_figure[CORE] = core.cases
    lengths = [_length_control(name, runs, own) for name, own in by_figure.items()]
    return Beside(
        advice_only=alone,
        models=tuple(models),
        agreement=() if alone else _agreement(complete.grid.score, paper.grid.score),
        lengths=tuple(lengths),
    )


class _Scores(NamedTuple):
    """Scores under one choice of criteria."""

    cases: Sequence[Sequence[CaseScore]]
    grid: ScoreGrid


def answer_lengths(
    run: GradedRun, scored: Sequence[CaseScore]
) -> list[tuple[CaseScore, int]]:
    """The cases that have a score and an answer, each with the answer's characters."""
    pairs = []
    for case_score in scored:
        answer = run.answers.get(case_score.case.case_id)
        if case_score.score is not None and answer is not None and answer.gradable:
            pairs.append((case_score, len(answer.response)))
    return pairs


def _mean_length(run: GradedRun, scored: Sequence[CaseScore]) -> float | None:
    lengths = [length for _, length in answer_lengths(run, scored)]
    return sum(lengths) / len(lengths) if lengths else None


def _length_control(
    figure: str, runs: Sequence[GradedRun], scored: Sequence[Sequence[CaseScore]]
) -> LengthControl:
    lengths: list[float] = []
    scores: list[float] = []
    models: list[str] = []
    cases: list[str] = []
    for run, own in zip(runs, scored, strict=True):
        for case_score, length in answer_lengths(run, own):
            lengths.append(float(length))
            scores.append(case_score.score or 0.0)
            models.append(run.label)
            cases.append(case_score.case.case_id)
    length_column, score_column = np.array(lengths), np.array(scores)
    control = None
    if len(set(models)) > 1:
        control = partial(length_column, score_column, models, cases)
    return LengthControl(
        figure=figure,
        n=len(lengths),
        pearson=pearson(length_column, score_column),
        spearman=spearman(length_column, score_column),
        partial=control,
    )


def _agreement(complete: Floats, paper: Floats) -> tuple[MetricAgreement, ...]:
    """Of two grids, each (cases x models), over the answers that both have a score for."""
    known = ~(np.isnan(complete) | np.isnan(paper))
    columns = {
        "models": (_means(complete, known, axis=0), _means(paper, known, axis=0)),
        "cases": (_means(complete, known, axis=1), _means(paper, known, axis=1)),
        "answers": (complete[known], paper[known]),
    }
    agreements = []
    for over, (first, second) in columns.items():
        agreement = MetricAgreement(
            over=over,
            n=int((~np.isnan(first)).sum()),
            pearson=pearson(first, second),
            spearman=spearman(first, second),
        )
        agreements.append(agreement)
    return tuple(agreements)


def _means(values: Floats, known: NDArray[np.bool_], *, axis: int) -> Floats:
    """The means of what is known along an axis, NaN where nothing is."""
    counts = known.sum(axis=axis)
    sums = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
