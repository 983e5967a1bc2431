"""The proof of a rubric: whether it tells good answers from bad ones, decided in code.

Source: docs/method.md §1, Rubric, Proof. The four answers are written by `probe`, graded by the grader that also
grades models; `prove` asks for all of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import product
from typing import Any, Final

from medlive.rubric.model import Criterion, numbered

LEAST_SEPARATION: Final = Fraction(30, 100)
"""Each good answer scores at least this much above each bad one."""
LEAST_LONG: Final = Fraction(80, 100)
"""The long good answer scores at least this."""
MOST_BELOW_LONG: Final = Fraction(20, 100)
"""The short good answer scores at most this much below the long one."""
MOST_WRONG: Final = Fraction(15, 100)
"""The wrong answer scores at most this."""


class Probe(StrEnum):
    """An answer of known quality."""

    SHORT = "excellent_short"
    LONG = "excellent_long"
    VAGUE = "vague"
    WRONG = "wrong"


GOOD: Final = (Probe.SHORT, Probe.LONG)
BAD: Final = (Probe.VAGUE, Probe.WRONG)


class ProofFault(StrEnum):
    """What a proof finds wrong with a rubric, or with one of its criteria."""

    SEPARATION = "separation"  # A good answer is less than 0.30 above a bad one
    LONG_LOW = "long_low"  # The long good answer is below 0.80
    SHORT_LOW = "short_low"  # The short good answer is more than 0.20 below the long
    WRONG_HIGH = "wrong_high"  # The wrong answer is above 0.15
    GRADER_MEETS_ALL = "grader_meets_all"  # The grader cannot tell answers apart
    # Of a criterion, which a reviewer rules on:
    MISSED = "missed"  # Both good answers miss what it pays for
    REWARDS_WRONG = "rewards_wrong"  # The wrong answer meets what it pays for
    PENALISES_GOOD = "penalises_good"  # Both good answers commit its error


@dataclass(frozen=True, slots=True)
class ProofFinding:
    """A fault, and what a reviewer ruled where it is of a criterion."""

    fault: ProofFault
    detail: str
    criterion: str | None = None  # Its id; None for the rubric as a whole
    text: str = ""  # The criterion's text, since ids change with a revision
    round: int = 0  # How often the rubric had been revised
    needed: bool | None = None  # The reviewer's ruling; None: not asked
    basis: str = ""  # The advice element or passage that the ruling cites
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The grader's verdict on one criterion for one answer."""

    met: bool
    quote: str = ""


@dataclass(frozen=True, slots=True)
class GradedProbe:
    """An answer of known quality with the grader's verdict on every criterion."""

    probe: Probe
    answer: str
    mistake: str  # The mistake that the wrong answer makes; empty for the others
    verdicts: Mapping[str, ProbeVerdict]  # By the criteria's ids

    def score(self, criteria: Sequence[Criterion]) -> Fraction:
        """The paper's score over all criteria (LiveMedBench, Equation 1), exactly.

        Raises:
            KeyError: If a criterion is ungraded, which is never a verdict.
        """
        met = most = 0
        for criterion in criteria:
            most += max(criterion.points, 0)
            if self.verdicts[criterion.id].met:
                met += criterion.points
        if most == 0:
            return Fraction(0)
        return min(max(Fraction(met, most), Fraction(0)), Fraction(1))


@dataclass(frozen=True, slots=True)
class Figures:
    """How a rubric measures, each from 0 to 1 where the rubric is proved."""

    ceiling: float  # The long good answer's score
    floor: float  # The higher score of the two bad answers
    separation: float  # The lower score of the two good answers, less the floor


