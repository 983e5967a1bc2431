"""Several judges of the same answers: where they agree on criteria, and whether models rank the same under each.

A run that two judges graded is a dual judge (seed 001 §4.1); docs/protocols.md has worked figures.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.agreement.reliability import (
    Codes,
    PairAgreement,
    agree,
    code_of,
    grader_name,
    grader_of,
    mean_of,
    scores_of,
)
from medlive.evaluation.model import (
    EvaluationCase,
    EvaluationCriterion,
    cluster_numbers,
)
from medlive.evaluation.runs.folder import GRADES, SETTLED, read_grades
from medlive.evaluation.scoring.graded import GradedRun, Grader, load_graded
from medlive.statistics.bootstrap import (
    Estimate,
    Floats,
    estimate,
    no_estimate,
    weight_chunks,
    with_interval,
)
from medlive.statistics.correlation import (
    LEAST,
    Correlation,
    Kind,
    correlate,
    kendall,
    spearman,
)

_TOPS: Final = (1, 3, 5)


@dataclass(frozen=True, slots=True)
class GroupAgreement:
    """Two judges on the criteria of one kind, over all models."""

    group: str
    """"all", "positive", "negative" (by the sign of the points), or an axis."""
    pair: PairAgreement
    undecided: int
    """Criteria of the group that only one of the judges decided, or neither."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of two graders' k highest-scoring cases; equal scores are ordered by case id."""

    k: int
    shared: int


@dataclass(frozen=True, slots=True)
class CaseScores:
    """Two judges' scores of one model's cases (Equation 1), on those that both graded whole."""

    model: str
    first: str
    second: str
    spearman: Correlation
    kendall: Correlation
    mean_absolute_difference: Estimate
    top: Overlap | None
    """Of the best tenth of the cases."""


@dataclass(frozen=True, slots=True)
class ModelScore:
    """One model under one judge, on the cases common to all models and judges."""

    model: str
    judge: str
    score: Estimate
    """The mean of Equation 1."""
    rank: int | None
    """1 is best; equal scores share a rank. None without a common case."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Whether models stand in the same order under two judges; intervals are over draws of cases."""

    first: str
    second: str
    models: int
    cases: int
    shift: Estimate
    """The mean score by the second judge less that by the first."""
    mean_absolute_difference: Estimate
    """Over models, of their mean scores."""
    spearman: Estimate
    kendall: Estimate
    kept: int
    """Pairs of models in the same order under both."""
    reversed: tuple[tuple[str, str], ...]
    """Pairs of models in another order, or equal under one judge alone."""
    top: Mapping[int, int]
    """k → how many of the k best models are the same."""

    def in_words(self) -> str:
        """The finding in a sentence or two."""
        if self.shift.value is None:
            return (
                f"{self.first} and {self.second} graded no common case of all models."
            )
        size, higher = abs(self.shift.value), self.shift.value > 0
        moved = (
            f"scores {size:.3f} {'higher' if higher else 'lower'} than"
            if size >= 0.0005
            else "scores as high as"
        )
        pairs = self.kept + len(self.reversed)
        text = f"{self.second} {moved} {self.first} on average."
        if not self.reversed:
            return (
                f"{text} The {self.models} models stand in the same order under both."
                if pairs
                else text
            )
        named = ", ".join(f"{a} and {b}" for a, b in self.reversed[:5]) + (
            " …" if len(self.reversed) > 5 else ""
        )
        return f"{text} Of {pairs} pairs of models {self.kept} keep their order; not {named}."


