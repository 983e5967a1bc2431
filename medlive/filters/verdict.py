"""What a filter rule found: a value that is stored, whether the thread passed or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

EvidenceValue = str | int | float | None


class FilterReason(StrEnum):
    """Why a thread does not pass a rule."""

    EMPTY_THREAD = "empty_thread"
    TOO_LONG = "too_long"
    POSTED_BEFORE = "posted_before"
    POSTED_UNKNOWN = "posted_unknown"
    POSTED_IN_FUTURE = "posted_in_future"
    NOT_CLINICAL = "not_clinical"
    NOT_TEXT_ONLY = "not_text_only"
    NON_ALPHANUMERIC = "non_alphanumeric"
    LANGUAGE = "language"
    NO_CODEBOOK_TERM = "no_codebook_term"
    DUPLICATE = "duplicate"
    NO_VERIFIED_REPLY = "no_verified_reply"
    UNSAFE_CONTENT = "unsafe_content"
    REIDENTIFICATION_RISK = "reidentification_risk"


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """One rule's verdict on one thread."""

    rule: str
    """The rule's name; one rule may have several reasons."""
    passed: bool
    reason: FilterReason | None = None
    """Set exactly where the thread did not pass."""
    evidence: Mapping[str, EvidenceValue] = field(default_factory=dict)
    """What the verdict rests on, without anything that names a person."""

    def __post_init__(self) -> None:
        if self.passed is (self.reason is not None):
            raise ValueError("a verdict has a reason exactly when the thread did not pass")
