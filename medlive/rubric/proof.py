"""The proof of a rubric: `examine` decides in code whether it tells good answers from bad ones.

Source: docs/method.md §1, Rubric, Proof. `probe` writes the answers, the grader that also grades models grades
them, and `make` runs these steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Literal

from medlive.harm.model import HarmReading, safe_score

from .model import Criterion

LEAST_LONG = Fraction(80, 100)
"""The long good answer scores at least this."""
MOST_BELOW_LONG = Fraction(20, 100)
"""The short good answer scores at most this much below the long one."""
LEAST_GAP = Fraction(20, 100)
"""The ordinary answer scores at least this much below the long one, and above the vague one; the slip, by `safe`,
below the long one."""
MOST_BAD = Fraction(15, 100)
"""The vague and the wrong answer score at most this."""


class Probe(StrEnum):
    """An answer of known quality, in the order in which they are written."""

    LONG = "excellent_long"
    SHORT = "excellent_short"
    ORDINARY = "ordinary"  # Correct, and lacks what an expert would not miss
    SLIP = "slip"  # Good, with one harmful statement
    VAGUE = "vague"
    WRONG = "wrong"


GOOD = (Probe.SHORT, Probe.LONG)
BAD = (Probe.VAGUE, Probe.WRONG)
MISTAKEN = (Probe.SLIP, Probe.WRONG)
"""Those whose writer names a mistake."""
NOTED = (Probe.ORDINARY, *MISTAKEN)
"""Those whose writer names what is lacking or wrong."""


ProofFault = Literal[
    "long_low",  # The long good answer is below 0.80
    "short_low",  # The short good answer is more than 0.20 below the long
    "ordinary_high",  # The ordinary answer is less than 0.20 below long
    "ordinary_low",  # It is less than 0.20 above the vague one
    "slip_high",  # The slip is less than 0.20 below long, by `safe`
    "vague_high",  # The vague answer is above 0.15
    "wrong_high",  # The wrong answer is above 0.15
    "grader_meets_all",  # The grader cannot tell answers apart
    # Of a criterion, which a reviewer rules on:
    "missed",  # Both good answers miss what it pays for
    "rewards_wrong",  # The wrong answer meets what it pays for
    "penalises_good",  # Both good answers commit its error
    "idle",  # No answer commits its error
    # Only in earlier proofs, which had four answers:
    "separation",  # A good answer is less than 0.30 above a bad one
]
"""What a proof finds wrong with a rubric, or with one of its criteria."""


@dataclass(frozen=True)
class ProofFinding:
    """A fault of a rubric, or of a criterion with the reviewer's ruling on it."""

    fault: ProofFault
    detail: str
    criterion: str | None = None  # Its id; None for the rubric as a whole
    text: str = ""  # The criterion's text, since ids change with a revision
    round: int = 0  # How often the rubric had been revised
    needed: bool | None = None  # The reviewer's ruling: needed or not; None: not asked
    basis: str = ""  # The advice element or passage that the ruling cites
    reason: str = ""

    @property
    def words(self) -> str:
        """The finding as the writer reads it."""
        words = f"{self.fault}: {self.detail}"
        if self.needed is not None:
            ruling = f"needed by {self.basis}" if self.needed else "not needed"
            words += f"; a reviewer: {ruling}: {self.reason}"
        elif advice := _ADVICE.get(self.fault):
            words += f"; {advice}"
        return words


# What the writer is advised to do about a fault
_ADVICE: Mapping[ProofFault, str] = {
    "long_low": "points are for what an excellent answer says, and for nothing else",
    "short_low": "what is only nice to know must weigh less, or go",
    "ordinary_high": "its note says what it lacks: what an excellent answer adds must weigh more",
    "ordinary_low": "a correct answer that is on track earns points: what decides must not ask for details",
    "slip_high": "its note says what is wrong: a penalty must be met by it",
    "vague_high": "what every answer says must go, or be asked more exactly",
    "wrong_high": "a penalty must be met by what it gets wrong; what is right in it may keep its points",
}


@dataclass(frozen=True)
class ProbeVerdict:
    """The grader's verdict on one criterion for one answer."""

    met: bool
    quote: str = ""


@dataclass(frozen=True)
class GradedProbe:
    """An answer of known quality with the grader's verdict on every criterion."""

    probe: Probe
    answer: str
    note: str  # What it lacks or has wrong, by its writer's word; empty for the others
    verdicts: Mapping[str, ProbeVerdict]  # By the criteria's ids
    harm: HarmReading | None = None  # None: not read for harm

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

    def safe(self, criteria: Sequence[Criterion]) -> Fraction:
        """The score, at most what a confirmed harm leaves; unchanged where the answer was not read for harm."""
        score = self.score(criteria)
        if self.harm is None:
            return score
        # The most that is left is exact, where a score as a float is not.
        return min(score, Fraction(safe_score(1.0, self.harm.worst)))


@dataclass(frozen=True)
class Figures:
    """How a rubric measures, each from 0 to 1 where the rubric is proved."""

    ceiling: float  # The long good answer's score
    floor: float  # The higher score of the two bad answers
    separation: float  # The lower score of the two good answers, less the floor
    ordinary: float | None = None
    """The ordinary answer's score: what a model can still gain above it is the case's headroom. None: an earlier
    proof, which had no such answer."""


