"""The rubric: weighted criteria by which an answer to a case is graded (LiveMedBench §3.3, appendix A.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from medlive.errors import BadInput


class Theme(StrEnum):
    """What a case chiefly tests."""

    EMERGENCY_REFERRALS = "Emergency Referrals"
    CONTEXT_SEEKING = "Context-Seeking"
    EXPERTISE_TAILORED_COMMUNICATION = "Expertise-Tailored Communication"
    RESPONDING_UNDER_UNCERTAINTY = "Responding under Uncertainty"
    RESPONSE_DEPTH = "Response Depth"


class Axis(StrEnum):
    """What a criterion measures."""

    ACCURACY = "Accuracy"
    COMPLETENESS = "Completeness"
    COMMUNICATION_QUALITY = "Communication Quality"
    CONTEXT_AWARENESS = "Context Awareness"
    SAFETY = "Safety"


def known_axis(name: str) -> Axis:
    """Return the axis of a snapshot's criterion. Raises BadInput for one that only a later version has."""
    try:
        return Axis(name)
    except ValueError as exc:
        raise BadInput(
            f"expected one of the axes of this version, got {name!r}",
            hint="install the medlive that wrote the snapshot, or a later one",
        ) from exc


class Origin(StrEnum):
    """What a criterion is based on (docs/method.md §1, Rubric)."""

    ADVICE = "advice"  # An element of the case's advice: the paper's rubric
    EVIDENCE = "evidence"  # A decisive point that the advice lacks and a passage states
    CONSENSUS = "consensus"  # The same, named by two models independently


Tier = Literal["decisive", "further"]
"""How much a criterion matters: an answer that misses a decisive one does not do for this patient; a further one is
what an excellent answer adds and an ordinary one lacks (docs/method.md §1, Rubric)."""
LEAST_DECISIVE = 7
"""Points, above or below 0, from which a criterion is decisive."""


def tier_of(points: int) -> Tier:
    """The tier of a criterion of these points."""
    return "decisive" if abs(points) >= LEAST_DECISIVE else "further"


@dataclass(frozen=True)
class AskedPart:
    """A thing that the query expressly asks."""

    id: str  # `q1`, `q2`, … within its case revision
    text: str


class Difficulty(StrEnum):
    """How hard a case is to answer; describes the case and weighs nothing (ClinConsensus §3.2)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    UNKNOWN = "unknown"


class Register(StrEnum):
    """Whom a case is written for (ClinConsensus §3.2)."""

    LAY = "lay"
    PROFESSIONAL = "professional"
    UNKNOWN = "unknown"


_SPECIALTY_NAMES = (
    "Allergy & Immunology; Anesthesiology & Pain; Cardiology; Cardiothoracic Surgery; Colorectal Surgery; "
    "Dentistry & Oral Surgery; Dermatology; Emergency Medicine; Endocrinology & Metabolism; Family & General "
    "Practice; Gastroenterology & Hepatology; General Surgery; Geriatrics; Hematology; Infectious Disease; "
    "Medical Genetics; Nephrology; Neuro-Oncology; Neurology; Neurosurgery; Nutrition; Obstetrics & "
    "Gynecology; Oncology; Ophthalmology; Orthopedics; Otolaryngology; Pathology; Pediatric Surgery; "
    "Pediatrics; Physical Medicine & Rehabilitation; Plastic Surgery; Psychiatry; Pulmonary & Critical Care; "
    "Radiation Oncology; Radiology & Nuclear Medicine; Rheumatology; Urology; Vascular Surgery"
)
# The closed list of 38 (docs/method.md §1)
SPECIALTIES: tuple[str, ...] = tuple(_SPECIALTY_NAMES.split("; "))

UNKNOWN_SPECIALTY = "unknown"


@dataclass(frozen=True)
class Criterion:
    """One binary criterion of a case."""

    id: str  # `c1`, `c2`, … within its case revision
    position: int
    criterion: str
    axis: Axis
    # In [-10, 10], never 0; the sign is the polarity, ±10 life-critical only
    points: int
    advice_id: str | None  # The advice element it came from; None: from no advice
    fact: str | None = None
    """The fact that it asks for; None where it was written before facts were listed."""
    origin: Origin = Origin.ADVICE
    source: str = ""
    """For `evidence` the passage's id, for `consensus` the models that named it, else empty."""
    asked: str = ""
    """The part of the query that it answers directly, by its id; empty for none."""
    likely: str = ""
    """Of a penalty: the mistake of an answer that it was drawn from, or why answers are likely to commit it."""

    @property
    def tier(self) -> Tier:
        """Decisive or further, by its points."""
        return tier_of(self.points)


