"""The rubric linter: `lint` finds what code can see for certain, `suspicions` what it only suspects.

Source: docs/method.md §1, Rubric. Faults bind, also at the release gate. Suspicions compare words without
understanding them: the engine that reviews the rubric decides on them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from medlive.text.normalise import fold
from medlive.text.quantities import numbers_missing

from .model import (
    LEAST_DECISIVE,
    Criterion,
    Origin,
)

MIN_CRITERIA = 2
TRIVIAL = 1
"""Points up to which a criterion asks for what every answer has."""


MOST_WRITTEN = 14
"""Most criteria of a rubric that is written now (docs/curation.md)."""
MOST_RELEASED = 19
"""Most criteria of a rubric that may be released: the paper's bound, which earlier rubrics kept to."""
MOST_POINTS = 100
"""Greatest sum of the points above 0, of a rubric that is written now."""
HEAVIEST_SHARE = 0.5
"""Greatest share of the heaviest criterion in that sum, where three or more earn points."""
SIMILAR = 0.7
"""Jaccard similarity of two criteria's words (Chinese: character pairs) from which they may say the same."""


Objection = Literal[
    "duplicate",
    "two_facts",
    "not_standalone",
    "polarity",
    "ungrounded",
    "false",
    "not_direct",
    "minor",
]
"""What the engine that reviews a rubric may find wrong with a criterion, by its word alone."""
Fault = (
    Objection
    | Literal[
        "too_few",
        "too_many",
        "too_heavy",
        "one_sided",
        "no_core",
        "no_positive",
        "no_negative",
        "zero_points",
        "language",
        "unknown_advice",
        "numbers",
        "unanswered",
    ]
)
"""What is wrong with a rubric or with one of its criteria."""


@dataclass(frozen=True)
class Finding:
    """A fault; `criterion` is the id it concerns, or None for the rubric as a whole."""

    fault: Fault
    criterion: str | None
    detail: str

    @property
    def words(self) -> str:
        """Fault and detail in one line."""
        return f"{self.fault}: {self.detail}"


_HAN = re.compile(r"[\u3400-\u9fff]")
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_LATIN = re.compile(r"[A-Za-z]")
_WORDS = re.compile(r"[a-z0-9]+")
# Words of a criterion that lean on another text, join two facts, or describe an error
_LEANING = re.compile(
    r"\b(?:the|this|that) (?:doctor|physician|thread|post|poster|forum|reply|(?:original|reference) answer)\b"
    r"|\bas (?:mentioned|stated|described|noted)\b|\bsame as (?:above|the)\b"
    r"|\bi(?:'m|'ve|'d|'ll)\b|\bi (?:think|suggest|feel|believe|advise|recommend)\b|\b(?:my|your|you)\b"
    r"|(?:该|这位|那位|上述|本)(?:医生|大夫|医师|帖|回复|回答)|医生(?:说|认为|指出|回复)|如上所述|同上|原帖|楼主|您|你|我(?!国)"
)
_JOINING = re.compile(r"\band\b|\bas well as\b|;|[并和及、；]|以及|同时")
_ERROR = re.compile(
    r"^\W*(?:fails? to|omits?|neglects?|incorrectly|wrongly|does not\b|未能|没有|遗漏|错误地|忽视)"
)


def lint(
    language: str,
    criteria: Sequence[Criterion],
    advice: Mapping[str, str],
    case: str,
    *,
    no_negative: str = "",
    is_written: bool = False,
) -> tuple[Finding, ...]:
    """Every fault of a rubric in `language` ("en" or "zh") that is certain; empty when there is none.

    `advice` maps each advice element to its words, `case` holds the case's texts: a criterion that earns points
    asks for no number that neither states. `no_negative` says why no criterion costs points. `is_written`: the
    stricter limits for newly written rubrics apply, not only those for release.
    """
    findings = _whole_faults(criteria, no_negative, is_written)
    for c in criteria:
        if c.points == 0:
            findings.append(Finding("zero_points", c.id, "points are never 0"))
        han = len(_HAN.findall(c.criterion))
        latin = len(_LATIN.findall(c.criterion))
        if language == "zh":
            is_in_language = han >= 2
        else:
            is_in_language = latin > 0 and han * 4 <= latin
        if not is_in_language:
            detail = f"is not in the case's language ({language})"
            findings.append(Finding("language", c.id, detail))
        if c.origin is not Origin.ADVICE or c.advice_id is None:
            continue
        if c.advice_id not in advice:
            detail = f"{c.advice_id!r} is not an advice element of the case"
            findings.append(Finding("unknown_advice", c.id, detail))
        # An error may well be a number that nobody stated.
        elif c.points > 0:
            missing = ", ".join(numbers_missing(c.criterion, advice[c.advice_id], case))
            if missing:
                detail = f"asks for {missing[:80]}, which the case does not state"
                findings.append(Finding("numbers", c.id, detail))
    return tuple(findings)


