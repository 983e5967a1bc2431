"""Choose what a judge is shown of the passages found for a case's claims, within a budget of tokens: `select`.

Passages are taken rank by rank, so that each claim has its best before any has its second; then, as far as the budget
goes, more is shown of each, the best first. Pieces of one section are one passage, and a text that two corpora hold, or
a chunk that overlaps another, is shown once.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, zip_longest

from medlive.evidence.passage import Hit, Passage
from medlive.text.normalise import contains_quote, fold
from medlive.text.tokens import UNITS, estimate_tokens, weight

from .excerpt import Sentence, excerpt, render, split_sentences

WIDTH = 180
"""Tokens shown of a piece at first: about 700 Latin characters, with which judges found more support than with 260."""
LEAST_WIDTH = 60
"""Tokens shown of a piece where there are many claims; a sentence that is longer is given whole."""
SEARCHED = 4
"""Hits to search for, for each passage of a claim: long sections give many hits, of which one counts."""
EACH = 3
"""Passages of each claim that are to have room, before any is widened."""
FRAME = 16
"""Tokens of a passage besides title and text: its id, the keys, the marks around them."""
TITLE = 80
"""Characters shown of a document's title."""
SECTION = 60
"""Characters shown of a section's heading."""
ALIKE = 0.8
"""The share of the shorter text's shingles that two near-identical texts have in common."""
SHINGLE = 4  # Words
_WORD = re.compile(r"[\u3040-\u9fff]|[^\W_\u3040-\u9fff]+")
LEAST_KNOWN = 60
"""Units of weight of a sentence; one as heavy or heavier is not shown twice."""


@dataclass(frozen=True)
class ShownPassage:
    """A section of a document as a judge is shown it."""

    id: str  # `<corpus>:<document>:<section>`
    title: str  # The document's title and the section's heading
    text: str  # Whole sentences; " … " where others were left out
    stretches: tuple[str, ...]  # The words between gaps; a quote must be within one
    hits: tuple[Hit, ...]  # Its pieces in reading order, each with what is shown of it

    @property
    def tokens(self) -> int:
        """What it costs of the budget."""
        return _cost(self.title, self.text)

    def has(self, quote: str) -> bool:
        """Whether what is shown has the quote without a gap."""
        return any(contains_quote(quote, words) for words in self.stretches)

    def cite(self, quote: str) -> tuple[tuple[str, str], ...]:
        """(id of the piece, words) of a quote that is shown: two where it runs from one piece to the next."""
        for hit in self.hits:
            if contains_quote(quote, hit.passage.text):
                return ((hit.passage.id, quote),)
        for first, second in pairwise(self.hits):
            for at in range(1, len(quote)):
                halves = (first.passage, quote[:at]), (second.passage, quote[at:])
                if all(contains_quote(half, p.text) for p, half in halves):
                    return tuple((p.id, half.strip()) for p, half in halves)
        return ((self.hits[0].passage.id, quote),)


def select(
    wanted: Sequence[Sequence[str]],
    hits: Sequence[Sequence[Hit]],
    *,
    most: int,
    tokens: int,
) -> tuple[list[ShownPassage], list[list[Hit]]]:
    """Choose what is shown of the hits of all claims.

    Args:
        wanted: For each claim its search phrases and its own text.
        hits: For each claim its hits, the best first; give more than `most`, because of several hits in one section,
            or of one text, only the best counts.
        most: The most passages of a claim.
        tokens: The most that all passages may cost together (`ShownPassage.tokens`).

    Returns:
        The passages, the best first; and for each claim its hits, one a section, each with what is shown of it.
        The same for the same arguments; claims that find the same passage share it.
    """
    case = _Case(wanted, hits, most, tokens)
    share = tokens // (EACH * max(1, len(hits)))
    width = max(LEAST_WIDTH, min(WIDTH, share))
    for identity in case.phrases:
        case.show(identity, width * UNITS)
    for identity in case.phrases:
        case.widen(identity)
    return case.passages(), case.hits()


Shown = dict[str, tuple[Sentence, ...]]
"""Id of a piece → what is shown of it."""


