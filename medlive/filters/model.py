"""The settings of the filter chain, with the method's defaults, and what a rule found about a thread."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from medlive.text.lists import read_lists

EvidenceValue = str | int | float | None


def read_lines(name: str) -> list[str]:
    """The lines of a data file, without comments and empty ones."""
    return read_lists("medlive.filters", name)[""]


class FilterSettings(BaseModel):
    """What the chain asks of a thread (LiveMedBench, post filters; points left open are settled here)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    posted_before: date = date(2023, 1, 1)
    """Threads posted before this day are rejected."""
    future_tolerance_hours: Annotated[int, Field(ge=0, le=72)] = 24
    """How far ahead a site's clock may be."""
    max_characters: Annotated[int, Field(ge=1_000)] = 200_000
    """Longest thread: title and all messages."""
    non_alphanumeric_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of signs other than letters and digits, among non-space characters, that rejects a thread."""
    languages: tuple[Literal["en", "zh"], ...] = ("en", "zh")
    """The languages a thread may be written in."""
    non_clinical_sections: tuple[str, ...] = tuple(
        read_lines("non_clinical_sections.txt")
    )
    """Tags, boards and URL sections that hold no clinical questions."""
    identifier_kinds: Annotated[int, Field(ge=1, le=8)] = 2
    """How many kinds of direct identifiers in the patient's text reject a thread."""
    duplicate_similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Jaccard similarity of near duplicates."""


FilterReason = Literal[
    "empty_thread",
    "too_long",
    "posted_before",
    "posted_unknown",
    "posted_in_future",
    "not_clinical",
    "not_text_only",
    "non_alphanumeric",
    "language",
    "no_codebook_term",
    "duplicate",
    "no_verified_reply",
    "unsafe_content",
    "reidentification_risk",
]
"""Why a thread does not pass a rule."""


@dataclass(frozen=True)
class FilterVerdict:
    """One rule's verdict on one thread."""

    rule: str  # The rule's name; one rule may have several reasons
    passed: bool
    reason: FilterReason | None = None  # Set exactly where the thread did not pass
    evidence: Mapping[str, EvidenceValue] = field(default_factory=dict)
    """What the verdict is based on, without anything that names a person."""
