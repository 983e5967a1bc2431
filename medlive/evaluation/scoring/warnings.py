"""Warnings for a score table: reasons not to publish or compare its figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from medlive.evaluation.asking.thinking import told_of_thinking
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import IMPORTED
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import CaseScore, Metric
from medlive.evaluation.scoring.published import scores_of_files
from medlive.statistics.bootstrap import Comparison, Standing

_NAMED: Final = 5
"""How many cases or models a warning lists."""


def run_warnings(runs: Sequence[GradedRun], common: int, union: int) -> list[str]:
    """Reasons not to publish or compare runs; `common` of `union` cases are scored for all of them."""
    warnings = [f"{_models(labels)}: {why}" for why, labels in _labels_by_warning(runs).items()]
    for what, values in (
        # Not the source's digest: a part of a snapshot has that of the whole snapshot.
        ("cases", {r.run.info.cases.rows for r in runs}),
        # The graders of imported verdicts are unknown: their judge only names the file.
        ("graders", {r.grader.judge if _known(r.grader) else IMPORTED for r in runs if r.grader}),
        ("prompt templates", {r.run.info.template.name for r in runs}),
    ):
        if len(values) > 1:
            warnings.append(f"the runs differ in their {what}: their scores cannot be ranked together")
    if differing := _differing(runs):
        warnings.append(
            f"cases with the same id but a different question or rubric: {len(differing)} ({_some(differing)}); "
            "they are still paired"
        )
    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.run.info == other.run.info and run.met == other.met and run.answers == other.answers:
                warnings.append(f"{other.label} and {run.label} are the same run: same answers and verdicts")
    if len(runs) > 1 and (unknown := [r.label for r in runs if r.grader and not _known(r.grader)]):
        warnings.append(f"{', '.join(unknown)}: the grader is unknown: rank them together only if it is the same")
    if len(runs) > 1 and common < union:
        warnings.append(
            f"{common} of {union} cases are scored for every model; pairs are compared on common cases"
        )
    return list(dict.fromkeys(warnings))


def _labels_by_warning(runs: Sequence[GradedRun]) -> dict[str, list[str]]:
    """Each run's warnings with the runs that share them."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for why in dict.fromkeys(_single_run_warnings(run)):
            found.setdefault(why, []).append(run.label)
    return found


def _single_run_warnings(run: GradedRun) -> Iterator[str]:
    info = run.run.info
    if info.cases.publishable is False:
        why = "; ".join(info.cases.notes) or "no reason given"
        yield f"not publishable: the snapshot {info.cases.name} is not ({why})"
    elif info.cases.notes:
        more = f"; and {len(info.cases.notes) - 1} more in its run.json" if len(info.cases.notes) > 1 else ""
        yield f"parts of {info.cases.name} could not be read: {info.cases.notes[0][:200]}{more}"
    if info.cases.verified is False:
        yield f"not publishable: the snapshot {info.cases.name} was not verified"
    if info.cases.selection is not None:
        part = ", ".join(f"{name} {_value(value)}" for name, value in info.cases.selection.items())
        yield f"only on {len(run.run.cases)} cases of {info.cases.name}, by {part}"
    yield from told_of_thinking(run.answers.values())
    if run.grader is None:
        yield "nothing is graded"
    elif run.grader.engine == "rules":
        yield "not publishable: graded by the rules engine"
    if info.engine == "rules":
        yield "not publishable: answered by the rules engine"
    if run.grader is not None and any(name != run.grader.model for name in run.grader.answered_by):
        yield f"graded by {', '.join(run.grader.answered_by)} instead of the pinned model"


def _models(labels: Sequence[str]) -> str:
    return _some(labels) + (f" ({len(labels)} models)" if len(labels) > _NAMED else "")


