"""ClinConsensus' thresholded coverage on any rubric: credit begins where physicians' own answers end.

Of a case's n positive criteria an answer meets k. CACS@t = max(0, k - t + 1) / (n - t + 1), the mean over j = t..n
of [k >= j]; t is a share of n, calibrated on what physicians write themselves (seed 001 §4.2, §4.3; docs/method.md
§4). A negative criterion met at `veto` points or worse leaves nothing. A case counts only where no verdict that it
rests on is missing.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Side,
    Subject,
    Table,
    bounds_by_case,
    mean,
)
from medlive.evaluation.scoring.estimates import FEW, SLICES, slice_order
from medlive.statistics.bootstrap import Floats
from medlive.statistics.correlation import partial, pearson, spearman

NEARBY: Final = (0.7, 0.8, 1.2, 1.5)
"""Multiples of the threshold at which the ranking is looked at again: the paper's 7, 8, 12 and 15 for 10."""
_TOPS: Final = (3, 5)
_ADVICE_COLUMN: Final = "CACS@t, advice"
"""Of the criteria of advice alone, as the paper metric counts them, where there are others."""


def cacs(k: int, n: int, t: int) -> float:
    """Thresholded coverage of k hits among n criteria, 0 to 1; 1 <= t <= n. Raises ValueError."""
    if not (0 <= k <= n and 1 <= t <= n):
        raise ValueError(
            f"expected 0 <= k <= n and 1 <= t <= n, got k = {k}, n = {n}, t = {t}"
        )
    return max(0, k - t + 1) / (n - t + 1)


def threshold(share: float, n: int) -> int:
    """t = ceil(share · n), at least 1 and at most n."""
    return max(1, math.ceil(min(1.0, share) * n - 1e-9))


@dataclass(frozen=True, slots=True)
class Hits:
    """What an answer covers of a rubric."""

    case: EvaluationCase
    k: int
    n: int
    vetoed: bool
    characters: int
    """Of the answer."""

    @property
    def accuracy(self) -> float:
        """Rubric accuracy: k / n."""
        return self.k / self.n

    def passed(self, share: float) -> float:
        """Pass@t."""
        return float(self.k >= threshold(share, self.n))

    def covered(self, share: float) -> float:
        """CACS@t with the veto."""
        t = threshold(share, self.n)
        return 0.0 if self.vetoed else cacs(self.k, self.n, t)


def hits_of(run: Subject, veto: float) -> dict[str, Hits | None]:
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
            elif criterion.points <= veto:
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


Scored = Mapping[str, Mapping[str, Hits]]
"""Model → case id → hits, of wholly graded cases."""


