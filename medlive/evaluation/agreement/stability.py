"""How stable a grader is over its rounds (docs/method.md §3)."""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from medlive.evaluation.grading.repeats import Rounds
from medlive.evaluation.model import clusters_by_case
from medlive.evaluation.scoring.graded import GradedRun
from medlive.statistics.bootstrap import Draws, Estimate
from medlive.statistics.raters import ABSENT, MET, code_of, equal_and_ac1, mean_of


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


def repeated(
    run: GradedRun,
    rounds: Rounds,
    **draws: Unpack[Draws],
) -> Repeated | None:
    """Compute the stability of the run's grader, whose rounds these are; None if it graded only once."""
    n = max(map(len, rounds.values()), default=0)
    if n < 2:
        return None
    cluster_of = clusters_by_case(run.run.cases)
    rows = []
    numbers = []
    by_round: list[dict[str, dict[str, bool | None]]] = [{} for _ in range(n)]
    for (case_id, criterion_id), verdicts in rounds.items():
        numbers.append(cluster_of[case_id])
        rows.append(list(map(code_of, verdicts)))
        for of_round, met in zip(by_round, verdicts, strict=True):
            of_round.setdefault(case_id, {})[criterion_id] = met
    codes = np.array(rows, dtype=np.int_).reshape(-1, n)
    clusters = np.array(numbers, dtype=np.int_)
    decided = (codes >= MET).sum(axis=1)
    met_rounds = (codes == MET).sum(axis=1)
    several = decided >= 2
    unanimous = (met_rounds == decided) | (met_rounds == 0)
    shares: list[float | None] = []
    for column in codes.T:
        graded = column[column >= MET]
        shares.append(float((graded == MET).mean()) if len(graded) else None)
    what = "criteria with two rounds"
    equal, ac1 = equal_and_ac1(
        codes,
        2,
        clusters,
        what,
        **draws,
    )
    scores = list(map(run.whole_scores, by_round))
    ranges = []
    of_ranges = []
    for case_id, cluster in cluster_of.items():
        if all(case_id in own for own in scores):
            ranges.append(np.ptp([own[case_id] for own in scores]))
            of_ranges.append(cluster)
    return Repeated(
        judge=run.known_grader.judge,
        rounds=n,
        criteria=int(several.sum()),
        unanimous=int((several & unanimous).sum()),
        invalid=int((codes == ABSENT).sum()),
        met=tuple(shares),
        equal=equal,
        ac1=ac1,
        score_range=mean_of(np.array(ranges), np.array(of_ranges), **draws),
    )
