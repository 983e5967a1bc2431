"""What is to be said beside a score table: what keeps its figures from being published, or from being compared."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from medlive.evaluation.asking.thinking import told_of_thinking
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import IMPORTED
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import CaseScore, Metric
from medlive.evaluation.scoring.published_files import scores_of_files
from medlive.statistics.bootstrap import Comparison, Standing

_NAMED: Final = 5
"""How many cases, or models, a warning names."""


def run_warnings(runs: Sequence[GradedRun], common: int, union: int) -> list[str]:
    """What keeps runs from being published or compared; `common` of `union` cases are scored for all of them."""
    warnings = [f"{_models(labels)}: {why}" for why, labels in _shared(runs).items()]
    for what, values in (
        # Not the digest of where they came from: a part of a snapshot has that of the whole.
        ("cases", {r.run.info.cases.rows for r in runs}),
        # Of imported verdicts nobody knows who gave them: their judge is a name for the file.
        ("graders", {r.grader.judge if _known(r.grader) else IMPORTED for r in runs if r.grader}),
        ("prompt templates", {r.run.info.template.name for r in runs}),
    ):
        if len(values) > 1:
            warnings.append(f"the runs differ in their {what}: their scores are not one ranking")
    if differing := _differing(runs):
        warnings.append(
            f"cases of one id that differ in question or rubric: {len(differing)} ({_some(differing)}); they are "
            "paired all the same"
        )
    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.run.info == other.run.info and run.met == other.met and run.answers == other.answers:
                warnings.append(f"{other.label} and {run.label} are one run: the same answers and verdicts")
    if len(runs) > 1 and (unknown := [r.label for r in runs if r.grader and not _known(r.grader)]):
        warnings.append(f"{', '.join(unknown)}: who graded is unknown: they are one ranking if one grader did")
    if len(runs) > 1 and common < union:
        warnings.append(
            f"{common} of {union} cases are scored for every model; pairs are compared on what both have"
        )
    return list(dict.fromkeys(warnings))


def _shared(runs: Sequence[GradedRun]) -> dict[str, list[str]]:
    """What is to be said of runs one by one, each with the models that it holds of: of many models it mostly holds
    of all."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for why in dict.fromkeys(_of(run)):
            found.setdefault(why, []).append(run.label)
    return found


def _of(run: GradedRun) -> Iterator[str]:
    info = run.run.info
    if info.cases.publishable is False:
        why = "; ".join(info.cases.notes) or "no reason given"
        yield f"not publishable: the snapshot {info.cases.name} is not ({why})"
    elif info.cases.notes:
        more = f"; and {len(info.cases.notes) - 1} more in its run.json" if len(info.cases.notes) > 1 else ""
        yield f"the scores rest on {info.cases.name} as far as it could be read: {info.cases.notes[0][:200]}{more}"
    if info.cases.verified is False:
        yield f"not publishable: the snapshot {info.cases.name} was not verified"
    if info.cases.selection is not None:
        part = ", ".join(f"{name} {_value(value)}" for name, value in info.cases.selection.items())
        yield f"on {len(run.run.cases)} cases of {info.cases.name} alone, by {part}"
    yield from told_of_thinking(run.answers.values())
    if run.grader is None:
        yield "nothing is graded"
    elif run.grader.engine == "rules":
        yield "not publishable: graded by the rules engine"
    if info.engine == "rules":
        yield "not publishable: answered by the rules engine"
    if run.grader is not None and any(name != run.grader.model for name in run.grader.answered_by):
        yield f"graded by {', '.join(run.grader.answered_by)}, not by the pinned model"


def _models(labels: Sequence[str]) -> str:
    return _some(labels) + (f" ({len(labels)} models)" if len(labels) > _NAMED else "")


def pair_warnings(comparisons: Sequence[Comparison], standings: Mapping[str, Standing]) -> list[str]:
    """The pairs that were not compared, and which of them stand in one tie group for want of a case."""
    apart = [pair for pair in comparisons if not pair.n]
    if not apart:
        return []
    named = _some([_pair(one) for one in apart])
    said = f"no case is scored for both of a pair: {named}; nothing says whether they differ"
    groups = {name: standing.group for name, standing in standings.items()}
    tied = [_pair(one) for one in apart if one.first in groups and groups[one.first] == groups.get(one.second)]
    return [f"{said}, though in one tie group stand {_some(tied)}" if tied else said]


def _pair(pair: Comparison) -> str:
    return f"{pair.first} and {pair.second}"


def unscorable_warnings(labels: Sequence[str], scored: Sequence[Sequence[CaseScore]], metric: Metric) -> list[str]:
    """What is to be said of rubrics that equation 1 gives no score: models with the same ones together."""
    what = "no score by Equation 1" + ("" if metric is Metric.PAPER else ", and count as 0 here")
    cases_by_place = {id(c.case): c.case for cases in scored for c in cases}
    blank = {place for place, case in cases_by_place.items() if case.positive_points <= 0}
    found: dict[tuple[str, ...], list[str]] = {}
    for label, cases in zip(labels, scored, strict=True):
        if none := tuple(c.case.case_id for c in cases if id(c.case) in blank):
            found.setdefault(none, []).append(label)
    return [
        f"{', '.join(names)}: {len(none)} cases have no criterion with positive points and {what} ({_some(none)})"
        for none, names in found.items()
    ]


def as_published(
    runs: Sequence[GradedRun], held: Sequence[tuple[CaseScore, ...]], whole: Sequence[tuple[EvaluationCase, ...]]
) -> tuple[list[tuple[CaseScore, ...]], list[str]]:
    """Each run's cases as the published script has them, and what is to be said where that is not so."""
    scored, told = [], []
    for run, cases, before in zip(runs, held, whole, strict=True):
        # What was withdrawn since, the files do not know.
        lessened = len(before) != len(cases) or any(a is not c.case for a, c in zip(before, cases, strict=True))
        found = None if lessened else scores_of_files(run, cases)
        if found is None and run.grader is not None and not _known(run.grader):
            why = "what was withdrawn is left out" if lessened else "its folder holds no files of LiveMedBench's"
            told.append(f"{run.label}: the published figures are of the verdicts in the run folder: {why}")
        scored.append(cases if found is None else found)
        if odd := [c.case.case_id for c in scored[-1] if c.odd is not None]:
            told.append(
                f"{run.label}: cases whose figure is no finite number: {len(odd)} ({_some(odd)}); the mean is "
                "what the published script makes of it, and has no interval"
            )
        known = {case.case_id for case in before}
        if found is not None and (strange := [c.case.case_id for c in found if c.case.case_id not in known]):
            told.append(
                f"{run.label}: graded cases that the benchmark lacks: {len(strange)} ({_some(strange)}); the "
                "published mean counts them"
            )
        if found is not None and (lack := known - {c.case.case_id for c in found}):
            told.append(f"{run.label}: cases without a grading: {len(lack)}; the published mean leaves them out")
    return scored, told


def _differing(runs: Sequence[GradedRun]) -> list[str]:
    """The cases that are not the same for every run that holds them, in the runs' order."""
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
