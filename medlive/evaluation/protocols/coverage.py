"""ClinConsensus' thresholded coverage on any rubric: credit begins where physicians' own answers end.

Of a case's n positive criteria an answer meets k. CACS@t = max(0, k - t + 1) / (n - t + 1), the mean over j = t..n
of [k >= j]; t is a share of n, calibrated on what physicians write themselves (seed 001 §4.2, §4.3; docs/method.md
§4). A negative criterion met at `veto` points or worse leaves nothing. A case counts only where no verdict that it
rests on is missing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from medlive.errors import UsageError
from medlive.evaluation.grading.questions import Findings
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
)
from medlive.evaluation.scoring.estimates import FEW, SLICES, slice_order
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
    """t = ceil(share · n), at least 1."""
    return max(1, math.ceil(share * n - 1e-9))


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

    def covered(self, t: int) -> float:
        """CACS@t with the veto."""
        return 0.0 if self.vetoed else cacs(self.k, self.n, t)


def hits_of(run: Subject, veto: float) -> dict[str, Hits | None]:
    """Case id → hits, for every answered case with a positive criterion; None where a verdict is missing."""
    found: dict[str, Hits | None] = {}
    for case in run.cases:
        answer = run.answers.get(case.case_id)
        positive = [c for c in case.criteria if c.points > 0]
        if answer is None or not answer.gradable or not positive:
            continue
        met = run.verdicts(case.case_id)
        grave = [c for c in case.criteria if c.points <= veto]
        if any(met.get(c.id) is None for c in (*positive, *grave)):
            found[case.case_id] = None
            continue
        found[case.case_id] = Hits(
            case,
            sum(bool(met[c.id]) for c in positive),
            len(positive),
            any(met[c.id] for c in grave),
            len(answer.response),
        )
    return found


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
    t: Annotated[
        int | None,
        Field(ge=1, description="one threshold for all cases, n at most, not a share"),
    ] = None
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
        return any(run.verdicts(c.case_id) for run in material for c in run.cases)

    def results(self, material: Material, found: Findings) -> Results:
        """Models, nearby thresholds, slices and the length control."""
        hits = {run.label: hits_of(run, self.veto) for run in material}
        if unknown := [name for name in self.people if name not in hits]:
            raise UsageError(
                f"no run is by {unknown[0]!r}",
                hint=f"the runs are by {', '.join(hits)}",
            )
        share, notes = self.share, list[str]()
        if self.people:
            share, note = calibrate(
                [h for name in self.people for h in hits[name].values() if h]
            )
            notes.append(note)

        def t(one: Hits, factor: float = 1.0) -> int:
            if self.t is not None:
                return min(one.n, max(1, round(self.t * factor)))
            return threshold(min(1.0, share * factor), one.n)

        models = [name for name in hits if name not in self.people]
        scored = {
            name: {h.case.case_id: h for h in hits[name].values() if h}
            for name in models
        }
        main = _Column(scored, lambda h: h.covered(t(h)))
        advice = _of_advice(material, models, self.veto)
        tables = [
            self._models(material, hits, scored, advice, t),
            *_slices(main),
            _sensitivity(scored, t, self.t),
        ]
        tables.append(_length(scored, t))
        return Results(tables, {name: main.mean(name) for name in models}, notes)

    def _models(
        self,
        material: Material,
        hits: Mapping[str, Mapping[str, Hits | None]],
        scored: Mapping[str, Mapping[str, Hits]],
        advice: Mapping[str, Mapping[str, Hits]],
        t: Callable[[Hits], int],
    ) -> Table:
        columns = {
            "accuracy": _Column(scored, lambda h: h.accuracy),
            "Pass@t": _Column(scored, lambda h: float(h.k >= t(h))),
            "CACS@t": _Column(scored, lambda h: h.covered(t(h))),
        }
        column = columns["CACS@t"]
        of_advice = _Column(advice, lambda h: h.covered(t(h)))
        rows: list[list[Cell]] = []
        cases = {run.label: len(run.cases) for run in material}
        for name, mine in scored.items():
            found = hits[name]
            rows.append(
                [
                    name,
                    len(mine),
                    *(of.mean(name) for of in columns.values()),
                    *bounds_by_case(
                        column.values[name],
                        [*column.cases.values()],
                        draws=self.draws,
                        seed=self.seed,
                    ),
                    sum(h.vetoed for h in mine.values()),
                    len(found) - len(mine),
                    cases[name] - len(found),
                    *([of_advice.mean(name)] if advice else []),
                ]
            )
        at = f"t = {self.t}" if self.t is not None else "t = ceil(share · n)"
        note = f"Means over wholly graded cases; {at}. Rubric accuracy is k / n. A veto leaves no CACS."
        titles = (
            "model",
            "cases",
            *columns,
            "low",
            "high",
            "vetoed",
            "ungraded",
            "unanswered",
            *([_ADVICE_COLUMN] if advice else []),
        )
        return Table("Thresholded coverage", titles, rows, note)


def _of_advice(
    material: Material, models: Sequence[str], veto: float
) -> dict[str, dict[str, Hits]]:
    """The hits among the criteria of advice, by model; none where every criterion rests on it."""
    found: dict[str, dict[str, Hits]] = {}
    mixed = False
    for run in material:
        if run.label not in models:
            continue
        cases = tuple(case.advice_only for case in run.cases)
        own = hits_of(replace(run, cases=cases), veto)
        found[run.label] = {name: one for name, one in own.items() if one}
        pairs = zip(cases, run.cases, strict=True)
        mixed = mixed or any(narrow is not case for narrow, case in pairs)
    return found if mixed else {}


def calibrate(people: Sequence[Hits]) -> tuple[float, str]:
    """The share of the criteria that people's own answers meet, rounded to a whole criterion as the paper does,
    and what it rests on. Raises UsageError without an answer."""
    if not people:
        raise UsageError(
            "people's answers have no complete verdicts, so no threshold can be calibrated"
        )
    n, k = sum(h.n for h in people), sum(h.k for h in people)
    mean_n, mean_k = n / len(people), k / len(people)
    t = max(1, round(mean_k))
    share = min(1.0, t / mean_n)
    return share, (
        f"calibrated on {len(people)} answers by people: {k} of {n} criteria met ({k / n:.2%}), {mean_k:.2f} of "
        f"{mean_n:.2f} a case, so t = {t} there and a share of {share:.3f}"
    )


class _Column:
    """A figure of every model's cases."""

    def __init__(
        self, scored: Mapping[str, Mapping[str, Hits]], value: Callable[[Hits], float]
    ) -> None:
        self.cases = {
            cid: h.case for mine in scored.values() for cid, h in mine.items()
        }
        self.values = {
            name: np.array(
                [value(mine[cid]) if cid in mine else np.nan for cid in self.cases]
            )
            for name, mine in scored.items()
        }

    def mean(self, name: str, chosen: Iterable[bool] | None = None) -> float | None:
        values = self.values[name]
        values = values[
            ~np.isnan(values)
            & (True if chosen is None else np.array([*chosen], dtype=bool))
        ]
        return float(values.mean()) if len(values) else None


