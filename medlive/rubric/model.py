"""The rubric: weighted criteria by which an answer to a case is graded (LiveMedBench §3.3, appendix A.3)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


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


SPECIALTIES: tuple[str, ...] = (
    "Allergy & Immunology",
    "Anesthesiology & Pain",
    "Cardiology",
    "Cardiothoracic Surgery",
    "Colorectal Surgery",
    "Dentistry & Oral Surgery",
    "Dermatology",
    "Emergency Medicine",
    "Endocrinology & Metabolism",
    "Family & General Practice",
    "Gastroenterology & Hepatology",
    "General Surgery",
    "Geriatrics",
    "Hematology",
    "Infectious Disease",
    "Medical Genetics",
    "Nephrology",
    "Neuro-Oncology",
    "Neurology",
    "Neurosurgery",
    "Nutrition",
    "Obstetrics & Gynecology",
    "Oncology",
    "Ophthalmology",
    "Orthopedics",
    "Otolaryngology",
    "Pathology",
    "Pediatric Surgery",
    "Pediatrics",
    "Physical Medicine & Rehabilitation",
    "Plastic Surgery",
    "Psychiatry",
    "Pulmonary & Critical Care",
    "Radiation Oncology",
    "Radiology & Nuclear Medicine",
    "Rheumatology",
    "Urology",
    "Vascular Surgery",
)
"""The closed list of 38 (docs/method.md §1)."""

UNKNOWN_SPECIALTY = "unknown"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One binary criterion of a case."""

    id: str
    """`c1`, `c2`, … within its case revision."""
    position: int
    criterion: str
    axis: Axis
    points: int
    """In [-10, 10], never 0; the sign is the polarity, ±10 life-critical only."""
    advice_id: str
    """The advice element it came from."""
    fact: str | None = None
    """The fact of that element that it asks for; None where it was written before facts were listed."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A case's rubric R = {(c_j, w_j)}."""

    theme: Theme
    specialty: str
    """One of SPECIALTIES, or "unknown"."""
    criteria: tuple[Criterion, ...]
    no_negative: str = ""
    """Why no criterion costs points; empty where one does."""


class FactItem(BaseModel):
    """A fact of the advice that matters for the theme."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: Annotated[str, StringConstraints(min_length=1, max_length=20)]
    fact: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
    advice_id: str
    """The advice element that states it."""


class CriterionItem(BaseModel):
    """A criterion as an engine proposes it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    criterion: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
    axis: Annotated[Axis, Field(strict=False)]
    points: Annotated[int, Field(ge=-10, le=10)]
    fact_id: str
    """The fact that it asks for."""


class RubricReply(BaseModel):
    """`rubric.write`: the theme, the specialty, the facts that matter, and each fact's criteria.

    Inputs: language, query, narrative (text), advice [{id, kind, statement}], and on the revision round
    `earlier`, the criteria as they were, with `findings` [{criterion, finding}].
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    theme: Annotated[Theme, Field(strict=False)]
    specialty: str
    facts: Annotated[tuple[FactItem, ...], Field(max_length=40, strict=False)]
    criteria: Annotated[tuple[CriterionItem, ...], Field(max_length=40, strict=False)]
    no_negative: Annotated[str, StringConstraints(max_length=1000)]
    """Why no criterion costs points; empty where one does."""


class ProblemItem(BaseModel):
    """What a reviewer objects to in one criterion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    criterion_id: str
    fault: Literal["duplicate", "two_facts", "not_standalone", "polarity", "ungrounded", "false"]
    detail: Annotated[str, StringConstraints(max_length=1000)]


class ReviewReply(BaseModel):
    """`reader.rubric`: what is wrong with criteria, and which of them a life depends on.

    Inputs: language, query, narrative, advice [{id, statement}], criteria [{id, criterion, axis, points,
    advice_id}], suspicions [str].
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    problems: Annotated[tuple[ProblemItem, ...], Field(max_length=40, strict=False)]
    life_critical: Annotated[tuple[str, ...], Field(max_length=40, strict=False)]