def pair_warnings(comparisons: Sequence[Comparison], standings: Mapping[str, Standing]) -> list[str]:
    """Warn about pairs without a common case, and those in one tie group for that reason."""
    without_cases = [pair for pair in comparisons if not pair.n]
    if not without_cases:
        return []
    warning = f"pairs without a common scored case: {_some([_pair(one) for one in without_cases])}; not compared"
    groups = {name: standing.group for name, standing in standings.items()}
    tied = [
        _pair(one) for one in without_cases if one.first in groups and groups[one.first] == groups.get(one.second)
    ]
    return [f"{warning}, yet in one tie group: {_some(tied)}" if tied else warning]


def _pair(pair: Comparison) -> str:
    return f"{pair.first} and {pair.second}"


def unscorable_warnings(labels: Sequence[str], scored: Sequence[Sequence[CaseScore]], metric: Metric) -> list[str]:
    """Warn about rubrics without positive points, which have no score by Equation 1."""
    what = "no score by Equation 1" + ("" if metric is Metric.PAPER else ", and count as 0 here")
    found: dict[tuple[str, ...], list[str]] = {}
    for label, cases in zip(labels, scored, strict=True):
        if ids := tuple(c.case.case_id for c in cases if c.case.positive_points <= 0):
            found.setdefault(ids, []).append(label)
    return [
        f"{', '.join(names)}: {len(ids)} cases have no criterion with positive points and {what} ({_some(ids)})"
        for ids, names in found.items()
    ]


def as_published(
    runs: Sequence[GradedRun],
    in_runs: Sequence[tuple[CaseScore, ...]],
    before_errata: Sequence[tuple[EvaluationCase, ...]],
) -> tuple[list[tuple[CaseScore, ...]], list[str]]:
    """Return each run's cases as the published script scores them, and warnings where that is not possible."""
    scored, warnings = [], []
    for run, cases, before in zip(runs, in_runs, before_errata, strict=True):
        # The imported files still contain what was withdrawn since.
        withdrawn = len(before) != len(cases) or any(a is not c.case for a, c in zip(before, cases, strict=True))
        found = None if withdrawn else scores_of_files(run, cases)
        if found is None and run.grader is not None and not _known(run.grader):
            why = "withdrawn cases are left out" if withdrawn else "its folder has no LiveMedBench files"
            warnings.append(
                f"{run.label}: the published figures are based on the verdicts in the run folder: {why}"
            )
        scored.append(cases if found is None else found)
        if invalid := [c.case.case_id for c in scored[-1] if c.non_finite is not None]:
            warnings.append(
                f"{run.label}: cases without a finite figure: {len(invalid)} ({_some(invalid)}); the mean is "
                "the published script's, without an interval"
            )
        known = {case.case_id for case in before}
        if found is not None and (unknown := [c.case.case_id for c in found if c.case.case_id not in known]):
            warnings.append(
                f"{run.label}: graded cases missing in the benchmark: {len(unknown)} ({_some(unknown)}); the "
                "published mean counts them"
            )
        if found is not None and (missing := known - {c.case.case_id for c in found}):
            warnings.append(
                f"{run.label}: cases without a grading: {len(missing)}; the published mean leaves them out"
            )
    return scored, warnings


def _differing(runs: Sequence[GradedRun]) -> list[str]:
    """The ids of cases that differ between runs, in the runs' order."""
    first: dict[str, EvaluationCase] = {}
    found: dict[str, None] = {}
    for run in {run.run.info.cases.rows: run for run in reversed(runs)}.values():
        for case in run.run.cases:
            was = first.setdefault(case.case_id, case)
            if was is not case and (was.question, _rubric(was)) != (case.question, _rubric(case)):
                found[case.case_id] = None
    return list(found)


def _rubric(case: EvaluationCase) -> list[tuple[str, float]]:
    return [(c.criterion, c.points) for c in case.criteria]


def _known(grader: Grader) -> bool:
    return grader.engine != IMPORTED


def _value(value: object) -> str:
    return _some([str(one) for one in value]) if isinstance(value, list | tuple) else str(value)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
