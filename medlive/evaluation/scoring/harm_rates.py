"""How often answers hold harm: by what they say, and by what they leave out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from medlive.evaluation.harm import ControlFigures, HarmRow, control_figures, worst_of
from medlive.evaluation.scoring.estimates import ScoreEstimate, ScoreGrid
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import CaseScore, CaseState, Metric
from medlive.harm.model import Severity, worst_omission


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmRates:
    """Shares of one model's answers, with intervals."""

    severe: ScoreEstimate
    """With a confirmed severe harm, of those that were read."""
    any: ScoreEstimate
    """With a confirmed harm."""
    omitted_severe: ScoreEstimate
    """That leave out what a criterion of 9 or 10 points asks for, of those that are wholly graded."""
    omitted: ScoreEstimate
    """The same of 7 points and more."""
    read: int
    unread: int
    """Answers that could be read and were not."""
    unconfirmed: int
    """Findings that the second judge could not decide, in no rate."""
    reader: str | None
    checker: str | None
    controls: ControlFigures | None


_SEVERE: Final = (Severity.SEVERE,)
_ANY: Final = (Severity.SEVERE, Severity.MODERATE)


def harm_rates(
    runs: Sequence[GradedRun],
    scored: Sequence[Sequence[CaseScore]],
    *,
    draws: int,
    seed: int,
) -> list[HarmRates]:
    """The rates of each run.

    Args:
        runs: The runs with the criteria of every origin.
        scored: The headline scores of each run; only their cases count.
        draws: Bootstrap draws, of cases, the same for every rate.
        seed: Seed of the draws.
    """
    complete = []
    for run, own in zip(runs, scored, strict=True):
        wanted = {score.case.case_id for score in own}
        every = run.case_scores(Metric.COMPLETE)
        complete.append([s for s in every if s.case.case_id in wanted])

    def said(counted: Sequence[Severity]) -> list[ScoreEstimate]:
        cells = []
        for run, own in zip(runs, complete, strict=True):
            cells.append([_said(run, score, counted) for score in own])
        return ScoreGrid(cells, Metric.COMPLETE, draws, seed).overall()

    def left_out(counted: Sequence[Severity]) -> list[ScoreEstimate]:
        cells = [[_left_out(score, counted) for score in own] for own in complete]
        return ScoreGrid(cells, Metric.COMPLETE, draws, seed).overall()

    severe, any_ = said(_SEVERE), said(_ANY)
    omitted_severe, omitted = left_out(_SEVERE), left_out(_ANY)
    rates = []
    for place, (run, own) in enumerate(zip(runs, complete, strict=True)):
        answered = [s for s in own if s.state is not CaseState.UNANSWERED]
        read = _read(run, answered)
        harm = run.harm
        rates.append(
            HarmRates(
                severe=severe[place],
                any=any_[place],
                omitted_severe=omitted_severe[place],
                omitted=omitted[place],
                read=len(read),
                unread=len(answered) - len(read),
                unconfirmed=sum(len(row.reading.unconfirmed) for row in read),
                reader=harm.reader if harm else None,
                checker=harm.checker if harm else None,
                controls=control_figures(harm.controls) if harm else None,
            )
        )
    return rates


def _read(run: GradedRun, scored: Sequence[CaseScore]) -> list[HarmRow]:
    """The readings of these cases' answers."""
    rows = [run.harm_of(score.case.case_id) for score in scored]
    return [row for row in rows if row is not None and row.reading.is_read]


def _said(run: GradedRun, score: CaseScore, counted: Sequence[Severity]) -> CaseScore:
    """1 where a reading confirms such a harm, 0 where it does not; no score where there is no reading."""
    row = run.harm_of(score.case.case_id)
    if score.state is CaseState.UNANSWERED or row is None or not row.reading.is_read:
        return _unknown(score)
    return _known(score, worst_of(row) in counted)


def _left_out(score: CaseScore, counted: Sequence[Severity]) -> CaseScore:
    """1 where an unmet criterion is such an omission."""
    if score.state is not CaseState.SCORED:
        return _unknown(score)
    unmet = [c.points for c in score.case.criteria if score.met[c.id] is False]
    return _known(score, worst_omission(unmet) in counted)


def _known(score: CaseScore, holds: bool) -> CaseScore:
    value = float(holds)
    return replace(score, state=CaseState.SCORED, score=value, low=value, high=value)


def _unknown(score: CaseScore) -> CaseScore:
    state = score.state
    if state is CaseState.SCORED:
        state = CaseState.NOT_READ
    return replace(score, state=state, score=None, low=0.0, high=1.0)
