"""The rubric linter: what a criterion must be, checked in code (docs/method.md §1, Rubric)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import add

from medlive.rubric.model import Axis, Criterion
from medlive.threads.grounding import folded, is_grounded, shares_content
from medlive.threads.quantities import numbers_missing

MIN_CRITERIA = 2
MAX_CRITERIA = 19
NEAR_DUPLICATE = 0.8
"""Jaccard similarity of two criteria's words (Chinese: character pairs) from which they count as one."""


class Fault(StrEnum):
    """What is wrong with a rubric or with one of its criteria."""

    TOO_FEW = "too_few"
    TOO_MANY = "too_many"
    NO_POSITIVE = "no_positive"
    ZERO_POINTS = "zero_points"
    POLARITY = "polarity"
    LIFE_CRITICAL = "life_critical"
    DUPLICATE = "duplicate"
    NOT_STANDALONE = "not_standalone"
    TWO_FACTS = "two_facts"
    LANGUAGE = "language"
    UNKNOWN_ADVICE = "unknown_advice"
    UNGROUNDED = "ungrounded"
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class Grounds:
    """What criteria may be made of: each asks for something of the case, never for praise of the answer."""

    advice: Mapping[str, str]
    """Advice element → its words. A criterion has some content in common with its own element, or, where it costs
    points, with the case."""
    case: str
    """The case's texts: most of a criterion's content stands in them, and all numbers of one that earns points."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault; `criterion` is the id it concerns, or None for the rubric as a whole."""

    fault: Fault
    criterion: str | None
    detail: str