def _slices(main: _Column) -> Iterator[Table]:
    """CACS@t by each slice that has more than one value."""
    for kind, value_of in SLICES.items():
        values = [value_of(case) for case in main.cases.values()]
        named = sorted(
            {value for value in values if value is not None}, key=slice_order
        )
        if len(named) < 2:
            continue
        rows: list[list[Cell]] = [
            [
                name,
                *(main.mean(name, (value == one for value in values)) for one in named),
            ]
            for name in main.values
        ]
        few = [one for one in named if values.count(one) < FEW]
        note = f"Under {FEW} cases, no result: {', '.join(few)}." if few else ""
        yield Table(f"CACS@t by {kind}", ["model", *named], rows, note)


def _sensitivity(
    scored: Mapping[str, Mapping[str, Hits]], t: Callable[..., int], fixed: int | None
) -> Table:
    """How the ranking of models stands at nearby thresholds and under simpler figures (paper's Table 10)."""
    main = _ranking(_Column(scored, lambda h: h.covered(t(h))))
    others: dict[str, _Column] = {
        f"CACS at {factor:g} t": _Column(scored, lambda h, f=factor: h.covered(t(h, f)))  # type: ignore[misc]
        for factor in NEARBY
    }
    others["rubric accuracy"] = _Column(scored, lambda h: h.accuracy)
    others["Pass@t"] = _Column(scored, lambda h: float(h.k >= t(h)))
    rows: list[list[Cell]] = []
    for name, column in others.items():
        ranking = _ranking(column)
        models = list(main)
        rho = spearman(
            np.array([main[m] for m in models]),
            np.array([ranking.get(m, np.nan) for m in models]),
        )
        rows.append([name, rho, *(_shared(main, ranking, top) for top in _TOPS)])
    note = "Against CACS@t; the models that both have among their first three and five. NA with too few models."
    return Table(
        "Other thresholds",
        ["figure", "Spearman", *(f"of the top {n}" for n in _TOPS)],
        rows,
        note,
    )


def _ranking(column: _Column) -> dict[str, float]:
    means = {name: column.mean(name) for name in column.values}
    return {name: mean for name, mean in means.items() if mean is not None}


def _shared(
    first: Mapping[str, float], second: Mapping[str, float], top: int
) -> int | None:
    """How many models are among the first `top` of both; None where there are not more models than that."""
    if len(first) <= top or len(second) <= top:
        return None
    best = [
        set(sorted(one, key=lambda m: (-one[m], m))[:top]) for one in (first, second)
    ]
    return len(best[0] & best[1])


def _length(
    scored: Mapping[str, Mapping[str, Hits]], t: Callable[[Hits], int]
) -> Table:
    """Whether longer answers are paid for being long (paper's Table 11)."""
    rows = [(name, h) for name, mine in scored.items() for h in mine.values()]
    length = np.array([float(h.characters) for _, h in rows])
    figures = {
        "CACS@t": np.array([h.covered(t(h)) for _, h in rows]),
        "rubric accuracy": np.array([h.accuracy for _, h in rows]),
    }
    models, cases = [name for name, _ in rows], [h.case.case_id for _, h in rows]
    found: list[list[Cell]] = [
        [
            name,
            pearson(length, values),
            spearman(length, values),
            partial(length, values, models, cases),
        ]
        for name, values in figures.items()
    ]
    note = "Characters of an answer against its figure. Partial: Pearson's r given the model and the case."
    return Table(
        "Length of answers", ["figure", "Pearson", "Spearman", "partial"], found, note
    )
