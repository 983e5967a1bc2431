"""What stands beside a headline score: the complete and the paper score, the core score, the length of answers.

All of them are Equation 1, whatever the headline's metric (docs/method.md §2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Unpack

import numpy as np

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.estimates import ScoreEstimate, ScoreGrid
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, Metric, Scored, core_case
from medlive.statistics.bootstrap import Draws
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


def narrow_runs(
    runs: Sequence[GradedRun],
    narrow: Narrow,
) -> list[GradedRun]:
    """The runs with a part of each case's criteria; models that share a case still do."""
    made: dict[int, EvaluationCase] = {}
    narrowed = []
    for run in runs:
        for case in run.cases:
            if id(case) not in made:
                made[id(case)] = narrow(case)
        cases = tuple(made[id(case)] for case in run.cases)
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
    figures = {metric.value: scored}
    paper = complete
    if not rest_on_advice(runs):
        paper = complete_scores(runs, scored, Metric.PAPER.counted)
        if metric.advice_only:
            figures[Metric.COMPLETE.value] = complete
        else:
            figures[Metric.PAPER.value] = paper
    core = complete_scores(
        runs,
        scored,
        lambda case: core_case(metric.counted(case)),
    )
    figures[CORE] = core

    def overall(own: Scored) -> list[ScoreEstimate]:
        return ScoreGrid(own, Metric.COMPLETE, **draws).overall()

    models = []
    estimates = zip(overall(complete), overall(paper), overall(core), strict=True)
    for run, own, of_model in zip(runs, scored, estimates, strict=True):
        lengths = [length for _, length in answer_lengths(run, own)]
        companions = Companions(
            complete=of_model[0],
            paper=of_model[1],
            core=of_model[2],
            characters=sum(lengths) / len(lengths) if lengths else None,
        )
        models.append(companions)
    return models, tuple(_with_length(name, runs, own) for name, own in figures.items())


def rest_on_advice(runs: Sequence[GradedRun]) -> bool:
    """Whether every criterion rests on the advice, so that the complete score is the paper's."""
    cases = chain.from_iterable(run.cases for run in runs)
    return all(case.advice_only is case for case in cases)


def complete_scores(
    runs: Sequence[GradedRun],
    scored: Scored,
    narrow: Narrow | None = None,
) -> list[tuple[CaseScore, ...]]:
    """Equation 1 on the cases that are scored, over the criteria that are left."""
    if narrow is not None:
        runs = narrow_runs(runs, narrow)
    complete = []
    for run, own in zip(runs, scored, strict=True):
        wanted = {score.case_id for score in own}
        whole = run.case_scores(Metric.COMPLETE)
        complete.append(tuple(s for s in whole if s.case_id in wanted))
    return complete


def answer_lengths(
    run: GradedRun,
    scored: Sequence[CaseScore],
) -> list[tuple[CaseScore, int]]:
    """The cases that have a score and an answer, each with the answer's characters."""
    pairs = []
    for case_score in scored:
        answer = run.answers.get(case_score.case_id)
        if case_score.score is not None and answer is not None and answer.gradable:
            pairs.append((case_score, len(answer.response)))
    return pairs


def _with_length(
    figure: str,
    runs: Sequence[GradedRun],
    scored: Scored,
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
            cases.append(case_score.case_id)
    columns = np.array(lengths), np.array(scores)
    control = LengthControl(
        figure=figure,
        n=len(lengths),
        pearson=pearson(*columns),
        spearman=spearman(*columns),
    )
    if len(set(models)) < 2:
        return control
    return replace(
        control,
        partial=partial(*columns, models, cases),
    )
