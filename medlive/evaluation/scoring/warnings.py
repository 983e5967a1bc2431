"""Warnings for a score table: reasons not to publish or compare its figures."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from medlive.evaluation.asking.run import note_thinking
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
    alike: dict[str, list[str]] = {}
    for run in runs:
        for why in dict.fromkeys(_single_run_warnings(run)):
            alike.setdefault(why, []).append(run.label)
    more = {why: f" ({len(labels)} models)" if len(labels) > _NAMED else "" for why, labels in alike.items()}
    warnings = [f"{_some(labels)}{more[why]}: {why}" for why, labels in alike.items()]
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
    for first, second in combinations(runs, 2):
        if (first.run.info, first.met, first.answers) == (second.run.info, second.met, second.answers):
            warnings.append(f"{first.label} and {second.label} are the same run: same answers and verdicts")
    if len(runs) > 1 and (unknown := [r.label for r in runs if r.grader and not _known(r.grader)]):
        warnings.append(f"{', '.join(unknown)}: the grader is unknown: rank them together only if it is the same")
    if len(runs) > 1 and common < union:
        warnings.append(
            f"{common} of {union} cases are scored for every model; pairs are compared on common cases"
        )
    return list(dict.fromkeys(warnings))


def _single_run_warnings(run: GradedRun) -> Iterator[str]:
    yield from _case_warnings(run)
    yield from note_thinking(run.answers.values())
    if run.grader is None:
        yield "nothing is graded"
    elif run.grader.engine == "rules":
        yield "not publishable: graded by the rules engine"
    if run.run.info.engine == "rules":
        yield "not publishable: answered by the rules engine"
    if run.grader is not None and any(name != run.grader.model for name in run.grader.answered_by):
        yield f"graded by {', '.join(run.grader.answered_by)} instead of the pinned model"


def _case_warnings(run: GradedRun) -> Iterator[str]:
    cases = run.run.info.cases
    if cases.publishable is False:
        yield f"not publishable: the snapshot {cases.name} is not ({'; '.join(cases.notes) or 'no reason given'})"
    elif cases.notes:
        more = f"; and {len(cases.notes) - 1} more in its run.json" if len(cases.notes) > 1 else ""
        yield f"parts of {cases.name} could not be read: {cases.notes[0][:200]}{more}"
    if cases.verified is False:
        yield f"not publishable: the snapshot {cases.name} was not verified"
    if cases.selection is not None:
        values = {k: v if isinstance(v, list | tuple) else [v] for k, v in cases.selection.items()}
        part = ", ".join(f"{name} {_some([str(one) for one in of])}" for name, of in values.items())
        yield f"only on {len(run.run.cases)} cases of {cases.name}, by {part}"


def pair_warnings(comparisons: Sequence[Comparison], standings: Mapping[str, Standing]) -> list[str]:
    """Warn about pairs without a common case, and those in one tie group for that reason."""
    pairs = [(pair.first, pair.second) for pair in comparisons if not pair.n]
    if not pairs:
        return []
    groups = {name: standing.group for name, standing in standings.items()}
    tied = [f"{a} and {b}" for a, b in pairs if a in groups and groups[a] == groups.get(b)]
    warning = f"pairs without a common scored case: {_some([f'{a} and {b}' for a, b in pairs])}; not compared"
    return [f"{warning}, yet in one tie group: {_some(tied)}" if tied else warning]


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
        scored.append(cases if found is None else found)
        if found is None and run.grader is not None and not _known(run.grader):
            why = "withdrawn cases are left out" if withdrawn else "its folder has no LiveMedBench files"
            warnings.append(
                f"{run.label}: the published figures are based on the verdicts in the run folder: {why}"
            )
        warnings += [f"{run.label}: {warning}" for warning in _figure_warnings(scored[-1], before, found)]
    return scored, warnings


def _figure_warnings(
    scored: Sequence[CaseScore], before: Sequence[EvaluationCase], found: Sequence[CaseScore] | None
) -> Iterator[str]:
    """Warn about what the published mean counts otherwise; `found` are the cases of the published files."""
    if invalid := [c.case.case_id for c in scored if c.non_finite is not None]:
        yield (
            f"cases without a finite figure: {len(invalid)} ({_some(invalid)}); the mean is the published "
            "script's, without an interval"
        )
    known, of_files = {case.case_id for case in before}, [c.case.case_id for c in found or ()]
    if unknown := [case_id for case_id in of_files if case_id not in known]:
        yield (
            f"graded cases missing in the benchmark: {len(unknown)} ({_some(unknown)}); the published mean counts "
            "them"
        )
    if found is not None and (missing := known.difference(of_files)):
        yield f"cases without a grading: {len(missing)}; the published mean leaves them out"


def _differing(runs: Sequence[GradedRun]) -> list[str]:
    """The ids of cases that differ between runs, in the runs' order."""
    first: dict[str, tuple[object, ...]] = {}
    found: dict[str, None] = {}
    for run in {run.run.info.cases.rows: run for run in reversed(runs)}.values():
        for case in run.run.cases:
            asked = (case.question, *((c.criterion, c.points) for c in case.criteria))
            if first.setdefault(case.case_id, asked) != asked:
                found[case.case_id] = None
    return list(found)


def _known(grader: Grader) -> bool:
    return grader.engine != IMPORTED


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
