"""Figures beside a headline score: complete, paper and core score and length (`beside`), and harm (`harm_rates`).

Each score is the paper's Equation 1 (points earned of those to be had), whatever the headline's metric
(docs/method.md §2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Unpack

import numpy as np

from medlive.evaluation.harm import ControlFigures, control_figures
from medlive.evaluation.model import EvaluationCase
from medlive.harm.model import Severity, worst_omission
from medlive.statistics.bootstrap import Draws
from medlive.statistics.correlation import partial, pearson, spearman

from .estimates import (
    ScoreEstimate,
    ScoreGrid,
)
from .graded import GradedRun
from .metrics import (
    CaseScore,
    CaseState,
    Metric,
    Scored,
    core_case,
)

CORE = "core"
Narrow = Callable[[EvaluationCase], EvaluationCase]
"""Returns a case with a part of its criteria."""


@dataclass(frozen=True, kw_only=True)
class Companions:
    """One model's figures beside its headline score."""

    complete: ScoreEstimate
    """Equation 1 over criteria of every origin."""
    paper: ScoreEstimate
    """Equation 1 over criteria of origin `advice`; equal to `complete` where there are no others."""
    core: ScoreEstimate
    """Equation 1 over the criteria of at least `CORE_POINTS` points, positive or negative, that count under the
    headline's metric; a case without such a positive criterion has no core score."""


@dataclass(frozen=True, kw_only=True)
class LengthControl:
    """How a score correlates with the length of the answers, in characters (ClinConsensus, Table 11)."""

    figure: str
    """A metric's name, or `CORE`."""
    n: int
    """Answers with a score."""
    pearson: float | None
    spearman: float | None
    partial: float | None = None
    """Pearson's r given the model and the case; None with one model."""


def narrow_runs(
    runs: Sequence[GradedRun],
    narrow: Narrow,
) -> list[GradedRun]:
    """The runs with a part of each case's criteria; a case that runs share is narrowed once and stays shared."""
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
) -> tuple[dict[str, Companions], tuple[LengthControl, ...]]:
    """Each run's figures beside its headline score, and how headline and core scores correlate with answers' length.

    Args:
        runs: The runs with the criteria of every origin.
        scored: The headline scores of each run; only their cases count.
        complete: Their complete scores.
        metric: The headline's.
        draws: Bootstrap draws.
    """
    paper = complete
    if not rest_on_advice(runs):
        paper = equation_1_scores(runs, scored, Metric.PAPER.counted)
    core = equation_1_scores(
        runs,
        scored,
        lambda case: core_case(metric.counted(case)),
    )
    of_complete, of_paper, of_core = (
        ScoreGrid(own, Metric.COMPLETE, **draws).overall()
        for own in (complete, paper, core)
    )
    models = {}
    for run in runs:
        label = run.label
        models[label] = Companions(
            complete=of_complete[label],
            paper=of_paper[label],
            core=of_core[label],
        )
    headline = _with_length(metric.value, runs, scored)
    return models, (headline, _with_length(CORE, runs, core))


def rest_on_advice(runs: Sequence[GradedRun]) -> bool:
    """Whether every criterion is based on the advice, so that the complete score is the paper's."""
    cases = chain.from_iterable(run.cases for run in runs)
    # `advice_only` is the same object where nothing is left out.
    return all(case.advice_only is case for case in cases)


def equation_1_scores(
    runs: Sequence[GradedRun],
    scored: Scored,
    narrow: Narrow | None = None,
) -> Scored:
    """Equation 1 on the cases in `scored`, over the criteria that `narrow` leaves."""
    if narrow is not None:
        runs = narrow_runs(runs, narrow)
    complete = {}
    for run in runs:
        wanted = {score.case_id for score in scored[run.label]}
        whole = run.case_scores(Metric.COMPLETE)
        complete[run.label] = [score for score in whole if score.case_id in wanted]
    return complete


def _with_length(
    figure: str,
    runs: Sequence[GradedRun],
    scored: Scored,
) -> LengthControl:
    """The correlations of `scored`, whose name is `figure`, with the length of the answers."""
    lengths: list[float] = []
    scores: list[float] = []
    models: list[str] = []
    cases: list[str] = []
    for run in runs:
        for case_score in scored[run.label]:
            answer = run.answers.get(case_score.case_id)
            if case_score.score is not None and answer is not None and answer.gradable:
                lengths.append(float(len(answer.response)))
                scores.append(case_score.score)
                models.append(run.label)
                cases.append(case_score.case_id)
    columns = np.array(lengths), np.array(scores)
    are_several = len(set(models)) > 1
    return LengthControl(
        figure=figure,
        n=len(lengths),
        pearson=pearson(*columns),
        spearman=spearman(*columns),
        partial=partial(*columns, models, cases) if are_several else None,
    )