@dataclass(frozen=True, slots=True)
class Examination:
    """What four graded answers say about a rubric."""

    scores: Mapping[Probe, Fraction]
    failures: tuple[ProofFinding, ...]  # Empty exactly when the rubric is proved
    doubts: tuple[ProofFinding, ...]  # Criteria that a reviewer rules on

    @property
    def passed(self) -> bool:
        """Whether the rubric is proved."""
        return not self.failures

    @property
    def grader_meets_all(self) -> bool:
        """Whether the grader is at fault, so that no revision would help."""
        if not self.failures:
            return False
        return self.failures[0].fault is ProofFault.GRADER_MEETS_ALL

    @property
    def figures(self) -> Figures:
        """Ceiling, floor and separation."""
        floor = max(map(self.scores.__getitem__, BAD))
        least = min(map(self.scores.__getitem__, GOOD))
        return Figures(
            ceiling=round(float(self.scores[Probe.LONG]), 4),
            floor=round(float(floor), 4),
            separation=round(float(least - floor), 4),
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """A rubric's proof, passed or not, as it is stored with the decision."""

    passed: bool
    rounds: int  # How often the rubric was revised for it
    figures: Figures
    probes: tuple[GradedProbe, ...]  # Graded by the last rubric
    criteria: tuple[Criterion, ...]  # The last rubric, as the probes were graded by it
    findings: tuple[ProofFinding, ...]  # Of all rounds, in order
    engines: Mapping[str, Any] = field(default_factory=dict)
    """Of writer, prober and grader: the identity as JSON."""

    @property
    def last_failures(self) -> tuple[ProofFinding, ...]:
        """What was still wrong with the rubric as a whole after the last round."""
        failures = []
        for finding in self.findings:
            if finding.round == self.rounds and finding.criterion is None:
                failures.append(finding)
        return tuple(failures)


def examine(
    criteria: Sequence[Criterion], probes: Sequence[GradedProbe]
) -> Examination:
    """Decide whether a rubric is proved by four graded answers (docs/method.md §1, Proof)."""
    by_kind = {probe.probe: probe for probe in probes}
    scores = {}
    for kind in Probe:
        scores[kind] = by_kind[kind].score(criteria)
    if _meets_all(criteria, probes):
        detail = "the grader meets every criterion of all four answers, errors included"
        fault = ProofFinding(ProofFault.GRADER_MEETS_ALL, detail)
        return Examination(scores, (fault,), ())
    failures = tuple(_failures(scores, criteria, by_kind))
    return Examination(scores, failures, tuple(_doubts(criteria, by_kind)))


def _meets_all(criteria: Sequence[Criterion], probes: Sequence[GradedProbe]) -> bool:
    """Whether rewards and penalties are met alike, in every answer."""
    if len(_rewards(criteria)) in (0, len(criteria)):
        return False
    return all(len(_met(probe, criteria)) == len(criteria) for probe in probes)


def _met(probe: GradedProbe, criteria: Sequence[Criterion]) -> list[str]:
    """The ids of the criteria that an answer meets."""
    return [c.id for c in criteria if probe.verdicts[c.id].met]


def _failures(
    scores: Mapping[Probe, Fraction],
    criteria: Sequence[Criterion],
    probes: Mapping[Probe, GradedProbe],
) -> Iterator[ProofFinding]:
    rewards = _rewards(criteria)
    named, has, lacks = dict[Probe, str](), dict[Probe, str](), dict[Probe, str]()
    for kind, probe in probes.items():
        met, missed = list[str](), list[str]()
        for criterion in rewards:
            is_met = probe.verdicts[criterion.id].met
            (met if is_met else missed).append(criterion.id)
        named[kind] = f"{kind.value} ({float(scores[kind]):.2f})"
        has[kind] = f"; {kind.value} meets {', '.join(met)}" if met else ""
        lacks[kind] = f"; {kind.value} misses {', '.join(missed)}" if missed else ""
    for good, bad in product(GOOD, BAD):
        if scores[good] - scores[bad] < LEAST_SEPARATION:
            detail = (
                f"{named[good]} is less than {float(LEAST_SEPARATION):.2f}"
                f" above {named[bad]}{has[bad]}"
            )
            yield ProofFinding(ProofFault.SEPARATION, detail)
    long, short, wrong = Probe.LONG, Probe.SHORT, Probe.WRONG
    if scores[long] < LEAST_LONG:
        detail = f"{named[long]} is below {float(LEAST_LONG):.2f}{lacks[long]}"
        yield ProofFinding(ProofFault.LONG_LOW, detail)
    if scores[long] - scores[short] > MOST_BELOW_LONG:
        detail = (
            f"{named[short]} is more than {float(MOST_BELOW_LONG):.2f}"
            f" below {named[long]}{lacks[short]}"
        )
        yield ProofFinding(ProofFault.SHORT_LOW, detail)
    if scores[wrong] > MOST_WRONG:
        detail = f"{named[wrong]} is above {float(MOST_WRONG):.2f}{has[wrong]}"
        yield ProofFinding(ProofFault.WRONG_HIGH, detail)


def _rewards(criteria: Sequence[Criterion]) -> list[Criterion]:
    return [c for c in criteria if c.points > 0]


def _doubts(
    criteria: Sequence[Criterion], probes: Mapping[Probe, GradedProbe]
) -> Iterator[ProofFinding]:
    """The criteria on which answers of known quality speak against the rubric."""
    for criterion in criteria:
        good = [probes[kind].verdicts[criterion.id].met for kind in GOOD]
        faults: list[tuple[ProofFault, str]] = []
        if criterion.points < 0:
            if all(good):
                detail = "both excellent answers commit this error"
                faults.append((ProofFault.PENALISES_GOOD, detail))
        else:
            if not any(good):
                faults.append((ProofFault.MISSED, "both excellent answers miss it"))
            if probes[Probe.WRONG].verdicts[criterion.id].met:
                detail = "the plausibly wrong answer meets it"
                faults.append((ProofFault.REWARDS_WRONG, detail))
        for fault, detail in faults:
            yield ProofFinding(fault, detail, criterion.id, criterion.criterion)


def without_criteria(
    criteria: Sequence[Criterion], probes: Sequence[GradedProbe], out: set[str]
) -> tuple[tuple[Criterion, ...], tuple[GradedProbe, ...]]:
    """A rubric without some criteria, numbered again, and the same verdicts under the new ids."""
    kept = [c for c in criteria if c.id not in out]
    renumbered = numbered(kept)
    regraded = []
    for probe in probes:
        verdicts = {}
        for old, new in zip(kept, renumbered, strict=True):
            verdicts[new.id] = probe.verdicts[old.id]
        regraded.append(replace(probe, verdicts=verdicts))
    return renumbered, tuple(regraded)
