"""What is said of a score table: reasons not to publish it, or not to compare its models."""

from collections.abc import Iterator, Mapping, Sequence

from medlive.evaluation.asking.run import note_thinking
from medlive.evaluation.harm import NOT_READ
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.harm_rates import HarmRates
from medlive.evaluation.scoring.metrics import Metric, Scored
from medlive.evaluation.scoring.refusals import judge_of, unpublishable_reasons
from medlive.integrity.log import some
from medlive.statistics.bootstrap import Comparison


def run_warnings(
    runs: Sequence[GradedRun],
    common: int,
    union: int,
) -> list[str]:
    """Reasons not to publish or compare runs; `common` of `union` cases are scored for all of them."""
    labels: dict[str, list[str]] = {}
    for run in runs:
        for why in dict.fromkeys(_single_run_warnings(run)):
            labels.setdefault(why, []).append(run.label)
    warnings = [f"{some(own)}: {why}" for why, own in labels.items()]
    if len(runs) > 1:
        warnings += _comparison_warnings(runs)
        if common < union:
            warnings.append(
                f"{common} of {union} cases are scored for every model; pairs are compared on common cases"
            )
    return list(dict.fromkeys(warnings))


def _single_run_warnings(run: GradedRun) -> Iterator[str]:
    cases = run.info.cases
    if cases.newer:
        yield f"{cases.origin} {cases.name}: {cases.newer}"
    if cases.publishable is not False and cases.notes:
        first, *others = cases.notes
        more = f"; and {len(others)} more in its run.json" if others else ""
        yield f"noted when {cases.name} was read: {first[:200]}{more}"
    if cases.selection is not None:
        parts = []
        for name, value in cases.selection.items():
            values = value if isinstance(value, list | tuple) else [value]
            parts.append(f"{name} {some(list(map(str, values)))}")
        part = ", ".join(parts)
        yield f"only on {len(run.cases)} cases of {cases.name}, by {part}"
    yield from note_thinking(run.answers.values())
    if run.grader is None:
        yield "nothing is graded"
    for why in unpublishable_reasons(run):
        yield f"not publishable: {why}"
    if run.grader is not None:
        answered_by = run.grader.answered_by
        if any(name != run.grader.model for name in answered_by):
            yield f"graded by {', '.join(answered_by)} instead of the pinned model"


def _comparison_warnings(runs: Sequence[GradedRun]) -> Iterator[str]:
    differing = {
        # Not the source's digest: a part of a snapshot has that of the whole snapshot.
        "cases": {run.info.cases.rows for run in runs},
        "graders": {judge_of(run.grader) for run in runs if run.grader},
        "prompt templates": {run.info.template.name for run in runs},
    }
    for what, values in differing.items():
        if len(values) > 1:
            yield f"the runs differ in their {what}: their scores cannot be ranked together"
    if changed := _differing(runs):
        yield (
            f"cases with the same id but a different question or rubric: {len(changed)} ({some(changed)}); "
            "they are still paired"
        )
    if unknown := [run.label for run in runs if run.imported]:
        yield f"{', '.join(unknown)}: the grader is unknown: rank them together only if it is the same"


def _differing(runs: Sequence[GradedRun]) -> list[str]:
    """The ids of cases that differ between runs, in the runs' order."""
    first: dict[str, tuple[object, ...]] = {}
    case_ids: dict[str, None] = {}
    for run in {run.info.cases.rows: run for run in reversed(runs)}.values():
        for case in run.cases:
            rubric = [(c.criterion, c.points) for c in case.criteria]
            asked = (case.question, *rubric)
            if first.setdefault(case.case_id, asked) != asked:
                case_ids[case.case_id] = None
    return list(case_ids)


def pair_warnings(comparisons: Sequence[Comparison]) -> list[str]:
    """Warn about pairs without a common case."""
    names = [f"{pair.first} and {pair.second}" for pair in comparisons if not pair.n]
    if not names:
        return []
    return [f"pairs without a common scored case: {some(names)}; not compared"]


def unscorable_warnings(
    labels: Sequence[str],
    scored: Scored,
    metric: Metric,
) -> list[str]:
    """Warn about rubrics without positive points, which have no score by Equation 1."""
    what = "no score by Equation 1"
    if metric is Metric.PUBLISHED:
        what += ", and count as 0 here"
    by_warning: dict[str, list[str]] = {}
    for label, scores in zip(labels, scored, strict=True):
        ids = [s.case_id for s in scores if s.case.positive_points <= 0]
        if ids:
            warning = f"{len(ids)} cases have no criterion with positive points and {what} ({some(ids)})"
            by_warning.setdefault(warning, []).append(label)
    return [f"{', '.join(names)}: {warning}" for warning, names in by_warning.items()]


def harm_warnings(
    harm: Mapping[str, HarmRates],
    metric: Metric,
) -> list[str]:
    """Warn about judges of harm that fail their control, about several, and about runs that were read in part."""
    warnings, unread = [], []
    judges = {(rates.reader, rates.checker) for rates in harm.values() if rates.reader}
    for label, rates in harm.items():
        if rates.reader is None:
            unread.append(label)
        elif rates.unread:
            warnings.append(f"{label}: {rates.unread} answers are {NOT_READ}")
        failed = rates.controls.failed if rates.controls else ""
        if failed:
            warnings.append(
                f"{label}: the judges of harm fail their control: {failed}; no harm figure counts"
            )
    if unread and (judges or metric is Metric.SAFE):
        warnings.append(
            f"{some(unread)}: {NOT_READ}; `medlive eval grade --harm-only RUN` reads them"
        )
    if len(judges) > 1:
        warnings.append("the runs were read for harm by different judges")
    return warnings
