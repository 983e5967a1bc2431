"""Words that point to one of the 38 specialties, English and Chinese, and the specialty they add up to."""

import re
from collections import Counter
from importlib.resources import files
from typing import Final

from medlive.llm.rules.text import plain

UNKNOWN: Final = "unknown"


def _compiled(terms: str) -> re.Pattern[str]:
    english = [t.replace("_", " ") for t in terms.split() if t.isascii()]
    chinese = [t for t in terms.split() if not t.isascii()]
    parts = [rf"(?<![a-z])(?:{'|'.join(english)})(?![a-z])"] if english else []
    return re.compile("|".join([*parts, *chinese]))


def _read() -> dict[str, re.Pattern[str]]:
    text = files("medlive.llm.rules").joinpath("data", "specialties.txt").read_text(encoding="utf-8")
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: _compiled(terms) for name, _, terms in lines}


_PATTERNS: Final = _read()
NAMES: Final = frozenset(_PATTERNS)


def specialty_of(query: str, narrative: str, advice: str) -> str:
    """The specialty whose words weigh most, the query's thrice; "unknown" without two points or with a tie."""
    scores = dict.fromkeys(_PATTERNS, 0.0)
    for text, weight in ((query, 3.0), (narrative, 1.0), (advice, 1.0)):
        folded = plain(text[:20_000])
        for name, pattern in _PATTERNS.items():
            kinds = Counter(match.group() for match in pattern.finditer(folded))
            # A word said ten times is not ten hints.
            scores[name] += weight * sum(min(count, 2) for count in kinds.values())
    (best, score), (_, second) = sorted(scores.items(), key=lambda item: -item[1])[:2]
    return best if score >= 2 and score > second else UNKNOWN
