"""Scoring runs: one table over models, every figure with its n, its interval and what is left open."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.errata import ErrataUse
from medlive.evaluation.grade import read_grades
from medlive.evaluation.livemedbench import case_entry, grade_entry
from medlive.evaluation.metrics import CaseScore, CaseState, Metric, case_score
from medlive.evaluation.model import Answer, AnswerState, EvaluationCase, Grade, grade_key
from medlive.evaluation.published import MonthTable, published_table
from medlive.evaluation.run import GRADES, RunFolder, open_run
from medlive.statistics.bootstrap import (
    Comparison,
    Floats,
    Standing,
    bootstrap_means,
    compare,
    interval,
    tie_groups,
)

FEW: Final = 30
"""A slice of fewer cases is greyed."""

SLICES: Final[Mapping[str, Callable[[EvaluationCase], str | None]]] = {
    "month": lambda case: case.month,
    "theme": lambda case: case.theme,
    "specialty": lambda case: case.specialty,
    "language": lambda case: case.language,
    "source": lambda case: case.source,
    "first release": lambda case: case.first_release,
}


@dataclass(frozen=True, slots=True)
class Grader:
    """Who graded."""

    engine: str
    model: str
    """The pinned model that was asked."""
    answered_by: tuple[str, ...]
    """The models that the replies name."""
    mode: str
    prompt: str
    judge: str


@dataclass(frozen=True, slots=True)
class GradedRun:
    """A run with the verdicts of one grader, ready to be scored."""

    run: RunFolder
    label: str
    """The model's name, made unique among the runs scored together."""
    answers: Mapping[str, Answer]
    grades: Mapping[str, Mapping[str, Grade]]
    """Case id → criterion id → the grade that fits the answer and the criterion as they are now."""
    grader: Grader | None
    """None when nothing is graded."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval, its n, and the least and most that ungraded and unanswered could make it."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    least: float
    most: float
    of: int
    """Cases that the bounds are over: n and those without a point score."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.n < FEW


@dataclass(frozen=True, slots=True)
class Slice:
    """One value of one kind of slice."""

    kind: str
    value: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class AxisErrors:
    """How often an axis's criteria went wrong: a positive one unmet, or a negative one met."""

    axis: str
    n: int
    """Graded criteria."""
    errors: int

    @property
    def rate(self) -> float | None:
        """errors / n."""
        return self.errors / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Rates:
    """What stands beside a score: counts, their shares are of `cases` or of `criteria`."""

    cases: int
    criteria: int
    """Of gradable answers."""
    ungraded: int
    """Criteria without a verdict."""
    partly_graded: int
    """Cases that hold one."""
    unanswered: int
    truncated: int
    refused: int
    unscorable: int


@dataclass(frozen=True, slots=True)
class ModelScore:
    """One run's figures under one metric."""

    label: str
    run: GradedRun
    overall: Estimate
    standing: Standing | None
    rates: Rates
    slices: tuple[Slice, ...]
    axes: tuple[AxisErrors, ...]
    cases: tuple[CaseScore, ...]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Every model's score, best first, and how they compare."""

    metric: Metric
    draws: int
    seed: int
    models: tuple[ModelScore, ...]
    comparisons: tuple[Comparison, ...]
    common: int
    """Cases that every model has a score for."""
    warnings: tuple[str, ...]
    """What keeps this table from being published or compared, to be printed with it."""
    errata: ErrataUse | None = None
    """What was done about errata, in the order of the runs that were given; None: nobody looked."""
    labels: tuple[str, ...] = ()
    """The models' labels in that order."""

    def tsv(self) -> str:
        """The table as LiveMedBench prints it: `Date`, models, `# case`; for the published metric to the digit."""
        return month_table(self).tsv()


def load_graded(path: Path, *, judge: str | None = None) -> GradedRun:
    """A run with the verdicts of the grader used last, or of the one whose judge digest is given.

    A verdict about an answer or a criterion that has changed since does not count.
    """
    run = open_run(path)
    answers, notes = run.answers()
    grades, grade_notes = read_grades(path / GRADES)
    if judge is None and grades:
        judge = grades[-1].judge
    grades = [grade for grade in grades if grade.judge == judge]
    latest = {grade.key: grade for grade in grades}
    fitting: dict[str, dict[str, Grade]] = {}
    for case in run.cases:
        answer = answers.get(case.case_id)
        if answer is None or not answer.gradable or judge is None:
            continue
        keys = {c.id: grade_key(case, c, answer, judge) for c in case.criteria}
        fitting[case.case_id] = {cid: latest[key] for cid, key in keys.items() if key in latest}
    grader = None
    if grades:
        last = grades[-1]
        named = tuple(sorted({g.grader for g in latest.values() if g.grader}))
        grader = Grader(last.engine, last.model, named, last.mode, last.prompt, last.judge)
    return GradedRun(run, run.info.model, answers, fitting, grader, (*notes, *grade_notes))