class Coverage(Protocol):
    """See the module."""

    name: ClassVar[str] = "coverage"
    about: ClassVar[str] = "thresholded rubric coverage, CACS@t (ClinConsensus)"
    figure: ClassVar[str] = "CACS@t, 0 to 1"
    asks: ClassVar[bool] = False
    side: ClassVar[Side | None] = Side.KNOWLEDGE

    share: Annotated[
        float,
        Field(gt=0, le=1, description="threshold as a share of the positive criteria"),
    ] = 1 / 3
    veto: Annotated[
        float,
        Field(lt=0, description="points from which on a met criterion leaves nothing"),
    ] = -8.0
    people: Annotated[
        tuple[str, ...],
        Field(
            description="models that are people: the share is calibrated on their answers"
        ),
    ] = ()
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[int, Field(ge=0, description="where the draws begin")] = 0

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Runs of which one at least was graded; the others are NA."""
        asked = ((run, case.case_id) for run in material for case in run.cases)
        return any(run.verdicts(case_id) for run, case_id in asked)

    def results(self, material: Material, found: JudgeReplies) -> Results:
        """Models, nearby thresholds, slices and the length control."""
        hits = {run.label: hits_of(run, self.veto) for run in material}
        scored = {name: _graded(own) for name, own in hits.items()}
        share, notes = self.share, list[str]()
        by_people: list[Hits] = []
        for name in self.people:
            if name not in scored:
                raise UsageError(
                    f"no run is by {name!r}", hint=f"the runs are by {', '.join(hits)}"
                )
            by_people += scored.pop(name).values()
        if self.people:
            share, note = calibrate(by_people)
            notes.append(note)
        main = _Column(scored, lambda h: h.covered(share))
        tables = [
            self._models(material, hits, scored, share),
            *_slices(main),
            _sensitivity(scored, share),
            _length(scored, share),
        ]
        return Results(tables, main.means(), notes)

    def _models(
        self,
        material: Material,
        hits: Mapping[str, Mapping[str, Hits | None]],
        scored: Scored,
        share: float,
    ) -> Table:
        accuracy = _Column(scored, lambda h: h.accuracy)
        passed = _Column(scored, lambda h: h.passed(share))
        column = _Column(scored, lambda h: h.covered(share))
        advice = _of_advice(material, scored, self.veto)
        of_advice = _Column(advice, lambda h: h.covered(share))
        rows: list[list[Cell]] = []
        for run in material:
            name = run.label
            if name not in scored:
                continue
            own, answered = scored[name], len(hits[name])
            low, high = bounds_by_case(
                column.values[name],
                list(column.cases.values()),
                draws=self.draws,
                seed=self.seed,
            )
            row: list[Cell] = [
                name,
                len(own),
                accuracy.mean(name),
                passed.mean(name),
            ]
            row += [
                column.mean(name),
                low,
                high,
                sum(h.vetoed for h in own.values()),
            ]
            row += [answered - len(own), len(run.cases) - answered]
            if advice:
                row.append(of_advice.mean(name))
            rows.append(row)
        note = (
            "Means over wholly graded cases; t = ceil(share · n). Rubric accuracy is k / n. A veto leaves no "
            "CACS."
        )
        titles = [
            "model",
            "cases",
            "accuracy",
            "Pass@t",
            "CACS@t",
            "low",
            "high",
        ]
        titles += ["vetoed", "ungraded", "unanswered"]
        if advice:
            titles.append(_ADVICE_COLUMN)
        return Table("Thresholded coverage", titles, rows, note)


def _graded(hits: Mapping[str, Hits | None]) -> dict[str, Hits]:
    """The hits of wholly graded cases."""
    return {case_id: hit for case_id, hit in hits.items() if hit is not None}


def _of_advice(
    material: Material, models: Collection[str], veto: float
) -> dict[str, dict[str, Hits]]:
    """The hits among the criteria of advice, by model; none where every criterion rests on it."""
    hits: dict[str, dict[str, Hits]] = {}
    mixed = False
    for run in material:
        if run.label in models:
            cases = tuple(case.advice_only for case in run.cases)
            hits[run.label] = _graded(hits_of(replace(run, cases=cases), veto))
            mixed = mixed or cases != run.cases
    return hits if mixed else {}


def calibrate(people: Sequence[Hits]) -> tuple[float, str]:
    """The share of the criteria that people's own answers meet, rounded to a whole criterion as the paper does,
    and what it rests on. Raises UsageError without an answer."""
    if not people:
        raise UsageError(
            "people's answers have no complete verdicts, so no threshold can be calibrated"
        )
    n = k = 0
    for hits in people:
        n += hits.n
        k += hits.k
    mean_n, mean_k = n / len(people), k / len(people)
    t = max(1, round(mean_k))
    share = min(1.0, t / mean_n)
    return share, (
        f"calibrated on {len(people)} answers by people: {k} of {n} criteria met ({k / n:.2%}), {mean_k:.2f} of "
        f"{mean_n:.2f} a case, so t = {t} there and a share of {share:.3f}"
    )


class _Column:
    """A figure of every model's cases."""

    def __init__(self, scored: Scored, value: Callable[[Hits], float]) -> None:
        self.cases: dict[str, EvaluationCase] = {}
        for own in scored.values():
            for case_id, hits in own.items():
                self.cases[case_id] = hits.case
        places = {case_id: place for place, case_id in enumerate(self.cases)}
        self.values: dict[str, Floats] = {}
        for name, own in scored.items():
            column = self.values[name] = np.full(len(places), np.nan)
            for case_id, hits in own.items():
                column[places[case_id]] = value(hits)

    def mean(self, name: str, chosen: NDArray[np.bool_] | None = None) -> float | None:
        values = self.values[name]
        counts = ~np.isnan(values)
        return mean(values[counts if chosen is None else counts & chosen])

    def means(self) -> dict[str, float | None]:
        """The mean of each model."""
        return {name: self.mean(name) for name in self.values}

    def ranking(self) -> list[str]:
        """The models that have a mean, the best first."""
        means = self.means()
        known = [name for name, value in means.items() if value is not None]
        return sorted(known, key=lambda name: (-(means[name] or 0.0), name))


