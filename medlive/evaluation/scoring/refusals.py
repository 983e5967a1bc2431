"""Refuse figures that would mislead unless the user allows it by name (`check_figures`), and make their warnings."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from medlive.errors import CheckFailed
from medlive.evaluation.asking.run import note_thinking
from medlive.evaluation.cases.selection import in_words
from medlive.evaluation.harm import NOT_READ
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import IMPORTED, CasesUse
from medlive.integrity.log import some

from .graded import GradedRun
from .metrics import Metric, Scored

if TYPE_CHECKING:
    from medlive.statistics.comparison import Comparison

    from .companions import HarmRates


class Allow(StrEnum):
    """A reason against a figure that `--allow` overrides."""

    MIXED_GRADERS = "mixed-graders"
    """Runs of different graders in one table."""
    NOT_PUBLISHABLE = "not-publishable"
    """Cases, answers or verdicts that must not be published."""
    SEVERAL_JUDGES = "several-judges"
    """A run that several judges graded, where nobody chose one."""


class Objection(NamedTuple):
    """A reason against a figure."""

    allow: Allow
    """What overrides it."""
    why: str


_BY_RULES = "graded by the rules engine"
EVERYTHING = frozenset(Allow)
"""Overrides every objection."""


def check_figures(
    runs: Sequence[GradedRun],
    allowed: Collection[Allow],
) -> list[Objection]:
    """Check that figures of these runs, side by side, do not mislead.

    Args:
        runs: The runs of one table.
        allowed: The objections that are overridden.

    Returns:
        What is overridden, to be printed with the figures.

    Raises:
        CheckFailed: If an objection is not overridden; the hint names the options that would.
    """
    return override(objections(runs), allowed)


def check_before(
    cases: CaseSet,
    grader: str,
    allowed: Collection[Allow],
) -> None:
    """Check before money is spent that figures on these cases would not mislead.

    Args:
        cases: What is asked about.
        grader: The engine that will grade.
        allowed: The objections that are overridden.

    Raises:
        CheckFailed: If an objection is not overridden.
    """
    reasons = list(_case_reasons(cases))
    if grader == "rules":
        reasons.append(_BY_RULES)
    override(_not_publishable(reasons), allowed)


def check_harness(
    cases: CaseSet,
    allowed: bool,
    option: str,
) -> None:
    """Check in a harness, which prints one figure and no reasons, that the cases may be published.

    Args:
        cases: What is asked about.
        allowed: Whether the user allows what must not be published.
        option: How the user does so.

    Raises:
        CheckFailed: If the cases must not be published and it is not allowed.
    """
    reasons = "; ".join(_case_reasons(cases))
    if reasons and not allowed:
        raise CheckFailed(
            f"not publishable: {reasons}", hint=f"{option} asks all the same"
        )


def override(
    objections: Iterable[Objection],
    allowed: Collection[Allow],
) -> list[Objection]:
    """Return the objections, all of them allowed. Raises CheckFailed for any that is not."""
    found = list(objections)
    refused = [objection for objection in found if objection.allow not in allowed]
    if refused:
        names = dict.fromkeys(objection.allow for objection in refused)
        options = " ".join(f"--allow {name}" for name in names)
        hint = f"{options} shows the figures all the same, marked with the reason"
        if Allow.SEVERAL_JUDGES in names or Allow.MIXED_GRADERS in names:
            hint = f"choose one grader with --judge; or {hint}"
        reasons = "; ".join(objection.why for objection in refused)
        raise CheckFailed(f"the figures would mislead: {reasons}", hint=hint)
    return found


def marked(title: str, overridden: Sequence[Objection]) -> str:
    """A table's title with what was overridden to show it."""
    names = dict.fromkeys(objection.allow for objection in overridden)
    if not names:
        return title
    return f"{title}; MISLEADING, shown by --allow {', '.join(names)}"


def objections(runs: Sequence[GradedRun]) -> Iterator[Objection]:
    """All that makes a table of these runs mislead."""
    judges = set()
    names = set()
    for run in runs:
        if run.grader:
            # The graders of imported verdicts are unknown: they count as one.
            judges.add(IMPORTED if run.imported else run.grader.judge)
            names.add(run.grader.name)
    if len(judges) > 1:
        graders = sorted(names)
        why = f"the runs were graded by {len(judges)} graders ({'; '.join(graders)})"
        yield Objection(
            Allow.MIXED_GRADERS, f"{why}, and their scores cannot be ranked together"
        )
    labels_by_reason: dict[Objection, list[str]] = {}
    for run in runs:
        own: list[Objection] = []
        if run.rivals:
            judged_by = "; ".join([run.known_grader.name, *run.rivals])
            why = (
                f"several judges graded this run and --judge chooses none: {judged_by}"
            )
            own.append(Objection(Allow.SEVERAL_JUDGES, why))
        own += _not_publishable(unpublishable_reasons(run))
        for objection in own:
            labels_by_reason.setdefault(objection, []).append(run.label)
    for objection, labels in labels_by_reason.items():
        yield objection._replace(why=f"{some(labels)}: {objection.why}")


