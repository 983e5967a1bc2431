"""Several judges of the same answers: where they agree on criteria, and whether models rank the same under each.

A run that two judges graded is a dual judge (seed 001 §4.1); docs/protocols.md has worked figures.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.errors import UsageError
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
from medlive.statistics.raters import Codes, PairAgreement, agree, code_of, mean_of

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
class TopCases:
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
    top: TopCases | None
    """Of the best tenth of the cases."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """One model under one judge, on the cases common to all models and judges."""

    model: str
    judge: str
    score: Estimate
    """The mean of Equation 1."""
    rank: int | None
    """1 is best; equal scores share a rank. None without a common case."""


@dataclass(frozen=True, slots=True)
class RankAgreement:
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


@dataclass(frozen=True, slots=True)
class Judges:
    """What the comparison found."""

    models: tuple[str, ...]
    judges: tuple[str, ...]
    criteria: tuple[GroupAgreement, ...]
    cases: tuple[CaseScores, ...]
    scores: tuple[JudgedModel, ...]
    rankings: tuple[RankAgreement, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "format": "medlive-judges",
            "format_version": 1,
            "level": 0.95,
            **asdict(self),
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
    names: dict[str, None] = {}
    for by_judge in models.values():
        names |= dict.fromkeys(by_judge)
    criteria: list[GroupAgreement] = []
    cases: list[CaseScores] = []
    notes: list[str] = []
    estimate_fn = partial(estimate, draws=draws, seed=seed)
    for first, second in combinations(names, 2):
        both = _graded_by_both(models, first, second)
        criteria += _by_group(first, second, list(both.values()), estimate_fn)
        for model, pair in both.items():
            cases.append(_case_scores(model, first, second, pair, draws, seed))
            unlike = len(pair.first.run.cases) - len(comparable(*pair))
            if unlike:
                notes.append(
                    f"{model}: {unlike} cases have no answer, or another one or another rubric; left out"
                )
    if not criteria:
        raise UsageError(
            "no answer is graded by two of the judges",
            hint="medlive eval grade RUN --grader asks another judge",
        )
    whole: dict[str, Mapping[str, GradedRun]] = {}
    for model, by_judge in models.items():
        missing = names.keys() - by_judge.keys()
        if missing:
            notes.append(
                f"{model} is not graded by {', '.join(sorted(missing))}: left out of scores and ranks"
            )
        else:
            whole[model] = by_judge
    scores: tuple[JudgedModel, ...] = ()
    rankings: tuple[RankAgreement, ...] = ()
    if whole:
        common = _common_scores(whole, list(names))
        scores = tuple(_model_scores(common, draws, seed))
        rankings = tuple(_rankings(common, draws, seed))
    return Judges(
        models=tuple(models),
        judges=tuple(names),
        criteria=tuple(criteria),
        cases=tuple(cases),
        scores=scores,
        rankings=rankings,
        notes=tuple(notes),
    )


class _Pair(NamedTuple):
    """A model's answers under two judges."""

    first: GradedRun
    second: GradedRun


def _graded_by_both(
    models: Mapping[str, Mapping[str, GradedRun]], first: str, second: str
) -> dict[str, _Pair]:
    """The models that both judges graded."""
    both = {}
    for model, by_judge in models.items():
        if first in by_judge and second in by_judge:
            both[model] = _Pair(by_judge[first], by_judge[second])
    return both


class _Setting(NamedTuple):
    """What gave a run's answers."""

    model: str
    template: str
    arm: str | None

    @property
    def label(self) -> str:
        """The model with its template and arm."""
        arm = f", {self.arm}" if self.arm else ""
        return f"{self.model} ({self.template}{arm})"


def gradings(
    runs: Sequence[Path], judges: Sequence[str]
) -> dict[str, dict[str, GradedRun]]:
    """Model → judge's name → the grading. Raises UsageError as `compare_judges`."""
    settings: dict[_Setting, dict[str, GradedRun]] = {}
    unused = set(judges)
    for path in runs:
        rows = read_grades(path / GRADES)[0]
        for digest in dict.fromkeys(grade.judge for grade in rows):
            run = load_graded(path, judge=digest)
            grader = run.known_grader
            matching = [name for name in judges if is_judge(grader, name)]
            unused.difference_update(matching)
            if not (matching if judges else grader.engine != SETTLED):
                continue
            info = run.run.info
            setting = _Setting(info.model, info.template.name, info.arm)
            by_judge = settings.setdefault(setting, {})
            other = by_judge.setdefault(grader.name, run)
            if other is not run:
                raise UsageError(
                    f"{other.run.path} and {path} are both {info.model}, graded by {grader.model}"
                )
    if unused:
        raise UsageError(f"no run is graded by {', '.join(sorted(unused))}")
    count = Counter(setting.model for setting in settings)
    labelled = {}
    for setting, by_judge in settings.items():
        unique = count[setting.model] == 1
        labelled[setting.model if unique else setting.label] = by_judge
    return labelled