_CJK = re.compile(r"[\u3400-\u9fff]+")
_LATIN = re.compile(r"[A-Za-z]")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is looked for in a text of small letters; where none of `needs` stands in it, nothing is found."""

    pattern: re.Pattern[str]
    needs: tuple[str, ...]

    def find(self, small: str) -> re.Match[str] | None:
        """The first match."""
        return self.pattern.search(small) if any(map(small.__contains__, self.needs)) else None


_LEAN_EN = _Rule(
    re.compile(
        r"\b(?:the|this|that) (?:doctor|physician|thread|post|poster|forum|reply|(?:original|reference) answer)\b"
        r"|\bas (?:mentioned|stated|described|noted) (?:above|below|earlier|in the)\b"
        r"|\bsame as (?:above|the)\b"
    ),
    (" doctor", " physician", " thread", " post", " forum", " reply", " original", " reference", "as "),
)
# Somebody speaking or spoken to: what stands alone has neither ("type I" and "grade I" are no speaker).
_SPEAKER_EN = _Rule(
    re.compile(
        r"\bi(?:'m|'ve|'d|'ll)\b|\bi (?:do|will|would|could|can|cannot|am|have|had|was|think|suggest|feel|believe"
        r"|hope|want|need|advise|recommend|say|see|agree|guess|know|understand|personally)\b"
        r"|\b(?:my|myself|you|your|yours|yourself)\b"
    ),
    ("i'", "i ", "my", "you"),
)
_SPEAKER_ZH = _Rule(re.compile(r"我(?!国)|您|你"), ("我", "您", "你"))
_LEAN_ZH = _Rule(
    re.compile(
        r"(?:该|这位|那位|上述|本)(?:医生|大夫|医师|帖|回复|回答)|医生(?:说|认为|建议|指出|回复)|如上所述|同上"
        r"|原帖|楼主"
    ),
    ("医生", "大夫", "医师", "帖", "回复", "回答", "如上所述", "同上", "楼主"),
)
_VERB_EN = (
    r"(?:recommend|state|advise|mention|suggest|explain|ask|identif(?:y|ie)|warn|describe|note|list|discourage|"
    r"encourage|refer|urge|instruct|clarif(?:y|ie))s?"
)
_TWO_EN = _Rule(
    re.compile(rf"\b(?:and|as well as)\b (?:also |then )?{_VERB_EN}\b|;\s+\w+"), ("and ", "as well as ", ";")
)
_TWO_ZH = _Rule(
    re.compile(r"[，,；;。]?(?:并且?|以及|同时|还)(?:建议|说明|指出|提到|告知|解释|询问|提醒|警告|推荐)|[；;]"),
    ("并", "以及", "同时", "还", "；", ";"),
)
_FAILS = re.compile(
    r"^\W*(?:fails? to|omits?|neglects?|incorrectly|wrongly|does not (?:mention|advise|recommend|state|warn)"
    r"|未能|没有(?:提到|建议|说明|告知|指出)|遗漏|错误地|忽视)"
)
_GOOD = re.compile(r"^\W*(?:advises? against|warns? (?:against|that)|correctly|appropriately|正确|恰当)")
_CRITICAL = (
    "emergenc", "immediate", "urgent", "ambulance", "911", "999", "life-threat", "life threat", "fatal", "death",
    "suicid", "overdose", "anaphyla", "contraindicat", "must not", "never", "call help", "call for help",
    "resuscitat", "sepsis", "stroke", "heart attack", "myocardial",
    "急诊", "急救", "立即", "马上", "尽快就医", "120", "危及生命", "致命", "死亡", "自杀", "过量", "禁用", "禁忌",
    "休克", "心梗", "卒中", "抢救",
)  # fmt: skip
_OTHER_CASE = (("ſ", "s"), ("ı", "i"), ("İ", "i"))
"""What a pattern that ignores case takes for s and i, and `str.lower` does not."""


def _small(text: str) -> str:
    """The text in small letters, character by character."""
    for odd, plain in _OTHER_CASE:
        text = text.replace(odd, plain)
    return text.lower()


def lint(
    language: str, criteria: Sequence[Criterion], advice_ids: frozenset[str], grounds: Grounds | None = None
) -> tuple[Finding, ...]:
    """Every fault of a rubric in `language` ("en" or "zh"); an empty tuple when there is none.

    Without `grounds` it is not asked what the criteria are made of.
    """
    findings: list[Finding] = []
    if len(criteria) < MIN_CRITERIA:
        findings.append(Finding(Fault.TOO_FEW, None, f"{len(criteria)} criteria, at least {MIN_CRITERIA}"))
    if len(criteria) > MAX_CRITERIA:
        findings.append(Finding(Fault.TOO_MANY, None, f"{len(criteria)} criteria, at most {MAX_CRITERIA}"))
    if not any(c.points > 0 for c in criteria):
        findings.append(Finding(Fault.NO_POSITIVE, None, "no criterion earns points"))
    for criterion in criteria:
        findings += _lint_one(language, criterion, advice_ids)
        if grounds is not None:
            findings += _lint_grounds(criterion, grounds)
    seen: list[tuple[Criterion, frozenset[str]]] = []
    for criterion in criteria:
        words, earns = _shingles(criterion.criterion), criterion.points > 0
        for earlier, others in seen:
            if _similar(words, others) and (earlier.points > 0) == earns:
                findings.append(Finding(Fault.DUPLICATE, criterion.id, f"says what {earlier.id} says"))
                break
        seen.append((criterion, words))
    return tuple(findings)


def repair(
    language: str, criteria: Sequence[Criterion], advice_ids: frozenset[str], grounds: Grounds | None = None
) -> tuple[tuple[Criterion, ...], tuple[Finding, ...]]:
    """The criteria without the faulty ones, cut to the most weighty 19, and the faults that still remain."""
    faulty = {f.criterion for f in lint(language, criteria, advice_ids, grounds)}
    kept = [c for c in criteria if c.id not in faulty]
    if len(kept) > MAX_CRITERIA:
        heaviest = sorted(kept, key=lambda c: (-abs(c.points), c.position))[:MAX_CRITERIA]
        kept = sorted(heaviest, key=lambda c: c.position)
    renumbered = tuple(replace(criterion, id=f"c{i}", position=i) for i, criterion in enumerate(kept, 1))
    return renumbered, lint(language, renumbered, advice_ids, grounds)


def _lint_one(language: str, c: Criterion, advice_ids: frozenset[str]) -> list[Finding]:
    text, found = c.criterion, []
    small = _small(text)

    def fault(kind: Fault, detail: str) -> None:
        found.append(Finding(kind, c.id, detail))

    if c.points == 0:
        fault(Fault.ZERO_POINTS, "points are never 0")
    if c.points > 0 and _FAILS.search(small):
        fault(Fault.POLARITY, "describes an error and earns points")
    if c.points < 0 and _GOOD.search(small):
        fault(Fault.POLARITY, "describes what is right and costs points")
    if abs(c.points) == 10 and c.axis is not Axis.SAFETY and not any(map(small.__contains__, _CRITICAL)):
        fault(Fault.LIFE_CRITICAL, "10 points are for what decides over life")
    if match := (
        _LEAN_EN.find(small) or _LEAN_ZH.find(small) or _SPEAKER_EN.find(small) or _SPEAKER_ZH.find(small)
    ):
        fault(Fault.NOT_STANDALONE, f"leans on {text[slice(*match.span())]!r}")
    if match := _TWO_EN.find(small) or _TWO_ZH.find(small):
        fault(Fault.TWO_FACTS, f"joins two facts at {text[slice(*match.span())].strip()!r}")
    if not _in_language(text, language):
        fault(Fault.LANGUAGE, f"is not in the case's language ({language})")
    if c.advice_id not in advice_ids:
        fault(Fault.UNKNOWN_ADVICE, f"{c.advice_id!r} is no advice element of the case")
    return found


def _lint_grounds(c: Criterion, grounds: Grounds) -> list[Finding]:
    own = grounds.advice.get(c.advice_id, "")
    found = []
    if c.fact is not None and not is_grounded(c.fact, own):
        found.append(Finding(Fault.UNGROUNDED, c.id, "its fact says more than the advice element"))
    if not (shares_content(c.criterion, own) or (c.points < 0 and shares_content(c.criterion, grounds.case))):
        found.append(Finding(Fault.UNGROUNDED, c.id, "has nothing in common with its advice element"))
    elif not is_grounded(c.criterion, own, grounds.case):
        found.append(Finding(Fault.UNGROUNDED, c.id, "is made of words that the case does not hold"))
    # An error may well be a number that nobody stated.
    if c.points > 0 and (missing := numbers_missing(c.criterion, own, grounds.case)):
        found.append(Finding(Fault.NUMBERS, c.id, f"asks for {', '.join(missing)[:80]}, which the case does not"))
    return found


def _in_language(text: str, language: str) -> bool:
    han = _han(text)
    if language == "zh":
        return han >= 2
    return han * 4 <= len(_LATIN.findall(text)) if han else _LATIN.search(text) is not None


def _han(text: str) -> int:
    """How many Chinese characters a text has."""
    return 0 if text.isascii() else sum(map(len, _CJK.findall(text)))


def _shingles(text: str) -> frozenset[str]:
    plain = folded(text)
    if _han(plain) * 2 > len(plain):
        chars = "".join(_WORDS.findall(plain))
        return frozenset(map(add, chars, chars[1:])) or frozenset((chars,))
    return frozenset(_WORDS.findall(plain))


def _similar(a: frozenset[str], b: frozenset[str]) -> bool:
    smaller, larger = (len(a), len(b)) if len(a) < len(b) else (len(b), len(a))
    if not larger or smaller / larger < NEAR_DUPLICATE:
        return False  # the sizes alone bound the similarity
    common = len(a & b)
    return common / (smaller + larger - common) >= NEAR_DUPLICATE