def score_runs(
    runs: Sequence[GradedRun],
    *,
    metric: Metric = Metric.PAPER,
    draws: int = 1000,
    seed: int = 0,
    errata: ErrataUse | None = None,
) -> ScoreTable:
    """Score runs side by side; intervals by a bootstrap over cases with the same weights for all of them.

    A case is one thread, so drawing cases draws whole threads. Runs of one model get their folder's name as well.
    `errata` says of each run what was withdrawn since (`use_errata`); where they are applied, the runs are scored
    as if their snapshots had never held it. Raises UsageError without a run, CheckFailed when nothing of one is
    left.
    """
    if not runs:
        raise UsageError("there is no run to score")
    runs = _labelled(runs)
    if errata is not None:
        # Answers and grades are looked up by what the run's cases hold: those of what is gone are not met.
        runs = [replace(run, run=errata.without(place, run.run)) for place, run in enumerate(runs)]
    order = {cid: place for place, cid in enumerate(dict.fromkeys(c.case_id for r in runs for c in r.run.cases))}
    scored = [_case_scores(run, metric) for run in runs]
    values = np.full((len(order), len(runs)), np.nan)
    for column, cases in enumerate(scored):
        for case in cases:
            if case.score is not None:
                values[order[case.case.case_id], column] = case.score
    labels = [run.label for run in runs]
    comparisons = compare(labels, values, draws=draws, seed=seed)
    estimates = [_estimates(cases, values[:, i], order, metric, draws, seed) for i, cases in enumerate(scored)]
    means = {label: e[0].mean for label, e in zip(labels, estimates, strict=True)}
    standings = {s.name: s for s in tie_groups({k: v for k, v in means.items() if v is not None}, comparisons)}
    models = [
        ModelScore(run.label, run, overall, standings.get(run.label), _rates(cases), slices, _axes(cases), cases)
        for run, cases, (overall, slices) in zip(runs, scored, estimates, strict=True)
    ]
    models.sort(key=lambda m: (m.overall.mean is None, -(m.overall.mean or 0.0), m.label))
    common = int((~np.isnan(values)).all(axis=1).sum())
    warnings = [*_warnings(runs, common, len(order)), *(errata.told(labels) if errata else [])]
    return ScoreTable(
        metric,
        draws,
        seed,
        tuple(models),
        tuple(comparisons),
        common,
        tuple(warnings),
        errata,
        tuple(labels),
    )


def _labelled(runs: Sequence[GradedRun]) -> list[GradedRun]:
    names = Counter(run.label for run in runs)
    out: list[GradedRun] = []
    taken: set[str] = set()
    for run in runs:
        label = run.label if names[run.label] == 1 else f"{run.label} ({run.run.path.name})"
        while label in taken:
            label += "′"
        taken.add(label)
        out.append(GradedRun(run.run, label, run.answers, run.grades, run.grader, run.notes))
    return out


def _case_scores(run: GradedRun, metric: Metric) -> tuple[CaseScore, ...]:
    found = []
    for case in run.run.cases:
        grades = run.grades.get(case.case_id, {})
        met = {cid: grade.met for cid, grade in grades.items()}
        found.append(case_score(case, run.answers.get(case.case_id), met, metric))
    return tuple(found)


def _estimates(
    cases: Sequence[CaseScore],
    column: Floats,
    order: Mapping[str, int],
    metric: Metric,
    draws: int,
    seed: int,
) -> tuple[Estimate, tuple[Slice, ...]]:
    """The overall estimate and every slice's, from one pass of draws: a slice is a column with the rest absent."""
    groups: list[tuple[str, str, list[CaseScore]]] = [("", "", list(cases))]
    for kind, value_of in SLICES.items():
        by_value: dict[str, list[CaseScore]] = {}
        for case in cases:
            if (value := value_of(case.case)) is not None:
                by_value.setdefault(value, []).append(case)
        groups += [(kind, value, by_value[value]) for value in sorted(by_value)]
    matrix = np.full((len(column), len(groups)), np.nan)
    for place, (_, _, members) in enumerate(groups):
        rows = [order[case.case.case_id] for case in members]
        matrix[rows, place] = column[rows]
    drawn = bootstrap_means(matrix, draws=draws, seed=seed)
    made = [_estimate(members, drawn[:, place], metric) for place, (_, _, members) in enumerate(groups)]
    slices = tuple(
        Slice(kind, value, estimate) for (kind, value, _), estimate in zip(groups[1:], made[1:], strict=True)
    )
    return made[0], slices