def numbered(criteria: Iterable[Criterion]) -> tuple[Criterion, ...]:
    """Return the criteria with ids and positions in their order, from 1."""
    renumbered = []
    for place, criterion in enumerate(criteria, start=1):
        renumbered.append(replace(criterion, id=f"c{place}", position=place))
    return tuple(renumbered)


class Omission(StrEnum):
    """Why a fact of the advice is in no criterion (LiveMedBench §3.3, step 1)."""

    NOT_ASKED = "not_asked"  # The question does not need it
    THEME = "theme"  # The theme does not need it: long-term diet in an emergency
    TRIVIAL = "trivial"  # Every answer has it, whatever its quality
    REFUTED = "refuted"  # Current references refute it, or nothing bears it out
    UNKNOWABLE = "unknowable"  # Nobody could know it from history and question
    DROPPED = "dropped"  # Its criterion was at fault, or ruled out; the detail says why


Step = Literal["writing", "completion", "proof", "revision", "curation"]
"""A step in which a rubric is made; the last is a person's."""


@dataclass(frozen=True)
class OmittedFact:
    """A fact, point or criterion that the rubric leaves out."""

    fact: str
    advice_id: str  # Empty for what the advice lacks
    reason: Omission
    detail: str = ""
    step: Step = "writing"
    criterion: str = ""  # The criterion that asked for it; empty where none was written

    @property
    def why(self) -> str:
        """The reason in words, as the next steps read it."""
        words = f"{self.step}: {self.reason.value}"
        return f"{words}: {self.detail}" if self.detail else words


PointOutcome = Literal[
    "evidence",  # Kept: a passage supports it
    "consensus",  # Kept: a second model named it too
    "contradicted",
    "not_standard",
    # No passage supports or contradicts it, and the other model did not name it
    "not_named",
    # No passage supports or contradicts it, and one model has both roles
    "one_model",
    "faulty",  # The reviewer objected to its criterion
    "surplus",  # Sound, but there were graver points enough
]
"""Whether, and why, the rubric has a point that the advice lacks."""


@dataclass(frozen=True)
class CompletedPoint:
    """A point that the advice lacks, and why the rubric has it or not."""

    point: str
    criterion: str
    outcome: PointOutcome
    source: str  # As the criterion's; empty where it was not kept
    detail: str  # The passage's words, the second model's point, or why it was not kept

    @property
    def kept(self) -> bool:
        """Whether it is in the rubric."""
        return self.outcome in ("evidence", "consensus")

    def without(self, outcome: PointOutcome, detail: str = "") -> "CompletedPoint":
        """The point with another outcome, as its criterion is not kept after all."""
        return replace(self, outcome=outcome, source="", detail=detail)


@dataclass(frozen=True)
class Completion:
    """The result of the search for points that the advice lacks."""

    points: tuple[CompletedPoint, ...] = ()
    note: str = ""  # Why no second model was asked; empty where one was, or need not be


@dataclass(frozen=True)
class Conflict:
    """A criterion that contradicts the advice, or another criterion: no answer can follow both."""

    criterion: str  # Its text
    other: str  # The advice element's statement, or the other criterion's text
    detail: str
    advice_id: str = ""  # The advice element; empty where the other is a criterion


@dataclass(frozen=True)
class Rubric:
    """A case's rubric R = {(c_j, w_j)}, with the case's theme, specialty and labels."""

    theme: Theme
    specialty: str  # One of SPECIALTIES, or "unknown"
    criteria: tuple[Criterion, ...]
    asked: tuple[AskedPart, ...] = ()  # What the query expressly asks
    no_negative: str = ""  # Why no criterion costs points; empty where one does
    difficulty: Difficulty = Difficulty.UNKNOWN
    dialogue_register: Register = Register.UNKNOWN
    omitted: tuple[OmittedFact, ...] = ()  # What no criterion asks for
    completion: Completion | None = None  # None: it was not made complete
    conflicts: tuple[Conflict, ...] = ()
    # Figures of its proof (`medlive.rubric.proof.Figures`); None where it was not proved.
    ceiling: float | None = None
    floor: float | None = None
    separation: float | None = None
    ordinary: float | None = None

    def unproved(self) -> "Rubric":
        """The rubric without figures, as after an edit that was not proved."""
        return replace(self, ceiling=None, floor=None, separation=None, ordinary=None)

    @property
    def unanswered(self) -> tuple[AskedPart, ...]:
        """The parts of the query that no criterion which earns points answers directly."""
        answered = {c.asked for c in self.criteria if c.points > 0}
        return tuple(part for part in self.asked if part.id not in answered)


def unproved_words(since: int | None) -> str:
    """Words for a rubric that is not proved since this revision of its case; empty where it is proved (None)."""
    if since is None:
        return ""
    return "not proved" if since == 1 else f"not proved since revision {since}"
