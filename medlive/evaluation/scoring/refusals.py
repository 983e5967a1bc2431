"""What would make a figure mislead, and so is refused unless the user allows it by name."""

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from medlive.errors import CheckFailed
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import IMPORTED, CasesUse
from medlive.evaluation.scoring.graded import GradedRun, Grader, named
from medlive.integrity.log import some


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


_BY_RULES: Final = "graded by the rules engine"
EVERYTHING: Final = frozenset(Allow)
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
    return override(list(objections(runs)), allowed)


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
    objections = []
    for why in reasons:
        objections.append(Objection(Allow.NOT_PUBLISHABLE, f"not publishable: {why}"))
    override(objections, allowed)


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
    objections: Sequence[Objection],
    allowed: Collection[Allow],
) -> list[Objection]:
    """Return the objections, all of them allowed. Raises CheckFailed for any that is not."""
    refused = [objection for objection in objections if objection.allow not in allowed]
    if refused:
        names = dict.fromkeys(objection.allow for objection in refused)
        options = " ".join(f"--allow {name}" for name in names)
        hint = f"{options} shows the figures all the same, marked with the reason"
        if Allow.SEVERAL_JUDGES in names or Allow.MIXED_GRADERS in names:
            hint = f"choose one grader with --judge; or {hint}"
        reasons = "; ".join(objection.why for objection in refused)
        raise CheckFailed(f"the figures would mislead: {reasons}", hint=hint)
    return list(objections)


def marked(title: str, overridden: Sequence[Objection]) -> str:
    """A table's title with what was overridden to show it."""
    names = dict.fromkeys(objection.allow for objection in overridden)
    if not names:
        return title
    return f"{title}; MISLEADING, shown by --allow {', '.join(names)}"


def objections(runs: Sequence[GradedRun]) -> Iterator[Objection]:
    """All that makes a table of these runs mislead."""
    judges = {judge_of(run.grader) for run in runs if run.grader}
    if len(judges) > 1:
        graders = sorted({named(run.grader) for run in runs if run.grader})
        why = f"the runs were graded by {len(judges)} graders ({'; '.join(graders)})"
        yield Objection(
            Allow.MIXED_GRADERS, f"{why}, and their scores cannot be ranked together"
        )
    labels_by_reason: dict[Objection, list[str]] = {}
    for run in runs:
        own = []
        if run.rivals:
            names = "; ".join([named(run.known_grader), *run.rivals])
            why = f"several judges graded this run and --judge chooses none: {names}"
            own.append(Objection(Allow.SEVERAL_JUDGES, why))
        for why in unpublishable_reasons(run):
            own.append(Objection(Allow.NOT_PUBLISHABLE, f"not publishable: {why}"))
        for objection in own:
            labels_by_reason.setdefault(objection, []).append(run.label)
    for objection, labels in labels_by_reason.items():
        yield objection._replace(why=f"{some(labels)}: {objection.why}")


def judge_of(grader: Grader) -> str:
    """What makes two graders one; the graders of imported verdicts are unknown."""
    return grader.judge if grader.engine != IMPORTED else IMPORTED


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