@dataclass(frozen=True, slots=True)
class Judges:
    """What the comparison found."""

    models: tuple[str, ...]
    judges: tuple[str, ...]
    criteria: tuple[GroupAgreement, ...]
    cases: tuple[CaseScores, ...]
    scores: tuple[ModelScore, ...]
    rankings: tuple[Ranking, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        words = [ranking.in_words() for ranking in self.rankings]
        return {
            "format": "medlive-judges",
            "format_version": 1,
            "level": 0.95,
            **asdict(self),
            "words": words,
        }


def compare_judges(
    runs: Sequence[Path],
    judges: Sequence[str] = (),
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Judges:
    """Compare the judges of runs, each model's under every judge.

    `judges` are named as in `load_graded`; () for all but those that `settle` made.

    Raises:
        UsageError: If fewer than two judges graded the same answers, or two runs are of the same model and judge.
    """
    models = gradings(runs, judges)
    names = list(
        dict.fromkeys(name for by_judge in models.values() for name in by_judge)
    )
    criteria: list[GroupAgreement] = []
    cases: list[CaseScores] = []
    notes: list[str] = []
    for first, second in combinations(names, 2):
        both = {
            model: (by[first], by[second])
            for model, by in models.items()
            if first in by and second in by
        }
        criteria += _by_group(
            first, second, both.values(), partial(estimate, draws=draws, seed=seed)
        )
        for model, (a, b) in both.items():
            cases.append(_case_scores(model, first, second, a, b, draws, seed))
            if unlike := len(a.run.cases) - len(comparable(a, b)):
                notes.append(
                    f"{model}: {unlike} cases have no answer, or another one or another rubric; left out"
                )
    if not criteria:
        raise UsageError(
            "no answer is graded by two of the judges",
            hint="medlive eval grade RUN --grader asks another judge",
        )
    notes += [
        f"{model} is not graded by {', '.join(n for n in names if n not in by)}: left out of scores and ranks"
        for model, by in models.items()
        if set(by) < set(names)
    ]
    whole = {model: by for model, by in models.items() if set(by) == set(names)}
    scores, rankings = _rankings(whole, names, draws, seed) if whole else ((), ())
    return Judges(
        tuple(models),
        tuple(names),
        tuple(criteria),
        tuple(cases),
        scores,
        rankings,
        tuple(notes),
    )


def gradings(
    runs: Sequence[Path], judges: Sequence[str]
) -> dict[str, dict[str, GradedRun]]:
    """Model → judge's name → the grading. Raises UsageError as `compare_judges`."""
    found: dict[tuple[str, str, str | None], dict[str, GradedRun]] = {}
    missing = set(judges)
    for path in runs:
        for digest in dict.fromkeys(
            grade.judge for grade in read_grades(path / GRADES)[0]
        ):
            run = load_graded(path, judge=digest)
            grader = grader_of(run)
            wanted = {one for one in judges if is_judge(grader, one)}
            missing -= wanted
            if not (wanted or (not judges and grader.engine != SETTLED)):
                continue
            info = run.run.info
            by_judge = found.setdefault((info.model, info.template.name, info.arm), {})
            if (other := by_judge.setdefault(grader_name(grader), run)) is not run:
                raise UsageError(
                    f"{other.run.path} and {path} are both {info.model}, graded by {grader.model}"
                )
    if missing:
        raise UsageError(f"no run is graded by {', '.join(sorted(missing))}")
    twice = [model for model, *_ in found]
    return {
        model
        if twice.count(model) == 1
        else f"{model} ({template}{f', {arm}' if arm else ''})": by_judge
        for (model, template, arm), by_judge in found.items()
    }


def is_judge(grader: Grader, wanted: str) -> bool:
    """Whether a grader is meant by a digest, its beginning, or a model's name."""
    return (
        grader.judge.startswith((wanted, f"sha256:{wanted}")) or grader.model == wanted
    )


def _by_group(
    first: str,
    second: str,
    both: Collection[tuple[GradedRun, GradedRun]],
    estimate_fn: Callable[..., Estimate],
) -> Iterator[GroupAgreement]:
    """The agreement on all criteria, by sign and by axis; a case's criteria are drawn together over all models."""
    cases = [comparable(a, b) for a, b in both]
    items = [(case, c) for of in cases for case in of for c in case.criteria]
    if not items:
        return
    codes = [
        np.concatenate(
            [codes_of(pair[side], of) for pair, of in zip(both, cases, strict=True)]
        )
        for side in (0, 1)
    ]
    clusters = _clusters([case for case, _ in items])
    for group, belongs in _groups([c for _, c in items]).items():
        kept = np.array([belongs(c) for _, c in items])
        if not kept.any():
            continue
        a, b = (column[kept] for column in codes)
        pair = agree(first, second, a, b, clusters[kept], estimate_fn)
        yield GroupAgreement(group, pair, int(((a < 0) | (b < 0)).sum()))


def _groups(
    criteria: Sequence[EvaluationCriterion],
) -> dict[str, Callable[[EvaluationCriterion], bool]]:
    axes = sorted({c.axis for c in criteria if c.axis})
    found: dict[str, Callable[[EvaluationCriterion], bool]] = {
        "all": lambda _: True,
        "positive": lambda c: c.points > 0,
        "negative": lambda c: c.points < 0,
    }
    return found | {
        axis: partial(lambda axis, c: c.axis == axis, axis) for axis in axes
    }


def comparable(first: GradedRun, second: GradedRun) -> list[EvaluationCase]:
    """The cases that both runs have with the same question, criteria and answer."""
    asked = [
        {
            case.case_id: (
                case.question,
                case.criteria,
                run.answers[case.case_id].digest,
            )
            for case in run.run.cases
            if case.case_id in run.answers
        }
        for run in (first, second)
    ]
    return [
        c
        for c in first.run.cases
        if c.case_id in asked[0] and asked[0][c.case_id] == asked[1].get(c.case_id)
    ]


def codes_of(run: GradedRun, cases: Sequence[EvaluationCase]) -> Codes:
    """The code of every criterion."""
    codes = [
        code_of(run.verdicts(case.case_id).get(c.id))
        for case in cases
        for c in case.criteria
    ]
    return np.array(codes, dtype=np.int_)


def _case_scores(
    model: str,
    first: str,
    second: str,
    a: GradedRun,
    b: GradedRun,
    draws: int,
    seed: int,
) -> CaseScores:
    """How alike two judges score a model's cases."""
    scored = scores_of(a), scores_of(b)
    cases = [
        case
        for case in comparable(a, b)
        if case.case_id in scored[0].keys() & scored[1].keys()
    ]
    ids, clusters = [case.case_id for case in cases], _clusters(cases)
    x, y = (np.array([of[case_id] for case_id in ids]) for of in scored)
    return CaseScores(
        model,
        first,
        second,
        spearman=correlate(
            Kind.SPEARMAN, x, y, clusters=clusters, draws=draws, seed=seed
        ),
        kendall=correlate(
            Kind.KENDALL, x, y, clusters=clusters, draws=draws, seed=seed
        ),
        mean_absolute_difference=mean_of(
            np.abs(x - y), clusters, draws=draws, seed=seed
        ),
        top=_overlap(ids, x, y),
    )


def _overlap(ids: list[str], a: Floats, b: Floats) -> Overlap | None:
    if not ids:
        return None
    k = max(1, len(ids) // 10)
    best = [
        {ids[i] for i in sorted(range(len(ids)), key=lambda i: (-s[i], ids[i]))[:k]}
        for s in (a, b)
    ]
    return Overlap(k, len(best[0] & best[1]))


def _clusters(cases: Sequence[EvaluationCase]) -> Codes:
    numbers = cluster_numbers(cases)
    return np.arange(len(cases)) if numbers is None else numbers


def _rankings(
    models: Mapping[str, Mapping[str, GradedRun]],
    judges: Sequence[str],
    draws: int,
    seed: int,
) -> tuple[tuple[ModelScore, ...], tuple[Ranking, ...]]:
    """Every model under every judge on the common cases, and every two judges' ranks."""
    scores = {
        (model, judge): scores_of(run)
        for model, by in models.items()
        for judge, run in by.items()
    }
    common = set.intersection(
        *(set(of) for of in scores.values()),
        *(_same_answers(by) for by in models.values()),
    )
    cases = [
        case
        for case in next(iter(next(iter(models.values())).values())).run.cases
        if case.case_id in common
    ]
    clusters = _clusters(cases)
    values = np.array(
        [[[scores[m, j][c.case_id] for m in models] for c in cases] for j in judges],
        dtype=np.float64,
    ).reshape(len(judges), len(cases), len(models))
    found = []
    for judge, of in zip(judges, values, strict=True):
        means = of.mean(axis=0) if cases else np.full(len(models), np.nan)
        for place, model in enumerate(models):
            score = mean_of(of[:, place], clusters, draws=draws, seed=seed)
            rank = 1 + int((means > means[place] + 1e-12).sum()) if cases else None
            found.append(ModelScore(model, judge, score, rank))
    if len(models) < 2:
        return tuple(found), ()
    pairs = combinations(range(len(judges)), 2)
    return tuple(found), tuple(
        compare_ranks(
            (judges[a], judges[b]), list(models), values[[a, b]], clusters, draws, seed
        )
        for a, b in pairs
    )


def _same_answers(by_judge: Mapping[str, GradedRun]) -> set[str]:
    """The cases that all judges graded by the same question, criteria and answer."""
    first, *others = by_judge.values()
    return set.intersection(
        *({case.case_id for case in comparable(first, one)} for one in (first, *others))
    )


def compare_ranks(
    names: tuple[str, str],
    models: list[str],
    values: Floats,
    clusters: Codes,
    draws: int,
    seed: int,
) -> Ranking:
    """Compare two judges' scores, (2 x cases x models)."""
    n, k = values.shape[1], len(set(clusters.tolist()))
    if not n:
        none = no_estimate("no common case")
        return Ranking(*names, len(models), 0, none, none, none, none, 0, (), {})
    means = values.mean(axis=1)
    flat = np.concatenate([*values, np.ones((n, 1))], axis=1)
    sums = np.concatenate(
        [weights @ flat for weights in weight_chunks(clusters, draws, seed)]
    )
    drawn = (sums[:, :-1] / sums[:, -1:]).reshape(-1, 2, len(models))

    def of(statistic: Callable[[Floats, Floats], float | None]) -> Estimate:
        value = statistic(*means)
        if value is None:
            few = (
                f"{len(models)} models are too few"
                if len(models) < LEAST
                else "a judge scores all models the same"
            )
            return no_estimate(few, len(models), k)
        each = np.array([statistic(*one) for one in drawn], dtype=np.float64)
        return with_interval(value, each, len(models), k)

    orders = [
        np.sign(np.where(np.abs(m[:, None] - m) < 1e-12, 0.0, m[:, None] - m))
        for m in means
    ]
    pairs = list(combinations(range(len(models)), 2))
    changed = [
        (models[a], models[b]) for a, b in pairs if orders[0][a, b] != orders[1][a, b]
    ]
    best = [[models[i] for i in np.lexsort((models, -m))] for m in means]
    return Ranking(
        *names,
        len(models),
        n,
        shift=mean_of(
            (values[1] - values[0]).mean(axis=1), clusters, draws=draws, seed=seed
        ),
        mean_absolute_difference=of(lambda a, b: float(np.abs(a - b).mean())),
        spearman=of(spearman),
        kendall=of(kendall),
        kept=len(pairs) - len(changed),
        reversed=tuple(changed),
        top={
            k: len(set(best[0][:k]) & set(best[1][:k]))
            for k in _TOPS
            if k < len(models)
        },
    )