def _slices(main: _Column) -> Iterator[Table]:
    """CACS@t by each slice that has more than one value."""
    for kind, value_of in SLICES.items():
        count = Counter(map(value_of, main.cases.values()))
        del count[None]
        names = sorted(filter(None, count), key=slice_order)
        if len(names) < 2:
            continue
        values = np.array([value_of(case) or "" for case in main.cases.values()])
        rows: list[list[Cell]] = []
        for model in main.values:
            rows.append([model, *(main.mean(model, values == name) for name in names)])
        few = [name for name in names if count[name] < FEW]
        note = f"Under {FEW} cases, no result: {', '.join(few)}." if few else ""
        yield Table(f"CACS@t by {kind}", ["model", *names], rows, note)


def _sensitivity(scored: Scored, share: float) -> Table:
    """How the ranking of models stands at nearby thresholds and under simpler figures (paper's Table 10)."""
    main = _Column(scored, lambda h: h.covered(share))
    others: dict[str, _Column] = {}
    for factor in NEARBY:
        nearby = functools.partial(Hits.covered, share=share * factor)
        others[f"CACS at {factor:g} t"] = _Column(scored, nearby)
    others["rubric accuracy"] = _Column(scored, lambda h: h.accuracy)
    others["Pass@t"] = _Column(scored, lambda h: h.passed(share))
    means = np.array(list(main.means().values()), dtype=np.float64)
    rows: list[list[Cell]] = []
    for name, column in others.items():
        own_means = np.array(list(column.means().values()), dtype=np.float64)
        row: list[Cell] = [name, spearman(means, own_means)]
        for top in _TOPS:
            row.append(_shared(main.ranking(), column.ranking(), top))
        rows.append(row)
    note = "Against CACS@t; the models that both have among their first three and five. NA with too few models."
    titles = ["figure", "Spearman", *(f"of the top {n}" for n in _TOPS)]
    return Table("Other thresholds", titles, rows, note)


def _shared(first: Sequence[str], second: Sequence[str], top: int) -> int | None:
    """How many models are among the first `top` of both; None where there are not more models than that."""
    if len(first) <= top or len(second) <= top:
        return None
    return len(set(first[:top]) & set(second[:top]))


def _length(scored: Scored, share: float) -> Table:
    """Whether longer answers are paid for being long (paper's Table 11)."""
    models: list[str] = []
    hits: list[Hits] = []
    for name, own in scored.items():
        models += [name] * len(own)
        hits += own.values()
    cases = [h.case.case_id for h in hits]
    length = np.array([float(h.characters) for h in hits])
    figures = {
        "CACS@t": np.array([h.covered(share) for h in hits]),
        "rubric accuracy": np.array([h.accuracy for h in hits]),
    }
    rows: list[list[Cell]] = []
    for name, values in figures.items():
        control = partial(length, values, models, cases)
        rows.append([name, pearson(length, values), spearman(length, values), control])
    note = "Characters of an answer against its figure. Partial: Pearson's r given the model and the case."
    titles = [
        "figure",
        "Pearson",
        "Spearman",
        "partial",
    ]
    return Table("Length of answers", titles, rows, note)
