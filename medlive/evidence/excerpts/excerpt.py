"""The sentences of a passage that speak to what was searched for: what a judge is shown of it.

Only whole sentences, with those that they refer back to and with their neighbours as far as there is room.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from medlive.evidence.corpora.parsing.text import stop_words
from medlive.evidence.excerpts.sentences import Sentence, split_sentences
from medlive.text.normalise import fold

GAP = " … "
"""Stands where words of the passage were left out."""
BETWEEN = 4
"""Units of weight that are counted for what stands between two sentences: a gap at most."""
MATCHED = 0.7
"""The share of the room for what matches best; the rest joins it, so that it reads on."""
DEPTH = 2
"""How far back a sentence that refers to another is followed; less far where there is no room."""
_LATIN = re.compile(r"[a-z][a-z0-9-]{2,}")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_STEM = 6
_STOP_WORDS = stop_words() | frozenset(
    ("the", "and", "for", "with", "that", "this", "are", "not", "but")
)
NEIGHBOUR = 0.5
"""How much of its neighbours' worth counts for a sentence: what stands beside a match explains it."""


def render(stretches: Sequence[Sentence]) -> str:
    """The stretches as they are shown, with a gap where words were left out."""
    parts: list[str] = []
    for number, stretch in enumerate(stretches):
        if number:
            parts.append("\n" if stretch.joins else GAP)
        elif stretch.cut_before:
            parts.append(GAP.lstrip())
        parts.append(stretch.words)
    if stretches and stretches[-1].cut_after:
        parts.append(GAP.rstrip())
    return "".join(parts)


def excerpt(
    text: str,
    wanted: Iterable[str],
    *,
    units: int,
    limit: int,
    known: Collection[str] = frozenset(),
) -> tuple[Sentence, ...]:
    """The sentences of `text` nearest to the phrases in `wanted`, with what they refer back to and their neighbours.

    Args:
        text: The passage.
        wanted: The phrases that were searched for, and the claims.
        units: What it is to weigh (medlive.text.tokens): whole sentences as far as they fit.
        limit: What one sentence alone may weigh where none fits into `units`; never less than these.
        known: Sentences that are shown elsewhere already, folded; they are left out.

    Returns:
        The sentences in their order, neighbours as one; none where no sentence fits into `limit`.
    """
    sentences = split_sentences(text)
    worth = _worth(sentences, wanted)
    left_out = set()
    for number, own in enumerate(sentences):
        if known and fold(own.words) in known:
            left_out.add(number)
    chosen = _Choice(sentences, units, left_out)
    for number in sorted(range(len(sentences)), key=lambda n: -worth[n]):
        if worth[number] > 0 or not chosen.numbers:
            chosen.add(number, limit)
    chosen.join()
    stretches: list[Sentence] = []
    for number in sorted(chosen.numbers):
        own = sentences[number]
        if number - 1 in chosen.numbers:
            before = stretches.pop()
            words = text[before.start : own.end]
            own = replace(before, words=words, cut_after=own.cut_after)
        stretches.append(own)
    return tuple(stretches)


class _Choice:
    """Sentences that are chosen, each with all that it needs, as far as there is room."""

    def __init__(
        self,
        sentences: Sequence[Sentence],
        units: int,
        left_out: AbstractSet[int],
    ) -> None:
        self._sentences = sentences
        # A mark at either end, where a sentence is cut.
        self._room = units - 2 * BETWEEN
        self._kept = math.ceil(self._room * (1 - MATCHED))
        self._left_out = left_out
        self.numbers: set[int] = set()

    def add(self, number: int, limit: int) -> None:
        """Add a sentence that matches, with what it needs, where that fits.

        The first of all may take all the room, and if it must, weigh `limit`.
        """
        if number in self.numbers or number in self._left_out:
            return
        room = self._room - (self._kept if self.numbers else 0)
        for depth in (DEPTH, 1):
            if self._added(number, depth, room):
                return
        if not self.numbers:
            self._added(number, 1, limit - 2 * BETWEEN)

    def join(self) -> None:
        """Fill the gaps, the smallest first; then add the sentences around, the nearest first."""
        if not self.numbers:
            return
        chosen = sorted(self.numbers)
        gaps = [range(left + 1, right) for left, right in pairwise(chosen)]
        for gap in sorted(gaps, key=lambda gap: (self._cost(gap), gap.start)):
            if self._left_out.isdisjoint(gap) and self._cost(gap) <= self._room:
                self._room -= self._cost(gap)
                self.numbers.update(gap)
        distance: dict[int, tuple[int, bool]] = {}
        for number in range(len(self._sentences)):
            if number not in self._left_out:
                distance[number] = min((abs(number - c), number < c) for c in chosen)
        for number in sorted(distance, key=lambda n: (distance[n], n)):
            self._added(number, DEPTH, self._room)

    def _cost(self, numbers: Iterable[int]) -> int:
        return sum(self._sentences[n].units + BETWEEN for n in numbers)

    def _added(
        self,
        number: int,
        depth: int,
        room: int,
    ) -> bool:
        """Whether the sentence and what it needs fit into the room, and so were added."""
        # The sentence and those that it needs, and what those need, so many steps far.
        closure, latest = {number}, [number]
        for _ in range(depth):
            needs = [n for own in latest for n in self._sentences[own].needs]
            latest = [n for n in needs if n not in closure]
            closure.update(latest)
        wanted = closure - self._left_out - self.numbers
        if self._cost(wanted) > room:
            return False
        self._room -= self._cost(wanted)
        self.numbers |= wanted
        return True


def _worth(sentences: Sequence[Sentence], wanted: Iterable[str]) -> list[float]:
    """How much each sentence shares with what is wanted, and in part its neighbours.

    A word that stands in many of them counts little.
    """
    needed: frozenset[str] = frozenset().union(*map(_terms, wanted))
    shared = [needed & _terms(own.words) for own in sentences]
    counts = Counter(term for own in shared for term in own)
    alone = []
    for own in shared:
        rarities = [1 / math.sqrt(counts[term]) for term in sorted(own)]
        alone.append(sum(rarities))
    padded = [0.0, *alone, 0.0]
    worth = []
    for number, value in enumerate(alone):
        worth.append(value + NEIGHBOUR * max(padded[number], padded[number + 2]))
    return worth


@lru_cache(maxsize=4096)
def _terms(text: str) -> frozenset[str]:
    """The beginnings of the Latin words of a text, and its Chinese characters in pairs."""
    lower = text.lower()
    terms = {word[:_STEM] for word in _LATIN.findall(lower) if word not in _STOP_WORDS}
    for run in _HAN.findall(lower):
        terms.update(first + second for first, second in pairwise(run))
    return frozenset(terms - _STOP_WORDS)