def _whole_faults(
    criteria: Sequence[Criterion], no_negative: str, is_written: bool
) -> list[Finding]:
    """What is wrong with the criteria as a whole: their number, their signs, their weights."""
    earned = [c.points for c in criteria if c.points > 0]
    total = sum(earned)
    heaviest = max(earned, default=0)
    count = f"{len(criteria)} criteria"
    most = MOST_WRITTEN if is_written else MOST_RELEASED
    costs = any(c.points < 0 for c in criteria) or bool(no_negative.strip())
    checks: list[tuple[Fault, bool, str]] = [
        (
            "too_few",
            len(criteria) < MIN_CRITERIA,
            f"{count}, at least {MIN_CRITERIA}",
        ),
        (
            "too_many",
            len(criteria) > most,
            f"{count}, at most {most}: join the examples of one point, "
            "and leave out what weighs least",
        ),
        ("no_positive", not earned, "no criterion earns points"),
        (
            "no_negative",
            not costs,
            "no criterion costs points, and `no_negative` does not say why",
        ),
        (
            "too_heavy",
            is_written and total > MOST_POINTS,
            f"{total} points can be earned, at most {MOST_POINTS}: "
            "keep 7 and more for what no good answer may lack",
        ),
        (
            "one_sided",
            is_written and len(earned) > 2 and heaviest > HEAVIEST_SHARE * total,
            f"the heaviest criterion has {heaviest} of {total} points, at most {HEAVIEST_SHARE:.0%}",
        ),
        (
            "no_core",
            is_written and bool(earned) and heaviest < LEAST_DECISIVE,
            f"no criterion has {LEAST_DECISIVE} points: which one may no good answer lack?",
        ),
    ]
    return [
        Finding(fault, None, words) for fault, is_faulty, words in checks if is_faulty
    ]


def suspicions(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    """What the engine that reviews the rubric is asked to look at, a sentence each, in the criteria's order."""
    suspected = []
    for place, c in enumerate(criteria):
        small = fold(c.criterion)
        if match := _LEANING.search(small):
            suspected.append(f"{c.id}: {match.group()!r}: does it stand alone?")
        if match := _JOINING.search(small):
            suspected.append(f"{c.id}: {match.group()!r}: is it two separate facts?")
        if c.points > 0 and _ERROR.search(small):
            suspected.append(f"{c.id}: earns points and seems to describe an error")
        for earlier in criteria[:place]:
            same_sign = (earlier.points > 0) == (c.points > 0)
            if same_sign and alike(c.criterion, earlier.criterion):
                suspected.append(
                    f"{c.id}: much like {earlier.id}: would one sentence always meet both?"
                )
    return tuple(suspected)


def alike(text: str, other: str) -> bool:
    """Whether two criteria have nearly the same words."""
    words = _shingles(fold(text))
    others = _shingles(fold(other))
    if not words or not others:
        return False
    return len(words & others) >= SIMILAR * len(words | others)


def find_faulty(
    criteria: Sequence[Criterion], findings: Sequence[Finding]
) -> dict[str, Finding]:
    """The ids of criteria to drop, each with the finding that decides: also criteria too light to be asked for, and the
    lightest of more than MOST_WRITTEN.

    A criterion that answers a part of the query is not dropped for being minor, nor is a penalty where no other is
    left, since a rubric without one would hold its case.
    """
    faulty: dict[str, Finding] = {}
    minor: dict[str, Finding] = {}
    for finding in (*findings, *_trivial(criteria)):
        # A criterion stays if its only fault is that it does not answer its part of the query directly.
        if finding.criterion and finding.fault != "not_direct":
            is_minor = finding.fault == "minor"
            (minor if is_minor else faulty).setdefault(finding.criterion, finding)
    spared = {c.id for c in criteria if c.asked}
    penalties = {c.id for c in criteria if c.points < 0}
    if penalties <= faulty.keys() | minor.keys():
        spared |= penalties
    for name in minor.keys() - spared:
        faulty.setdefault(name, minor[name])
    kept = [c for c in criteria if c.id not in faulty]
    for criterion in lightest(kept, len(kept) - MOST_WRITTEN):
        detail = "the lightest of too many"
        faulty[criterion.id] = Finding("minor", criterion.id, detail)
    return faulty


def _trivial(criteria: Sequence[Criterion]) -> Iterator[Finding]:
    for criterion in criteria:
        if 0 < criterion.points <= TRIVIAL:
            detail = f"{criterion.points} point: every answer has it"
            yield Finding("minor", criterion.id, detail)


def lightest(criteria: Sequence[Criterion], count: int) -> list[Criterion]:
    """The `count` lightest criteria that earn points and answer no part of the query; of equal ones the last first."""
    spare = [c for c in criteria if c.points > 0 and not c.asked]
    spare.sort(key=lambda c: (c.points, -c.position))
    return spare[: max(count, 0)]


def _shingles(folded: str) -> frozenset[str]:
    """The words and the pairs of Chinese characters of a folded text."""
    shingles = set(_WORDS.findall(folded))
    for run in _HAN_RUN.findall(folded):
        for start in range(len(run) - 1):
            shingles.add(run[start : start + 2])
    return frozenset(shingles)
