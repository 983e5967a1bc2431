"""The sentences of a passage that speak to what was searched for: what a judge is shown of it."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from medlive.evidence.corpora.parsing.chunk import sentences

GAP: Final = " … "
"""Stands where sentences of the passage were left out."""
_LATIN: Final = re.compile(r"[a-z][a-z0-9-]{2,}")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_STEM: Final = 6


def excerpt(text: str, needed: Iterable[str], *, limit: int) -> str:
    """The sentences of `text` that share most words with the phrases in `wanted`, in their order.

    Whole sentences up to about `limit` characters, at least one (cut where it is longer by itself); the whole text
    where it fits. " … " stands where sentences were left out.
    """
    if len(text) <= limit:
        return text
    terms = frozenset(term for phrase in needed for term in _terms(phrase))
    found = [sentence.strip() for sentence in sentences(text) if sentence.strip()]
    scores = [len(terms & _terms(sentence)) for sentence in found]
    chosen: list[int] = []
    length = 0
    for at in sorted(range(len(found)), key=lambda i: (-scores[i], i)):
        if not chosen or length + len(found[at]) <= limit:
            chosen.append(at)
            length += len(found[at])
    chosen.sort()
    parts = []
    for place, at in enumerate(chosen):
        joined = place and chosen[place - 1] == at - 1
        parts.append(
            ((" " if joined else GAP) if place else "") + _cut(found[at], limit)
        )
    return "".join(parts)


def _cut(sentence: str, limit: int) -> str:
    """A sentence that is too long up to its last whole word, and that it was cut."""
    if len(sentence) <= limit:
        return sentence
    whole = sentence[:limit].rpartition(" ")[0] or sentence[:limit]
    return whole + GAP.rstrip()


@lru_cache(maxsize=4096)
def _terms(text: str) -> frozenset[str]:
    """The beginnings of the Latin words of a text, and its Chinese characters in pairs."""
    lower = text.lower()
    found = {word[:_STEM] for word in _LATIN.findall(lower)}
    for run in _HAN.findall(lower):
        found.update(run[i : i + 2] for i in range(len(run) - 1))
    return frozenset(found)
