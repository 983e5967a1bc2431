"""The words of the rules engine: what is clinical, what carries no content, and a small bilingual glossary."""

import re
from collections import Counter
from functools import cache

from medlive.llm.rules.text import plain, stem, words
from medlive.text.lists import read_lists

_PACKAGE = "medlive.llm.rules"
_EN = read_lists(_PACKAGE, "words_en.txt")
_ZH = read_lists(_PACKAGE, "words_zh.txt")


def _stems(section: str) -> frozenset[str]:
    return frozenset(stem(word) for line in _EN[section] for word in line.split())


def _pattern(section: str) -> re.Pattern[str]:
    return re.compile("|".join(" ".join(_ZH[section]).split()))


DRUGS = _stems("drugs")  # Stems of names of drugs
# Stems of words that make an English sentence clinical
CLINICAL = _stems("clinical") | DRUGS
# Stems that say nothing about what an English sentence is about
CONTENT_STOP = _stems("stop")
CLINICAL_ZH = _pattern("clinical")
STOP_ZH = _pattern("stop")
GLOSSARY = tuple(
    (tuple(spellings.split("|")), english)
    for spellings, _, english in (s.partition("=") for s in _ZH["glossary"])
)
_DRUG = re.compile(
    r"[a-z]{2,}(?:cillin|mycin|floxacin|conazole|prazole|nidazole|pril|sartan|olol|statin|dipine|tidine|profen|coxib"
    r"|azepam|triptan|gliptin|gliflozin|formin|parin|xaban|mab|tinib|vir|solone|sone|terol|setron|oxetine|thiazide"
    r"|semide|lukast|cycline|caine|apine|idone|piprazole|dronate|gestrel|glutide|pentin|racetam|quine)"
)


def is_drug(word: str) -> bool:
    """Whether an English word names a drug."""
    return stem(word) in DRUGS or _DRUG.fullmatch(word) is not None


def clinical_words(text: str) -> list[str]:
    """The clinical words of a text, in order: English ones as stems."""
    stems = [stem(w) for w in words(text) if stem(w) in CLINICAL or is_drug(w)]
    return stems + CLINICAL_ZH.findall(text)


@cache
def glosses(text: str) -> tuple[str, ...]:
    """The English words for each term of the glossary that a Chinese text holds."""
    return tuple(
        dict.fromkeys(
            word
            for spellings, english in GLOSSARY
            if any(s in text for s in spellings)
            for word in english.split()
        )
    )


UNKNOWN = "unknown"


def _compiled(terms: str) -> re.Pattern[str]:
    english = [t.replace("_", " ") for t in terms.split() if t.isascii()]
    chinese = [t for t in terms.split() if not t.isascii()]
    parts = [rf"(?<![a-z])(?:{'|'.join(english)})(?![a-z])"] if english else []
    return re.compile("|".join([*parts, *chinese]))


def _read_specialties() -> dict[str, re.Pattern[str]]:
    patterns = {}
    for line in read_lists(_PACKAGE, "specialties.txt")[""]:
        name, _, terms = line.partition(":")
        patterns[name] = _compiled(terms)
    return patterns


_SPECIALTIES = _read_specialties()


def specialty_of(query: str, narrative: str, advice: str) -> str:
    """The specialty whose words weigh most, the query's thrice; "unknown" without two points or with a tie."""
    scores = dict.fromkeys(_SPECIALTIES, 0.0)
    for text, weight in ((query, 3.0), (narrative, 1.0), (advice, 1.0)):
        folded = plain(text[:20_000])
        for name, pattern in _SPECIALTIES.items():
            kinds = Counter(match.group() for match in pattern.finditer(folded))
            # A word said ten times is not ten hints.
            scores[name] += weight * sum(min(count, 2) for count in kinds.values())
    (best, score), (_, second) = sorted(scores.items(), key=lambda item: -item[1])[:2]
    return best if score >= 2 and score > second else UNKNOWN