def is_judge(grader: Grader, wanted: str) -> bool:
    """Whether a grader is meant by a digest, its beginning, or a model's name."""
    return (
        grader.judge.startswith((wanted, f"sha256:{wanted}")) or grader.model == wanted
    )


def _by_group(
    first: str,
    second: str,
    both: Sequence[_Pair],
    estimate_fn: Callable[..., Estimate],
) -> Iterator[GroupAgreement]:
    """The agreement on all criteria, by sign and by axis; a case's criteria are drawn together over all models."""
    criteria: list[EvaluationCriterion] = []
    case_of_each: list[EvaluationCase] = []
    first_codes: list[int] = []
    second_codes: list[int] = []
    for pair in both:
        for case in comparable(*pair):
            criteria += case.criteria
            case_of_each += [case] * len(case.criteria)
            first_codes += _codes(pair.first, case)
            second_codes += _codes(pair.second, case)
    if not criteria:
        return
    a, b = np.array(first_codes), np.array(second_codes)
    clusters = _clusters(case_of_each)
    for group, kept in _groups(criteria).items():
        if kept.any():
            pair_agreement = agree(
                first, second, a[kept], b[kept], clusters[kept], estimate_fn
            )
            undecided = int((kept & ((a < 0) | (b < 0))).sum())
            yield GroupAgreement(group, pair_agreement, undecided)


def _groups(criteria: Sequence[EvaluationCriterion]) -> dict[str, NDArray[np.bool_]]:
    """Which criteria belong to each group."""
    points = np.array([criterion.points for criterion in criteria])
    axes = np.array([criterion.axis or "" for criterion in criteria])
    groups = {
        "all": np.ones(len(criteria), dtype=bool),
        "positive": points > 0,
        "negative": points < 0,
    }
    for axis in sorted(set(axes.tolist()) - {""}):
        groups[axis] = axes == axis
    return groups


class _Asked(NamedTuple):
    """What a judge decides about."""

    question: str
    criteria: tuple[EvaluationCriterion, ...]
    answer: str
    """Its digest."""


def _asked(run: GradedRun) -> dict[str, _Asked]:
    asked = {}
    for case in run.run.cases:
        answer = run.answers.get(case.case_id)
        if answer is not None:
            asked[case.case_id] = _Asked(case.question, case.criteria, answer.digest)
    return asked


def comparable(first: GradedRun, second: GradedRun) -> list[EvaluationCase]:
    """The cases that both runs have with the same question, criteria and answer."""
    own, other = _asked(first), _asked(second)
    cases = []
    for case in first.run.cases:
        asked = own.get(case.case_id)
        if asked is not None and asked == other.get(case.case_id):
            cases.append(case)
    return cases


def _codes(run: GradedRun, case: EvaluationCase) -> list[int]:
    """The code of each of a case's criteria."""
    met = run.verdicts(case.case_id)
    return [code_of(met.get(criterion.id)) for criterion in case.criteria]


def _case_scores(
    model: str, first: str, second: str, pair: _Pair, draws: int, seed: int
) -> CaseScores:
    """How alike two judges score a model's cases."""
    first_scores, second_scores = pair.first.whole_scores(), pair.second.whole_scores()
    cases: list[EvaluationCase] = []
    scored: dict[str, tuple[float, float]] = {}
    for case in comparable(*pair):
        name = case.case_id
        if name in first_scores and name in second_scores:
            cases.append(case)
            scored[name] = first_scores[name], second_scores[name]
    ids = list(scored)
    x, y = np.array(list(scored.values())).reshape(-1, 2).T
    clusters = _clusters(cases)
    correlation = partial(correlate, clusters=clusters, draws=draws, seed=seed)
    difference = mean_of(np.abs(x - y), clusters, draws=draws, seed=seed)
    return CaseScores(
        model=model,
        first=first,
        second=second,
        spearman=correlation(Kind.SPEARMAN, x, y),
        kendall=correlation(Kind.KENDALL, x, y),
        mean_absolute_difference=difference,
        top=_overlap(ids, x, y),
    )


