"""Compare judges of the same answers (`compare_judges`): agreement on criteria, and whether they rank models alike.

Where two judges graded a run (dual judge, seed 001 §4.1), people check what the two decide differently (`read_sheet`);
docs/protocols.md has worked figures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.model import EvaluationCase, cluster_array
from medlive.evaluation.runs.folder import GRADES, grades_of
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.refusals import unpublishable_reasons
from medlive.grader.rated import CheckedVerdict, GraderSheet
from medlive.statistics.bootstrap import Draws, bootstrap_means
from medlive.statistics.correlation import LEAST, kendall, spearman
from medlive.statistics.estimate import Estimate, mean_estimate, percentile_estimate
from medlive.statistics.intervals import Floats
from medlive.statistics.raters import Codes, agree, code_of

from .humans import items_of

_TOPS = (1, 3, 5)
"""How many of the best models are compared."""
Gradings = Mapping[str, Mapping[str, GradedRun]]
"""Model → judge's name → the grading."""
Row = Mapping[str, Any]
"""A row of the result: columns with names, counts or estimates."""


@dataclass(frozen=True)
class JudgeComparison:
    """The result of comparing judges."""

    models: tuple[str, ...]
    judges: tuple[str, ...]
    criteria: tuple[Row, ...]
    """A row for each two judges: their agreement on the criteria of all models (`pair`), and how many criteria one of
    them or both left `undecided`."""
    scores: tuple[Row, ...]
    """The mean `score` by Equation 1 of each `model` under each `judge`, on the cases common to all."""
    rankings: tuple[Row, ...]
    """A row for each two judges: how alike they rank the models (`compare_ranks`)."""
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        head = {"format": "medlive-judges", "format_version": 1, "level": 0.95}
        return head | asdict(self)


def compare_judges(
    runs: Sequence[Path],
    judges: Sequence[str] = (),
    **draws: Unpack[Draws],
) -> JudgeComparison:
    """Compare the judges of runs, each model's under every judge.

    `judges` are named as in `load_graded`; () for all.

    Raises:
        UsageError: If fewer than two judges graded the same answers, or two runs are of the same model and judge.
    """
    models = gradings(runs, judges)
    names = list(dict.fromkeys(chain.from_iterable(models.values())))
    criteria: list[Row] = []
    notes = _unpublishable(models)
    for first, second in combinations(names, 2):
        pairs = []
        for model, by_judge in models.items():
            if first not in by_judge or second not in by_judge:
                continue
            pair = by_judge[first], by_judge[second]
            pairs.append(pair)
            if unlike := len(pair[0].cases) - len(comparable(*pair)):
                notes.append(
                    f"{model}: {unlike} cases have no answer, or another one or another rubric; left out"
                )
        criteria += _agreement(first, second, pairs, **draws)
    if not criteria:
        raise UsageError(
            "no answer is graded by two of the judges",
            hint="medlive eval grade RUN --grader asks another judge",
        )
    whole = {}
    for model, by_judge in models.items():
        missing = set(names) - by_judge.keys()
        if missing:
            notes.append(
                f"{model} is not graded by {', '.join(sorted(missing))}: left out of scores and ranks"
            )
        else:
            whole[model] = by_judge
    means, rankings = _ranks(whole, names, **draws)
    if not means:
        notes.append("the judges graded no case of all models whole: no ranks")
    return JudgeComparison(
        models=tuple(models),
        judges=tuple(names),
        criteria=tuple(criteria),
        scores=tuple(means),
        rankings=tuple(rankings),
        notes=tuple(notes),
    )


def _unpublishable(models: Gradings) -> list[str]:
    """Why figures of these gradings must not be published, where `eval score` would refuse them."""
    notes: dict[str, None] = {}
    for model, by_judge in models.items():
        for run in by_judge.values():
            for why in unpublishable_reasons(run):
                notes[f"{model}: not publishable: {why}"] = None
    return list(notes)


def _ranks(
    models: Gradings,
    judges: Sequence[str],
    **draws: Unpack[Draws],
) -> tuple[list[Row], list[Row]]:
    """The scores of models that every judge graded, and how alike each two judges rank them.

    Only cases count that every judge graded whole for every model.
    """
    scores: list[Row] = []
    rankings: list[Row] = []
    if not models:
        return scores, rankings
    columns = []
    shared: list[set[str]] = []
    for by_judge in models.values():
        runs = [by_judge[judge] for judge in judges]
        for run in runs:
            columns.append(run.whole_scores())
            shared.append({case.case_id for case in comparable(runs[0], run)})
    common = set.intersection(*shared, *map(set, columns))
    # `runs` are the last model's, which has every common case
    cases = [case for case in runs[0].cases if case.case_id in common]
    if not cases:
        return scores, rankings
    rows = []
    for own in columns:
        rows.append([own[case.case_id] for case in cases])
    # The scores (judges x cases x models).
    values = np.array(rows, float).reshape(
        len(models),
        len(judges),
        len(cases),
    )
    values = np.ascontiguousarray(values.transpose(1, 2, 0))
    clusters = cluster_array(cases)
    for judge, by_case in zip(judges, values, strict=True):
        for model, column in zip(models, by_case.T, strict=True):
            score = mean_estimate(column, clusters=clusters, **draws)
            scores.append({"model": model, "judge": judge, "score": score})
    if len(models) > 1:
        for first, second in combinations(range(len(judges)), 2):
            ranks = compare_ranks(
                (judges[first], judges[second]),
                list(models),
                values[[first, second]],
                clusters,
                **draws,
            )
            rankings.append(ranks)
    return scores, rankings


