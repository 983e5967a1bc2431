"""What people rate: the parts of a case, and a grader's verdicts on an answer.

An item's id is a digest of everything rated, so that ratings of changed texts are recognised and left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from medlive.integrity.digest import digest_json


class CasePart(NamedTuple):
    """One aspect of one case, or one of its criteria."""

    id: str
    aspect: str  # One of `medlive.statistics.case_ratings.ASPECTS`
    criterion_id: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedVerdict:
    """A grader's verdict on one criterion of one answer."""

    id: str
    case_id: str
    question: str
    criterion_id: str
    answer: str
    met: bool


@dataclass(frozen=True, slots=True)
class GraderSheet:
    """The verdicts of a graded run, for people to check."""

    grader: str  # The model
    against: (
        str | None
    )  # The judge who decided every criterion otherwise; None: not chosen by that
    verdicts: tuple[CheckedVerdict, ...]


def case_parts(
    case_id: str, question: str, advice: str, criteria: Mapping[str, str]
) -> Iterator[CasePart]:
    """What is rated of a case: its narrative with query, its advice, each of its criteria (id → text)."""
    about = "narrative_and_query"
    yield CasePart(_digest("q", case_id, about, question), about)
    yield CasePart(_digest("q", case_id, "advice", question, advice), "advice")
    for criterion_id, text in criteria.items():
        item = _digest("q", case_id, criterion_id, question, text)
        yield CasePart(item, "criterion", criterion_id)


def verdict_id(
    case_id: str, question: str, answer: str, criterion_id: str, criterion: str
) -> str:
    """The id of a verdict; `answer` is the digest of its text."""
    return _digest("i", case_id, question, answer, criterion_id, criterion)


def _digest(letter: str, *parts: str) -> str:
    """An id that spreadsheets do not mistake for a number or a date."""
    return f"{letter}-{digest_json(list(parts)).partition(':')[2][:16]}"