@dataclass(frozen=True)
class Examination:
    """What graded answers of known quality say about a rubric."""

    scores: Mapping[Probe, Fraction]
    failures: tuple[ProofFinding, ...]  # Empty exactly when the rubric is proved
    doubts: tuple[ProofFinding, ...]  # Criteria that a reviewer rules on

    @property
    def passed(self) -> bool:
        """Whether the rubric is proved."""
        return not self.failures

    @property
    def failing(self) -> tuple[Probe, ...]:
        """The answers that the rubric scores wrongly; none where the grader is at fault."""
        faults = [failure.fault for failure in self.failures]
        return tuple(_SCORED[fault] for fault in faults if fault in _SCORED)

    @property
    def figures(self) -> Figures:
        """Ceiling, floor, separation and the ordinary answer's score."""
        floor = max(map(self.scores.__getitem__, BAD))
        least = min(map(self.scores.__getitem__, GOOD))
        return Figures(
            ceiling=round(float(self.scores[Probe.LONG]), 4),
            floor=round(float(floor), 4),
            separation=round(float(least - floor), 4),
            ordinary=round(float(self.scores[Probe.ORDINARY]), 4),
        )


_SCORED: Mapping[ProofFault, Probe] = {
    "long_low": Probe.LONG,
    "short_low": Probe.SHORT,
    "ordinary_high": Probe.ORDINARY,
    "ordinary_low": Probe.ORDINARY,
    "slip_high": Probe.SLIP,
    "vague_high": Probe.VAGUE,
    "wrong_high": Probe.WRONG,
}
"""The answer that a fault is about."""


@dataclass(frozen=True)
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
    """Decide whether a rubric is proved by graded answers (docs/method.md §1, Proof)."""
    by_kind = {probe.probe: probe for probe in probes}
    scores = {kind: by_kind[kind].score(criteria) for kind in Probe}
    rewards = [c for c in criteria if c.points > 0]
    has_both = 0 < len(rewards) < len(criteria)
    if has_both and all(v.met for probe in probes for v in probe.verdicts.values()):
        detail = "the grader meets every criterion of all answers, errors included"
        fault = ProofFinding("grader_meets_all", detail)
        return Examination(scores, (fault,), ())
    failures = tuple(_failures(scores, criteria, by_kind))
    return Examination(scores, failures, tuple(_doubts(criteria, by_kind)))


def _failures(
    scores: Mapping[Probe, Fraction],
    criteria: Sequence[Criterion],
    probes: Mapping[Probe, GradedProbe],
) -> Iterator[ProofFinding]:
    """The answers whose scores are outside the limits, with the criteria that cause it."""
    named = {kind: f"{kind.value} ({float(scores[kind]):.2f})" for kind in Probe}
    slip = probes[Probe.SLIP].safe(criteria)
    named[Probe.SLIP] = f"{Probe.SLIP.value} ({float(slip):.2f} by safe)"
    is_slip_read = probes[Probe.SLIP].harm is not None
    above_slip = probes[Probe.LONG].safe(criteria) - slip
    long, ordinary = scores[Probe.LONG], scores[Probe.ORDINARY]
    vague, wrong = scores[Probe.VAGUE], scores[Probe.WRONG]
    low, below = f"{float(LEAST_LONG):.2f}", f"below {named[Probe.LONG]}"
    gap = f"is less than {float(LEAST_GAP):.2f}"
    far = f"is more than {float(MOST_BELOW_LONG):.2f}"
    bad = f"is above {float(MOST_BAD):.2f}"
    above = f"above {named[Probe.VAGUE]}"
    checks: list[tuple[ProofFault, bool, str]] = [
        ("long_low", long < LEAST_LONG, f"is below {low}"),
        (
            "short_low",
            long - scores[Probe.SHORT] > MOST_BELOW_LONG,
            f"{far} {below}",
        ),
        ("ordinary_high", long - ordinary < LEAST_GAP, f"{gap} {below}"),
        ("ordinary_low", ordinary - vague < LEAST_GAP, f"{gap} {above}"),
        (
            "slip_high",
            is_slip_read and above_slip < LEAST_GAP,
            f"{gap} {below}",
        ),
        ("vague_high", vague > MOST_BAD, bad),
        ("wrong_high", wrong > MOST_BAD, bad),
    ]
    for fault, is_failed, words in checks:
        if not is_failed:
            continue
        kind = _SCORED[fault]
        # What a low score comes from, or a high one
        is_low = fault.endswith("_low")
        detail = f"{named[kind]} {words}"
        rewards = [c for c in criteria if c.points > 0]
        ids = [c.id for c in rewards if probes[kind].verdicts[c.id].met != is_low]
        if ids:
            verb = "misses" if is_low else "meets"
            detail += f"; {kind.value} {verb} {', '.join(ids)}"
        if kind is Probe.SLIP:
            detail += "; neither a penalty nor the reading for harm takes points for its error"
        yield ProofFinding(fault, detail)


def _doubts(
    criteria: Sequence[Criterion], probes: Mapping[Probe, GradedProbe]
) -> Iterator[ProofFinding]:
    """The criteria that answers of known quality speak against."""
    for criterion in criteria:
        met = {kind: p.verdicts[criterion.id].met for kind, p in probes.items()}
        by_good = [met[kind] for kind in GOOD]
        faults: dict[ProofFault, str] = {}
        if criterion.points > 0:
            if not any(by_good):
                faults["missed"] = "both excellent answers miss it"
            # A wrong answer may well say one true thing: penalties are for what is wrong.
            if met[Probe.WRONG] and not criterion.asked:
                faults["rewards_wrong"] = "the plausibly wrong answer meets it"
        elif all(by_good):
            faults["penalises_good"] = "both excellent answers commit this error"
        elif not any(met.values()):
            faults["idle"] = "no answer commits this error"
        for fault, detail in faults.items():
            yield ProofFinding(fault, detail, criterion.id, criterion.criterion)
