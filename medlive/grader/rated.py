"""What people rate, with its ids: the parts of a case (`case_parts`), and a grader's verdicts on answers.

An id is a digest of everything rated, so that ratings of changed texts are recognised and left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from medlive.integrity.digest import digest_json


@dataclass(frozen=True)
class CheckedVerdict:
    """A grader's verdict on one criterion of one answer."""

    id: str
    case_id: str
    question: str
    criterion_id: str
    answer: str
    met: bool


class GraderSheet(NamedTuple):
    """The verdicts of a graded run, for people to check."""

    grader: str  # The model
    against: str | None
    """The judge that contradicts each of these verdicts; None: they were not chosen for that."""
    verdicts: tuple[CheckedVerdict, ...]


def case_parts(
    case_id: str,
    question: str,
    advice: str,
    criteria: Mapping[str, str],
) -> Iterator[tuple[str, str, str | None]]:
    """(item id, aspect, criterion id or None) for each part of a case that is rated.

    The parts are narrative with query, advice, and each of `criteria` (id → text); an aspect is one of
    `medlive.statistics.case_ratings.ASPECTS`.
    """
    about = "narrative_and_query"
    yield _digest("q", case_id, about, question), about, None
    yield _digest("q", case_id, "advice", question, advice), "advice", None
    for criterion_id, text in criteria.items():
        item = _digest("q", case_id, criterion_id, question, text)
        yield item, "criterion", criterion_id


def verdict_id(
    case_id: str,
    question: str,
    answer: str,
    criterion_id: str,
    criterion: str,
) -> str:
    """The id of a verdict; `answer` is the digest of its text."""
    return _digest("i", case_id, question, answer, criterion_id, criterion)


def _digest(letter: str, *parts: str) -> str:
    """The id of `parts`, which spreadsheets do not mistake for a number or a date."""
    return f"{letter}-{digest_json(list(parts)).partition(':')[2][:16]}"