RATES: Mapping[str, str] = {
    "severe": "severe harm",
    "any": "harm",
    "omitted_severe": "severe omission",
    "omitted": "omission",
}
"""The rates of `HarmRates`, each with its name in tables."""


@dataclass(frozen=True, kw_only=True)
class HarmRates:
    """Shares of one model's answers, with intervals."""

    severe: ScoreEstimate
    """Answers with a confirmed severe harm, of those that were read for harm."""
    any: ScoreEstimate
    """Answers with any confirmed harm, of those that were read for harm."""
    omitted_severe: ScoreEstimate
    """Answers that do not meet a criterion of 9 points or more, of those that are wholly graded."""
    omitted: ScoreEstimate
    """Answers that do not meet a criterion of 7 points or more, of those that are wholly graded."""
    read: int
    unread: int
    """Answers that could be read and were not."""
    unconfirmed: int
    """Findings that the second judge could not decide, in no rate."""
    reader: str | None
    checker: str | None
    controls: ControlFigures | None

    def row(self) -> dict[str, Any]:
        """The JSON form."""
        rates = {name: getattr(self, name).row() for name in RATES}
        return asdict(self) | rates


def harm_rates(
    runs: Sequence[GradedRun],
    complete: Scored,
    **draws: Unpack[Draws],
) -> dict[str, HarmRates]:
    """The rates of each run.

    Args:
        runs: The runs with the criteria of every origin.
        complete: The complete scores of each run's cases that count.
        draws: Bootstrap draws, of cases, the same for every rate.
    """
    shares: dict[str, dict[str, list[CaseScore]]] = {}
    for name in RATES:
        shares[name] = {run.label: [] for run in runs}
    for run in runs:
        for score in complete[run.label]:
            for name, counts in zip(RATES, _counts_in(run, score), strict=True):
                least, most = (0.0, 1.0) if counts is None else (counts, counts)
                share = replace(score, score=counts, low=least, high=most)
                shares[name][run.label].append(share)
    by_rate = {}
    for name, scored in shares.items():
        by_rate[name] = ScoreGrid(scored, Metric.COMPLETE, **draws).overall()
    rates = {}
    for run in runs:
        of_model = {name: overall[run.label] for name, overall in by_rate.items()}
        rates[run.label] = _rates_of(run, complete[run.label], of_model)
    return rates


def _rates_of(
    run: GradedRun,
    scored: Sequence[CaseScore],
    estimates: Mapping[str, ScoreEstimate],
) -> HarmRates:
    """A run's rates, with the counts of its answers that were and were not read."""
    answered = read = unconfirmed = 0
    for score in scored:
        if score.state is CaseState.UNANSWERED:
            continue
        answered += 1
        row = run.harm_of(score.case_id)
        if row is not None and row.reading.is_read:
            read += 1
            unconfirmed += len(row.reading.unconfirmed)
    harm = run.harm
    return HarmRates(
        **estimates,
        read=read,
        unread=answered - read,
        unconfirmed=unconfirmed,
        reader=harm.reader if harm else None,
        checker=harm.checker if harm else None,
        controls=control_figures(harm.controls) if harm else None,
    )


def _counts_in(
    run: GradedRun,
    score: CaseScore,
) -> list[float | None]:
    """Whether each of `RATES` counts the answer, 1 or 0; None where that is not known."""
    counts: list[float | None] = [None] * len(RATES)
    row = run.harm_of(score.case_id)
    is_answered = score.state is not CaseState.UNANSWERED
    if row is not None and row.reading.is_read and is_answered:
        counts[:2] = _gravity(row.reading.worst)
    if score.state is CaseState.SCORED:
        unmet = [c.points for c in score.case.criteria if score.met[c.id] is False]
        counts[2:] = _gravity(worst_omission(unmet))
    return counts


def _gravity(worst: Severity | None) -> list[float]:
    """[whether `worst` is severe, whether it is moderate or severe], each 0 or 1."""
    is_severe = worst is Severity.SEVERE
    return [float(is_severe), float(is_severe or worst is Severity.MODERATE)]
