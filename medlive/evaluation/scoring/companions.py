"""What stands beside a headline score: the complete and the paper score, the core score, the length of answers.

All of them are Equation 1, whatever the headline's metric (docs/method.md §2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Unpack

import numpy as np

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.estimates import ScoreEstimate, ScoreGrid
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, Metric, core_case
from medlive.statistics.bootstrap import Draws
from medlive.statistics.correlation import partial, pearson, spearman

CORE: Final = "core"
Narrow = Callable[[EvaluationCase], EvaluationCase]
Scored = Sequence[Sequence[CaseScore]]


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
class LengthControl:
    """How a score goes with the length of the answers, in characters (ClinConsensus, Table 11)."""

    figure: str
    """A metric's name, or `CORE`."""
    n: int
    """Answers with a score."""
    pearson: float | None
    spearman: float | None
    partial: float | None = None
    """Pearson's r given the model and the case; None with one model, which leaves nothing to compare."""


def narrow_runs(runs: Sequence[GradedRun], narrow: Narrow) -> list[GradedRun]:
    """The runs with a part of each case's criteria; models that share a case still do."""
    made: dict[int, EvaluationCase] = {}
    narrowed = []
    for run in runs:
        for case in run.run.cases:
            if id(case) not in made:
                made[id(case)] = narrow(case)
        cases = tuple(made[id(case)] for case in run.run.cases)
        narrowed.append(replace(run, run=replace(run.run, cases=cases)))
    return narrowed


def beside(
    runs: Sequence[GradedRun],
    scored: Scored,
    complete: Scored,
    metric: Metric,
    **draws: Unpack[Draws],
) -> tuple[list[Companions], tuple[LengthControl, ...]]:
    """Return what stands beside the headline score of each run, and how scores go with the length of answers.

    Args:
        runs: The runs with the criteria of every origin.
        scored: The headline scores of each run; only their cases count.
        complete: Their complete scores.
        metric: The headline's.
        draws: Bootstrap draws.
    """
    advice_only = rest_on_advice(runs)
    by_name: dict[str, Scored] = {Metric.COMPLETE.value: complete}
    by_name[Metric.PAPER.value] = complete
    if not advice_only:
        by_name[Metric.PAPER.value] = complete_scores(
            runs, scored, Metric.PAPER.counted
        )
    by_name[CORE] = complete_scores(
        runs, scored, lambda case: core_case(metric.counted(case))
    )
    grids = {}
    for name, own in by_name.items():
        grids[name] = ScoreGrid(own, Metric.COMPLETE, **draws)
    estimates = {name: grid.overall() for name, grid in grids.items()}
    models = []
    for place, run in enumerate(runs):
        of_model = {name: of_models[place] for name, of_models in estimates.items()}
        characters = _mean_length(run, scored[place])
        models.append(Companions(**of_model, characters=characters))
    figures = {metric.value: scored}
    if not advice_only:
        other = Metric.COMPLETE if metric.advice_only else Metric.PAPER
        figures[other.value] = by_name[other.value]
    figures[CORE] = by_name[CORE]
    lengths = tuple(_with_length(name, runs, own) for name, own in figures.items())
    return models, lengths


def rest_on_advice(runs: Sequence[GradedRun]) -> bool:
    """Whether every criterion rests on the advice, so that the complete score is the paper's."""
    for run in runs:
        for case in run.run.cases:
            if case.advice_only is not case:
                return False
    return True


def complete_scores(
    runs: Sequence[GradedRun], scored: Scored, narrow: Narrow | None = None
) -> list[tuple[CaseScore, ...]]:
    """Equation 1 on the cases that are scored, over the criteria that are left."""
    if narrow is not None:
        runs = narrow_runs(runs, narrow)
    out = []
    for run, own in zip(runs, scored, strict=True):
        wanted = {score.case.case_id for score in own}
        every = run.case_scores(Metric.COMPLETE)
        out.append(tuple(score for score in every if score.case.case_id in wanted))
    return out


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


def _with_length(
    figure: str, runs: Sequence[GradedRun], scored: Scored
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
    columns = np.array(lengths), np.array(scores)
    return LengthControl(
        figure=figure,
        n=len(lengths),
        pearson=pearson(*columns),
        spearman=spearman(*columns),
        partial=partial(*columns, models, cases) if len(set(models)) > 1 else None,
    )