def _not_publishable(reasons: Iterable[str]) -> Iterator[Objection]:
    for why in reasons:
        yield Objection(Allow.NOT_PUBLISHABLE, f"not publishable: {why}")


def _case_reasons(cases: CaseSet | CasesUse) -> Iterator[str]:
    if cases.publishable is False:
        reasons = "; ".join(cases.notes) or "no reason given"
        yield f"the snapshot {cases.name} is not ({reasons})"
    if cases.verified is False:
        yield f"the snapshot {cases.name} was not verified"


def unpublishable_reasons(run: GradedRun) -> Iterator[str]:
    """Why a run's figures must not be published."""
    yield from _case_reasons(run.info.cases)
    if run.grader is not None and run.grader.engine == "rules":
        yield _BY_RULES
    if run.info.engine == "rules":
        yield "answered by the rules engine"


def run_warnings(
    runs: Sequence[GradedRun],
    common: int,
    union: int,
) -> Iterator[str]:
    """Reasons not to publish or compare runs; `common` of `union` cases are scored for all of them."""
    labels: dict[str, list[str]] = {}
    for run in runs:
        for warning in dict.fromkeys(_single_run_warnings(run)):
            labels.setdefault(warning, []).append(run.label)
    for warning, names in labels.items():
        yield f"{some(names)}: {warning}"
    if len(runs) > 1:
        yield from _comparison_warnings(runs)
        if common < union:
            yield f"{common} of {union} cases are scored for every model; pairs are compared on common cases"


def _single_run_warnings(run: GradedRun) -> Iterator[str]:
    """What a reader of one run's figures must know."""
    cases = run.info.cases
    if cases.newer:
        yield f"{cases.name}: {cases.newer}"
    if cases.publishable is not False and cases.notes:
        first, *others = cases.notes
        more = f"; and {len(others)} more in its run.json" if others else ""
        yield f"noted when {cases.name} was read: {first[:200]}{more}"
    if cases.selection is not None:
        part = in_words(cases.selection)
        yield f"only on {len(run.cases)} cases of {cases.name}: {part}"
    yield from note_thinking(run.answers.values())
    if run.grader is None:
        yield "nothing is graded"
    elif {*run.grader.answered_by} - {run.grader.model}:
        names = ", ".join(run.grader.answered_by)
        yield f"graded by {names} instead of the pinned model"


def _comparison_warnings(runs: Sequence[GradedRun]) -> Iterator[str]:
    """What keeps these runs from being ranked together."""
    differing = {
        # Not the source's digest: a part of a snapshot has that of the whole snapshot.
        "cases": {run.info.cases.rows for run in runs},
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


def pair_warnings(comparisons: "Sequence[Comparison]") -> Iterator[str]:
    """Warn about pairs without a common case."""
    names = [f"{pair.first} and {pair.second}" for pair in comparisons if not pair.n]
    if names:
        yield f"pairs without a common scored case: {some(names)}; not compared"


def unscorable_warnings(scored: Scored) -> Iterator[str]:
    """Warn about rubrics without positive points."""
    for label, cases in scored.items():
        if n := sum(case.unscorable for case in cases):
            yield f"{label}: {n} cases have no criterion with positive points, and so no score by Equation 1"


def harm_warnings(
    harm: "Mapping[str, HarmRates]",
    metric: Metric,
) -> Iterator[str]:
    """Warn about judges of harm that fail their control, about several, and about runs that were read in part."""
    unread = []
    judges = {(rates.reader, rates.checker) for rates in harm.values() if rates.reader}
    for label, rates in harm.items():
        if rates.reader is None:
            unread.append(label)
        elif rates.unread:
            yield f"{label}: {rates.unread} answers are {NOT_READ}"
        failed = rates.controls.failed if rates.controls else ""
        if failed:
            yield f"{label}: the judges of harm fail their control: {failed}; no harm figure counts"
    if unread and (judges or metric is Metric.SAFE):
        yield f"{some(unread)}: {NOT_READ}; `medlive eval grade --harm-only RUN` reads them"
    if len(judges) > 1:
        yield "the runs were read for harm by different judges"
