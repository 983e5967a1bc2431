"""The sentences of a passage that speak to what was searched for: what a judge is shown of it.

Only whole sentences, with those that they refer back to and with their neighbours as far as there is room.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Final, NamedTuple

from medlive.evidence.sentences import Sentence, split_sentences
from medlive.text.normalise import fold

GAP: Final = " … "
"""Stands where words of the passage were left out."""
BETWEEN: Final = 4
"""Units of weight that are counted for what stands between two sentences: a gap at most."""
DEPTH: Final = 2
"""How far back a sentence that refers to another is followed; less far where there is no room."""
_LATIN: Final = re.compile(r"[a-z][a-z0-9-]{2,}")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_STEM: Final = 6
NEIGHBOUR: Final = 0.5
"""How much of its neighbours' worth counts for a sentence: what stands beside a match explains it."""


class Stretch(NamedTuple):
    """Words of a text without a gap."""

    words: str
    start: int  # Where they stand in the text
    cut_before: bool  # Whether they begin inside a sentence, for its length
    cut_after: bool
    joins: bool = False
    """Whether they read on from the stretch before: nothing between the two was left out."""

    @property
    def end(self) -> int:
        """Where they end in the text."""
        return self.start + len(self.words)


def render(stretches: Sequence[Stretch]) -> str:
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
) -> tuple[Stretch, ...]:
    """The sentences of `text` nearest to the phrases in `wanted`, with what they refer back to and their neighbours.

    Args:
        text: The passage.
        wanted: The phrases that were searched for, and the claims.
        units: What it is to weigh (medlive.text.tokens): whole sentences as far as they fit.
        limit: What one sentence alone may weigh where none fits into `units`; never less than these.
        known: Sentences that are shown elsewhere already, folded; they are left out.

    Returns:
        The stretches in their order; none where no sentence fits into `limit`.
    """
    sentences = split_sentences(text)
    worth = _worth(text, sentences, wanted)
    left_out = {
        number
        for number, own in enumerate(sentences)
        if known and fold(text[own.start : own.end]) in known
    }
    chosen = _Choice(sentences, units, left_out)
    order = sorted(range(len(sentences)), key=lambda number: (-worth[number], number))
    for number in order:
        if worth[number] > 0 or not chosen.numbers:
            chosen.add(number, limit)
    chosen.add_neighbours()
    return tuple(_stretches(text, sentences, chosen.numbers))


def _stretches(
    text: str, sentences: Sequence[Sentence], numbers: Collection[int]
) -> Iterator[Stretch]:
    """Neighbours joined."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        first, last = sentences[run[0]], sentences[run[-1]]
        yield Stretch(
            words=text[first.start : last.end],
            start=first.start,
            cut_before=first.cut_before,
            cut_after=last.cut_after,
        )


class _Choice:
    """Sentences that are chosen, each with all that it needs, as far as there is room."""

    def __init__(
        self, sentences: Sequence[Sentence], units: int, left_out: Collection[int]
    ) -> None:
        self._sentences = sentences
        # A mark at either end, where a sentence is cut.
        self._room = units - 2 * BETWEEN
        self._left_out = left_out
        self.numbers: set[int] = set()

    def add(self, number: int, limit: int = 0) -> None:
        """Add a sentence with what it needs, where that fits; the first of all may weigh `limit`."""
        if number in self.numbers or number in self._left_out:
            return
        for depth in (DEPTH, 1):
            if self._added(number, depth, self._room):
                return
        if not self.numbers:
            self._added(number, 1, limit - 2 * BETWEEN)

    def _added(self, number: int, depth: int, room: int) -> bool:
        """Whether the sentence and what it needs fit into the room, and so were added."""
        wanted = self._closure(number, depth) - self.numbers
        cost = sum(self._sentences[n].units + BETWEEN for n in wanted)
        if cost > room:
            return False
        self.numbers |= wanted
        self._room -= cost
        return True

    def _closure(self, number: int, depth: int) -> set[int]:
        """The sentence and those that it needs, and what those need, so many steps far."""
        closure = {number}
        latest = [number]
        for _ in range(depth):
            needs = [n for own in latest for n in self._sentences[own].needs]
            latest = [n for n in needs if n not in closure]
            closure.update(latest)
        return closure.difference(self._left_out)

    def add_neighbours(self) -> None:
        """Add the sentences around those that are chosen, the nearest first, what follows before what precedes."""
        if not self.numbers:
            return
        distance: dict[int, tuple[int, int]] = {}
        for number in range(len(self._sentences)):
            away = min((abs(number - c), number < c) for c in self.numbers)
            distance[number] = (away[0], away[1])
        for number in sorted(distance, key=lambda n: (distance[n], n)):
            self.add(number)


def _worth(
    text: str, sentences: Sequence[Sentence], wanted: Iterable[str]
) -> list[float]:
    """How much each sentence shares with what is wanted, and in part its neighbours.

    A word that stands in many of them counts little.
    """
    needed: frozenset[str] = frozenset().union(*map(_terms, wanted))
    shared = [needed & _terms(text[own.start : own.end]) for own in sentences]
    counts = Counter(term for own in shared for term in own)
    alone = []
    for own in shared:
        alone.append(sum(1 / math.sqrt(counts[term]) for term in sorted(own)))
    worth = []
    for number, value in enumerate(alone):
        beside = max(
            alone[max(0, number - 1) : number] + alone[number + 1 : number + 2],
            default=0,
        )
        worth.append(value + NEIGHBOUR * beside)
    return worth


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    data = files("medlive.evidence").joinpath("data/stop_words.txt")
    lines = data.read_text(encoding="utf-8").splitlines()
    words = " ".join(line for line in lines if not line.startswith("#")).split()
    return frozenset(words) | frozenset(
        ["the", "and", "for", "with", "that", "this", "are", "not", "but"]
    )


@lru_cache(maxsize=4096)
def _terms(text: str) -> frozenset[str]:
    """The beginnings of the Latin words of a text, and its Chinese characters in pairs."""
    lower = text.lower()
    terms = {
        word[:_STEM] for word in _LATIN.findall(lower) if word not in _stop_words()
    }
    for run in _HAN.findall(lower):
        terms.update(first + second for first, second in pairwise(run))
    return frozenset(terms - _stop_words())
