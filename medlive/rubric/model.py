"""The rubric: weighted criteria by which an answer to a case is graded (LiveMedBench §3.3, appendix A.3)."""

from dataclasses import dataclass, replace
from enum import StrEnum


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


class Difficulty(StrEnum):
    """How much an answer takes; describes the case and weighs nothing (ClinConsensus §3.2)."""

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
SPECIALTIES: tuple[str, ...] = tuple(
    _SPECIALTY_NAMES.split("; ")
)  # The closed list of 38 (docs/method.md §1)

UNKNOWN_SPECIALTY = "unknown"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One binary criterion of a case."""

    id: str  # `c1`, `c2`, … within its case revision
    position: int
    criterion: str
    axis: Axis
    points: (
        int  # In [-10, 10], never 0; the sign is the polarity, ±10 life-critical only
    )
    advice_id: str  # The advice element it came from
    fact: str | None = None
    """The fact of that element that it asks for; None where it was written before facts were listed."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A case's rubric R = {(c_j, w_j)}, and what the case is by kind."""

    theme: Theme
    specialty: str  # One of SPECIALTIES, or "unknown"
    criteria: tuple[Criterion, ...]
    no_negative: str = ""  # Why no criterion costs points; empty where one does
    difficulty: Difficulty = Difficulty.UNKNOWN
    dialogue_register: Register = Register.UNKNOWN
    # Of its proof (`medlive.rubric.proof.Figures`); None where it was not proved.
    ceiling: float | None = None
    floor: float | None = None
    separation: float | None = None

    def unproved(self) -> "Rubric":
        """The rubric without figures, as after an edit that no proof was made of."""
        return replace(self, ceiling=None, floor=None, separation=None)
