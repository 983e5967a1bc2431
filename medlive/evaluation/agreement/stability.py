"""How stable a grader is over its rounds (docs/method.md §3)."""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from medlive.evaluation.grading.repeats import Rounds
from medlive.evaluation.scoring.graded import GradedRun
from medlive.statistics.agreement import ac1_of_sums, rater_sums
from medlive.statistics.bootstrap import Draws, Estimate, estimate, ratio_of
from medlive.statistics.raters import ABSENT, LEAST_ITEMS, MET, code_of, mean_of


@dataclass(frozen=True, slots=True)
class Repeated:
    """The stability of one grader over its rounds."""

    judge: str
    rounds: int
    criteria: int
    """With a verdict in at least two rounds."""
    unanimous: int
    """Of these, those of which every verdict is the same."""
    invalid: int
    """Rounds of a criterion without a verdict."""
    met: tuple[float | None, ...]
    """The share met in each round, of its verdicts; None where it has none."""
    equal: Estimate
    """The mean over criteria of the share of equal pairs of rounds."""
    ac1: Estimate
    """With the rounds as raters."""
    score_range: Estimate
    """The mean of highest minus lowest score over the rounds, for cases fully graded in every round."""


def repeated(run: GradedRun, rounds: Rounds, **draws: Unpack[Draws]) -> Repeated | None:
    """Compute the stability of the grader of `rounds`; None if it graded only once."""
    if rounds.n < 2:
        return None
    places: dict[str, int] = {}
    codes = np.empty((len(rounds.verdicts), rounds.n), dtype=np.int_)
    clusters = np.empty(len(rounds.verdicts), dtype=np.int_)
    by_round: list[dict[str, dict[str, bool | None]]] = [{} for _ in range(rounds.n)]
    for row, ((case_id, criterion_id), verdicts) in enumerate(rounds.verdicts.items()):
        clusters[row] = places.setdefault(case_id, len(places))
        for number, met in enumerate(verdicts):
            codes[row, number] = code_of(met)
            by_round[number].setdefault(case_id, {})[criterion_id] = met
    decided, met_rounds = (codes >= MET).sum(axis=1), (codes == MET).sum(axis=1)
    several = decided >= 2
    unanimous = (met_rounds == decided) | (met_rounds == 0)
    n = int(several.sum())
    shares: list[float | None] = []
    for column in codes.T:
        graded = column[column >= MET]
        shares.append(float((graded == MET).mean()) if len(graded) else None)
    why = f"{n} criteria with two rounds are too few"
    equal = ac1 = Estimate(None, n=n, clusters=0, why=why)
    if n >= LEAST_ITEMS:
        sums, kept = rater_sums(codes[several], 2), clusters[several]
        equal = estimate(sums[:, :2], ratio_of, kept, **draws)
        ac1 = estimate(sums, ac1_of_sums, kept, **draws)
    scores = [run.whole_scores(met) for met in by_round]
    ranges = []
    for case_id in places:
        if all(case_id in own for own in scores):
            ranges.append(np.ptp([own[case_id] for own in scores]))
    return Repeated(
        judge=rounds.judge,
        rounds=rounds.n,
        criteria=n,
        unanimous=int((several & unanimous).sum()),
        invalid=int((codes == ABSENT).sum()),
        met=tuple(shares),
        equal=equal,
        ac1=ac1,
        score_range=mean_of(np.array(ranges), **draws),
    )