def _overlap(ids: list[str], first: Floats, second: Floats) -> TopCases | None:
    if not ids:
        return None
    k = max(1, len(ids) // 10)
    return TopCases(k, len(_best(ids, first, k) & _best(ids, second, k)))


def _best(ids: Sequence[str], scores: Floats, k: int) -> set[str]:
    """The k best, equal scores in the order of ids."""
    return {ids[place] for place in np.lexsort((np.array(ids), -scores))[:k]}


def _clusters(cases: Sequence[EvaluationCase]) -> Codes:
    numbers = cluster_numbers(cases)
    return np.arange(len(cases)) if numbers is None else numbers


@dataclass(frozen=True, slots=True)
class _CommonScores:
    """Scores of the cases that every judge graded whole for every model."""

    models: list[str]
    judges: list[str]
    values: Floats
    """(judges x cases x models)."""
    clusters: Codes


def _common_scores(
    models: Mapping[str, Mapping[str, GradedRun]], judges: list[str]
) -> _CommonScores:
    scores: dict[tuple[str, str], dict[str, float]] = {}
    known: list[set[str]] = []
    for model, by_judge in models.items():
        known.append(_same_answers(by_judge))
        for judge, run in by_judge.items():
            scores[model, judge] = run.whole_scores()
            known.append(set(scores[model, judge]))
    common = set.intersection(*known)
    some_run = next(iter(next(iter(models.values())).values()))
    cases = [case for case in some_run.run.cases if case.case_id in common]
    values = np.empty((len(judges), len(cases), len(models)))
    for j, judge in enumerate(judges):
        for m, model in enumerate(models):
            own = scores[model, judge]
            values[j, :, m] = [own[case.case_id] for case in cases]
    return _CommonScores(list(models), judges, values, _clusters(cases))


def _model_scores(
    common: _CommonScores, draws: int, seed: int
) -> Iterator[JudgedModel]:
    """Every model under every judge."""
    for judge, values in zip(common.judges, common.values, strict=True):
        means = values.mean(axis=0) if len(values) else None
        for place, model in enumerate(common.models):
            score = mean_of(values[:, place], common.clusters, draws=draws, seed=seed)
            rank = None
            if means is not None:
                rank = 1 + int((means > means[place] + 1e-12).sum())
            yield JudgedModel(model, judge, score, rank)


def _rankings(common: _CommonScores, draws: int, seed: int) -> Iterator[RankAgreement]:
    """The order of models under every two judges."""
    if len(common.models) < 2:
        return
    for a, b in combinations(range(len(common.judges)), 2):
        yield compare_ranks(
            (common.judges[a], common.judges[b]),
            common.models,
            common.values[[a, b]],
            common.clusters,
            draws,
            seed,
        )


def _same_answers(by_judge: Mapping[str, GradedRun]) -> set[str]:
    """The cases that all judges graded by the same question, criteria and answer."""
    first, *others = by_judge.values()
    same = set(_asked(first))
    for other in others:
        same &= {case.case_id for case in comparable(first, other)}
    return same


def compare_ranks(
    names: tuple[str, str],
    models: list[str],
    values: Floats,
    clusters: Codes,
    draws: int,
    seed: int,
) -> RankAgreement:
    """Compare two judges' scores, (2 x cases x models)."""
    n, k = values.shape[1], len(set(clusters.tolist()))
    if not n:
        none = no_estimate("no common case")
        return RankAgreement(*names, len(models), 0, none, none, none, none, 0, (), {})
    means = values.mean(axis=1)
    flat = np.concatenate([*values, np.ones((n, 1))], axis=1)
    chunks = weight_chunks(clusters, draws, seed)
    sums = np.concatenate([weights @ flat for weights in chunks])
    drawn = (sums[:, :-1] / sums[:, -1:]).reshape(-1, 2, len(models))

    def of(statistic: Callable[[Floats, Floats], float | None]) -> Estimate:
        value = statistic(*means)
        if value is None:
            why = "a judge scores all models the same"
            if len(models) < LEAST:
                why = f"{len(models)} models are too few"
            return no_estimate(why, len(models), k)
        each = np.array([statistic(*pair) for pair in drawn], dtype=np.float64)
        return with_interval(value, each, len(models), k)

    differences = means[:, :, None] - means[:, None, :]
    differences[np.abs(differences) < 1e-12] = 0.0
    order, other = np.sign(differences)
    changed = []
    for a, b in combinations(range(len(models)), 2):
        if order[a, b] != other[a, b]:
            changed.append((models[a], models[b]))
    top = {}
    for size in _TOPS:
        if size < len(models):
            best = _best(models, means[0], size)
            top[size] = len(best & _best(models, means[1], size))
    shift = (values[1] - values[0]).mean(axis=1)
    return RankAgreement(
        *names,
        models=len(models),
        cases=n,
        shift=mean_of(shift, clusters, draws=draws, seed=seed),
        mean_absolute_difference=of(lambda a, b: float(np.abs(a - b).mean())),
        spearman=of(spearman),
        kendall=of(kendall),
        kept=math.comb(len(models), 2) - len(changed),
        reversed=tuple(changed),
        top=top,
    )