def _estimate(cases: Sequence[CaseScore], drawn: Floats, metric: Metric) -> Estimate:
    points = [case.score for case in cases if case.score is not None]
    bounded = [case for case in cases if case.state is not CaseState.UNSCORABLE or metric is Metric.PUBLISHED]
    if metric is Metric.PUBLISHED:
        drawn = np.clip(drawn, 0.0, 1.0)
    around = interval(drawn) if len(points) > 1 else None

    def mean(values: list[float]) -> float:
        average = sum(values) / len(values)
        return max(0.0, min(1.0, average)) if metric is Metric.PUBLISHED else average

    return Estimate(
        n=len(points),
        mean=mean(points) if points else None,
        low=around[0] if around else None,
        high=around[1] if around else None,
        least=mean([case.low for case in bounded]) if bounded else 0.0,
        most=mean([case.high for case in bounded]) if bounded else 0.0,
        of=len(bounded),
    )


def _rates(cases: Sequence[CaseScore]) -> Rates:
    states = Counter(case.state for case in cases)
    answers = Counter(case.answer for case in cases)
    return Rates(
        cases=len(cases),
        criteria=sum(len(case.met) for case in cases),
        ungraded=sum(case.ungraded for case in cases),
        partly_graded=states[CaseState.PARTLY_GRADED],
        unanswered=states[CaseState.UNANSWERED],
        truncated=answers[AnswerState.TRUNCATED],
        refused=answers[AnswerState.REFUSED],
        unscorable=states[CaseState.UNSCORABLE],
    )


def _axes(cases: Sequence[CaseScore]) -> tuple[AxisErrors, ...]:
    graded: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for case in cases:
        for criterion in case.case.criteria:
            met = case.met.get(criterion.id)
            if criterion.axis is None or met is None:
                continue
            graded[criterion.axis] += 1
            errors[criterion.axis] += met is (criterion.points < 0)
    return tuple(AxisErrors(axis, graded[axis], errors[axis]) for axis in sorted(graded))


def _warnings(runs: Sequence[GradedRun], common: int, union: int) -> list[str]:
    warnings = []
    for run in runs:
        info = run.run.info
        if info.cases.publishable is False:
            why = "; ".join(info.cases.notes) or "no reason given"
            warnings.append(f"{run.label}: not publishable: the snapshot {info.cases.name} is not ({why})")
        if run.grader is None:
            warnings.append(f"{run.label}: nothing is graded")
        elif run.grader.engine == "rules":
            warnings.append(f"{run.label}: not publishable: graded by the rules engine")
        if info.engine == "rules":
            warnings.append(f"{run.label}: not publishable: answered by the rules engine")
        if run.grader is not None and any(name != run.grader.model for name in run.grader.answered_by):
            warnings.append(f"{run.label}: graded by {', '.join(run.grader.answered_by)}, not by the pinned model")
    for what, values in (
        ("cases", {r.run.info.cases.digest for r in runs}),
        ("graders", {r.grader.judge for r in runs if r.grader}),
        ("prompt templates", {r.run.info.template.name for r in runs}),
    ):
        if len(values) > 1:
            warnings.append(f"the runs differ in their {what}: their scores are not one ranking")
    if len(runs) > 1 and common < union:
        warnings.append(
            f"{common} of {union} cases are scored for every model; pairs are compared on what both have"
        )
    return list(dict.fromkeys(warnings))


def month_table(table: ScoreTable) -> MonthTable:
    """Scores by month and overall. Under the published metric it is the published script's own, computed from the
    runs as LiveMedBench's files would hold them; under the paper's a month that a model lacks is NA."""
    by_label = {model.label: model for model in table.models}
    if table.metric is Metric.PUBLISHED:
        benchmark = {c.case_id: case_entry(c) for m in table.models for c in m.run.run.cases}
        gradings: dict[str, list[dict[str, Any]]] = {
            label: [grade_entry(case, model.run.grades.get(case.case_id, {})) for case in model.run.run.cases]
            for label, model in by_label.items()
        }
        return published_table(list(benchmark.values()), gradings)
    labels = tuple(sorted(by_label))
    by_month = {
        label: {s.value: s.estimate for s in by_label[label].slices if s.kind == "month"} for label in labels
    }
    months = sorted({month for found in by_month.values() for month in found})
    # `# case` counts the month's cases that every model of the row could have, not one model's.
    counts = {
        month: len({c.case_id for m in table.models for c in m.run.run.cases if c.month == month})
        for month in months
    }
    rows = tuple(
        (
            month,
            tuple(by_month[label][month].mean if month in by_month[label] else None for label in labels),
            counts[month],
        )
        for month in months
    )
    total = len({c.case_id for m in table.models for c in m.run.run.cases})
    return MonthTable(labels, rows, tuple(by_label[label].overall.mean for label in labels), total)