class _Case:
    """The passages of a case while they are chosen."""

    def __init__(
        self,
        wanted: Sequence[Sequence[str]],
        hits: Sequence[Sequence[Hit]],
        most: int,
        room: int,
    ) -> None:
        self.phrases: dict[str, dict[str, None]] = {}
        """Id of a passage → phrases that it was found for; every claim's best passage first, then every second, …"""
        self._room = room  # Tokens that are left
        # Id of a passage → of the passage that is shown for it: itself, or an earlier one with nearly the same text
        self._instead: dict[str, str] = {}
        self._hits: dict[str, Hit] = {}
        self._sections: dict[str, list[Hit]] = {}  # In reading order
        self._costs: dict[str, int] = {}  # Of the sections of which something is shown
        self._shown: Shown = {}
        self._own = [self._distinct(hits_of_claim, most) for hits_of_claim in hits]
        for rank in zip_longest(*self._own):
            for phrases, hit in zip(wanted, rank, strict=True):
                if hit is not None:
                    known = self.phrases.setdefault(hit.passage.id, {})
                    known.update(dict.fromkeys(phrases))
        for identity in self.phrases:
            hit = self._hits[identity]
            self._sections.setdefault(hit.passage.section_id, []).append(hit)
        for pieces in self._sections.values():
            pieces.sort(key=lambda hit: (hit.passage.piece, hit.passage.id))

    def _distinct(self, hits: Sequence[Hit], most: int) -> list[Hit]:
        """A claim's best `most` hits, one a section; a repeated text counts as the passage that first had it."""
        sections: dict[str, Hit] = {}
        for hit in hits:
            if len(sections) == most:
                break
            identity = hit.passage.id
            if identity not in self._instead:
                own, same = shingles(hit.passage.text), identity
                for other, known in self._hits.items():
                    shared = own & shingles(known.passage.text)
                    if len(shared) >= ALIKE * len(own):
                        same = other
                        break
                self._instead[identity] = same
                self._hits.setdefault(same, hit)
            passage = self._hits[self._instead[identity]].passage
            sections.setdefault(passage.section_id, replace(hit, passage=passage))
        return list(sections.values())

    def show(self, identity: str, units: int) -> None:
        """Show a piece, about `units` of it, if there is room."""
        section = self._hits[identity].passage.section_id
        title = 0 if section in self._costs else _cost(self._title_of(section), "")
        limit = (self._room - title - 1) * UNITS
        self._set(identity, min(units, limit), limit)

    def widen(self, identity: str) -> None:
        """Show more of a piece that is shown, as far as there is room."""
        if identity in self._shown:
            shown = weight(render(self._shown[identity]))
            limit = shown + (self._room - 1) * UNITS
            self._set(identity, limit, limit, least=shown + 1)

    def _set(
        self,
        identity: str,
        units: int,
        limit: int,
        least: int = 1,
    ) -> None:
        """Show `units` of a piece, at least `least`, unless its section would then repeat another."""
        passage = self._hits[identity].passage
        known: set[str] = set()
        for other, stretches in self._shown.items():
            if other != identity:
                known |= _long_sentences(stretches)
        piece = excerpt(
            passage.text,
            self.phrases[identity],
            units=units,
            limit=limit,
            known=known,
        )
        if weight(render(piece)) < least:
            return
        section = passage.section_id
        changed = self._shown | {identity: piece}
        text = render(self._stretches(section, changed))
        for other in self._costs.keys() - {section}:
            if alike(text, render(self._stretches(other, self._shown))):
                return
        cost = _cost(self._title_of(section), text)
        self._room -= cost - self._costs.get(section, 0)
        self._costs[section] = cost
        self._shown = changed

    def _title_of(self, section: str) -> str:
        """The document's title, and the section's heading where it says more."""
        passage = self._sections[section][0].passage
        title = textwrap.shorten(passage.title, TITLE, placeholder=" …")
        heading = textwrap.shorten(passage.section, SECTION, placeholder=" …")
        if heading.casefold() in title.casefold():
            return title
        return f"{title}: {heading}" if title else heading

    def _stretches(self, section: str, shown: Shown) -> list[Sentence]:
        """What is shown of a section; a stretch `joins` the one before if nothing between them is left out."""
        joined: list[Sentence] = []
        previous: Passage | None = None
        for hit in self._sections[section]:
            passage = hit.passage
            if passage.id not in shown:
                continue
            first, *rest = shown[passage.id]
            joins = (
                previous is not None
                and passage.piece == previous.piece + 1
                and first.start == 0
                and joined[-1].end == len(previous.text)
            )
            joined += [replace(first, joins=joins), *rest]
            previous = passage
        return joined

    def passages(self) -> list[ShownPassage]:
        """The sections of which something is shown."""
        passages = []
        for section, hits in self._sections.items():
            if section not in self._costs:
                continue
            stretches = self._stretches(section, self._shown)
            readable: list[str] = []
            for stretch in stretches:
                before = f"{readable.pop()}\n" if stretch.joins else ""
                readable.append(before + stretch.words)
            pieces = [self._with_words(hit) for hit in hits]
            passage = ShownPassage(
                id=section,
                title=self._title_of(section),
                text=render(stretches),
                stretches=tuple(readable),
                hits=tuple(hit for hit in pieces if hit.shown),
            )
            passages.append(passage)
        return passages

    def hits(self) -> list[list[Hit]]:
        """Each claim's hits."""
        return [list(map(self._with_words, hits)) for hits in self._own]

    def _with_words(self, hit: Hit) -> Hit:
        """The hit with what is shown of its passage."""
        return replace(hit, shown=render(self._shown.get(hit.passage.id, ())))


def _cost(title: str, text: str) -> int:
    return FRAME + estimate_tokens(title) + estimate_tokens(text)


@lru_cache(maxsize=512)
def _long_sentences(stretches: tuple[Sentence, ...]) -> frozenset[str]:
    """The folded sentences of some stretches that are too long to be shown twice."""
    long = set()
    for stretch in stretches:
        for own in split_sentences(stretch.words):
            if own.units >= LEAST_KNOWN:
                long.add(fold(own.words))
    return frozenset(long)


def alike(text: str, other: str) -> bool:
    """Whether two texts are near-identical, or one holds nearly all of the other."""
    first, second = shingles(text), shingles(other)
    return len(first & second) >= ALIKE * min(len(first), len(second))


@lru_cache(maxsize=512)
def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The runs of four words of a text; a Chinese character is a word, and a shorter text one run."""
    words = _WORD.findall(fold(text))
    runs = range(max(1, len(words) - SHINGLE + 1))
    return frozenset(tuple(words[n : n + SHINGLE]) for n in runs)
