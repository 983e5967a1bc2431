"""Compare two graders of the same answers, or the rounds of one grader."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.agreement.reliability import LEAST_ITEMS, MET, PairAgreement, Panel, code_of, pair_of
from medlive.evaluation.grading.repeats import Rounds, Stability, stability
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import CaseState, Metric, case_score
from medlive.statistics.agreement import ac1_of_sums, rater_sums
from medlive.statistics.bootstrap import Floats
from medlive.statistics.correlation import Correlation, Kind, correlate
from medlive.statistics.estimate import Estimate, estimate, no_estimate, ratio_of


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of two graders' k highest-scoring cases; equal scores are ordered by case id."""

    k: int
    shared: int

    @property
    def share(self) -> float:
        """The shared part of k."""
        return self.shared / self.k


@dataclass(frozen=True, slots=True)
class GraderPair:
    """Two graders of the same answers."""

    criteria: PairAgreement
    """On the criteria that both graders decided."""
    spearman: Correlation
    """Of the case scores."""
    kendall: Correlation
    pearson: Correlation
    mean_difference: Estimate
    """Mean of the first's minus the second's case score."""
    mean_absolute_difference: Estimate
    top: Overlap | None
    """None if no case is scored by both."""
    unlike: int
    """Cases left out because the graders had different answers or rubrics."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The stability of one grader over its rounds."""

    judge: str
    stability: Stability
    equal: Estimate
    """The mean over criteria of the share of equal pairs of rounds."""
    ac1: Estimate
    """With the rounds as raters."""
    score_range: Estimate
    """The mean of highest minus lowest score over the rounds, for cases fully graded in every round."""


def scores_of(run: GradedRun, met: Mapping[str, Mapping[str, bool | None]] | None = None) -> dict[str, float]:
    """Equation 1 for every fully graded case, from `met` if given, else from the run's verdicts."""
    found: dict[str, float] = {}
    for case in run.run.cases:
        given = run.verdicts(case.case_id) if met is None else met.get(case.case_id, {})
        scored = case_score(case, run.answers.get(case.case_id), given, Metric.PAPER)
        if scored.state is CaseState.SCORED and scored.score is not None:
            found[case.case_id] = scored.score
    return found


def compare_graders(
    first: GradedRun, second: GradedRun, *, top: int | None = None, draws: int = 1000, seed: int = 0
) -> GraderPair:
    """Compare two gradings on the cases with the same question, criteria and answer.

    Args:
        first: A graded run.
        second: A graded run.
        top: The k of the overlap; by default a tenth of the cases.
        draws: Bootstrap draws.
        seed: Seed of the draws.

    Raises:
        UsageError: If the runs have no such case.
    """
    others = {case.case_id: case for case in second.run.cases}
    cases = [
        c for c in first.run.cases if c.case_id in others and _comparable(c, others[c.case_id], first, second)
    ]
    if not cases:
        raise UsageError(f"{first.run.path} and {second.run.path} have no answer in common")
    codes = [
        [code_of(run.verdicts(case.case_id).get(c.id)) for run in (first, second)]
        for case in cases
        for c in case.criteria
    ]
    clusters = np.repeat(np.arange(len(cases)), [len(case.criteria) for case in cases])
    one, two = grader_name(grader_of(first)), grader_name(grader_of(second))
    names = (one, two) if one != two else (f"{one} (1)", f"{two} (2)")
    panel = Panel(names, np.array(codes, dtype=np.int_), clusters, tuple(case.case_id for case in cases))
    scored = scores_of(first), scores_of(second)
    ids = [case.case_id for case in cases if all(case.case_id in s for s in scored)]
    a, b = (np.array([s[case_id] for case_id in ids]) for s in scored)
    spearman, kendall, pearson = (
        correlate(kind, a, b, draws=draws, seed=seed) for kind in (Kind.SPEARMAN, Kind.KENDALL, Kind.PEARSON)
    )
    return GraderPair(
        criteria=pair_of(panel, 0, 1, draws=draws, seed=seed),
        spearman=spearman,
        kendall=kendall,
        pearson=pearson,
        mean_difference=mean_of(a - b, draws=draws, seed=seed),
        mean_absolute_difference=mean_of(np.abs(a - b), draws=draws, seed=seed),
        top=_overlap(ids, a, b, top),
        unlike=len(first.run.cases) - len(cases),
    )


def _comparable(case: EvaluationCase, other: EvaluationCase, first: GradedRun, second: GradedRun) -> bool:
    """Whether both runs have the case with the same question, criteria and answer."""
    one, two = first.answers.get(case.case_id), second.answers.get(case.case_id)
    same = (other.criteria, other.question) == (case.criteria, case.question)
    return same and one is not None and two is not None and one.digest == two.digest


def mean_of(values: Floats, *, draws: int = 1000, seed: int = 0) -> Estimate:
    """The mean of one value per case."""
    if not len(values):
        return no_estimate("no case")
    cells = np.column_stack([values, np.ones(len(values))])
    return estimate(cells, ratio_of, range(len(values)), draws=draws, seed=seed)


def grader_of(run: GradedRun) -> Grader:
    """Return the run's grader. Raises UsageError if nothing is graded."""
    if run.grader is None:
        raise UsageError(f"{run.run.path} is not graded", hint="medlive eval grade grades it")
    return run.grader


def grader_name(grader: Grader) -> str:
    """The grader's name in tables."""
    return f"{grader.model} ({grader.mode}, {grader.judge.removeprefix('sha256:')[:8]})"


def _overlap(ids: list[str], a: Floats, b: Floats, top: int | None) -> Overlap | None:
    if not ids:
        return None
    k = min(len(ids), top if top is not None else max(1, len(ids) // 10))
    best = [{ids[i] for i in sorted(range(len(ids)), key=lambda i: (-s[i], ids[i]))[:k]} for s in (a, b)]
    return Overlap(k, len(best[0] & best[1]))


def repeated(run: GradedRun, rounds: Rounds, *, draws: int = 1000, seed: int = 0) -> Repeated | None:
    """Compute the stability of the grader of `rounds`; None if it graded only once."""
    if rounds.n < 2:
        return None
    places = {case_id: place for place, case_id in enumerate(dict.fromkeys(case for case, _ in rounds.verdicts))}
    codes = np.array([[code_of(met) for met in row] for row in rounds.verdicts.values()], dtype=np.int_)
    clusters = np.array([places[case_id] for case_id, _ in rounds.verdicts], dtype=np.int_)
    several = (codes >= MET).sum(axis=1) >= 2
    n = int(several.sum())
    if n < LEAST_ITEMS:
        equal = ac1 = no_estimate(f"{n} criteria with two rounds are too few", n)
    else:
        sums = rater_sums(codes[several], 2)
        equal = estimate(sums[:, :2], ratio_of, clusters[several], draws=draws, seed=seed)
        ac1 = estimate(sums, ac1_of_sums, clusters[several], draws=draws, seed=seed)
    by_round = []
    for place in range(rounds.n):
        met: dict[str, dict[str, bool | None]] = {}
        for (case_id, criterion_id), row in rounds.verdicts.items():
            met.setdefault(case_id, {})[criterion_id] = row[place]
        by_round.append(scores_of(run, met))
    whole = [case_id for case_id in places if all(case_id in scores for scores in by_round)]
    values = np.array([[scores[case_id] for case_id in whole] for scores in by_round])
    spread = mean_of(np.ptp(values, axis=0), draws=draws, seed=seed)
    return Repeated(rounds.judge, stability(rounds), equal, ac1, spread)
