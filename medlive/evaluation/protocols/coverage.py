"""ClinConsensus' thresholded coverage on any rubric: credit begins where physicians' own answers end.

Of a case's n positive criteria an answer meets k. CACS@t = max(0, k - t + 1) / (n - t + 1), the mean over j = t..n
of [k >= j]; t is a share of n, calibrated on what physicians write themselves (seed 001 §4.2, §4.3; docs/method.md
§4). A negative criterion met at -8 points or worse leaves nothing. A case counts only where no verdict that it
depends on is missing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import GradedRun
from medlive.statistics.correlation import partial, pearson, spearman
from medlive.statistics.intervals import Floats

from .model import (
    Cell,
    Figures,
    Material,
    Records,
    Results,
    Rows,
    SampledProtocol,
    Table,
    mean,
)

NEARBY = (0.7, 0.8, 1.2, 1.5)
"""Multiples of the threshold for which models are ranked again: the paper's 7, 8, 12 and 15 for 10."""
_TOPS = (3, 5)
"""How many of the best models are compared."""
VETO = -8
"""Points from which on a met criterion leaves nothing."""


def cacs(
    k: int,
    n: int,
    t: int,
) -> float:
    """Thresholded coverage of k hits among n criteria, 0 to 1; 0 <= k <= n and 1 <= t <= n."""
    return max(0, k - t + 1) / (n - t + 1)


def threshold(share: float, n: int) -> int:
    """t = ceil(share · n), at least 1 and at most n."""
    return max(1, math.ceil(min(1.0, share) * n - 1e-9))


@dataclass(frozen=True)
class Hits:
    """What an answer covers of a rubric: `k` of its `n` positive criteria."""

    case: EvaluationCase
    k: int
    n: int
    vetoed: bool
    characters: int
    """The answer's length."""

    def accuracy(self, _: float = 0) -> float:
        """Rubric accuracy: k / n."""
        return self.k / self.n

    def passed(self, share: float) -> float:
        """Pass@t."""
        return float(self.k >= threshold(share, self.n))

    def covered(self, share: float) -> float:
        """CACS@t with the veto."""
        t = threshold(share, self.n)
        return 0.0 if self.vetoed else cacs(self.k, self.n, t)


def hits_of(run: GradedRun) -> dict[str, Hits | None]:
    """Case id → hits, for every answered case with a positive criterion; None where a verdict is missing."""
    hits: dict[str, Hits | None] = {}
    for case, answer in run.answered():
        met = run.verdicts(case.case_id)
        positive = []
        grave = []
        for criterion in case.criteria:
            verdict = met.get(criterion.id)
            if criterion.points > 0:
                positive.append(verdict)
            elif criterion.points <= VETO:
                grave.append(verdict)
        if not positive:
            continue
        hits[case.case_id] = None
        if None not in positive + grave:
            hits[case.case_id] = Hits(
                case=case,
                k=positive.count(True),
                n=len(positive),
                vetoed=True in grave,
                characters=len(answer.response),
            )
    return hits


Scored = Mapping[str, Sequence[Hits]]
"""Model → hits, of wholly graded cases."""


class Coverage(SampledProtocol):
    """Thresholded coverage, CACS@t; see the module."""

    name = "coverage"
    about = "thresholded rubric coverage, CACS@t (ClinConsensus)"
    figure = "CACS@t, 0 to 1"
    asks = False

    share: float = Field(
        default=1 / 3,
        gt=0,
        le=1,
        description="threshold as a share of the positive criteria",
    )
    people: tuple[str, ...] = Field(
        default=(),
        description="models that are people: the share is calibrated on their answers",
    )

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether at least one of the runs was graded; the others are NA."""
        asked = ((run, case.case_id) for run in material for case in run.cases)
        return any(run.verdicts(case_id) for run, case_id in asked)

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Models, nearby thresholds and the length control."""
        hits = {run.label: hits_of(run) for run in material}
        scored = {}
        for name, own in hits.items():
            scored[name] = [hit for hit in own.values() if hit is not None]
        share, notes = self.share, list[str]()
        by_people: list[Hits] = []
        for name in self.people:
            if name not in scored:
                raise UsageError(
                    f"no run is by {name!r}", hint=f"the runs are by {', '.join(hits)}"
                )
            by_people += scored.pop(name)
        if self.people:
            share, note = calibrate(by_people)
            notes.append(note)
        figures: Figures = {}
        rows: Records = []
        for run in material:
            if (name := run.label) not in scored:
                continue
            of_model = scored[name]
            covered = [hit.covered(share) for hit in of_model]
            low, high = self.interval(covered, [hit.case for hit in of_model])
            figures[name] = mean(covered)
            rows.append(
                {
                    "model": name,
                    "cases": len(of_model),
                    "accuracy": mean([hit.accuracy() for hit in of_model]),
                    "Pass@t": mean([hit.passed(share) for hit in of_model]),
                    "CACS@t": figures[name],
                    "low": low,
                    "high": high,
                    "vetoed": sum(hit.vetoed for hit in of_model),
                    "ungraded": len(hits[name]) - len(of_model),
                    "unanswered": len(run.cases) - len(list(run.answered())),
                }
            )
        note = (
            "Means over wholly graded cases; t = ceil(share · n). Rubric accuracy is k / n. A veto leaves no "
            "CACS. Cases without a positive criterion count nowhere."
        )
        tables = [
            Table.of_rows("Thresholded coverage", rows, note),
            _sensitivity(scored, share),
            _length(scored, share),
        ]
        return Results(tables, figures, notes)