def gradings(
    runs: Sequence[Path],
    judges: Sequence[str],
) -> Gradings:
    """Each run's verdicts by each of these judges; () for all judges. Raises UsageError as `compare_judges`."""
    models: dict[str, dict[str, GradedRun]] = {}
    unused = set(judges)
    for path in runs:
        rows = grades_of(path / GRADES, [])
        for digest in dict.fromkeys(grade.judge for grade in rows):
            run = load_graded(path, judge=digest)
            grader = run.known_grader
            # A digest, its beginning, or a model's name.
            matching = [grader.model]
            for name in judges:
                if grader.judge.startswith((name, f"sha256:{name}")):
                    matching.append(name)
            unused.difference_update(matching)
            if judges and set(judges).isdisjoint(matching):
                continue
            by_judge = models.setdefault(run.info.model, {})
            other = by_judge.setdefault(grader.name, run)
            if other is not run:
                raise UsageError(
                    f"{other.run.path} and {path} are both {run.info.model}, graded by {grader.model}",
                    hint="name one run of each model",
                )
    if unused:
        raise UsageError(f"no run is graded by {', '.join(sorted(unused))}")
    return models


def read_sheet(
    run_dir: Path,
    judges: Sequence[str] = (),
) -> GraderSheet:
    """A run's verdicts for people to check; of two `judges` only the first's that the second contradicts.

    Raises UsageError if nothing is graded, or `judges` do not name two.
    """
    other = against = None
    if judges:
        (by_judge,) = gradings([run_dir], judges).values()
        if len(by_judge) != 2:
            raise UsageError(
                f"expected two judges of {run_dir}, found {', '.join(by_judge)}"
            )
        run, other = by_judge.values()
        against = other.known_grader.model
    else:
        run = load_graded(run_dir)
    cases = {case.case_id: case for case, _ in run.answered()}
    verdicts = []
    for item, (case_id, criterion_id) in items_of(run.cases, run.answers).items():
        met = run.verdicts(case_id).get(criterion_id)
        if met is None:
            continue
        if other:
            is_contradicted = other.verdicts(case_id).get(criterion_id) is (not met)
            if not is_contradicted:
                continue
        verdict = CheckedVerdict(
            id=item,
            case_id=case_id,
            question=cases[case_id].question,
            criterion_id=criterion_id,
            answer=run.answers[case_id].response,
            met=met,
        )
        verdicts.append(verdict)
    return GraderSheet(run.known_grader.model, against, tuple(verdicts))


def _agreement(
    first: str,
    second: str,
    pairs: Sequence[tuple[GradedRun, GradedRun]],
    **draws: Unpack[Draws],
) -> Iterator[Row]:
    """A row of `JudgeComparison.criteria`, if there are cases; a case's criteria of all models are drawn together."""
    cases: list[EvaluationCase] = []
    codes: list[list[int]] = []
    for pair in pairs:
        for case in comparable(*pair):
            verdicts = [run.verdicts(case.case_id) for run in pair]
            for criterion in case.criteria:
                cases.append(case)
                codes.append([code_of(met.get(criterion.id)) for met in verdicts])
    if cases:
        a, b = np.array(codes).T
        yield {
            "pair": agree(first, second, a, b, cluster_array(cases), **draws),
            "undecided": int(((a < 0) | (b < 0)).sum()),
        }


def comparable(first: GradedRun, second: GradedRun) -> list[EvaluationCase]:
    """The cases that both runs have with the same question, criteria and answer."""
    others = {case.case_id: case for case in second.cases}
    cases = []
    for case in first.cases:
        other = others.get(case.case_id)
        answer = first.answers.get(case.case_id)
        other_answer = second.answers.get(case.case_id)
        if other is None or answer is None or other_answer is None:
            continue
        asked = case.question, case.criteria, answer.digest
        if asked == (other.question, other.criteria, other_answer.digest):
            cases.append(case)
    return cases


def compare_ranks(
    names: tuple[str, str],
    models: list[str],
    values: Floats,
    clusters: Codes,
    **draws: Unpack[Draws],
) -> Row:
    """Compare two judges' scores, (2 x cases x models); intervals are over draws of cases.

    The row has `first` and `second`, the counts of `models` and `cases`, and

    - `mean_absolute_difference` over models, of their mean scores; `spearman` and `kendall` of these;
    - `top`: k → how many of the k best models are the same.
    """
    n = values.shape[1]
    row = {"first": names[0], "second": names[1], "models": len(models), "cases": n}
    cluster_count = len(np.unique(clusters))
    flat = np.concatenate(list(values), axis=1)
    # Rounded, so that the order of adding up does not make equal means differ.
    means = values.mean(axis=1).round(12)
    drawn = bootstrap_means(flat, clusters=clusters, **draws).round(12)
    drawn = drawn.reshape(-1, 2, len(models))

    def figure(statistic: Callable[[Floats, Floats], float | None]) -> Estimate:
        value = statistic(*means)
        if value is None:
            why = "a judge scores all models the same"
            if len(models) < LEAST:
                why = f"{len(models)} models are too few"
            return Estimate(None, n=len(models), why=why)
        of_draws = np.array([statistic(*pair) for pair in drawn], float)
        return percentile_estimate(value, of_draws, len(models), cluster_count)

    def best(scores: Floats, size: int) -> set[int]:
        """The best models, equal scores in the order of their names."""
        order = np.lexsort((np.array(models), -scores))
        return set(order[:size].tolist())

    top = {}
    for size in _TOPS:
        if size < len(models):
            top[size] = len(best(means[0], size) & best(means[1], size))
    return row | {
        "mean_absolute_difference": figure(lambda a, b: float(np.abs(a - b).mean())),
        "spearman": figure(spearman),
        "kendall": figure(kendall),
        "top": top,
    }