def calibrate(people: Sequence[Hits]) -> tuple[float, str]:
    """The share of the criteria that people's own answers meet, and a note on its basis.

    It is rounded to a whole criterion, as in the paper. Raises UsageError without an answer.
    """
    if not people:
        raise UsageError(
            "people's answers have no complete verdicts, so no threshold can be calibrated"
        )
    n = sum(hits.n for hits in people)
    k = sum(hits.k for hits in people)
    t = max(1, round(k / len(people)))
    share = min(1.0, t / (n / len(people)))
    return share, (
        f"calibrated on {len(people)} answers by people: {k} of {n} criteria met, so t = {t} and a share of {share:.3f}"
    )


Figure = Callable[[Hits, float], float]
"""Returns a figure of one answer; its second argument is the threshold as a share."""


def _means(
    scored: Scored,
    figure: Figure,
    share: float,
) -> Floats:
    """Each model's mean, NaN without an answer; rounded, so that the order of adding up makes no equal means differ."""
    means = [mean([figure(hit, share) for hit in own]) for own in scored.values()]
    return np.array(means, dtype=np.float64).round(12)


def _sensitivity(scored: Scored, share: float) -> Table:
    """How models are ranked at nearby thresholds and by simpler figures, against CACS@t (paper's Table 10)."""
    main = _means(scored, Hits.covered, share)
    others = {}
    for factor in NEARBY:
        others[f"CACS at {factor:g} t"] = _means(scored, Hits.covered, share * factor)
    others["rubric accuracy"] = _means(scored, Hits.accuracy, share)
    others["Pass@t"] = _means(scored, Hits.passed, share)
    # The models that have a mean are the same for every figure.
    known = int((~np.isnan(main)).sum())
    names = np.array(list(scored))
    first = np.lexsort((names, -main))
    rows: Rows = []
    for name, means in others.items():
        row: list[Cell] = [name, spearman(main, means)]
        second = np.lexsort((names, -means))
        for top in _TOPS:
            shared = len(np.intersect1d(first[:top], second[:top]))
            row.append(shared if known > top else None)
        rows.append(row)
    note = "Against CACS@t; the models that both have among their first three and five. NA with too few models."
    titles = ["figure", "Spearman", *(f"of the top {n}" for n in _TOPS)]
    return Table("Other thresholds", titles, rows, note)


def _length(scored: Scored, share: float) -> Table:
    """Whether longer answers score higher for being long (paper's Table 11)."""
    models: list[str] = []
    hits: list[Hits] = []
    for name, own in scored.items():
        models += [name] * len(own)
        hits += own
    cases = [h.case.case_id for h in hits]
    length = np.array([float(h.characters) for h in hits])
    figures: dict[str, Figure] = {
        "CACS@t": Hits.covered,
        "rubric accuracy": Hits.accuracy,
    }
    rows: Rows = []
    for name, figure in figures.items():
        values = np.array([figure(hit, share) for hit in hits])
        control = partial(length, values, models, cases)
        rows.append([name, pearson(length, values), spearman(length, values), control])
    note = "Characters of an answer against its figure. Partial: Pearson's r given the model and the case."
    titles = ["figure", "Pearson", "Spearman", "partial"]
    return Table("Length of answers", titles, rows, note)
